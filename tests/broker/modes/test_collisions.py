"""Variants and new ids are the same after restarts, without local state, after resets, and across a route."""

from __future__ import annotations

import json
import random
import shutil
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.judges.outcomes import (
    Outcomes,
    assert_hashes,
    foretold,
    new_ids_of,
    outcomes,
    plain,
    without_detail,
)
from tests.support.kafka.topics import New, alter_topic, create_topic, delete_records, dice, group_offsets
from tests.support.worker.id_feed import COLLISIONS
from tests.support.worker.process import WorkerConfig, new_config, produce, read_topic, run_drain
from tests.support.worker.reset import run_reset
from tests.support.worker.routed import RoutedFingerprintRules, routed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.judges.fingerprints import FingerprintRules
    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

WINDOW_MS = 3_600_000
BEGUN_MS = int(time.time() * 1000) - 2 * WINDOW_MS
EXACT, RENEWING = replace(COLLISIONS, rename={"to": "/id", "keep": "/was"}), replace(COLLISIONS, refresh=True)
RULES = {"exact": EXACT, "renewing": RENEWING}


def event(name: str, content: int, minute: float = 0) -> New:
    value = b'{"id":"%b","n":%d,"sent_at":%d}' % (name.encode(), content, int(minute))
    return New(b"key", value, (("trace", b"t"),), BEGUN_MS + int(minute * 60_000))


STREAM = [
    event("a", 1),  # passes
    event("a", 2, 10),  # 1, collides with 0
    event("b", 1, 10),
    event("a", 1, 20),
    event("a", 2, 20),
    New(b"key", b'{"id":1}', (), BEGUN_MS),  # 5, cannot be judged
    event("a", 3, 30),  # collides with 0
    event("b", 2, 40),
    event("a", 2, 50),
    event("b", 1, 50),
    event("a", 3, 60),  # 10, the first expires where nothing renews it
    event("a", 4, 60),
    event("a", 1, 61),
    event("b", 3, 69),
    event("b", 1, 70),
    event("a", 2, 70),  # 15, the second expires likewise
    event("a", 4, 119),
    event("b", 3, 119),
    event("a", 3, 119),
]


def judging(broker: Broker, folder: Path, rules: FingerprintRules) -> WorkerConfig:
    """Return a config that judges by rules, in one partition."""
    config = new_config(broker.bootstrap_servers, folder, slots=1).with_duplicates().with_quarantine()
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(rules.applied(pipeline),))


def drained(config: WorkerConfig, *more: New, partition: int = 0) -> None:
    if more:
        produce(config.bootstrap_servers, config.source, more, partition=partition, codec="lz4")
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr


@dataclass(frozen=True)
class Found:
    """What stands in the topics."""

    config: WorkerConfig
    rules: FingerprintRules

    @property
    def told(self) -> list[dict[str, Any]]:
        """Receipts and notes."""
        rows = read_topic(self.config.bootstrap_servers, self.config.duplicates)
        return [json.loads(each.value or b"") for each in rows]

    def written(self) -> Outcomes:
        """Return it as the model says it."""
        bootstrap = self.config.bootstrap_servers
        passed = [plain(each) for each in read_topic(bootstrap, self.config.sink)]
        quarantined = [without_detail(plain(each)) for each in read_topic(bootstrap, self.config.quarantine)]
        return Outcomes(passed, quarantined, foretold(self.told), [])

    def foreseen(self, stop: int | None = None) -> Outcomes:
        """Return what the naive model says of the source, up to an offset."""
        records = read_topic(self.config.bootstrap_servers, self.config.source)
        # What was stepped over has no note.
        new_ids = dict.fromkeys(range(len(records)), "") | new_ids_of(self.told)
        made = outcomes(self.rules.model(), self.rules, self.config.pipelines[0], records[:stop], new_ids)
        return made._replace(verdicts=[])

    def assert_hashes(self) -> None:
        """Each id and content has one fingerprint and one new id, however often it is noted."""
        records = read_topic(self.config.bootstrap_servers, self.config.source)
        assert_hashes(self.rules, {each.offset: each for each in records}, self.told)


def behind(made: Outcomes, first: Outcomes) -> Outcomes:
    """Return what is in ``made`` behind what ``first`` has."""
    return Outcomes(
        made.passed[len(first.passed) :],
        made.quarantined[len(first.quarantined) :],
        made.told[len(first.told) :],
        [],
    )


RESETS = {
    f"{backend} {name}": (rules, done, to)
    for backend, rules in RULES.items()
    for name, done, to in [("back", len(STREAM), 8), ("forward", 8, 15)]
}


@pytest.mark.drawn("case")
@pytest.mark.parametrize("case", RESETS)
def test_restarts_a_start_from_the_changelog_alone_and_a_reset_change_no_verdict_and_no_new_id(
    broker: Broker, tmp_path: Path, case: str
) -> None:
    rules, done, to = RESETS[case]
    config = judging(broker, tmp_path, rules)
    found = Found(config, rules)
    drained(config, *STREAM[:4])
    drained(config, *STREAM[4:6])
    shutil.rmtree(config.state_dir)
    drained(config, *STREAM[6:done])
    before = found.written()
    assert before == found.foreseen()
    produce(config.bootstrap_servers, config.source, STREAM[done:])

    answer = run_reset(config, "--to-offset", f"0:{to}")
    assert answer.code == 0, answer.stderr
    assert answer.lines[0]["state"] == ("recomputed" if to < done else "kept")
    shutil.rmtree(config.state_dir)
    drained(config)

    assert behind(found.written(), before) == behind(found.foreseen(), found.foreseen(to))
    found.assert_hashes()


LIMIT_BYTES = 10_000
LETTERS = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=LIMIT_BYTES))


@pytest.mark.drawn("known_by")
@pytest.mark.parametrize("known_by", ["its size", "quarantine"])
def test_a_reset_knows_what_only_its_tag_has_made_too_large(
    broker: Broker, tmp_path: Path, known_by: str
) -> None:
    rules = replace(COLLISIONS, on_collision="tag", rename=None)
    config = judging(broker, tmp_path, rules)
    create_topic(config.bootstrap_servers, config.sink, 1, {"max.message.bytes": str(LIMIT_BYTES)})
    # Too large with a tag, it is judged and moves the clock, and is not remembered.
    large = New(
        b"key", b'{"id":"a","n":"%b"}' % LETTERS[: LIMIT_BYTES - 200].encode(), (), BEGUN_MS + WINDOW_MS
    )
    drained(config, event("a", 1, 10), large, event("b", 1), large, event("b", 1, 119))
    found = Found(config, rules)
    once = found.written()
    assert [each["verdict"] for each in found.told] == ["duplicate"]
    assert len(once.quarantined) == 2

    if known_by == "its size":
        delete_records(config.bootstrap_servers, config.quarantine, 2)
    else:
        alter_topic(config.bootstrap_servers, config.sink, **{"max.message.bytes": str(10 * LIMIT_BYTES)})
    before = found.written()

    answer = run_reset(config, "--to-offset", "0:3")
    assert answer.code == 0, answer.stderr
    shutil.rmtree(config.state_dir)
    drained(config)

    again = behind(found.written(), before)
    assert len(again.passed) + len(again.quarantined) == 1
    assert [each for each in again.told if each["verdict"] == "duplicate"] == once.told


@pytest.mark.parametrize("refusing", ["sink", "quarantine"])
def test_a_collision_that_nobody_takes_stops_the_worker_with_all_before_it_committed(
    broker: Broker, tmp_path: Path, refusing: str
) -> None:
    """With its tag it is too large for the sink, and there is no quarantine; or quarantine does not take it."""
    rules = replace(COLLISIONS, on_collision="tag" if refusing == "sink" else "quarantine", rename=None)
    config = judging(broker, tmp_path, rules)
    refused_by = config.sink if refusing == "sink" else config.quarantine
    if refusing == "sink":
        config = replace(config, pipelines=(replace(config.pipelines[0], quarantine=None),))
    create_topic(config.bootstrap_servers, refused_by, 1, {"max.message.bytes": str(LIMIT_BYTES)})
    noise = dice(1).randbytes(LIMIT_BYTES - 170)
    new, known = (New(noise, b'{"id":"%b","n":2}' % name, (), BEGUN_MS) for name in (b"b", b"a"))
    stream = [event("a", 1), new, event("c", 1), event("c", 1, 1), known, event("d", 1), event("d", 1, 1)]
    produce(config.bootstrap_servers, config.source, stream, codec="lz4")

    for _ in range(2):
        ended = run_drain(config)
        assert ended.code == 1
        assert f"{config.source}:0:4: " in ended.stderr
        passed = [each.value for each in read_topic(config.bootstrap_servers, config.sink)]
        assert passed == [each.value for each in stream[:3]]
        assert [each["offset"] for each in Found(config, rules).told] == [3]
        assert group_offsets(config.bootstrap_servers, config.application_id) == {(config.source, 0): 4}

    alter_topic(config.bootstrap_servers, refused_by, **{"max.message.bytes": str(10 * LIMIT_BYTES)})
    drained(config)
    passed = [each.value for each in read_topic(config.bootstrap_servers, config.sink)]
    assert passed == [each.value for each in [*stream[:3], *([known] if refusing == "sink" else []), stream[5]]]
    told = [(each["offset"], each["verdict"]) for each in Found(config, rules).told]
    assert told == [(3, "duplicate"), (4, "collision"), (6, "duplicate")]


def test_variants_of_all_partitions_meet_in_a_route_and_are_named_by_where_they_came_from(
    broker: Broker, tmp_path: Path
) -> None:
    rules = RoutedFingerprintRules(
        COLLISIONS.id, fingerprint=COLLISIONS.fingerprint, on_collision="tag", refresh=True
    )
    config = routed(new_config(broker.bootstrap_servers, tmp_path, 2, slots=1), rules)
    drained(config, event("a", 1), event("b", 1), event("a", 1, 1))
    drained(
        config, event("a", 2, 2), event("a", 1, 3), New(None, None, (), BEGUN_MS), event("b", 1, 4), partition=1
    )
    shutil.rmtree(config.state_dir)
    drained(config, event("a", 2, 5), event("a", 3, 6))

    told = [json.loads(each.value or b"") for each in read_topic(config.bootstrap_servers, config.duplicates)]
    said = {
        (each["partition"], each["offset"]): (
            each["verdict"],
            (each["owner"]["topic"], each["owner"]["partition"], each["owner"]["offset"]),
            each["expires_at"] - BEGUN_MS - WINDOW_MS,
        )
        for each in told
    }
    source = config.source
    assert said == {
        (0, 2): ("duplicate", (source, 0, 0), 60_000),
        (1, 0): ("collision", (source, 0, 0), 120_000),
        (1, 1): ("duplicate", (source, 0, 0), 180_000),
        (1, 3): ("duplicate", (source, 0, 1), 240_000),
        (0, 3): ("duplicate", (source, 1, 0), 300_000),
        (0, 4): ("collision", (source, 0, 0), 360_000),
    }
    sink = read_topic(config.bootstrap_servers, config.sink)
    mine = [each for each in sink if b'"a"' in (each.value or b"")]
    tag = ("seqmark.collision", f"{source}:0:0".encode())
    trace = ("trace", b"t")
    assert [each.headers for each in mine] == [(trace,), (trace, tag), (trace, tag)]
    assert len({each.partition for each in mine}) == 1
    (refused,) = read_topic(config.bootstrap_servers, config.quarantine)
    assert dict(refused.headers)["seqmark.source"] == f"{source}:1:2".encode()


def test_collisions_of_a_route_are_quarantined_as_they_came_and_say_from_where(
    broker: Broker, tmp_path: Path
) -> None:
    rules = RoutedFingerprintRules(COLLISIONS.id, fingerprint={}, on_collision="quarantine")
    config = routed(new_config(broker.bootstrap_servers, tmp_path, 2, slots=1), rules)
    drained(config, *(event(name, 1) for name in "abcdef"))
    others = [event(name, 2) for name in "abcdef"]
    drained(config, *others, partition=1)
    drained(config, event("a", 2))

    refused = read_topic(config.bootstrap_servers, config.quarantine)
    found = {dict(each.headers)["seqmark.source"] or b"": each for each in refused}
    where = [f"{config.source}:1:{offset}".encode() for offset in range(6)] + [f"{config.source}:0:6".encode()]
    assert sorted(found) == sorted(where)
    for at, came in zip(where, [*others, event("a", 2)], strict=True):
        assert found[at].headers[:-3] == came.headers
        assert dict(found[at].headers)["seqmark.error"] == b"id_collision"
        assert (found[at].key, found[at].value, found[at].timestamp) == (came.key, came.value, came.timestamp)
    assert len(read_topic(config.bootstrap_servers, config.sink)) == 6
    told = [json.loads(each.value or b"") for each in read_topic(config.bootstrap_servers, config.duplicates)]
    assert [each["owner"]["partition"] for each in told] == [0] * 7
