"""Cuts a batch by event time: of each partition all that comes before its first event later than one time T.

Spark has one event-time watermark for all partitions: that of the newest event of any. A cut by a share of each
backlog would move it past what the slower partitions still hold. So no partition that has anything left is read
further in time than another:

    p0  =============|.........      =  in the batch, none of its events later than T
    p1  ====|..                      .  left for later, its events from T on
    p2  ==========                   read to its end, which is before T: it holds nobody back

Invariant: what is left of a partition begins with an event at T or later, and no event of the batch is later
than T, as far as the times of each partition go up. A batch has at most ``bound`` offsets, and at least one.

Times are looked up, a record batch here and there, and taken to go up between them. What was found is kept for
the next cut.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

BEFORE_ALL = -(2**62)
"""Earlier than any event; also the newest time where there is no event."""
AFTER_ALL = 2**62
SWEPT_OFFSETS = 8192
"""Closer than this the cut is found by reading: about a fetch's worth of records."""
_GUESSES = 8
"""Times that are guessed by what is known; after them the range is halved, which ends for any times."""
_MARGIN = 16
"""A look-up is at least a 16th of the range away from its ends, so that each makes it smaller."""


class KnownTimes(NamedTuple):
    """What is known of some offsets of a partition.

    Attributes:
        start: The first of them.
        after: One beyond the last.
        offsets: int64[n], those of events.
        times: int64[n], µs, when these were.
        newest: The latest of these; `BEFORE_ALL`: there is no event.
    """

    start: int
    after: int
    offsets: NDArray[np.int64]
    times: NDArray[np.int64]
    newest: int

    @classmethod
    def of(cls, start: int, after: int, offsets: NDArray[np.int64], times: NDArray[np.int64]) -> KnownTimes:
        """Return a stretch with these events."""
        return cls(start, after, offsets, times, int(times.max()) if times.size else BEFORE_ALL)

    def since(self, start: int) -> KnownTimes:
        """Return what of it lies at ``start`` or later."""
        if start <= self.start:
            return self
        kept = self.offsets >= start
        return KnownTimes.of(start, self.after, self.offsets[kept], self.times[kept])


class EventTimes(Protocol):
    """Looks up when events of a topic were."""

    def look(self, partition: int, start: int, stop: int) -> KnownTimes:
        """Return what lies from ``start`` on, up to the first record batch with an event, ``stop`` at most."""
        ...

    def sweep(self, partition: int, start: int, stop: int) -> Iterator[KnownTimes]:
        """Yield all that lies from ``start`` to before ``stop``, one stretch behind the other."""
        ...


class EventTimeCut:
    """Says where batches end, as long as the process of a stream lives.

    Args:
        bound: Offsets of one batch at most.
        at_start: Whether nothing is read that came after the first call.
    """

    def __init__(self, bound: int, *, at_start: bool = False) -> None:
        if bound < 1:
            raise StopError(f"a batch of at most {bound} offsets would never move on: from 1 on")
        self._bound = bound
        self._at_start = at_start
        self._last: dict[int, int] | None = None
        self._lines: dict[int, _Timeline] = {}

    def ends(self, times: EventTimes, starts: Mapping[int, int], stops: Mapping[int, int]) -> dict[int, int]:
        """Return where a batch ends, by partition.

        Args:
            times: Looks times up.
            starts: Where it begins; of all that are in ``stops``.
            stops: Where partitions end now. One that ends before it begins has lost its end, and stays so.
        """
        if self._at_start:
            self._last = self._last or dict(stops)
            stops = {each: min(stop, self._last.get(each, starts[each])) for each, stop in stops.items()}
        left = {each: stop for each, stop in stops.items() if stop > starts[each]}
        if sum(stop - starts[each] for each, stop in left.items()) <= self._bound:
            self._lines.clear()
            return dict(stops)
        for each in self._lines.keys() - left.keys():
            del self._lines[each]
        for each, stop in left.items():
            line = self._lines.setdefault(each, _Timeline(each))
            line.between(starts[each], stop, self._bound)
        return {**stops, **self._cut(times)}

    def _cut(self, times: EventTimes) -> dict[int, int]:
        """Return where partitions end of which something is left; all together have more than the bound.

        Between a time that gives too few offsets and one that gives too many a better one is looked for. Where
        there is none between them, what makes the difference is all of one time, and any part of it will do.
        """
        lines = self._lines
        early, late = BEFORE_ALL, AFTER_ALL
        fewest = {each: line.first_later(times, early) for each, line in lines.items()}
        if self._size(fewest) > self._bound:  # nothing but records that are no events
            return self._filled({each: line.start for each, line in lines.items()}, fewest)
        most = {each: line.stop for each, line in lines.items()}
        for line in lines.values():
            line.look_ahead(times)
        guesses = 0
        while late - early > 1:
            time = self._guess() if guesses < _GUESSES else (early + late) // 2
            guesses += 1
            time = min(max(time, early + 1), late - 1)
            found = {each: max(fewest[each], line.first_later(times, time)) for each, line in lines.items()}
            size = self._size(found)
            if size > self._bound:
                late, most = time, found
            else:
                early, fewest = time, found
                if size * 2 >= self._bound:
                    return fewest
        return self._filled(fewest, most)

    def _size(self, ends: Mapping[int, int]) -> int:
        return sum(end - self._lines[each].start for each, end in ends.items())

    def _filled(self, fewest: Mapping[int, int], most: Mapping[int, int]) -> dict[int, int]:
        """Return ends between two that have the bound's offsets exactly."""
        room = self._bound - self._size(fewest)
        ends = {}
        for each, end in sorted(fewest.items()):
            more = max(min(room, most[each] - end), 0)
            ends[each] = end + more
            room -= more
        return ends

    def _guess(self) -> int:
        """Return the time that gives three quarters of the bound, by what is known."""
        curves = [line.curve() for line in self._lines.values()]
        known = np.concatenate([times for times, _ in curves])
        if not known.size:
            return 0
        early, late = int(known.min()), int(known.max())
        while late - early > 1:
            time = (early + late) // 2
            size = sum(float(np.interp(time, *curve)) for curve in curves if curve[0].size)
            early, late = (early, time) if size > self._bound * 3 / 4 else (time, late)
        return early


class _Timeline:
    """What is known of one partition's times, between ``start`` and ``stop``."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._known: list[KnownTimes] = []
        self._halve = False
        self.start = self.stop = 0

    def between(self, start: int, stop: int, bound: int) -> None:
        """Set from where to where a batch may read; what is known of offsets outside is forgotten."""
        if self._known and self._known[-1].after > stop:
            self._known = []  # it has lost its end: what comes there now are other records
        self._known = [each.since(start) for each in self._known if each.after > start]
        # One more than the bound: what reaches it is too much.
        self.start, self.stop = start, min(stop, start + bound + 1)

    def first_later(self, times: EventTimes, time: int) -> int:
        """Return the offset of the first event later than ``time``, or where the batch may end at most."""
        while True:
            low, high, found = self._bracket(time)
            if low >= high:
                if found is None:
                    return self.stop
                return min(int(found.offsets[found.times > time][0]), self.stop)
            if high - low <= SWEPT_OFFSETS:
                self._sweep(times, time, low, high)
            else:
                self._look(times, self._between(time, low, high, found), high)

    def look_ahead(self, times: EventTimes) -> None:
        """Look up a time near the end, so that there is something to guess by."""
        at = self.stop - max((self.stop - self.start) // _MARGIN, 1)
        if not self._known or self._known[-1].after < at:
            self._look(times, max(at, self.start), self.stop)

    def curve(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return times that go up, and how many offsets come before each."""
        known = [each for each in self._known if each.newest > BEFORE_ALL and each.start < self.stop]
        if not known:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        first = known[0]
        times = np.array([int(first.times[0]), *(each.newest for each in known)])
        after = np.array([int(first.offsets[0]), *(min(each.after, self.stop) for each in known)])
        return np.maximum.accumulate(times), after - self.start

    def _bracket(self, time: int) -> tuple[int, int, KnownTimes | None]:
        """Return between which offsets nothing is known, and what is there has the first event later.

        Where the first is not below the second, it is in the stretch; None: there is none before the end.
        """
        low, high, found = self.start, self.stop, None
        for each in self._known:
            if each.start >= self.stop:
                break
            if each.newest > time:
                high, found = each.start, each
                break
            if each.newest > BEFORE_ALL or each.start <= low:
                low = each.after
        for each in reversed(self._known):
            if each.newest == BEFORE_ALL and each.start < high <= each.after:
                high = each.start
        return low, high, found

    def _between(self, time: int, low: int, high: int, found: KnownTimes | None) -> int:
        """Return where to look next: by the times on both sides, and each second time in the middle."""
        if time == BEFORE_ALL:
            return low  # any event is later: it is the first one that is looked for
        share, self._halve = 0.5, not self._halve
        before = max((each.newest for each in self._known if each.after <= low), default=BEFORE_ALL)
        if found is not None and before > BEFORE_ALL and self._halve:
            later = int(found.times[found.times > time][0])
            share = (time - before) / (later - before) if later > before else share
        share = min(max(share, 1 / _MARGIN), 1 - 1 / _MARGIN)
        return low + int((high - low) * share)

    def _look(self, times: EventTimes, at: int, stop: int) -> None:
        for each in self._known:
            if each.start <= at < each.after:
                at = each.after
        stop = min([stop, *(each.start for each in self._known if each.start >= at)])
        if at < stop:
            insort(self._known, times.look(self._partition, at, stop), key=lambda each: each.start)

    def _sweep(self, times: EventTimes, time: int, low: int, high: int) -> None:
        self._known = [each for each in self._known if each.after <= low or each.start >= high]
        for each in times.sweep(self._partition, low, high):
            insort(self._known, each, key=lambda one: one.start)
            if each.newest > time:
                return
