"""Gives some originals the ids of earlier ones: other content under an id that is remembered.

Half of them are other clicks, half differ from the earlier one in a number and a time. An id can have several::

    originals    A1   B1   A2   C1   A3   B2        A2 and A3 collide with A1, B2 with B1
    copies                 A2        A1*  A2        A1* when A1 has expired and A2 has not: it collides with A2

Invariant: whatever collides stands behind the original whose id it has, and within its window where one does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.generator.layout import RecordKind
from processor.generator.window import clock_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.generator.window import WindowRows

# How many take the id of one that collides itself, among the last few of these.
_AGAIN_SHARE, _AGAIN_BACK = 0.3, 8
_NEAR_SHARE = 0.5
_SOON = 6  # originals until a producer sends once more


class SharedIds(NamedTuple):
    """The originals of one partition that collide, k of n.

    Attributes:
        name: int32[n], the original whose id each one has: the first that has it.
        rows: int32[k], which ones have that of another, in order.
        near: bool[k], those that differ from the first in little.
    """

    name: NDArray[np.int32]
    rows: NDArray[np.int32]
    near: NDArray[np.bool_]

    @property
    def first(self) -> NDArray[np.int32]:
        """int32[k], whose id they have."""
        return self.name[self.rows]


NONE_SHARED = SharedIds(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.bool_))


def draw_shared_ids(rng: np.random.Generator, rows: WindowRows, window_ms: int, count: int) -> SharedIds:
    """Let ``count`` originals collide, as far as there are others before them.

    Args:
        rng: Drawn from.
        rows: The originals alone.
        window_ms: How long an id is remembered.
        count: How many.
    """
    whole = np.flatnonzero(~rows.bad & ~rows.unjudged).astype(np.int32)
    late = np.sort(rng.permutation(whole[1:])[:count])
    clock = clock_of(rows)
    stop = np.searchsorted(whole, late)
    start = np.searchsorted(whole, np.searchsorted(clock, clock[late] - window_ms, side="right"))
    # Where nothing is as young as that: the one before.
    start = np.minimum(start, stop - 1)
    first = whole[start + (rng.random(late.size) * (stop - start)).astype(np.int64)]
    back = rng.integers(1, _AGAIN_BACK + 1, late.size)
    again = rng.random(late.size) < _AGAIN_SHARE
    name = rows.name.copy()
    for turn, row in enumerate(late.tolist()):
        before = late[turn - back[turn]] if again[turn] and back[turn] <= turn else first[turn]
        name[row] = name[before]
    return SharedIds(name, late, rng.random(late.size) < _NEAR_SHARE)


def plan_copies(
    rng: np.random.Generator, rows: WindowRows, shared: SharedIds, window_ms: int, most: int
) -> NDArray[np.int64]:
    """Say where copies of what collides are put, and of what it collides with.

    Args:
        rng: Drawn from.
        rows: The originals alone.
        shared: Of these.
        window_ms: How long an id is remembered.
        most: How many copies there is room for.

    Returns:
        int64[3, c], c <= ``most``, for `make_layout`: the kind of each copy, the original that it comes after,
        and the one it repeats. By turns: what collides, soon, and when the first of its id has expired and it
        has not; then the first of its id at these two times.
    """
    clock = clock_of(rows)
    planned: list[tuple[int, int, int]] = []
    chosen = rng.permutation(shared.rows.size)[:most]
    for turn, (row, first) in enumerate(
        zip(shared.rows[chosen].tolist(), shared.first[chosen].tolist(), strict=True)
    ):
        repeated = row if turn % 4 < 2 else first
        start = max(row, int(np.searchsorted(clock, clock[first] + window_ms)))
        stop = int(np.searchsorted(clock, clock[row] + window_ms))
        if turn % 2 and start < stop:
            planned.append((RecordKind.LATE, int(rng.integers(start, stop)), repeated))
        else:
            after = min(row + int(rng.integers(0, _SOON)), clock.size - 1)
            planned.append((RecordKind.RESEND, after, repeated))
    return np.array(planned, np.int64).reshape(-1, 3).T
