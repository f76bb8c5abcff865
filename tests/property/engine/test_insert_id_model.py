"""Mode insert-id against a naive dictionary with the partition's clock.

The dictionary has what the contract says: an id is remembered with the reading at which it passed, and passes
again from that reading + window on. Everything else, blocks and pages, segments and tags, commits, drops
and restarts, must not show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.ids.bloom.window import BloomWindow
from processor.engine.ids.clock import NEVER, by_arrival, by_records
from processor.engine.verdict import Fault, Verdict
from tests.support.judges.ids import BloomPartition, ExactPartition, hashes_of, ids_of
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.extract.ids import Ids
    from processor.engine.ids.judgement import IdJudgement

NOW = 1_000_000
AHEAD = 300


class Item(NamedTuple):
    """A record: its id, its timestamp, and whether it can be judged at all."""

    name: bytes
    timestamp: int
    fault: Fault = Fault.NONE
    unjudged: bool = False


class Said(NamedTuple):
    """What is said of one record; owner and expiry of a duplicate."""

    verdict: Verdict
    owner: int = -1
    expires: int = 0


@dataclass
class Model:
    """The contract, sentence by sentence."""

    window: int
    refresh: bool
    arrival: bool = False
    clock: int = NEVER
    ids: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def judge(self, offset: int, item: Item, now: int) -> Said:
        if item.fault:
            return Said(Verdict.QUARANTINE)
        self.clock = max(self.clock, now if self.arrival else min(item.timestamp, now + AHEAD))
        if item.unjudged:
            return Said(Verdict.PASS)
        owner, reading = self.ids.get(item.name, (-1, NEVER))
        if owner >= 0 and self.clock < reading + self.window:
            if self.refresh:
                reading = self.clock
                self.ids[item.name] = owner, reading
            return Said(Verdict.DUPLICATE, owner, reading + self.window)
        self.ids[item.name] = offset, self.clock
        return Said(Verdict.PASS)

    def copy(self) -> Model:
        return Model(self.window, self.refresh, self.arrival, self.clock, dict(self.ids))


class Step(NamedTuple):
    """Some records in one chunk, how far the worker's clock has gone on, and what happens after it."""

    items: list[Item]
    later: int
    then: str


names = st.sampled_from([b"%d" % number for number in range(30)])
# Around each other, in the past, and far ahead of the worker's clock.
timestamps = st.one_of(
    st.integers(NOW - 40, NOW + 40),
    st.integers(NOW - 500, NOW + 500),
    st.sampled_from([-1, 0, 2**62, -(2**62)]),
)
items = st.builds(
    Item,
    names,
    timestamps,
    st.sampled_from([Fault.NONE] * 9 + [Fault.KEY_MISSING]),
    st.sampled_from([False] * 9 + [True]),
)
steps = st.lists(
    st.builds(
        Step,
        st.lists(items, max_size=40),
        st.sampled_from([0, 0, 1, 30, 400]),
        st.sampled_from(["go on", "commit", "sweep", "drop", "restart"]),
    ),
    max_size=12,
)
windows = st.sampled_from([1, 2, 10, 100, 1_000_000])
# Buckets of an segment and bits of the hash that are kept: few of both make ids meet, chains and splits.
forms = st.sampled_from([(0, 28), (1, 28), (1, 4), (2, 3), (3, 2), (4, 1), (10, 28)])


def columns_of(chunk: list[Item]) -> tuple[Ids, NDArray[np.int64]]:
    hashes = hashes_of([item.name for item in chunk])
    ids = ids_of(hashes, [item.fault for item in chunk], [item.unjudged for item in chunk])
    return ids, np.array([item.timestamp for item in chunk], np.int64)


def said(judged: IdJudgement) -> list[Said]:
    columns = zip(judged.verdict.tolist(), judged.owner.tolist(), judged.expires_ms.tolist(), strict=True)
    return [Said(Verdict(verdict), owner, expires) for verdict, owner, expires in columns]


@examples(200)
@given(steps, windows, st.booleans(), st.booleans(), forms)
def test_verdicts_are_the_models_with_a_commit_drop_or_restart_anywhere(
    script: list[Step],
    window: int,
    refresh: bool,  # noqa: FBT001 - hypothesis gives it by name
    arrival: bool,  # noqa: FBT001 - the same
    form: tuple[int, int],
) -> None:
    partition = ExactPartition(window, refresh=refresh, line_bits=form[0], tag_bits=form[1])
    model = Model(window, refresh, arrival)
    committed = model.copy()
    offset, clock, now = 0, NEVER, NOW
    for step in script:
        now += step.later
        expected = [model.judge(offset + k, item, now) for k, item in enumerate(step.items)]
        ids, timestamp = columns_of(step.items)
        readings = (
            by_arrival(clock, ids.fault, now)
            if arrival
            else by_records(clock, timestamp, ids.fault, now, AHEAD)
        )
        clock = readings.clock_ms
        assert clock == model.clock
        judged = partition.judge(ids, offset + np.arange(len(step.items)), readings.reading_ms)
        assert said(judged) == expected
        offset += len(step.items)
        if step.then in {"commit", "sweep", "restart"}:
            partition.commit(clock, 100 if step.then == "sweep" else 0)
            committed = model.copy()
        if step.then == "restart":
            partition.restart()
        if step.then == "drop":
            partition.index.drop()
            model, clock = committed.copy(), committed.clock


@dataclass
class BucketModel(Model):
    """Bloom filters: an id is remembered until all of its bucket is outside the window."""

    bucket: int = 1

    def judge(self, offset: int, item: Item, now: int) -> Said:
        if item.fault:
            return Said(Verdict.QUARANTINE)
        self.clock = max(self.clock, min(item.timestamp, now + AHEAD))
        if item.unjudged:
            return Said(Verdict.PASS)
        _, reading = self.ids.get(item.name, (-1, NEVER))
        ends = (reading // self.bucket + 1) * self.bucket - 1 + self.window
        known = item.name in self.ids and self.clock < ends
        if not known or self.refresh:
            self.ids[item.name] = offset, self.clock
        return Said(Verdict.DUPLICATE if known else Verdict.PASS)

    def copy(self) -> BucketModel:
        return BucketModel(self.window, self.refresh, self.arrival, self.clock, dict(self.ids), self.bucket)


@examples(200)
@given(steps, windows, st.booleans(), st.sampled_from([1, 3, 50, 1000]))
def test_bloom_is_the_model_with_a_restart_anywhere(
    script: list[Step],
    window: int,
    refresh: bool,  # noqa: FBT001 - hypothesis gives it by name
    bucket: int,
) -> None:
    # 64 ids a filter, so that buckets outgrow theirs; at 1e-12 no seed meets a false positive.
    bloom = BloomWindow(window, bucket, 64, 1e-12, refresh=refresh)
    partition = BloomPartition(bloom)
    model = BucketModel(window, refresh, bucket=bucket)
    committed = model.copy()
    offset, clock, now = 0, NEVER, NOW
    for step in script:
        now += step.later
        expected = [model.judge(offset + k, item, now) for k, item in enumerate(step.items)]
        ids, timestamp = columns_of(step.items)
        readings = by_records(clock, timestamp, ids.fault, now, AHEAD)
        clock = readings.clock_ms
        judged = partition.judge(ids, offset + np.arange(len(step.items)), readings.reading_ms)
        assert said(judged) == expected
        offset += len(step.items)
        if step.then in {"commit", "sweep", "restart"}:
            partition.commit(clock)
            committed = model.copy()
        if step.then in {"sweep", "restart"}:
            partition.restart(snapshot=step.then == "sweep")
        if step.then == "drop":
            bloom.drop()
            model, clock = committed.copy(), committed.clock


@pytest.mark.parametrize("bucket", [1, 3, 7, 50])
@pytest.mark.parametrize("window", [1, 2, 50, 51])
@pytest.mark.parametrize("reading", [-8, -1, 0, 1, 49, 50])
@pytest.mark.parametrize("committed", [False, True])
def test_the_boundary_is_exact_to_the_millisecond_and_with_filters_to_the_bucket(
    bucket: int,
    window: int,
    reading: int,
    committed: bool,  # noqa: FBT001 - a parameter
) -> None:
    ends = (reading // bucket + 1) * bucket - 1 + window
    assert reading + window <= ends < reading + window + bucket
    one, at = ids_of(hashes_of([b"id"])), np.array([reading])
    for boundary, filters in ((reading + window, False), (ends, True)):
        for later, verdict in ((boundary - 1, Verdict.DUPLICATE), (boundary, Verdict.PASS)):
            partition: ExactPartition | BloomPartition = ExactPartition(window, refresh=False)
            if filters:
                partition = BloomPartition(BloomWindow(window, bucket, 64, 1e-9))
            assert said(partition.judge(one, np.array([7]), at)) == [Said(Verdict.PASS)]
            if committed:
                partition.commit(reading)
            if later > reading:
                assert partition.judge(one, np.array([8]), np.array([later])).verdict.tolist() == [verdict]
