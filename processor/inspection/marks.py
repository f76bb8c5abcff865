"""Finds the marks around a source offset or a time in an index topic, by a few small fetches.

Two marks that follow each other frame in the outputs what lay between them in the source
(`schemas.changelog.marks`). They are searched for by halving the offsets of the topic: a fetch from any offset
gives the next marks behind it, and markers of transactions are stepped over. Whatever order the marks are in,
two that are found do follow each other, so a frame never lies; where clocks went back between two resets, one
may not be found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.changelog.marks import IndexMark

MOST_STATES = 16
"""So many resets are looked behind: one is made by hand, and retention removes old ones."""
LAST_OFFSETS = 16
"""At the end of the topic: about eight marks, of which one that has not been aborted is enough."""

Key = tuple[int, ...]


class StoredMark(NamedTuple):
    """A mark and its offset in the index topic."""

    offset: int
    mark: IndexMark


class Extent(NamedTuple):
    """Offsets of an index topic's partition: the first, and the one up to which it can be read."""

    start: int
    stop: int


class StoredMarks(Protocol):
    """One partition of an index topic."""

    async def extent(self) -> Extent:
        """Return from where to where it can be read."""
        ...

    async def some_from(self, offset: int, stop: int) -> Sequence[StoredMark]:
        """Return some marks, from the first at or behind ``offset`` on; none: there is none before ``stop``."""
        ...


class Neighbours(NamedTuple):
    """Two marks that follow each other; None: there is none before, or behind."""

    before: IndexMark | None
    after: IndexMark | None


@dataclass(frozen=True, slots=True)
class MarkFrame:
    """Two marks that follow each other, and the state that they are of.

    What became of the records from ``before.next_offset`` to below ``after.next_offset`` stands in the outputs
    from ``before.ends`` to below ``after.ends``, where these are known (at least 0).

    Attributes:
        since_ms: When the state was made that took them in: after a reset there are frames of several.
        before: None: no mark is so old any more.
        after: None: nothing is committed behind ``before`` yet. Of a state that a reset has ended it may be the
            first mark behind that: then its ends hold, and its offset says nothing.
    """

    since_ms: int
    before: IndexMark | None
    after: IndexMark | None


async def first_above(
    marks: StoredMarks, extent: Extent, key: Callable[[IndexMark], Key], above: Key
) -> Neighbours:
    """Return the first mark whose key is above another one, and the mark before it; keys rise by offset."""
    low, high = extent
    before: IndexMark | None = None
    after: IndexMark | None = None
    while low < high:
        middle = (low + high) // 2
        found = await marks.some_from(middle, extent.stop)
        if not found:
            high = middle
            continue
        higher = next((index for index, each in enumerate(found) if key(each.mark) > above), None)
        if higher == 0:
            high, after = middle, found[0].mark
            continue
        if higher is not None:
            return Neighbours(found[higher - 1].mark, found[higher].mark)
        low, before = found[-1].offset + 1, found[-1].mark
    return Neighbours(before, after)


async def frames(marks: StoredMarks, offset: int) -> list[MarkFrame]:
    """Return the frames in which a source offset may have been taken in, those of the newest state first."""
    found: list[MarkFrame] = []
    extent = await marks.extent()
    oldest = next(iter(await marks.some_from(*extent)), None)
    state = await _newest(marks, extent)
    for _ in range(MOST_STATES):
        if state is None or oldest is None:
            break
        before, after = await first_above(marks, extent, _by_offset, (state.since_ms, offset))
        mine = before if before is not None and before.since_ms == state.since_ms else None
        # Without a mark of its own before it, the state began behind the offset; or the topic does.
        if mine is not None or (before is None and after is not None and after.since_ms == state.since_ms):
            found.append(MarkFrame(state.since_ms, mine, after))
        if oldest.mark.since_ms == state.since_ms:
            break
        state = (await first_above(marks, extent, _by_state, (state.since_ms - 1,))).before
    return found


async def _newest(marks: StoredMarks, extent: Extent) -> IndexMark | None:
    """Return the last mark."""
    span = LAST_OFFSETS
    while True:
        start = at = max(extent.start, extent.stop - span)
        last: IndexMark | None = None
        while some := await marks.some_from(at, extent.stop):
            at, last = some[-1].offset + 1, some[-1].mark
        if last is not None or start == extent.start:
            return last
        span *= LAST_OFFSETS


def _by_state(mark: IndexMark) -> Key:
    return (mark.since_ms,)


def _by_offset(mark: IndexMark) -> Key:
    return mark.order
