"""With a route the clock is the one of the sink's partition: as a naive model has it, and within a bound."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.ids import sink_clocks
from processor.engine.ids.sink_clocks import SinkClocks
from processor.inspection.simulate.windows import IdSample, predict

SOURCES, SINKS = 3, 2
WINDOWS = (1, 5, 20, 1_000)
NO_PRINTS = np.zeros(0, np.uint64)


class Sent(NamedTuple):
    """A record: its source partition, its id, how much later than the one before, and how late it is."""

    partition: int
    id: int
    later_ms: int
    late_ms: int


RECORDS = st.lists(st.builds(Sent, *(st.integers(0, most) for most in (SOURCES - 1, 7, 9, 40))), max_size=60)


def stamped(records: list[Sent], partition: int) -> tuple[list[int], list[int], list[int]]:
    """Return ids, timestamps, and what the source partition's clock reads."""
    at = 1_000
    ids, stamps, readings = [], [], []
    for record in records:
        if record.partition == partition:
            at += record.later_ms
            ids.append(record.id)
            stamps.append(at - record.late_ms)
            readings.append(max(stamps))
    return ids, stamps, readings


def naive(records: list[Sent], window: int, *, refresh: bool) -> tuple[int, int]:
    """Judge by the contract's sentences, by each sink partition's clock: caught and missed ones."""
    met = sorted(
        (reading, partition, place, name, stamp)
        for partition in range(SOURCES)
        for place, (name, stamp, reading) in enumerate(zip(*stamped(records, partition), strict=True))
    )
    clocks: dict[int, int] = defaultdict(int)
    remembered: dict[int, int] = {}
    caught = missed = 0
    for _, _, _, name, stamp in met:
        clocks[name % SINKS] = now = max(clocks[name % SINKS], stamp)
        if name in remembered and now < remembered[name] + window:
            caught += 1
            if refresh:
                remembered[name] = now
        else:
            missed += name in remembered
            remembered[name] = now
    return caught, missed


@given(records=RECORDS, refresh=st.booleans())
def test_what_fits_is_predicted_as_a_naive_model_judges_it_by_the_clock_of_the_sinks_partition(
    *, records: list[Sent], refresh: bool
) -> None:
    clocks = SinkClocks(SINKS)
    sample = IdSample(clocks=clocks)
    for partition in range(SOURCES):
        ids, stamps, readings = (np.array(each, np.int64) for each in stamped(records, partition))
        clocks.add(clocks.targets(ids.astype(np.uint64)), readings, stamps)
        sample.add(partition, ids.astype(np.uint64), readings, NO_PRINTS, stamps)

    for each in predict(sample, WINDOWS, route=True, refresh=refresh):
        assert (each.caught.value, each.missed.value) == naive(records, each.window_ms, refresh=refresh)


def test_the_clock_of_a_sinks_partition_is_behind_that_of_the_source_where_only_late_records_go_there() -> None:
    # Of one id: at 100 s, and 30 s later by the source's clock, in a record that is 25 s late.
    late = [Sent(0, 0, 100_000, 0), Sent(0, 1, 30_000, 0), Sent(0, 0, 0, 25_000)]
    clocks = SinkClocks(SINKS)
    sample = IdSample(clocks=clocks)
    ids, stamps, readings = (np.array(each, np.int64) for each in stamped(late, 0))
    clocks.add(ids % SINKS, readings, stamps)
    sample.add(0, ids.astype(np.uint64), readings, NO_PRINTS, stamps)

    [apart], [together] = (predict(sample, [10_000], route=route) for route in (False, True))

    assert (apart.caught.value, together.caught.value) == (0, 1)


@pytest.mark.parametrize("partitions", [1, 7, 4_096])
def test_what_is_kept_of_the_clocks_does_not_grow_and_is_never_ahead_of_them(partitions: int) -> None:
    random = np.random.default_rng(partitions)
    clocks, most = SinkClocks(partitions), None
    kept = []
    for source in range(3):  # each covers another stretch of time, the second an earlier one
        readings = np.sort(random.integers(0, 10**9, 20_000)) + (10**9, 0, 10**12)[source]
        target = random.integers(0, partitions, readings.size)
        late = np.where(random.random(readings.size) < 0.1, random.integers(0, 10**6, readings.size), 0)
        for part in np.array_split(np.arange(readings.size), 10):
            clocks.add(target[part], readings[part], (readings - late)[part])
            most = most or clocks.size_bytes
            assert clocks.size_bytes == most <= 8 * sink_clocks.MOST_CELLS
        kept.append((target, readings, readings - late))
    target, readings, stamps = (np.concatenate(each) for each in zip(*kept, strict=True))

    found = clocks.readings(target, readings, stamps)
    some = random.random(readings.size) < 0.2  # as of a sample
    sampled = clocks.readings(target[some], readings[some], stamps[some])

    truth = np.empty_like(readings)
    clock = np.full(partitions, -(10**12))
    for row in np.argsort(readings, kind="stable"):
        truth[row] = clock[target[row]] = max(clock[target[row]], stamps[row])
    assert (found == truth).all()
    assert (sampled <= truth[some]).all()
    on_time = stamps[some] == truth[some]
    assert on_time.mean() > 0.5
    assert (sampled[on_time] == truth[some][on_time]).all()
    assert (truth[some] - sampled).max() <= 10**6
