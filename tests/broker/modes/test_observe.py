"""A pipeline that observes lets all pass, says what it would have done, and can be switched off and on."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.kafka.topics import New, create_topic, int64, produce, read_topic, unique, until
from tests.support.verify.certificate import certificate, corrupted, run_verify
from tests.support.verify.corruptions import without
from tests.support.verify.observed import OBSERVED, unflagged
from tests.support.worker import forks
from tests.support.worker.process import PipelineConfig, WorkerConfig, new_config, run_drain, start_worker
from tests.support.worker.routed import RoutedRules, routed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker
    from tests.support.verify.corruptions import Change

pytestmark = pytest.mark.broker

NUMBER = {"from": "header", "name": "seq", "format": "int64"}
IDS: dict[str, Any] = {"mode": "insert-id", "window": "1d", "id": [{"from": "value", "pointer": "/id"}]}
PRINTED = {**IDS, "fingerprint": {"exclude": ["/at"]}}
MODES: dict[str, dict[str, Any]] = {
    "partition": {},
    "scopes": {"mode": "watermark", "sequence": NUMBER, "scope": "key", "epoch": NUMBER, "reorder_window": 4},
    "content": {**IDS, "id": [{"from": "content", "exclude": ["/at"]}]},
    "renamed": {**PRINTED, "on_collision": "rename", "rename": {"to": "/id", "keep": "/was"}},
    "aside": {**PRINTED, "on_collision": "quarantine"},
    "dropped": {**PRINTED, "on_collision": "drop"},
}
WHEN = 1_795_420_800_000


def event(seq: int, name: str, content: int = 0, at: int = 0) -> New:
    """Return a record that all modes can judge."""
    value = b'{"id": "%b", "n": %d, "at": %d}' % (name.encode(), content, at)
    return New(b"key", value, (("seq", int64(seq)), ("trace", b"t")), WHEN + at)


BAD = New(b"key", b"no JSON", (("seq", b"short"),), WHEN)
FIRST = [event(1, "a"), event(2, "b"), event(1, "a", 0, 1), BAD, event(3, "a", 1, 2), event(4, "c", 0, 3)]
"""With ids: 2 is a duplicate of 0, 4 collides with it; by the sequence 2 is late, or a duplicate."""
BAD_AGAIN = BAD._replace(value=b"no JSON again")
AGAIN = [event(4, "c", 0, 4), event(2, "b", 0, 5), event(5, "a", 1, 6), BAD_AGAIN, event(6, "d", 0, 7)]

LATER = [each._replace(timestamp=each.timestamp + 1_000) for each in AGAIN]


@pytest.fixture(scope="module")
def switched(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> WorkerConfig:
    """Return pipelines of all modes that have observed, then dropped, and then observed what came last."""
    application = unique("observe")
    pipelines = []
    for name, dedup in MODES.items():
        topic = f"{application}.{name}"
        outputs = f"{topic}.clean", f"{topic}.aside", f"{topic}.receipts"
        pipelines.append(PipelineConfig(name, f"{topic}.raw", *outputs, NUMBER, dedup))
    folder = tmp_path_factory.mktemp("observe")
    config = WorkerConfig(folder, broker.bootstrap_servers, application, tuple(pipelines), {"slots": 1})
    for each in pipelines:
        create_topic(config.bootstrap_servers, each.source)
    for some, observing in ((FIRST, True), (AGAIN, False), (LATER, True)):
        for each in pipelines:
            produce(config.bootstrap_servers, each.source, some)
        ended = run_drain(config.observing(observing))
        assert ended.code == 0, ended.stderr
        assert ("observing: every record passes" in ended.stderr) is observing
    return config


def of(config: WorkerConfig, name: str) -> WorkerConfig:
    """Return the config with one of its pipelines alone."""
    return replace(config, pipelines=tuple(each for each in config.pipelines if each.name == name))


def told(config: WorkerConfig) -> list[dict[str, Any]]:
    receipts = read_topic(config.bootstrap_servers, config.duplicates)
    return [json.loads(each.value or b"") for each in receipts]


@pytest.mark.parametrize("name", MODES)
def test_what_it_observes_passes_as_it_came_in_order_beside_its_receipts_and_copies(
    switched: WorkerConfig, name: str
) -> None:
    config = of(switched, name)
    begin, end = len(FIRST), len(FIRST) + len(AGAIN)
    source = read_topic(config.bootstrap_servers, config.source)
    sink = [each.content for each in read_topic(config.bootstrap_servers, config.sink)]
    came = [each.content for each in source]

    assert sink[:begin] == came[:begin]
    assert sink[-len(LATER) :] == came[end:]
    assert {each["offset"] for each in told(config) if each.get("observed")} <= {*range(begin), *range(end, 99)}
    assert any(each.get("observed") for each in told(config))
    copies = read_topic(config.bootstrap_servers, config.quarantine)
    observed = [each for each in copies if OBSERVED in each.headers]
    assert {int((each.headers[-1][1] or b"").split(b":")[-1]) for each in observed} >= {3, end + 3}
    for each in observed:
        assert [name for name, _ in each.headers[-4:]] == [OBSERVED[0], *(f"seqmark.{n}" for n in SAID)]
        assert each.content[1:3] in {(record.key, record.value) for record in source}


SAID = ("error", "detail", "source")


@pytest.mark.parametrize("name", MODES)
def test_switched_off_it_goes_on_with_what_it_has_seen(switched: WorkerConfig, name: str) -> None:
    config = of(switched, name)
    begin, end = len(FIRST), len(FIRST) + len(AGAIN)
    kept_back = {each["offset"]: each for each in told(config) if begin <= each["offset"] < end}
    # What had passed while it observed is known: copies of it are dropped.
    assert {begin, begin + 1} <= kept_back.keys()
    assert not any(each.get("observed") for each in kept_back.values())
    sink = read_topic(config.bootstrap_servers, config.sink)[begin : -len(LATER)]
    assert json.loads(sink[-1].value or b"")["id"] == "d"
    actions = {at: each["action"] for at, each in kept_back.items() if each["verdict"] == "collision"}
    # A collision that was remembered is known by its content, and one that would not have been is none.
    assert actions == {"aside": {begin + 2: "quarantine"}, "dropped": {begin + 2: "drop"}}.get(name, {})


def test_the_certificate_proves_each_part_by_what_it_was(switched: WorkerConfig) -> None:
    for now in (True, False):
        found = certificate(switched.observing(now))
        assert found.code == 0, found.details
        assert len(found.partitions) == len(MODES)
        for line in found.partitions:
            assert line["source"] == line["sink"] + line["duplicates"] + line["quarantine"], line
            # Two parts of the source have passed whole.
            assert line["sink"] >= len(FIRST) + len(LATER)
            assert line["observed"] > 3


PLANTED: dict[str, tuple[str, Change, list[tuple[int, str]]]] = {
    "an observed duplicate is missing in the sink": ("sink", without(2), [(2, "lost")]),
    "one that could not be judged is missing in the sink": ("sink", without(3), [(3, "lost")]),
    "one that passed is missing in the part that dropped": ("sink", without(6), [(10, "lost")]),
    "the receipt of an observed duplicate is missing": ("duplicates", without(0), [(2, "receipt_missing")]),
    "the receipt of a dropped one is missing": ("duplicates", without(3), [(7, "receipt_missing")]),
    "the copy of an observed one is missing": ("quarantine", without(0), [(3, "quarantine_missing")]),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_into_either_part_is_found(switched: WorkerConfig, name: str) -> None:
    which, change, violations = PLANTED[name]
    config = of(switched, "renamed")
    found = certificate(corrupted(config, which, change))
    assert found.code == 3
    assert [(offset, rule) for _, offset, rule in found.violations] == violations, found.details


def test_a_receipt_that_hides_that_its_record_passed_is_found(switched: WorkerConfig) -> None:
    config = corrupted(of(switched, "partition"), "duplicates", lambda records: unflagged(records, 0))
    found = certificate(config)
    assert [(offset, rule) for _, offset, rule in found.violations] == [(2, "duplicate_passed")], found.details


def test_with_a_sink_alone_it_stops_at_nothing_and_the_certificate_goes_by_the_config(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 1, slots=1)
    produce(config.bootstrap_servers, config.source, FIRST)
    with start_worker(config, env={"SEQMARK_PIPELINES__0__OBSERVE": "true"}) as worker:
        worker.wait_ready()
        late = "seqmark_records_total{pipeline=p,verdict=late}"
        until(lambda: worker.metrics().get(late) == 1, "it is counted as it was judged")
        assert worker.metrics()["seqmark_observing{pipeline=p}"] == 1
        assert worker.metrics()["seqmark_records_total{pipeline=p,verdict=pass}"] == 4
        worker.terminate()
        assert worker.wait() == 0
    assert len(read_topic(config.bootstrap_servers, config.sink)) == len(FIRST)
    proof = run_verify(config.observing())
    assert proof.returncode == 0, proof.stdout
    assert "nothing but the config (observe = true) says which" in proof.stdout

    produce(config.bootstrap_servers, config.source, [each for each in AGAIN if each != BAD_AGAIN])
    assert run_drain(config).code == 0
    values = [
        json.loads(each.value or b"")
        for each in read_topic(config.bootstrap_servers, config.sink)[len(FIRST) :]
    ]
    assert [each["id"] for each in values] == ["a", "d"]


def test_what_cannot_be_judged_goes_all_of_a_route_and_equal_ids_meet_as_ever(
    broker: Broker, tmp_path: Path
) -> None:
    def record(name: bytes | None, n: int) -> New:
        return New(b"key", b"%d" % n, () if name is None else (("id", name),), WHEN + n)

    config = routed(new_config(broker.bootstrap_servers, tmp_path, 2), RoutedRules())
    bootstrap, source = config.bootstrap_servers, config.source
    produce(bootstrap, source, [record(b"a", 0), record(None, 1), record(b"b", 2)], partition=0)
    produce(bootstrap, source, [record(b"a", 3), record(None, 4), record(b"c", 5)], partition=1)
    assert run_drain(config.observing()).code == 0
    sink = read_topic(bootstrap, config.sink)
    assert sorted(each.value or b"" for each in sink) == [b"%d" % n for n in range(6)]
    # Those without an id go by their source partition.
    assert {each.value: each.partition for each in sink if not each.headers} == {b"1": 0, b"4": 1}
    (receipt,) = told(config)
    assert receipt["observed"] is True
    copies = read_topic(bootstrap, config.quarantine)
    assert Counter(each.headers[0] for each in copies) == {OBSERVED: 2}

    produce(bootstrap, source, [record(b"b", 6), record(None, 7), record(b"d", 8)], partition=1)
    assert run_drain(config).code == 0
    assert sorted(each.value or b"" for each in read_topic(bootstrap, config.sink))[6:] == [b"8"]
    assert [each.get("observed") for each in told(config)] == [True, None]


def test_read_and_status_say_what_would_have_become_of_it(switched: WorkerConfig) -> None:
    config = of(switched, "aside").observing()
    path = str(config.write())

    def said(command: str, *arguments: str) -> str:
        done = forks.inside(command, "-c", path, *arguments, folder=config.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    receipts = said("read", config.duplicates)
    assert "would have been dropped: duplicate of " in receipts
    assert "passed with this id and other content; it passed, observed, and would have gone into" in receipts
    assert "  dropped: duplicate of " in receipts
    copies = said("read", config.quarantine).splitlines()
    assert sum("would have been quarantined: value_not_json" in line for line in copies) == 2
    assert sum("  quarantined: value_not_json" in line for line in copies) == 1
    assert not any("seqmark.observed" in line for line in copies)
    assert "observing" in said("status")
    assert "would have been dropped" in said("explain", f"{config.source}:0:2")
    assert "passed all the same" in said("explain", f"{config.source}:0:3")
    assert "was dropped" in said("explain", f"{config.source}:0:{len(FIRST)}")
    said("report", "--output", str(config.folder / "report.html"))
    page = (config.folder / "report.html").read_text()
    assert "It adds up." in page
    assert "The pipeline observed: " in page
