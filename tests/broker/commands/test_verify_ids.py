"""The certificate says what is true of insert ids, where all is right and with one thing changed."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.judges.id_rules import HEADER_ID, IdRules
from tests.support.kafka.topics import New, Record, bounds, create_topic
from tests.support.verify.certificate import certificate, corrupted, run_verify
from tests.support.verify.collisions import ACTIONS, collision_rules
from tests.support.verify.corruptions import at, said, without
from tests.support.verify.id_corruptions import ID_PLANTED, ID_RULES, ID_STREAM
from tests.support.worker.process import (
    WorkerConfig,
    new_config,
    produce,
    read_topic,
    run_drain,
    start_worker,
    until,
)
from tests.support.worker.reset import run_reset
from tests.support.worker.several import pipelines_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

NOW_MS = int(time.time() * 1000)
DAY_MS = 86_400_000
MINUTE_MS = 60_000


def judging(broker: Broker, folder: Path, rules: IdRules, partitions: int = 1) -> WorkerConfig:
    """Return a config with all outputs."""
    config = new_config(broker.bootstrap_servers, folder, partitions, slots=1)
    config = config.with_duplicates().with_quarantine()
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(rules.applied(pipeline),))


def of(name: bytes, timestamp: int = NOW_MS, value: bytes = b"value") -> New:
    return New(b"key", value, (("id", name),), timestamp)


def some(start: int, stop: int, timestamp: int = NOW_MS) -> list[New]:
    return [of(b"id-%d" % number, timestamp, b"%d" % number) for number in range(start, stop)]


def drained(config: WorkerConfig, *more: New) -> WorkerConfig:
    """Produce and drain."""
    if more:
        produce(config.bootstrap_servers, config.source, more)
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    return config


ON_A_BROKER = ("one passed a millisecond early", "an expiry a millisecond late")
"""The others of `ID_PLANTED` are found without a broker, in tests/unit/verify/test_ids.py."""


@pytest.fixture(scope="module")
def clean(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> WorkerConfig:
    """Return the config of a pipeline that has cleaned `ID_STREAM`; its topics stay as they are."""
    config = judging(broker, tmp_path_factory.mktemp("clean"), ID_RULES)
    for batch in ID_STREAM:
        drained(config, *batch)
    return config


def test_what_a_worker_made_is_proved_and_counted(clean: WorkerConfig) -> None:
    told = certificate(clean)
    assert (told.code, told.last["ok"]) == (0, True), told.details
    (line,) = told.partitions
    counts = {"source": 18, "sink": 11, "duplicates": 5, "quarantine": 2, "unproved": 0, "judged_from": 0}
    assert line.items() >= counts.items()


@pytest.mark.parametrize("name", ON_A_BROKER)
def test_a_planted_corruption_is_found_where_it_is(clean: WorkerConfig, name: str) -> None:
    which, change, expected, text = ID_PLANTED[name]
    told = certificate(corrupted(clean, which, change))
    assert [(offset, rule) for _, offset, rule in told.violations] == expected, told.details
    assert text in told.details
    assert (told.code, told.last["ok"]) == (3, False)


TWO_PARTS = ({"from": "value", "pointer": "/a"}, {"from": "key"})
DEFINITIONS = {
    "strict": IdRules(window="1h"),
    "renewed": IdRules(window="1s", refresh=True),
    "arrival": IdRules(window="1s", time="arrival"),
    "passing": IdRules(window="1h", on_missing="pass"),
    "parts": IdRules(TWO_PARTS, window="1h"),
    "ahead": IdRules(window="1m", max_ahead="1m"),
    "longer": IdRules(window="1m", refresh=True),
}


def judging_all(broker: Broker, folder: Path, definitions: Mapping[str, IdRules]) -> WorkerConfig:
    """Return a config with a pipeline of two partitions for each definition."""
    config = pipelines_of(judging(broker, folder, ID_RULES), {name: {} for name in definitions}, 2)
    pipelines = tuple(definitions[each.name].applied(each) for each in config.pipelines)
    return replace(config, pipelines=pipelines)


def test_every_definition_is_proved_over_restarts(broker: Broker, tmp_path: Path) -> None:
    config = judging_all(broker, tmp_path, DEFINITIONS)
    for run in range(3):
        for each in config.pipelines:
            for partition in range(2):
                more = [
                    New(
                        b"key %d" % (number % 3),
                        b'{"a": %s}' % (b"%d", b'"%d"')[number % 2] % (number % 50),
                        (("id", b"%d" % (number * 7 % 60)),),
                        # Some behind, some from the future, a window apart at most.
                        NOW_MS
                        + (run * 300 + number * 3) * (partition + 1)
                        + (0, -5_000, 5 * MINUTE_MS)[number % 97 % 3],
                    )
                    for number in range(150)
                ]
                bad = [New(None, b"{", (), NOW_MS), New(b"key", None, (("id", None),), NOW_MS)]
                produce(config.bootstrap_servers, each.source, more, bad, more[:40], partition=partition)
        if run == 1:
            shutil.rmtree(config.state_dir)
        drained(config)

    told = certificate(config)

    assert (told.code, told.last["ok"]) == (0, True), told.details
    assert told.last["unproved"] == 0
    assert all(line["source"] == 576 and line["duplicates"] > 50 for line in told.partitions)


COLLIDING = {action: collision_rules(action) for action in ACTIONS} | {
    "header": collision_rules("rename", id=HEADER_ID, rename={"to": "header:id", "keep": "/was"}, refresh=True),
    "arrival": collision_rules("tag", time="arrival"),
    "short": collision_rules("tag", window="1m"),
}
SINK_LIMIT_BYTES = 2_000


def collide(run: int, partition: int) -> list[New]:
    """Return events of 40 ids and 3 contents; each tenth is about as large as the sink takes."""

    def event_of(number: int) -> New:
        name, pad = number * 7 % 40, 0 if number % 10 else 1_700 + 2 * number
        value = b'{"id": "%d", "n": %d, "at": %d, "pad": "%b"}' % (name, number % 3, number, b"x" * pad)
        at_ms = NOW_MS + (run * 300 + number * 3) * (partition + 1)
        return New(b"key", value, (("id", b"%d" % name),), at_ms)

    return [event_of(number) for number in range(150)]


def test_whatever_becomes_of_collisions_is_proved_over_restarts(broker: Broker, tmp_path: Path) -> None:
    config = judging_all(broker, tmp_path, COLLIDING)
    for each in config.pipelines:
        limits = {"max.message.bytes": str(SINK_LIMIT_BYTES)}
        create_topic(config.bootstrap_servers, each.sink, 2, limits)
    for run in range(3):
        for each in config.pipelines:
            for partition in range(2):
                more = collide(run, partition)
                bad = [New(None, b"{", (), NOW_MS), New(b"key", None, (), NOW_MS)]
                produce(config.bootstrap_servers, each.source, more, bad, more[:40], partition=partition)
        if run == 1:
            shutil.rmtree(config.state_dir)
        drained(config)

    told = certificate(config)

    assert (told.code, told.last["ok"]) == (0, True), told.details
    assert told.last["collisions"] == sum(line["collisions"] for line in told.partitions)
    for line in told.partitions:
        assert line["collisions"] > 50
        assert line["source"] == line["sink"] + line["duplicates"] + line["quarantine"] == 576
    held = {(line["pipeline"], line["partition"]): line["quarantine"] for line in told.partitions}
    # Some are too large only with a tag, or with a new id.
    assert all(held[edited, 0] > held["pass", 0] for edited in ("tag", "rename", "header", "short"))
    table = run_verify(config, "--pipeline", "tag").stdout
    assert "collisions" in table
    assert "certificate: ok" in table
    (renaming,) = (each for each in config.pipelines if each.name == "rename")
    told = certificate(corrupted(replace(config, pipelines=(renaming,)), "sink", another_new_id))
    assert [rule for _, _, rule in told.violations] == ["changed"], told.details
    assert "goes on under a new id" in told.details


def another_new_id(records: list[Record]) -> list[Record]:
    place = next(place for place, each in enumerate(records) if dict(each.headers).get("seqmark.original_id"))
    value = json.loads(records[place].value or b"")
    new = value["id"][:-1] + ("0" if value["id"][-1] != "0" else "1")
    changed = (records[place].value or b"").replace(value["id"].encode(), new.encode())
    return at(place, value=changed)(records)


def test_a_changelog_that_has_been_deleted_in_front_leaves_all_proved_where_timestamps_move_the_clock(
    broker: Broker, tmp_path: Path
) -> None:
    config = judging(broker, tmp_path, IdRules(window="1s"))
    trimmed(config, lambda number: NOW_MS - DAY_MS + 400 * number)

    told = certificate(config)

    assert (told.code, told.last["ok"]) == (0, True), told.details
    (line,) = told.partitions
    assert (line["from"], line["judged_from"], line["unproved"]) == (0, 0, 0)
    assert (line["source"], line["sink"], line["duplicates"]) == (3_600 + 1_200, 3_600, 1_200)
    told = certificate(corrupted(config, "duplicates", said(0, expires_at=5)))
    assert [rule for _, _, rule in told.violations] == ["receipt_wrong"]


def test_by_arrival_the_certificate_says_from_where_on_it_is_proved(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules(window="3s", time="arrival"))
    trimmed(config, lambda _: NOW_MS)

    told = certificate(config)

    assert (told.code, told.last["ok"]) == (0, True), told.details
    (line,) = told.partitions
    assert 0 < line["judged_from"] <= line["to"]
    assert 0 < line["unproved"] <= line["duplicates"]
    assert "receipts were trusted" in run_verify(config).stdout
    told = certificate(corrupted(config, "sink", without(3)))
    assert [rule for _, _, rule in told.violations] == ["lost"]
    (pipeline,) = config.pipelines
    ended = run_verify(replace(config, pipelines=(replace(pipeline, duplicates=None),)))
    assert ended.returncode == 1
    assert "is no longer known" in ended.stderr.replace("\n", " ")


def trimmed(config: WorkerConfig, timestamp: Any) -> None:
    """Have a worker pass 300 ids a step, each third once more, until its changelog is deleted in front."""
    servers = config.bootstrap_servers
    with start_worker(config, env={"SEQMARK_TEST_PLACE_IDS": "100"}) as worker:
        worker.wait_ready()
        for number in range(12):
            new = some(300 * number, 300 * (number + 1), timestamp(number))
            produce(servers, config.source, new, new[::3])
            end = 300 * (number + 1)
            until(lambda end=end: len(read_topic(servers, config.sink)) >= end, "all have passed")  # type: ignore[misc]
        # By arrival the clock moves only with what arrives.
        number = 10**6

        def gone() -> bool:
            nonlocal number
            if bounds(servers, config.changelog)[0] > 10:
                return True
            if config.pipelines[0].dedup["time"] == "arrival":
                produce(servers, config.source, some(number, number + 300))
                number += 300
            return False

        until(gone, "what is expired is deleted")
        worker.terminate()
        assert worker.wait() == 0
    drained(config)


@pytest.mark.parametrize(
    ("to", "state", "time_is"), [("0:400", "recomputed", "record"), ("0:1100", "kept", "arrival")]
)
def test_after_a_reset_it_begins_there_and_knows_what_the_state_remembers(
    broker: Broker, tmp_path: Path, to: str, state: str, time_is: str
) -> None:
    config = judging(broker, tmp_path, IdRules(window="1h", time=time_is, max_ahead="1m"))
    drained(config, *some(0, 450), of(b"future", NOW_MS + 5 * MINUTE_MS), *some(0, 449))
    drained(config, *some(600, 700))
    produce(config.bootstrap_servers, config.source, some(0, 700))
    reset = run_reset(config, "--to-offset", to)
    assert reset.code == 0, reset.stderr
    assert reset.lines[0]["state"] == state

    told = certificate(drained(config))

    assert (told.code, told.last["ok"]) == (0, True), told.details
    (line,) = told.partitions
    assert (line["from"], line["to"]) == (int(to[2:]), 1_700)
    assert line["judged_from"] == line["from"]
    assert line["duplicates"] > 400


GOES_TO = {"recomputed": "0:100", "kept": "0:350"}


@pytest.mark.drawn("state")
@pytest.mark.parametrize("state", GOES_TO)
def test_after_a_reset_collisions_are_proved_and_have_the_new_ids_that_they_had(
    broker: Broker, tmp_path: Path, state: str
) -> None:
    config = judging(broker, tmp_path, COLLIDING["rename"])
    create_topic(config.bootstrap_servers, config.sink, 1, {"max.message.bytes": str(SINK_LIMIT_BYTES)})
    drained(config, *collide(0, 0), *collide(1, 0))
    before = read_topic(config.bootstrap_servers, config.sink)
    produce(config.bootstrap_servers, config.source, collide(2, 0))
    reset = run_reset(config, "--to-offset", GOES_TO[state])
    assert reset.code == 0, reset.stderr
    assert reset.lines[0]["state"] == state

    told = certificate(drained(config))

    assert (told.code, told.last["ok"]) == (0, True), told.details
    again = read_topic(config.bootstrap_servers, config.sink)[len(before) :]
    renamed = {each.content for each in again if "seqmark.original_id" in dict(each.headers)}
    assert bool(renamed) is (state == "recomputed")
    assert renamed <= {each.content for each in before}
