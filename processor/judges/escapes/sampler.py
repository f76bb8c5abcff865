"""Keeps what may be drawn of one partition's records, and gives it on when they are committed.

Nothing is hashed here: a call of a kernel takes longer than the few records of a commit, so what has
committed is drawn together, see `processor.judges.escapes.drawing`.

Invariant: it never raises, and what was judged in a transaction that did not commit goes with its judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.clock import NEVER
from processor.engine.ids.passes import UNWANTED, PassKind
from processor.engine.verdict import Verdict
from processor.judges.escapes.drawing import JudgedCommit, JudgedPiece

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.extract.ids import Ids
    from processor.judges.escapes.gauge import EscapeGauge

FEW = 32
"""So many records or fewer are kept as they are: choosing among them takes longer than to draw them later."""


class IdSampler:
    """Of one partition.

    Args:
        gauge: Of the pipeline.
        partition: The source's, or with ``route`` the sink's.
        collisions: Whether a record that collides goes into the sink as a record of its own.
        renews: Whether a duplicate renews its id's window.
    """

    def __init__(self, gauge: EscapeGauge, partition: int, *, collisions: bool, renews: bool) -> None:
        self._gauge = gauge
        self._partition = partition
        self._kinds = np.full(len(Verdict), UNWANTED, np.uint8)
        self._kinds[Verdict.PASS] = PassKind.PASSED
        if collisions:
            self._kinds[Verdict.COLLISION] = PassKind.PASSED
        if renews:
            self._kinds[Verdict.DUPLICATE] = PassKind.RENEWED
        self._wanted = self._kinds != UNWANTED
        self._forget()

    def _forget(self) -> None:
        self._pieces: list[JudgedPiece] = []
        self._rows = 0
        self._level = 0
        self._from_ms: int | None = None
        self._to_ms = 0

    def saw(self, ids: Ids, verdict: NDArray[np.uint8], reading_ms: NDArray[np.int64]) -> None:
        """Keep what may be drawn of records judged at these readings of the partition's clock."""
        gauge = self._gauge
        if gauge.off or not verdict.size:
            return
        try:
            self._saw(gauge, ids, verdict, reading_ms)
        except Exception as error:  # noqa: BLE001 - a statistic must never end a worker
            gauge.fail(error)

    def _saw(
        self, gauge: EscapeGauge, ids: Ids, verdict: NDArray[np.uint8], reading_ms: NDArray[np.int64]
    ) -> None:
        if self._from_ms is None:
            # Records before the clock's first reading cannot be judged: there is nothing of them to draw.
            first = int(np.searchsorted(reading_ms, NEVER, side="right"))
            if first == reading_ms.size:
                return
            self._from_ms = int(reading_ms[first])
        self._to_ms = int(reading_ms[-1])
        # It may be raised meanwhile: what was kept before is thinned later.
        level = gauge.level
        self._level = max(self._level, level)
        if verdict.size <= FEW:
            piece = JudgedPiece(ids.lot, ids.fingerprint, self._kinds[verdict], reading_ms).owned()
            gauge.spend(verdict.size / 2**level)
        else:
            least = np.uint64(2**64 - 1) >> np.uint64(level)
            rows = np.flatnonzero(ids.lot <= least if level else self._wanted[verdict])
            if not rows.size:
                return
            prints = ids.fingerprint[rows] if ids.fingerprint.size else ids.fingerprint
            piece = JudgedPiece(ids.lot[rows], prints, self._kinds[verdict[rows]], reading_ms[rows])
            gauge.spend(rows.size)
        self._pieces.append(piece)
        self._rows += piece.lot.size
        # Of the first rows and one whole piece behind them; from then on each piece thins the sample. What is
        # left out is not counted.
        if self._rows > gauge.most_waiting * 3 // 4:
            self._forget()

    def committed(self) -> None:
        """Give on what was kept since the last commit."""
        if self._from_ms is None:
            return
        try:
            self._gauge.judged(
                JudgedCommit(self._partition, self._level, self._from_ms, self._to_ms, self._pieces, self._rows)
            )
        except Exception as error:  # noqa: BLE001 - as above
            self._gauge.fail(error)
        self._forget()
