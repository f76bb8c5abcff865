"""The search for marks finds what reading all of them would, by a few small fetches."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from processor.inspection.marks import MOST_STATES, Extent, MarkFrame, StoredMark, first_above, frames
from schemas.changelog.marks import IndexMark

if TYPE_CHECKING:
    from collections.abc import Sequence


class ListedMarks:
    """Marks in memory, at most ``chunk`` of them a fetch; offsets without one are markers, or were aborted."""

    def __init__(self, stored: Sequence[StoredMark], extent: Extent, chunk: int) -> None:
        self.stored = stored
        self._extent = extent
        self._chunk = chunk
        self.fetches = 0

    async def extent(self) -> Extent:
        return self._extent

    async def some_from(self, offset: int, stop: int) -> Sequence[StoredMark]:
        self.fetches += 1
        behind = [each for each in self.stored if offset <= each.offset < stop]
        return behind[: self._chunk]


@st.composite
def listed(draw: st.DrawFn, *, ordered: bool) -> ListedMarks:
    """Marks of some states, each from an offset on, as resets leave them; the front may be gone."""
    stored: list[StoredMark] = []
    at, since = draw(st.integers(0, 1000)), draw(st.integers(0, 3))
    start = at
    for _ in range(draw(st.integers(0, 4))):
        next_offset = draw(st.integers(0, 40))
        for _ in range(draw(st.integers(1, 12))):
            at += draw(st.sampled_from([0, 1, 1, 1, 2, 30]))
            stored.append(StoredMark(at, IndexMark(at * 10, since, next_offset)))
            at += 1
            next_offset += draw(st.integers(0, 9))
        since = since + draw(st.integers(1, 5)) if ordered else draw(st.integers(0, 5))
    end = at + draw(st.integers(0, 40))
    gone = draw(st.integers(start, max(start, at)))
    kept = [each for each in stored if each.offset >= gone]
    return ListedMarks(kept, Extent(gone, end), draw(st.integers(1, 5)))


def naive(stored: Sequence[StoredMark], offset: int) -> list[MarkFrame]:
    """Read all marks of all states, the newest state first."""
    found = []
    every = [each.mark for each in stored]
    for since in sorted({mark.since_ms for mark in every}, reverse=True)[:MOST_STATES]:
        before = after = None
        for mark in every:
            if mark.since_ms == since and mark.next_offset <= offset:
                before = mark
        behind = [mark for mark in every if mark.order > (since, offset)]
        after = behind[0] if behind else None
        first = after is not None and after.since_ms == since and after is every[0]
        if before is not None or first:
            found.append(MarkFrame(since, before, after))
    return found


@given(listed(ordered=True), st.integers(-1, 160))
def test_the_frames_are_those_that_reading_everything_gives(marks: ListedMarks, offset: int) -> None:
    assert asyncio.run(frames(marks, offset)) == naive(marks.stored, offset)


@given(listed(ordered=False), st.integers(-1, 160))
def test_whatever_order_marks_are_in_those_of_a_frame_follow_each_other(
    marks: ListedMarks, offset: int
) -> None:
    every = [None, *(each.mark for each in marks.stored), None]
    neighbours = list(pairwise(every))
    for frame in asyncio.run(frames(marks, offset)):
        assert (frame.before, frame.after) in neighbours
        if frame.before is not None:
            assert frame.before.since_ms == frame.since_ms
            assert frame.before.next_offset <= offset
        assert frame.after is None or frame.after.order > (frame.since_ms, offset)


@given(st.integers(1, 3000), st.integers(1, 30), st.integers(0, 30_000))
def test_the_search_takes_about_as_many_fetches_as_the_count_has_bits(
    count: int, chunk: int, time_ms: int
) -> None:
    marks = ListedMarks(
        [StoredMark(2 * n, IndexMark(10 * n, 1, n)) for n in range(count)], Extent(0, 2 * count), chunk
    )
    extent = asyncio.run(marks.extent())
    before, after = asyncio.run(first_above(marks, extent, lambda mark: (mark.time_ms,), (time_ms,)))
    behind = min(time_ms // 10 + 1, count)
    assert before == marks.stored[behind - 1].mark
    assert after == (marks.stored[behind].mark if behind < count else None)
    assert marks.fetches <= math.log2(2 * count) + 2
