"""Batches that are cut by event time hold everything once, within their bound, and leave nothing late."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.errors import StopError
from spark_sink.source.planning import cut
from spark_sink.source.planning.cut import EventTimeCut, KnownTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LONG_AGO = -(10**18)


class Log(NamedTuple):
    """A partition: a time per offset, None where there is no event, and how many records a batch has."""

    times: list[int | None]
    batch: int = 3


class Topic:
    """Looks up times in lists, a record batch at a time, and counts how often."""

    def __init__(self, logs: Mapping[int, Log]) -> None:
        self.logs = dict(logs)
        self.looks = 0

    def _stretch(self, partition: int, start: int, stop: int) -> KnownTimes:
        times = self.logs[partition].times
        events = [at for at in range(start, min(stop, len(times))) if times[at] is not None]
        offsets = np.array(events, np.int64)
        return KnownTimes.of(start, stop, offsets, np.array([times[at] for at in events], np.int64))

    def look(self, partition: int, start: int, stop: int) -> KnownTimes:
        self.looks += 1
        for found in self.sweep(partition, start, stop):
            if found.times.size:
                return found._replace(start=start)
        return self._stretch(partition, stop, stop)._replace(start=start)

    def sweep(self, partition: int, start: int, stop: int) -> Iterator[KnownTimes]:
        size, at = self.logs[partition].batch, start
        while at < stop:
            after = min((at // size + 1) * size, stop)
            yield self._stretch(partition, at, after)
            at = after


def ended(topic: Topic) -> dict[int, int]:
    return {number: len(log.times) for number, log in topic.logs.items()}


def drained(
    topic: Topic, bound: int, starts: dict[int, int], at: EventTimeCut | None = None
) -> list[dict[int, int]]:
    """Return where each batch ends until all is read."""
    cutting, ends = at or EventTimeCut(bound), [starts]
    while (now := ended(topic)) != ends[-1]:
        before = {number: ends[-1].get(number, 0) for number in now}
        ends.append(cutting.ends(topic, before, now))
        assert 0 < sum(ends[-1][each] - start for each, start in before.items()) <= bound
        assert all(ends[-1][each] >= start for each, start in before.items())
    return ends[1:]


def late(topic: Topic, ends: Sequence[Mapping[int, int]], starts: Mapping[int, int]) -> list[int]:
    """Return the times of events that were older than the newest of all batches before theirs."""
    watermark, found = LONG_AGO, []
    for stops in ends:
        read = [
            time
            for number, stop in stops.items()
            for time in topic.logs[number].times[starts.get(number, 0) : stop]
            if time is not None
        ]
        found += [time for time in read if time < watermark]
        watermark, starts = max([watermark, *read]), stops
    return found


RISING = st.lists(st.one_of(st.none(), st.integers(0, 3), st.integers(0, 10**6)), max_size=60)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Return a partition whose times go up, with records between that are no events."""
    at, times = draw(st.integers(0, 10**7)), []
    for more in draw(RISING):
        at += more or 0
        times.append(None if more is None else at)
    return Log(times, draw(st.integers(1, 9)))


@given(
    st.dictionaries(st.integers(0, 5), logs(), min_size=1), st.integers(1, 50), st.sampled_from([1, 4, 8192])
)
def test_a_backlog_is_read_whole_in_bounded_batches_and_nothing_is_late(
    found: dict[int, Log], bound: int, swept: int
) -> None:
    topic = Topic(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "SWEPT_OFFSETS", swept)
        ends = drained(topic, bound, dict.fromkeys(found, 0))

    assert late(topic, ends, dict.fromkeys(found, 0)) == []


@given(
    st.dictionaries(st.integers(0, 3), logs(), min_size=1),
    st.lists(st.tuples(st.integers(0, 4), st.integers(-100, 10**6), RISING), max_size=6),
    st.integers(1, 20),
)
def test_what_comes_while_others_are_read_is_late_only_if_it_was_so_when_it_came(
    found: dict[int, Log], coming: list[tuple[int, int, list[int | None]]], bound: int
) -> None:
    topic, cutting, newest = Topic(found), EventTimeCut(bound), LONG_AGO
    at = dict.fromkeys(found, 0)

    def read(ends: Mapping[int, int]) -> Iterator[int]:
        for number, stop in ends.items():
            times = topic.logs[number].times[at.get(number, 0) : stop]
            yield from (time for time in times if time is not None and (number, time) not in excused)

    excused: set[tuple[int, int]] = set()
    for number, first, more in [*coming, *[(0, 0, [])] * 1_000]:
        # A partition that was down, or is added.
        log = topic.logs.setdefault(number, Log([]))
        last = max([each for each in log.times if each is not None], default=max(newest, 0) + first)
        for step in more:
            last += step or 0
            log.times.append(None if step is None else last)
            if last < newest:
                excused.add((number, last))
        if (now := ended(topic)) == at:
            break
        ends = cutting.ends(topic, {each: at.get(each, 0) for each in now}, now)
        times = list(read(ends))
        assert min(times, default=newest) >= newest
        newest, at = max([newest, *times]), ends
    assert at == ended(topic)


@given(logs(), logs(), st.integers(1, 30))
def test_times_of_a_partition_that_go_back_lose_it_no_record(one: Log, other: Log, bound: int) -> None:
    topic = Topic({0: Log([*one.times, *reversed(one.times)], one.batch), 1: other})

    drained(topic, bound, {0: 0, 1: 0})


def test_a_batch_of_a_million_offsets_is_cut_by_a_few_looks() -> None:
    # One of them is ten times as fast, and begins a day later.
    rates = [(100, 0), (100, 0), (10, 86_400_000), (100, 50_000)]
    topic = Topic(
        {
            number: Log([begin + rate * at for at in range(300_000)], 500)
            for number, (rate, begin) in enumerate(rates)
        }
    )
    cutting, at = EventTimeCut(100_000), dict.fromkeys(range(4), 0)
    for _ in range(3):
        at = cutting.ends(topic, at, ended(topic))

    assert at[2] == 0
    assert abs(at[0] - at[1]) <= 1
    assert 150_000 <= sum(at.values()) <= 300_000
    assert topic.looks < 100


def test_what_comes_after_the_first_plan_waits_for_another_run_where_that_is_asked() -> None:
    topic, cutting = Topic({0: Log([1, 2, 3])}), EventTimeCut(2, at_start=True)
    first = cutting.ends(topic, {0: 0}, {0: 3})
    topic.logs |= {0: Log([1, 2, 3, 4]), 1: Log([1])}
    later = cutting.ends(topic, {**first, 1: 0}, ended(topic))

    assert (first, later) == ({0: 2}, {0: 3, 1: 0})
    assert cutting.ends(topic, later, ended(topic)) == later


def test_a_partition_that_has_lost_its_end_stays_where_it_ends() -> None:
    assert EventTimeCut(1).ends(Topic({0: Log([1]), 1: Log([1, 2])}), {0: 5, 1: 0}, {0: 1, 1: 2}) == {
        0: 1,
        1: 1,
    }


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(StopError, match="would never move on"):
        EventTimeCut(0)
