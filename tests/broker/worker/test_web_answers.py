"""What does a running worker say over HTTP, to whom, and what does it keep to itself?"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.worker.process import New, new_config, produce, read_topic, start_worker, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kafka.broker import Broker
    from tests.support.worker.process import Worker, WorkerConfig

pytestmark = pytest.mark.broker

SECRET = b"0SECRET0"
"""In every id, key, value and other header of the records: nothing of the worker has it."""
NOW_MS = int(time.time() * 1000)
OPEN = ("/health", "/ready", "/metrics")
GUARDED = (
    "/",
    "/status.json",
    "/status.json?workers=all",
    "/explain?q=x",
    "/receipts.json?pipeline=p",
    "/ids?id=x",
)


def record(number: int, *, is_id: bool = True) -> New:
    name = "id" if is_id else "other"
    return New(
        SECRET + b"key", SECRET + b"value%d" % number, ((name, SECRET + b"id%d" % number),), NOW_MS + number
    )


def said(worker: Worker, path: str, **headers: str) -> tuple[int, str, Any]:
    """Return status, body and headers of a page."""
    request = urllib.request.Request(f"http://127.0.0.1:{worker.web_port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - of this machine
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


@pytest.fixture(scope="module")
def config(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> WorkerConfig:
    """Ids, some of them twice, and a record without one."""
    folder = tmp_path_factory.mktemp("answers")
    config = new_config(broker.bootstrap_servers, folder, 2).with_quarantine().with_duplicates()
    dedup = {"mode": "insert-id", "id": [{"from": "header", "name": "id"}], "window": "1d"}
    config = replace(config, pipelines=(replace(config.pipelines[0], dedup=dedup),))
    some = [record(number) for number in (*range(30), *range(10))]
    produce(config.bootstrap_servers, config.source, [*some, record(0, is_id=False)])
    return config


@pytest.fixture(scope="module")
def worker(config: WorkerConfig) -> Iterator[Worker]:
    with start_worker(config) as running:
        running.wait_ready()
        until(lambda: status(running)["records"]["duplicate"] == 10, "all are judged")
        yield running


def status(worker: Worker) -> dict[str, Any]:
    """Return what a worker says of its one pipeline."""
    (pipeline,) = json.loads(worker.get("/status.json")[1])["pipelines"]
    return dict(pipeline)


def test_the_status_says_what_was_judged_and_where_it_stands(worker: Worker, config: WorkerConfig) -> None:
    whole = json.loads(said(worker, "/status.json")[1])
    pipeline = status(worker)

    assert (whole["application"], whole["worker"]["ready"]) == (config.application_id, True)
    assert pipeline["records"] == {"pass": 30, "duplicate": 10, "late": 0, "quarantine": 1}
    assert pipeline["quarantined"] == {"header_missing": 1}
    assert (pipeline["lag"], pipeline["ids"], pipeline["source_partitions"]) == (0, 30, 2)
    assert 0 < pipeline["commit"]["p50_ms"] <= pipeline["commit"]["p99_ms"]
    slots = {slot["slot"]: (slot["state"], slot["partitions"]) for slot in pipeline["slots"]}
    assert {number: state for number, (state, _) in slots.items()} == {0: "working", 1: "working"}
    assert [each["position"] for each in slots[0][1]] == [41]


def test_the_page_on_the_dashboard_names_every_field(worker: Worker) -> None:
    whole = json.loads(said(worker, "/status.json?workers=all")[1])
    (row,) = whole["workers"]
    fields = {*whole, *row, *row["status"], *row["status"]["worker"], *status(worker)}
    fields |= {*status(worker)["slots"][0], *status(worker)["history"], *status(worker)["commit"]}
    page = Path("docs/dashboard.md").read_text()

    assert sorted(field for field in fields if f"`{field}`" not in page) == []


def test_pages_of_others_and_rebound_names_get_nothing_but_what_probes_ask(worker: Worker) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
    ):
        assert {path: said(worker, path, **headers)[0] for path in GUARDED} == dict.fromkeys(GUARDED, 403)
        assert {path: said(worker, path, **headers)[0] for path in OPEN} == dict.fromkeys(OPEN, 200)


def test_rubbish_is_refused_in_a_sentence_and_the_worker_goes_on(worker: Worker, config: WorkerConfig) -> None:
    source = config.source
    for path in (
        "/status.json?workers=none",
        "/status.json?workers=all&workers=all",
        "/explain",
        "/explain?q=",
        "/explain?q=%00%1b%5b2J",
        "/explain?q=../../etc/passwd:0:0",
        f"/explain?q={source}:0",
        f"/explain?q={source}:0:-1",
        f"/explain?q={source}:99:0",
        f"/explain?q={source}:0:99999999999999999999",
        f"/explain?q={source}:0:0&q={source}:0:1",
        f"/explain?q={source}:0:0&contents=1",
        f"/explain?q={config.changelog}:0:0",
        "/explain?q=%ff%fe:0:0",
        "/ids",
        "/ids?id=a&id=b&pipeline=p&x=1",
        "/ids?workers=none&id=a&pipeline=p",
    ):
        code, body, _ = said(worker, path)
        assert code == 400, (path, body)
        assert body.isprintable()
        assert json.loads(body)["error"]
    assert said(worker, f"/explain?q={'x' * 5000}")[0] == 414
    assert said(worker, "/../../etc/passwd")[0] == 404
    assert said(worker, "/ready")[0] == 200


def test_nothing_of_a_record_leaves_a_worker_that_may_not_show_receipts(
    worker: Worker, config: WorkerConfig
) -> None:
    topics = (config.source, config.sink, config.duplicates, config.quarantine)
    explained = [f"/explain?q={topic}:0:{offset}" for topic in topics for offset in (0, 30, 40)]
    asked = f"/ids?pipeline=p&id={SECRET.decode()}id1"
    everywhere = f"{asked}&workers=all"
    told = {path: said(worker, path) for path in (*OPEN, *GUARDED, *explained, asked, everywhere, "/nowhere")}

    assert [path for path, (_, body, headers) in told.items() if SECRET.decode() in body + str(headers)] == []
    assert told[asked][0] == told[everywhere][0] == 200
    assert json.loads(told[everywhere][1]) == {**json.loads(told[asked][1]), "silent": [], "note": ""}
    story = json.loads(told[f"/explain?q={config.source}:0:30"][1])
    assert "was dropped as a duplicate of" in story["sentence"]
    assert f"{config.source}:0:0" in story["sentence"]
    assert told["/receipts.json?pipeline=p"][0] == 403
    assert SECRET.decode() not in worker.stderr


@pytest.mark.usefixtures("worker")
def test_receipts_are_shown_where_that_is_allowed(config: WorkerConfig) -> None:
    allowed = config.but(web_receipts=True, group_instance_id="another")
    with start_worker(allowed) as other:
        other.wait_ready()
        _, body, _ = said(other, "/receipts.json?pipeline=p")
        _, story, _ = said(other, f"/explain?q={config.source}:0:30")
        wrong = said(other, "/receipts.json?pipeline=q")[0]

    receipts = json.loads(body)["receipts"]
    assert [each["offset"] for each in receipts] == list(range(39, 29, -1))
    assert receipts[0]["id"] == [f"{SECRET.decode()}id9"]
    assert SECRET.decode() in story
    assert wrong == 400
    assert len(read_topic(config.bootstrap_servers, config.duplicates)) == 10
