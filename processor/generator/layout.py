"""The order of a partition: which original stands where, and why some stand there again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# How the copies are split between the kinds, and how long one incident is: a time-out repeats the last
# few records, a crash what had not been acknowledged, a restarted connector a block of the past.
_SPLIT = (0.4, 0.35, 0.25)
_RESEND_SIZE = (1, 6)
_TAIL_SIZE = (20, 400)
_LATE_SIZE = (50, 1_200)
# A late block ends at least this share of a partition's originals before the point it is sent at.
_LATE_DISTANCE = 0.08


MOST_PLANTED = 8
"""Twice one copy of so many may be planted: they are taken from the late ones, which are a quarter, and from
the resends, which are more."""
NONE_PLANTED = np.empty((3, 0), np.int64)


class RecordKind(IntEnum):
    """Why a record was sent, and that it is a collision whyever it was; names as in the truth file."""

    FIRST = 0
    RESEND = 1
    TAIL = 2
    LATE = 3
    COLLISION = 4

    @property
    def label(self) -> str:
        """The word in the truth file."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands where in one partition; both columns have a row per record, in offset order.

    Attributes:
        original: int32[n], index among the partition's originals.
        kind: uint8[n], `RecordKind`: why each was sent.
    """

    original: NDArray[np.int32]
    kind: NDArray[np.uint8]


def shares(total: int, weights: Sequence[float]) -> list[int]:
    """Split ``total`` by ``weights`` into whole numbers whose sum is exactly ``total``."""
    if not total or not sum(weights):
        return [0] * len(weights)
    edges = np.rint(np.cumsum(weights) / sum(weights) * total).astype(np.int64)
    return [int(part) for part in np.diff(edges, prepend=0)]


def make_layout(
    rng: np.random.Generator, originals: int, copies: int, planted: NDArray[np.int64] = NONE_PLANTED
) -> Layout:
    """Place ``copies`` copies among ``originals`` originals, in incidents of the three kinds.

    Args:
        rng: Drawn from.
        originals: How many there are.
        copies: How many of all are to be copies.
        planted: int64[3, k], k <= 2 * (``copies`` // `MOST_PLANTED`): single ones among them whose place is
            given: their kind, late or a resend, the original that each comes after, and the one it repeats.
    """
    resend, tail, late = shares(copies, _SPLIT)
    distance = int(originals * _LATE_DISTANCE)
    single = np.ones((1, planted.shape[1]), np.int64)
    late_ones = int((planted[0] == RecordKind.LATE).sum())
    resend_ones = planted.shape[1] - late_ones
    incidents = [
        _incidents(rng, RecordKind.RESEND, resend - resend_ones, _RESEND_SIZE, originals, 0),
        _incidents(rng, RecordKind.TAIL, tail, _TAIL_SIZE, originals, 0),
        _incidents(rng, RecordKind.LATE, late - late_ones, _LATE_SIZE, originals, distance),
        np.concatenate([planted, single]),
    ]
    kind, after, first, size = np.concatenate(incidents, axis=1)
    # All rows: the originals, each at its own place, then the incidents' blocks behind theirs.
    starts = np.repeat(np.cumsum(size) - size, size)
    block = np.repeat(first, size) + np.arange(size.sum()) - starts
    place = np.concatenate([np.arange(originals), np.repeat(after, size)])
    # Of several incidents at one place none is torn apart; the original comes before all.
    turn = np.concatenate([np.zeros(originals, np.int64), np.repeat(1 + rng.permutation(size.size), size)])
    order = np.lexsort((turn, place))
    rows = np.concatenate([np.arange(originals), block])[order]
    kinds = np.concatenate([np.zeros(originals, np.int64), np.repeat(kind, size)])[order]
    return Layout(rows.astype(np.int32), kinds.astype(np.uint8))


def _incidents(
    rng: np.random.Generator,
    kind: RecordKind,
    copies: int,
    sizes: tuple[int, int],
    originals: int,
    distance: int,
) -> NDArray[np.int64]:
    """Draw incidents with ``copies`` copies in all.

    Returns:
        int64[4, incidents]: kind, the original that it comes after, the first one it repeats, how many.
    """
    if not copies:
        return np.empty((4, 0), np.int64)
    # Short streams have short incidents, so that there are several.
    high = max(1, min(sizes[1], copies // 3, originals - distance))
    low = min(sizes[0], high)
    size = rng.integers(low, high + 1, copies // low + 1)
    ends = np.cumsum(size)
    size = size[: int(np.searchsorted(ends, copies)) + 1]
    size[-1] -= int(size.sum()) - copies
    last = distance + size - 1
    after = last + (rng.random(size.size) * (originals - last)).astype(np.int64)
    # A late block lies anywhere before the distance, the others end where they are sent.
    room = after - distance - size + 1
    back = (rng.random(size.size) * (room + 1)).astype(np.int64) if kind is RecordKind.LATE else 0
    first = np.maximum(room - back, 0)
    return np.stack([np.full(size.size, kind), after, first, size]).astype(np.int64)
