"""Is the partition's clock read again as the worker read it, whatever the worker's clock did?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.engine.ids.clock import NEVER, RecordedClock, WorkerClock
from schemas.changelog.clock import NO_LIMIT, ClockTrace
from schemas.changelog.ids import IDS_KEY, IdState
from schemas.changelog.values import CorruptStateError, sealed

if TYPE_CHECKING:
    from processor.engine.ids.clock import Readings

AHEAD_MS = 10
OFFSETS = st.integers(0, 2**62)
TIMES = st.integers(-(2**63), 2**63 - 2)
LIMITS = st.lists(st.tuples(OFFSETS, st.one_of(st.just(NO_LIMIT), TIMES)), max_size=8).map(
    lambda some: tuple(sorted(some))
)
PIECES = st.lists(
    st.tuples(
        st.integers(-30, 60),  # what the worker's clock moves by before it
        st.lists(st.tuples(st.integers(1, 3), st.integers(-40, 80), st.booleans()), max_size=6),
        st.booleans(),  # whether a commit follows
    ),
    max_size=12,
)


@given(since=OFFSETS, before=TIMES, limits=LIMITS)
def test_a_trace_is_what_was_written(since: int, before: int, limits: tuple[tuple[int, int], ...]) -> None:
    trace = ClockTrace(since, before, limits)
    assert ClockTrace.decode(trace.encode()) == trace
    state = IdState(bytes(16), 5, 7, 3, trace)
    assert IdState.decode(state.encode()) == state


@pytest.mark.parametrize("most", range(21))
def test_a_cut_trace_is_refused(most: int) -> None:
    data = ClockTrace(5, 6, ((1_000, 2**40), (2_000, NO_LIMIT))).encode()
    whole = {16, 18 + 6}
    if most not in whole:
        with pytest.raises(ValueError, match="cut"):
            ClockTrace.decode(data[:most])


def test_a_state_with_a_trace_that_is_none_is_corrupt() -> None:
    value = IdState(bytes(16), 1, 2, 1).encode()
    with pytest.raises(CorruptStateError, match="cut"):
        IdState.decode(sealed(IDS_KEY, value[:-12]))


@pytest.mark.parametrize("arrival", [False, True])
@given(pieces=PIECES, cuts=st.lists(st.integers(1, 5), min_size=1), data=st.data())
@settings(deadline=None)
def test_readings_are_the_same_again_in_other_pieces(
    arrival: bool,  # noqa: FBT001 - a parameter of the test
    pieces: list[tuple[int, list[tuple[int, int, bool]], bool]],
    cuts: list[int],
    data: st.DataObject,
) -> None:
    now = [1_000]
    clock = WorkerClock(lambda: now[0], None if arrival else AHEAD_MS)
    offset, time, fault, reading = [], [], [], []
    traces = [(0, ClockTrace(0, NEVER))]
    clock_ms, at = NEVER, 0
    for moved, records, commit in pieces:
        now[0] += moved
        for step, behind, wrong in records:
            at += step
            offset.append(at)
            time.append(1_000 + behind)
            fault.append(int(wrong))
        some = slice(len(offset) - len(records), len(offset))
        readings = read(clock, clock_ms, offset[some], time[some], fault[some])
        reading += readings.reading_ms.tolist()
        clock_ms = readings.clock_ms
        if commit:
            traces.append((at + 1, ClockTrace(clock.since, clock.before_ms, tuple(clock.limits))))
            clock.forget()
    traces.append((at + 1, ClockTrace(clock.since, clock.before_ms, tuple(clock.limits))))

    # From any commit on that is still there: what is known begins where its trace says.
    first = data.draw(st.integers(0, len(traces) - 1), "first commit")
    since, before = (0, NEVER) if not first else (traces[first][1].since, traces[first][1].before_ms)
    limits = [each for _, trace in traces[first:] for each in trace.limits]
    again = RecordedClock(*np.array(limits, np.int64).reshape(-1, 2).T, arrival=arrival)
    start = int(np.searchsorted(offset, since))
    told: list[int] = []
    for k in range(len(offset) + 1):
        size = cuts[k % len(cuts)]
        some = slice(start, start + size)
        readings = read(again, before, offset[some], time[some], fault[some])
        told += readings.reading_ms.tolist()
        before, start = readings.clock_ms, start + size
    assert told == reading[int(np.searchsorted(offset, since)) :]


def test_what_nobody_bounds_is_not_noted() -> None:
    clock = WorkerClock(lambda: 1_000, AHEAD_MS)
    read(clock, NEVER, [0, 1, 2], [900, 1_010, 950], [0, 0, 0])
    assert (clock.since, clock.before_ms, clock.limits) == (0, NEVER, [])
    read(clock, 1_010, [3, 4], [1_011, 5], [1, 0])
    assert not clock.limits
    read(clock, 1_010, [5, 6], [1_011, 5], [0, 0])
    assert (clock.since, clock.before_ms) == (7, 1_010)
    assert clock.limits == [(5, 1_010), (7, NO_LIMIT)]


def read(
    clock: WorkerClock | RecordedClock, clock_ms: int, offset: list[int], time: list[int], fault: list[int]
) -> Readings:
    columns = np.array(offset, np.int64), np.array(time, np.int64), np.array(fault, np.uint8)
    return clock.read(clock_ms, *columns)
