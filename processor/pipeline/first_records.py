"""Warns once per pipeline where what comes first fails wholly: all is quarantined, or nearly all is dropped.

Either is a mistake in the config or at the producer nearly always, and looks like success: positions move, and
a drain exits 0. So the first records of a process are counted, until they are enough or nothing more comes, and
some of those that cannot be judged are looked at (`processor.pipeline.faulty_sample`). Afterwards nothing is
done.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.verdict import Fault, Verdict
from processor.errors import StopError
from processor.ops.metrics import OBSERVING
from processor.pipeline.faulty_sample import FaultySample

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.judges.judge import Judge
    from processor.ops.metrics import Metrics
    from processor.pipeline.hop_kinds import HopKind
    from processor.pipeline.piece import PieceOutcome
    from processor.pipeline.ports import OpenPartition
    from processor.wire.decode import Piece
    from schemas.config import Pipeline

log = logging.getLogger(__name__)

ALL_OF = 1_000
"""So many that are all quarantined are no accident."""
NEARLY_ALL_OF, NEARLY_ALL = 100_000, 0.9
"""A producer that was restarted sends some hundreds again, a connector some thousands: those are no failure."""
LEAST = 100
"""Of fewer nothing is said that is not about all of them."""
QUIET_S = 3.0
"""Nothing came for so long: what is there is judged by."""
SLOW_S = 30.0
"""A slow stream is judged by what came in so long."""
_EXAMPLES = 256
"""So many records of a piece, and of all pieces, are looked at: a few milliseconds."""


class FirstRecords:
    """Counts what becomes of the first records of a hop in this process; its slots share it.

    Args:
        pipeline: Its config.
        metrics: Shows what was said to whoever looks at the table.
        clock: Monotonic seconds.
    """

    def __init__(
        self, pipeline: Pipeline, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pipeline = pipeline
        self._metrics = metrics
        self._clock = clock
        self._verdicts = np.zeros(len(Verdict), np.int64)
        self._faults = np.zeros(len(Fault), np.int64)
        self._sample = FaultySample(pipeline)
        self._looked_at = 0
        self._began_s, self._last_s = math.inf, math.inf
        self._watermark: int | None = None
        self._reset = ""
        self.done = False

    def saw(self, kind: HopKind, partition: OpenPartition, piece: Piece, made: PieceOutcome) -> bool:
        """Count what became of a piece, the newest of its decoder; return whether more is wanted."""
        if self.done:
            return False
        self._last_s = self._clock()
        self._began_s = min(self._began_s, self._last_s)
        self._verdicts += made.verdicts
        self._faults += made.faults
        self._reset = kind.reset("--to-earliest")
        if self._pipeline.routed:
            self._reset = "give the pipeline another name, see 'Beginning anew' in docs/operations.md"
        # What is routed was found fit to be judged, in the hop before.
        if made.faults[1:].any() and self._looked_at < _EXAMPLES and kind.upstream is None:
            self._looked_at += _look_at(self._sample, partition.judge, piece)
        for watermark in partition.judge.watermarks():
            self._watermark = max(watermark, -(2**63) if self._watermark is None else self._watermark)
        if self._records >= (ALL_OF if self._all_quarantined else NEARLY_ALL_OF):
            self._conclude()
        return not self.done

    def look(self) -> None:
        """Judge by what there is where nothing more comes, or comes slowly."""
        now_s = self._clock()
        if self.done or self._last_s == math.inf:
            return
        enough = self._records >= LEAST
        if (now_s - self._last_s >= QUIET_S and (enough or self._all_quarantined)) or (
            enough and now_s - self._began_s >= SLOW_S
        ):
            self._conclude()

    def end(self) -> None:
        """Judge by what there is: nothing more comes in this process."""
        if not self.done and self._records:
            self._conclude()

    @property
    def _records(self) -> int:
        return int(self._verdicts.sum())

    @property
    def _all_quarantined(self) -> bool:
        return 0 < self._records == int(self._verdicts[Verdict.QUARANTINE])

    def _conclude(self) -> None:
        self.done = True
        dropped = int(self._verdicts[Verdict.LATE] + self._verdicts[Verdict.DUPLICATE])
        would_be = "would be " if self._pipeline.observe else ""
        if self._all_quarantined:
            self._warn(f"all {would_be}quarantined", self._quarantined())
        elif self._records >= LEAST and dropped > NEARLY_ALL * self._records:
            self._warn(f"nearly all {would_be}dropped", self._dropped(dropped))

    def _warn(self, short: str, text: str) -> None:
        log.warning("%s", text, extra={"fields": {"pipeline": self._pipeline.name, "records": self._records}})
        observing = f"{OBSERVING}; " if self._pipeline.observe else ""
        self._metrics.notes[self._pipeline.name] = f"{observing}{short}: see the log"

    def _quarantined(self) -> str:
        counts = {Fault(code): int(self._faults[code]) for code in np.argsort(-self._faults, kind="stable")}
        codes = {code: count for code, count in counts.items() if count and code is not Fault.NONE}
        named = ", ".join(code.code if len(codes) == 1 else f"{code.code} {n:,}" for code, n in codes.items())
        first = next(iter(codes), Fault.NONE)
        found = self._sample.text(first)
        what, then = "quarantined", f"Nothing of them is in {self._pipeline.sink or 'the clean stream'}. "
        if self._pipeline.observe:
            what, then = "such as would go to quarantine", "They pass, as the pipeline observes. "
        return (
            f"pipeline {self._pipeline.name}: {_of_first(self._records)} {what} ({named})"
            f"{': ' + found if found else ''}. {then}Set dedup of the "
            f"pipeline right, or mend the producer; then have them judged again: {self._reset}"
        )

    def _dropped(self, dropped: int) -> str:
        share, name = math.floor(100 * dropped / self._records), self._pipeline.name
        would_be = " (they pass, as the pipeline observes)" if self._pipeline.observe else ""
        first = f"pipeline {name}: {share} % of the first {self._records:,} records{would_be} are"
        if self._pipeline.id_dedup is not None:
            return (
                f"{first} duplicates: their ids are known within the window. Either the stream was sent a "
                "second time, or the id does not tell records apart: compare dedup.id with some records"
            )
        seen = "" if self._watermark is None else f" (highest seen: {self._watermark:,})"
        return (
            f"{first} late or duplicates: their sequences are not above the sequence watermark of the state"
            f"{seen}. Either the producer counts from the start again, which it may with an epoch; or each key "
            "or producer has a count of its own: set scope; or the stream was sent a second time. To judge all "
            f"of it anew, without memory: {self._reset} --forget"
        )


def explained(kind: HopKind, judge: Judge, piece: Piece, made: PieceOutcome) -> StopError | None:
    """Return why a slot cannot go on behind a piece, with what the record has that cannot be judged."""
    stop = made.stop
    if stop is None or kind.upstream is not None:
        return stop
    sample = FaultySample(kind.hop.pipeline)
    row = int(np.searchsorted(piece.columns.offset, made.next_offset))
    _look_at(sample, judge, piece, row, row + 1)
    found = " ".join(filter(None, map(sample.text, Fault)))
    if not found:
        return stop
    # What to do stands at the end, to be copied.
    what, then, todo = str(stop).partition(". Everything before it is committed")
    return StopError(f"{what}; {found}{then}{todo}")


def _look_at(sample: FaultySample, judge: Judge, piece: Piece, start: int = 0, stop: int = _EXAMPLES) -> int:
    """Look at some records of a piece; return at how many that are faulty."""
    some = piece.columns.rows(start, stop)
    fault = judge.extract(some).fault
    sample.add(some, fault)
    return int(np.count_nonzero(fault))


def _of_first(records: int) -> str:
    return "the first record is" if records == 1 else f"all of the first {records:,} records are"
