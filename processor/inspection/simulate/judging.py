"""Takes the records of a source, and counts what each way of judging makes of them.

By ids: the real extractor and the real clock, and of the ids a sample. By sequences: the real judges, one per
partition and reorder window, over all records.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from processor.engine.ids import clock
from processor.engine.receipts import PASSING
from processor.engine.verdict import Fault, Verdict
from processor.inspection.simulate.forecast import IdForecast, JudgedCounts, ReorderRow, SequenceForecast
from processor.inspection.simulate.id_sample import MOST_ROWS, IdSample
from processor.inspection.simulate.windows import FOREVER_MS, in_any_order, predict
from processor.judges.ids import make_id_extractor
from processor.judges.watermark import WatermarkMode
from processor.state.kv.store import MemoryStore
from processor.state.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.inspection.simulate.forecast import JudgingWay
    from processor.judges.judge import Judge
    from schemas.config import InsertIdDedup

REORDER_WINDOWS = (0, 64, 1_024, 16_384)
"""Beside the configured one."""
MOST_SCOPE_BYTES = 128 * 1024 * 1024
"""Of all tables of scopes together: what is kept stays within 512 MB."""
_CURVE = 33
_SHORTEST_MS = 1_000


class Faults:
    """Counts records that cannot be judged."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(Fault), np.int64)
        self.records = 0

    def take(self, fault: NDArray[np.uint8]) -> None:
        """Count those of some records."""
        self.records += fault.size
        if fault.any():
            self._counts += np.bincount(fault, minlength=len(Fault))

    def by_code(self) -> dict[str, int]:
        """Return how many there are of each."""
        return {Fault(n).code: int(self._counts[n]) for n in np.flatnonzero(self._counts).tolist() if n}


class IdWay:
    """Judges by ids.

    Args:
        way: How.
        windows_ms: Of interest; the configured one is one of them.
        now_ms: What this machine's clock reads.
        most_rows: See `IdSample`.
    """

    def __init__(
        self, way: JudgingWay, windows_ms: Sequence[int], now_ms: int, most_rows: int = MOST_ROWS
    ) -> None:
        self.way = way
        dedup: Any = way.dedup
        self._dedup: InsertIdDedup = dedup
        self._windows = sorted({*windows_ms, self._dedup.window})
        self._limit_ms = clock.NO_LIMIT if self._dedup.time == "arrival" else self._dedup.max_ahead + now_ms
        self._extractor = make_id_extractor(self._dedup, os.urandom(16))
        prints = self._dedup.fingerprint is not None
        self._sample = IdSample(self._windows[0], prints=prints, most_rows=most_rows)
        self._clocks: dict[int, int] = {}
        self._faults = Faults()
        self._unjudged = self._behind = self._ahead = 0

    def take(self, partition: int, columns: Columns) -> None:
        """Take the next records of a partition."""
        ids = self._extractor.extract(columns)
        before = self._clocks.get(partition, clock.NEVER)
        readings = clock.by_records(before, columns.timestamp, ids.fault, self._limit_ms, 0)
        self._clocks[partition] = readings.clock_ms
        self._behind += readings.late
        self._ahead += readings.future
        self._faults.take(ids.fault)
        unjudged = int(np.count_nonzero(ids.unjudged))
        self._unjudged += unjudged
        hashes, reading, prints = ids.hash[:, 0], readings.reading_ms, ids.fingerprint
        if unjudged or ids.fault.any():
            rows = np.flatnonzero((ids.fault == 0) & ~ids.unjudged)
            hashes, reading = hashes[rows], reading[rows]
            prints = prints[rows] if prints.size else prints
        self._sample.add(partition, hashes, reading, prints)

    def forecast(self) -> IdForecast:
        """Return what all windows would do."""
        sample, dedup = self._sample, self._dedup
        rules = {"refresh": dedup.refresh, "kept": dedup.on_collision in PASSING}
        apart = predict(sample, [*self._windows, FOREVER_MS], route=False, **rules)
        together = predict(sample, [*self._windows, FOREVER_MS], route=True, **rules)
        span = sample.end_ms - sample.begin_ms
        curve = predict(sample, _curve(span, self._windows), route=dedup.route is not None, **rules)
        meet = sample.partitions > 1
        bounded = in_any_order(together[:-1], together[-1], sample.judged) if meet else together[:-1]
        judged = JudgedCounts(
            self._faults.records, self._faults.by_code(), self._unjudged, span, self._behind, self._ahead
        )
        crossing = max(0.0, apart[-1].missed.value - together[-1].missed.value)
        return IdForecast(
            self.way,
            judged,
            sample.rate,
            sample.exact and not (meet and dedup.route is not None),
            sample.partitions,
            apart[:-1],
            bounded,
            curve,
            crossing,
        )


def _curve(span_ms: int, windows: Sequence[int]) -> list[int]:
    """Return windows for the plot, each longer than the last by the same factor."""
    longest = max(span_ms + 1, _SHORTEST_MS * 10)
    points = np.geomspace(_SHORTEST_MS, longest, _CURVE).astype(np.int64)
    return sorted({*points.tolist(), *(each for each in windows if each <= longest)})


class SequenceWay:
    """Judges by sequences, for several reorder windows at once.

    Args:
        way: How.
        more: Reorder windows beside the configured one.
    """

    def __init__(self, way: JudgingWay, more: Sequence[int] = REORDER_WINDOWS) -> None:
        self.way = way
        dedup: Any = way.dedup
        self._windows = sorted({*more, dedup.reorder_window})
        self._modes = [
            WatermarkMode(dedup.model_copy(update={"reorder_window": each}), "simulated")
            for each in self._windows
        ]
        self._verdicts = np.zeros((len(self._windows), len(Verdict)), np.int64)
        self._partition = -1
        self._judges: list[Judge] = []
        self._scopes = self._scope_bytes = 0
        self._faults = Faults()
        self._stopped = False

    def take(self, partition: int, columns: Columns) -> None:
        """Take the next records of a partition; the partitions come one after the other."""
        if partition != self._partition:
            self._close()
            self._partition = partition
            self._judges = [mode.judge() for mode in self._modes]
            for judge in self._judges:
                judge.load(Table(MemoryStore(), judge.log))
        if self._stopped:
            return
        # Judges of one kind read the same: they differ in how far back they remember.
        read = {type(judge): judge for judge in self._judges}
        evidences = {kind: judge.extract(columns) for kind, judge in read.items()}
        self._faults.take(next(iter(evidences.values())).fault)
        for n, judge in enumerate(self._judges):
            verdict = judge.judge(evidences[type(judge)]).verdict
            judge.absorb()
            self._verdicts[n] += np.bincount(verdict, minlength=len(Verdict))
        if sum(judge.size()[1] for judge in self._judges) > MOST_SCOPE_BYTES:
            self._stopped = True

    def _close(self) -> None:
        """Note what the partition's scopes take."""
        if self._judges:
            scopes, size = self._judges[self._windows.index(self._dedup_window)].size()
            self._scopes += scopes
            self._scope_bytes += size

    @property
    def _dedup_window(self) -> int:
        dedup: Any = self.way.dedup
        return int(dedup.reorder_window)

    def forecast(self) -> SequenceForecast:
        """Return what all reorder windows would do."""
        self._close()
        self._judges = []
        counts = self._verdicts[:, [Verdict.PASS, Verdict.DUPLICATE, Verdict.LATE]].tolist()
        rows = [ReorderRow(each, *numbers) for each, numbers in zip(self._windows, counts, strict=True)]
        judged = JudgedCounts(self._faults.records, self._faults.by_code())
        return SequenceForecast(self.way, judged, rows, self._scopes, self._scope_bytes, self._stopped)
