"""A live worker says of an id, or a scope, what its committed state holds, at once, and of nothing else."""

from __future__ import annotations

import base64
import json
import statistics
import time
import urllib.error
import urllib.request
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from tests.support.kafka.topics import New, create_topic, group_offsets, until
from tests.support.worker.process import PipelineConfig, Worker, WorkerConfig, new_config, produce, start_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.support.chromium.browser import Chromium
    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

NOW_MS = int(time.time() * 1000) - 10_000
ID = [{"from": "value", "pointer": "/id"}, {"from": "key"}]
IDS: dict[str, Any] = {"mode": "insert-id", "id": ID, "window": "1h"}
BLOOM = {"bucket": "10m", "expected_per_bucket": 1_000}
PIPELINES: dict[str, dict[str, Any]] = {
    "exact": IDS,
    "filters": {**IDS, "backend": "bloom", "bloom": BLOOM},
    "routed": {**IDS, "route": "by-id"},
    "scoped": {"scope": "key", "epoch": {"from": "header", "name": "epoch", "format": "int64"}},
    "whole": {},
}
RECORDS = 40


def records() -> list[New]:
    """Return records of which the fourth has a number for an id, and the last is a duplicate of the first."""
    headers = [("seq", number.to_bytes(8, "big")) for number in range(RECORDS)]
    epoch = ("epoch", (7).to_bytes(8, "big"))
    values = [b'{"id": %s}' % (b"3" if number == 3 else b'"%d"' % number) for number in range(RECORDS)]
    rows = [
        New(b"k", value, (header, epoch), NOW_MS + number)
        for number, (value, header) in enumerate(zip(values, headers, strict=True))
    ]
    return [*rows, rows[0]._replace(timestamp=NOW_MS + 100)]


@pytest.fixture(scope="module")
def asked(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """Return a worker that has taken everything in."""
    config = new_config(broker.bootstrap_servers, tmp_path_factory.mktemp("ids"), 2, slots=2)
    first = config.source
    pipelines = []
    for name, dedup in PIPELINES.items():
        source = f"{first}.{name}"
        create_topic(config.bootstrap_servers, source, 2)
        produce(config.bootstrap_servers, source, records(), partition=1)
        pipelines.append(PipelineConfig(name, source, f"{source}.clean", dedup=dedup))
    config = replace(config, pipelines=tuple(pipelines))
    with start_worker(config) as worker:
        worker.wait_ready()
        for each in pipelines:
            until(partial(_taken, config, each.source), f"{each.name} is taken in", 120)
        until(lambda: len(_remembered(worker, "routed", "39", "k")) == 1, "routed ids are judged", 120)
        yield worker


def _taken(config: WorkerConfig, source: str) -> bool:
    return group_offsets(config.bootstrap_servers, config.application_id).get((source, 1)) == RECORDS + 1


def _ask(worker: Worker, **query: Any) -> tuple[int, dict[str, Any]]:
    status, body = worker.get(f"/ids?{urlencode(query, doseq=True)}")
    return status, json.loads(body)


def _remembered(worker: Worker, pipeline: str, *words: str) -> list[dict[str, Any]]:
    status, said = _ask(worker, pipeline=pipeline, id=words)
    assert status == 200, said
    assert [each["partition"] for each in said["partitions"]] == [0, 1]
    return [each for partition in said["partitions"] for each in partition["remembered"]]


@pytest.mark.parametrize("pipeline", ["exact", "routed"])
def test_an_id_is_answered_with_the_record_that_passed_and_until_when(asked: Worker, pipeline: str) -> None:
    (one,) = _remembered(asked, pipeline, "text:5", "k")

    source = one["owner"]["topic"]
    assert one == {
        "as": ["string", "bytes"],
        "owner": {"topic": source, "partition": 1, "offset": 5},
        "reading": NOW_MS + 5,
        "expires_at": NOW_MS + 5 + 3_600_000,
    }
    assert source.endswith(f".{pipeline}")
    assert not _remembered(asked, pipeline, "5", "another key")


def test_a_word_that_reads_as_a_number_asks_for_both(asked: Worker) -> None:
    (number,) = _remembered(asked, "exact", "3", "k")
    (string,) = _remembered(asked, "exact", "4", "k")

    assert (number["as"], string["as"]) == (["number", "bytes"], ["string", "bytes"])
    assert not _remembered(asked, "exact", '"3"', "k")
    assert len(_remembered(asked, "exact", "json:3", "base64:aw==")) == 1


def test_filters_know_no_record(asked: Worker) -> None:
    (one,) = _remembered(asked, "filters", "text:5", "k")

    assert one == {"as": ["string", "bytes"], "owner": None, "reading": None, "expires_at": None}
    assert not _remembered(asked, "filters", "text:no such id", "k")


def test_a_scope_is_answered_with_its_watermark(asked: Worker) -> None:
    def marks(**query: Any) -> list[dict[str, Any]]:
        status, said = _ask(asked, **query)
        assert status == 200, said
        return [
            {name: value for name, value in each.items() if name != "partition"} for each in said["partitions"]
        ]

    nothing = {"watermark": None}
    assert marks(pipeline="scoped", scope="k") == [
        nothing,
        {"watermark": RECORDS - 1, "epoch": 7, "in_flight": False},
    ]
    assert marks(pipeline="scoped", scope="base64:aw==")[1]["watermark"] == RECORDS - 1
    assert marks(pipeline="scoped", scope="nobody") == [nothing, nothing]
    assert marks(pipeline="whole", scope="")[1] == {"watermark": RECORDS - 1, "epoch": None, "in_flight": False}


def test_the_search_field_of_the_page_asks_every_pipeline_or_one(chromium: Chromium, asked: Worker) -> None:
    def said(page: Page, text: str, kind: str, *last: str) -> str:
        page.locator("#kind").select_option(kind)
        page.locator("#query").fill(text)
        page.keyboard.press("Enter")
        for each in last:
            page.locator("#story").get_by_text(each).first.wait_for()
        return page.locator("#story").inner_text()

    def act(page: Page) -> dict[str, str]:
        page.get_by_text("1 of 1 worker ready").wait_for()
        return {
            "all": said(page, "5 k", "", "Taken as an id", "scoped"),
            "few": said(page, "5", "exact", "Its ids have 2 parts"),
            "scope": said(page, "k", "scoped", "Known in 1 partition; 2 of 2 partitions answered"),
            "kinds": page.locator("#kind").inner_text(),
            "brought": page.evaluate(
                "rememberedRow({partition: 0}, {as: [], owner: null, reading: 1, expires_at: 1})[1]"
            ),
        }

    look = chromium.look(f"http://127.0.0.1:{asked.web_port}/", act, width=360)

    every = look.seen["all"]
    assert every.count("Known in 1 partition; 2 of 2 partitions answered") == 3
    assert every.count(":1:5") == 2  # filters know no record
    assert every.count("only filters know it") == 1
    assert every.count("Not known; 2 of 2 partitions answered") == 1  # of the scope with this name
    assert look.seen["few"].count("Known") == 0
    assert f"\n{RECORDS - 1}\n7\n" in look.seen["scope"]  # the watermark, and the epoch
    assert look.seen["kinds"].count("an id of") == 3
    assert "whole" not in look.seen["kinds"]
    assert look.seen["brought"] == "a record that a backfill has brought"
    assert look.errors == []


def test_words_are_asked_for_as_bytes_and_what_is_no_text_is_not_read_as_something_else(asked: Worker) -> None:
    bytes_of = urlencode([("id64", base64.b64encode(word).decode()) for word in (b"text:5", b"k")])
    _, told = asked.get(f"/ids?pipeline=exact&{bytes_of}")
    status, refused = asked.get("/ids?pipeline=exact&id=text:5&id=%FF")

    assert sum(len(each["remembered"]) for each in json.loads(told)["partitions"]) == 1
    assert (status, "ask for other bytes by id64" in refused) == (400, True)


def test_an_answer_holds_no_id_and_no_key(asked: Worker) -> None:
    _, body = asked.get("/ids?pipeline=exact&id=text:no-such-id-4711&id=k-4712")

    assert "4711" not in body
    assert "4712" not in body


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ({"id": "1"}, 400, "name one pipeline: exact, filters"),
        ({"pipeline": "exact", "id": "1"}, 400, "have 2 parts, and 1 were given"),
        ({"pipeline": "exact", "scope": "k"}, 400, "ask for id=WORD"),
        ({"pipeline": "whole", "id": "1"}, 400, "ask for scope=TEXT"),
        ({"pipeline": "exact", "id": ["1", "k"], "more": "1"}, 400, "there are id, id64, pipeline, scope"),
        ({"pipeline": "exact", "id": ["1"] * 17}, 400, "one per part"),
        ({"pipeline": "scoped", "scope": "x" * 2_049}, 400, "up to 2,048 bytes"),
        ({"pipeline": "exact", "id": ["x" * 4_096, "k"]}, 414, "path and query take up to"),
    ],
)
def test_what_cannot_be_asked_is_said(asked: Worker, query: dict[str, Any], status: int, said: str) -> None:
    code, answer = _ask(asked, **query)

    assert code == status
    assert said in answer["error"]


@pytest.mark.parametrize("header", [{"Origin": "http://example.org"}, {"Host": "example.org"}])
def test_a_foreign_page_learns_nothing(asked: Worker, header: dict[str, str]) -> None:
    url = f"http://127.0.0.1:{asked.web_port}/ids?pipeline=exact&id=5&id=k"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, headers=header), timeout=10)

    with refused.value as error:
        assert error.code == 403
        assert b"owner" not in error.read()


def test_half_of_the_answers_take_less_than_50_ms(asked: Worker) -> None:
    took = []
    for number in range(60):
        began = time.perf_counter()
        assert len(_remembered(asked, "exact", f"text:{number % 3}", "k")) == 1
        took.append(time.perf_counter() - began)

    assert statistics.median(took) < 0.05
