"""Draws the ids of what was committed into the sample: of many commits and partitions at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.ids.passes import Passes, drawn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ROW_BYTES = 25
"""Of a record that was judged: lot, fingerprint, reading, kind."""
MOST_COMMITS = 4_096
"""Of partitions: a second's, where each of a hundred commits every 25 ms."""


class JudgedPiece(NamedTuple):
    """Records that were judged together.

    Attributes:
        lot: uint64[n], see `processor.engine.extract.ids.Ids`.
        fingerprint: uint64[n], by which records of one id are told apart; uint64[0] where they are not.
        kind: uint8[n], `PassKind` values, or `UNWANTED`.
        at: int64[n], the partition's clock at each, ms.
    """

    lot: NDArray[np.uint64]
    fingerprint: NDArray[np.uint64]
    kind: NDArray[np.uint8]
    at: NDArray[np.int64]

    def owned(self) -> JudgedPiece:
        """Return the same without what else its hashes were made with."""
        lot, prints = self.lot, self.fingerprint
        return self if lot.base is None else self._replace(lot=lot.copy(), fingerprint=prints.copy())


class JudgedCommit(NamedTuple):
    """What one transaction has committed of a partition, of the ids of a level's sample at least.

    Attributes:
        from_ms: The partition's clock at its first record.
        to_ms: At its last.
        rows: Of all pieces.
    """

    partition: int
    level: int
    from_ms: int
    to_ms: int
    pieces: list[JudgedPiece]
    rows: int


class Span(NamedTuple):
    """What a partition's clock went through, all of it known.

    Attributes:
        level: Of the ids of this level's sample.
        from_ms: Where it began.
        to_ms: Where it ended.
    """

    level: int
    from_ms: int
    to_ms: int


class Drawn(NamedTuple):
    """What transactions have committed, of the ids in the sample.

    Attributes:
        spans: By partition.
        passes: In the order in which they committed.
    """

    spans: dict[int, Span]
    passes: Passes


class Undrawn:
    """What has committed and is not drawn from yet, in bounded memory.

    Args:
        most_rows: With more it is full.
    """

    def __init__(self, most_rows: int) -> None:
        self._most_rows = most_rows
        self._all: list[JudgedCommit] = []
        self._rows = 0

    @property
    def nbytes(self) -> int:
        """What the rows take."""
        return self._rows * ROW_BYTES

    @property
    def full(self) -> bool:
        """Whether it is time to draw."""
        return self._rows > self._most_rows or len(self._all) > MOST_COMMITS

    def add(self, judged: JudgedCommit) -> None:
        """Keep one."""
        self._all.append(judged)
        self._rows += judged.rows

    def draw(self, level: int, key: NDArray[np.uint64]) -> Drawn:
        """Draw from all, once.

        Args:
            level: Of the sample.
            key: uint64[2], of the hash of its ids.
        """
        judged, self._all, self._rows = self._all, [], 0
        spans: dict[int, Span] = {}
        for each in judged:
            above, from_ms, _ = spans.get(each.partition, (level, each.from_ms, 0))
            spans[each.partition] = Span(max(above, each.level), from_ms, each.to_ms)
        pieces = [(each.partition, piece) for each in judged for piece in each.pieces]
        return Drawn(spans, _drawn(pieces, level, key))


def _drawn(pieces: Sequence[tuple[int, JudgedPiece]], level: int, key: NDArray[np.uint64]) -> Passes:
    if not pieces:
        return _room(np.zeros(0, np.int64))
    lot, prints, kind, at = (
        np.concatenate(column) for column in zip(*(piece for _, piece in pieces), strict=True)
    )
    partition = np.repeat([number for number, _ in pieces], [piece.lot.size for _, piece in pieces])
    out = _room(partition)
    return out.part(slice(0, int(drawn(lot, prints, kind, at, partition, level, key, out))))


def _room(partition: NDArray[np.int64]) -> Passes:
    rows = partition.size
    columns = np.empty(rows, np.uint64), np.empty(rows, np.int64)
    return Passes(*columns, np.empty(rows, np.int64), np.empty(rows, np.uint8))
