"""Takes the records of a source, and counts what each way of judging makes of them.

By ids: the real extractor and the real clock, and of the ids a sample. They are hashed with the key by which a
route shares them out, so that each record's partition of the sink is known; the sample is another one for other
ids only. By sequences: the real judges, one per partition and reorder window, over all records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from processor.engine.extract.routing import ROUTE_KEY
from processor.engine.ids import clock
from processor.engine.ids.sink_clocks import MOST_CELLS, SinkClocks
from processor.engine.receipts import PASSING
from processor.engine.verdict import Verdict
from processor.engine.watermark.dropped import LEVELS, UNSEEN
from processor.inspection.audit.trial import Faults, new_judge
from processor.inspection.simulate.costs import bucket_of
from processor.inspection.simulate.forecast import (
    IdForecast,
    JudgedCounts,
    ReorderRow,
    ScopeOutcome,
    SequenceForecast,
    SharedPart,
)
from processor.inspection.simulate.windows import FOREVER_MS, MOST_ROWS, IdSample, predict
from processor.judges.dropped import PassedContents
from processor.judges.ids import make_id_extractor
from processor.judges.watermark import WatermarkMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.engine.batch.columns import Columns
    from processor.inspection.simulate.forecast import JudgingWay
    from processor.judges.judge import Judge
    from schemas.config import InsertIdDedup

REORDER_WINDOWS = (0, 64, 1_024, 16_384)
"""Beside the configured one."""
MOST_SCOPE_BYTES = 128 * 1024 * 1024
"""Of all tables of scopes together: what is kept stays within 512 MB."""
_SLOTS = 2**15
"""512 KB per reorder window: of what it lets pass, to be compared with what it drops."""
_CURVE = 33
_SHORTEST_MS = 1_000


class IdWay:
    """Judges by ids.

    Args:
        way: How.
        windows_ms: Of interest; the configured one is one of them.
        now_ms: What this machine's clock reads.
        partitions: How many the source has, and the sink with a route.
        most_rows: See `IdSample`.
        most_cells: See `SinkClocks`.
    """

    def __init__(
        self,
        way: JudgingWay,
        windows_ms: Sequence[int],
        now_ms: int,
        partitions: tuple[int, int] = (1, 1),
        most_rows: int = MOST_ROWS,
        most_cells: int = MOST_CELLS,
    ) -> None:
        self.way = way
        dedup: Any = way.dedup
        self._dedup: InsertIdDedup = dedup
        self._windows = sorted({*windows_ms, self._dedup.window})
        arrival = self._dedup.time == "arrival"
        self._limit_ms = clock.NO_LIMIT if arrival else self._dedup.max_ahead + now_ms
        self._extractor = make_id_extractor(self._dedup, ROUTE_KEY)
        self._partitions = partitions
        # By arrival, and where all meet in one partition, the clock is that of the order in which they meet.
        self._sink = None if arrival or partitions[1] == 1 else SinkClocks(partitions[1], most_cells)
        prints = self._dedup.fingerprint is not None
        self._sample = IdSample(prints=prints, most_rows=most_rows, clocks=self._sink)
        self._clocks: dict[int, int] = {}
        self._faults, self._shared = Faults(), Faults()
        self._unjudged = self._behind = self._ahead = 0

    def take(self, partition: int, columns: Columns, *, shared: bool = False) -> None:
        """Take the next records of a partition; ``shared``: all other ways take them as well."""
        ids = self._extractor.extract(columns)
        before = self._clocks.get(partition, clock.NEVER)
        readings = clock.by_records(before, columns.timestamp, ids.fault, self._limit_ms, 0)
        self._clocks[partition] = readings.clock_ms
        self._behind += readings.late
        self._ahead += readings.future
        self._faults.take(ids.fault)
        if shared:
            self._shared.take(ids.fault)
        hashes, reading = ids.hash[:, 0], readings.reading_ms
        stamps = np.minimum(columns.timestamp, self._limit_ms)
        rows = np.flatnonzero(ids.fault == 0)
        if self._sink is not None:
            target = self._sink.targets(hashes)
            target[ids.unjudged] = partition % self._sink.partitions
            self._sink.add(target[rows], reading[rows], stamps[rows])
        judged = rows[~ids.unjudged[rows]]
        self._unjudged += rows.size - judged.size
        prints = ids.fingerprint[judged] if ids.fingerprint.size else ids.fingerprint
        self._sample.add(partition, hashes[judged], reading[judged], prints, stamps[judged])

    def forecast(self) -> IdForecast:
        """Return what all windows would do."""
        sample, routed = self._sample, self._dedup.route is not None
        span, meet = sample.end_ms - sample.begin_ms, sample.partitions > 1
        curve = _curve(span, self._windows)
        together = apart = self._outcome(route=False, curve=[] if routed else curve)
        if routed or meet or self._sink is not None:
            together = self._outcome(route=True, curve=curve if routed else [])
        crossing = max(0.0, apart.forever.missed.value - together.forever.missed.value)
        faults, counts = self._faults, (self._unjudged, span, self._behind, self._ahead)
        return IdForecast(
            self.way,
            JudgedCounts(faults.records, faults.by_code(), *counts),
            sample.rate,
            sample.rate == 1 and not (routed and (meet or self._unjudged > 0)),
            self._partitions,
            apart,
            together.in_any_order(sample.judged) if meet else together,
            (together if routed else apart).curve,
            crossing,
            meet,
            SharedPart(self._shared.records, self._shared.faulty),
        )

    def _outcome(self, *, route: bool, curve: Sequence[int]) -> ScopeOutcome:
        """Return what windows do, with ids as such and with Bloom filters, in one go."""
        dedup, number = self._dedup, len(self._windows)
        # Filters keep no fingerprints.
        filtered = [] if dedup.fingerprint is not None else self._windows
        windows = [*self._windows, FOREVER_MS, *curve, *filtered]
        buckets = [1] * (len(windows) - len(filtered)) + [bucket_of(dedup, each) for each in filtered]
        found = predict(
            self._sample,
            windows,
            route=route,
            refresh=dedup.refresh,
            kept=dedup.on_collision in PASSING,
            buckets_ms=buckets,
        )
        after = number + 1 + len(curve)
        return ScopeOutcome(found[:number], found[number], found[after:], found[number + 1 : after])


def _curve(span_ms: int, windows: Sequence[int]) -> list[int]:
    """Return windows for the plot, each longer than the last by the same factor."""
    longest = max(span_ms + 1, _SHORTEST_MS * 10)
    points = np.geomspace(_SHORTEST_MS, longest, _CURVE).astype(np.int64)
    return sorted({*points.tolist(), *(each for each in windows if each <= longest)})


class SequenceWay:
    """Judges by sequences, for several reorder windows at once.

    Args:
        way: How.
        most_bytes: What all scopes may take.
    """

    def __init__(self, way: JudgingWay, most_bytes: int = MOST_SCOPE_BYTES) -> None:
        self.way = way
        self._most_bytes = most_bytes
        dedup: Any = way.dedup
        self._configured: int = dedup.reorder_window
        windows = {*REORDER_WINDOWS, self._configured}
        self._windows = sorted(each for each in windows if not dedup.wraps or 2 * each < dedup.wraps)
        self._left_out: list[int] = []
        self._modes = [
            WatermarkMode(dedup.model_copy(update={"reorder_window": each}), "simulated")
            for each in self._windows
        ]
        self._passed = [PassedContents.of_one_reading(_SLOTS) for _ in self._windows]
        self._compared = np.zeros((len(self._windows), LEVELS, 2), np.int64)
        # All records, and those that other ways take as well.
        self._verdicts = np.zeros((2, len(self._windows), len(Verdict)), np.int64)
        self._partition = -1
        self._judges: list[Judge] = []
        self._scopes = 0
        self._scope_bytes = [0] * len(self._windows)
        self._faults, self._shared = Faults(), Faults()
        self._stopped = False

    @property
    def size_bytes(self) -> int:
        """What the scopes take of the partition that is read."""
        return sum(judge.size()[1] for judge in self._judges)

    def take(self, partition: int, columns: Columns, *, shared: bool = False) -> None:
        """Take the next records of a partition; the partitions come one after the other.

        Args:
            partition: Its number.
            columns: The records.
            shared: All other ways take them as well.
        """
        if partition != self._partition:
            self._close()
            self._partition = partition
            self._judges = [new_judge(mode) for mode in self._modes]
            for judge, passed in zip(self._judges, self._passed, strict=True):
                judge.compare_drops(passed, partition)
        if self._stopped:
            return
        # Judges of one kind read the same: they differ in how far back they remember.
        read = {type(judge): judge for judge in self._judges}
        evidences = {kind: judge.extract(columns) for kind, judge in read.items()}
        fault = next(iter(evidences.values())).fault
        self._faults.take(fault)
        if shared:
            self._shared.take(fault)
        for n, judge in enumerate(self._judges):
            verdict = judge.judge(evidences[type(judge)]).verdict
            judge.absorb()
            self._verdicts[: 1 + shared, n] += np.bincount(verdict, minlength=len(Verdict))
        self._keep_within()

    def _keep_within(self) -> None:
        """Give up the reorder window that takes most, the configured one last: then judging ends."""
        sizes = [judge.size()[1] for judge in self._judges]
        while sum(sizes) > self._most_bytes and not self._stopped:
            others = [n for n, window in enumerate(self._windows) if window != self._configured]
            if not others:
                self._stopped = True
                return
            given_up = max(others, key=lambda n: sizes[n])
            self._left_out.append(self._windows[given_up])
            for each in (sizes, self._windows, self._modes, self._judges, self._scope_bytes, self._passed):
                del each[given_up]
            self._compared = np.delete(self._compared, given_up, axis=0)
            self._verdicts = np.delete(self._verdicts, given_up, axis=1)

    def _close(self) -> None:
        """Note what the partition's scopes take, and what was dropped of it that is new."""
        for n, judge in enumerate(self._judges):
            scopes, size = judge.size()
            self._scopes += scopes if n == 0 else 0
            self._scope_bytes[n] += size
            if (found := judge.take_compared()) is not None:
                self._compared[n] += found.counts

    def forecast(self) -> SequenceForecast:
        """Return what all reorder windows would do."""
        self._close()
        self._judges = []
        counts = self._verdicts[0][:, [Verdict.PASS, Verdict.DUPLICATE, Verdict.LATE]].tolist()
        levels = [passed.level for passed in self._passed]
        new = [int(of[level:, UNSEEN].sum()) << level for of, level in zip(self._compared, levels, strict=True)]
        rows = [
            ReorderRow(window, passed, duplicates, late, size, min(found, duplicates + late), 2.0**-level)
            for window, (passed, duplicates, late), size, found, level in zip(
                self._windows, counts, self._scope_bytes, new, levels, strict=True
            )
        ]
        passed = int(self._verdicts[1, :, Verdict.PASS].max())
        shared = SharedPart(self._shared.records, self._shared.faulty, passed)
        judged = JudgedCounts(self._faults.records, self._faults.by_code())
        left_out = sorted(self._left_out)
        return SequenceForecast(self.way, judged, rows, self._scopes, self._stopped, left_out, shared)
