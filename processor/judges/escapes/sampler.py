"""Draws the ids of one partition's records into the sample, and gives them on when they are committed.

Invariant: it never raises, and what was judged in a transaction that did not commit goes with its judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from processor.engine.ids.passes import UNWANTED, Passes, PassKind, drawn
from processor.engine.verdict import Verdict
from processor.judges.escapes.statements import Covered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.extract.ids import Ids
    from processor.judges.escapes.gauge import EscapeGauge


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
        self._kinds[Verdict.PASS] = PassKind.OWN
        if collisions:
            self._kinds[Verdict.COLLISION] = PassKind.OWN
        if renews:
            self._kinds[Verdict.DUPLICATE] = PassKind.RENEWED
        self._wanted = self._kinds != UNWANTED
        self._forget()

    def _forget(self) -> None:
        self._staged: list[tuple[NDArray[Any], ...]] = []
        self._staged_rows = 0
        self._level = 0
        self._from_ms: int | None = None
        self._to_ms = 0

    def saw(self, ids: Ids, verdict: NDArray[np.uint8], reading_ms: NDArray[np.int64]) -> None:
        """Draw from records that have been judged at these readings of the partition's clock."""
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
        # It may be raised meanwhile: what was drawn before is thinned later.
        level = gauge.level
        lot, fingerprint = ids.lot, ids.fingerprint
        least = np.uint64(2**64 - 1) >> np.uint64(level)
        rows = np.flatnonzero(lot <= least) if level else np.flatnonzero(self._wanted[verdict])
        if self._from_ms is None:
            self._from_ms = int(reading_ms[0])
        self._to_ms = int(reading_ms[-1])
        self._level = max(self._level, level)
        if not rows.size:
            return
        gauge.spend(rows.size)
        prints = fingerprint[rows] if fingerprint.size else fingerprint
        self._staged.append((lot[rows], prints, verdict[rows], reading_ms[rows]))
        self._staged_rows += rows.size
        # Of the first rows and one whole piece behind them; from then on each piece thins the sample.
        if self._staged_rows > gauge.most_waiting * 3 // 4:
            gauge.lose(self._partition)
            self._forget()

    def committed(self) -> None:
        """Give on what was drawn since the last commit."""
        if self._from_ms is None:
            return
        try:
            passes = self._passes()
            covered = Covered(self._partition, self._level, self._from_ms, self._to_ms, passes)
            self._gauge.add(covered)
        except Exception as error:  # noqa: BLE001 - as above
            self._gauge.fail(error)
        self._forget()

    def _passes(self) -> Passes:
        """Return what is staged, hashed: once per commit, for the call takes longer than the rows."""
        if not self._staged:
            return _passes(0)
        lot, prints, verdict, at = (np.concatenate(each) for each in zip(*self._staged, strict=True))
        passes = _passes(lot.size)
        passes.partition[:] = self._partition
        count = drawn(lot, prints, verdict, at, self._kinds, 0, self._gauge.key, passes)
        return passes.part(slice(0, int(count)))


def _passes(rows: int) -> Passes:
    return Passes(
        np.empty(rows, np.uint64), np.empty(rows, np.int64), np.zeros(rows, np.int64), np.empty(rows, np.uint8)
    )
