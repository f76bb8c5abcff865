"""Warns where many records of a pipeline cannot be judged, nearly all first ones are dropped, or new ones.

Either is a mistake in the config or at the producer nearly always, and looks like success: positions move, and
a drain exits 0. So a hop's records are counted in windows, and one of which more than a twentieth is
quarantined is said, with an example. How much is dropped is looked at once, at the beginning: later a stream
may well be sent again. What is dropped by sequences is compared with what passed all the time
(`processor.judges.dropped`).

Invariant: what is done for each piece is a few sums; a record is looked into where a line may be written, and
of one cause that is once a minute.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.verdict import Fault, Verdict
from processor.errors import StopError
from processor.judges.dropped import SHOWN, PassedContents
from processor.ops.metrics import OBSERVING
from processor.pipeline.complaints import Complaints

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.engine.batch.columns import Columns
    from processor.judges.judge import Judge
    from processor.ops.metrics import Metrics
    from processor.pipeline.hop_kinds import HopKind
    from processor.pipeline.piece import PieceOutcome
    from processor.pipeline.ports import OpenPartition
    from processor.wire.decode import Piece
    from schemas.config import Pipeline

log = logging.getLogger(__name__)

WINDOW, WINDOW_S = 10_000, 60.0
"""A window ends with so many records, or after so long."""
SHARE = 0.05
"""Of a window, and so of a minute; a few bad records are what a quarantine is for."""
LOOKED_AT = 20
"""Records of a window that are no JSON, to find whether json = "lenient" would take them."""
AGAIN_S = 60.0
"""Between two lines about one cause."""
ALL_OF = 1_000
"""So many first ones that are all quarantined are no accident."""
NEARLY_ALL_OF, NEARLY_ALL = 100_000, 0.9
"""A producer that was restarted sends some hundreds again, a connector some thousands: those are no failure."""
LEAST = 100
"""Of fewer first ones nothing is said before their minute is over, but where it is about all of them."""
QUIET_S = 3.0
"""Nothing came for so long: the first ones are judged by what there is."""
SLOW_S = 30.0
"""Whether a slow stream's first records are dropped is judged by what came in so long."""

COMPARED, UNSEEN_SHARE = 1_000, 0.01
"""Of so many dropped ones that were looked at. Copies have a content that has passed, all of them."""


class _Counts:
    """What became of some records."""

    def __init__(self) -> None:
        self.verdicts = np.zeros(len(Verdict), np.int64)
        self.faults = np.zeros(len(Fault), np.int64)
        self.began_s = math.inf

    def add(self, made: PieceOutcome, now_s: float) -> None:
        """Count a piece."""
        self.began_s = min(self.began_s, now_s)
        self.verdicts += made.verdicts
        self.faults += made.faults
        self.faults[Fault.NONE] = 0

    @property
    def records(self) -> int:
        """All of them."""
        return int(self.verdicts.sum())

    @property
    def bad(self) -> int:
        """Those that cannot be judged."""
        return int(self.faults.sum())

    @property
    def dropped(self) -> int:
        """Those that are known."""
        return int(self.verdicts[Verdict.LATE] + self.verdicts[Verdict.DUPLICATE])


class Failures:
    """Counts what becomes of the records of a hop in this process; its slots share it.

    Args:
        pipeline: Its config.
        metrics: Shows what was said to whoever looks at the table.
        clock: Monotonic seconds.

    Attributes:
        passed: What dropped records are compared with, for as long as the process lives.
    """

    def __init__(
        self, pipeline: Pipeline, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pipeline = pipeline
        self._metrics = metrics
        self._clock = clock
        self._complaints = Complaints(pipeline, clock)
        self._window, self._is_first = _Counts(), True
        self._first: _Counts | None = _Counts()
        """For what is dropped; None: that is judged by."""
        self._last_s = math.inf
        self._examples: dict[Fault, str] = {}
        self._forgiven = False
        self._said_s: dict[Fault, float] = {}
        self._notes: dict[str, str] = {}
        self._watermark: int | None = None
        self._reset = ""
        self.passed = PassedContents(clock=clock)
        self._compared = metrics.dropped_looked_at, metrics.dropped_unseen
        for counter in self._compared if pipeline.id_dedup is None else ():
            counter.labels(pipeline.name)  # at 0: the first is an increase
        self._looked_at = self._unseen = 0
        self._unseen_at: list[str] = []
        self._unseen_said_s = -math.inf

    def saw(self, kind: HopKind, partition: OpenPartition, piece: Piece, made: PieceOutcome) -> None:
        """Count what became of a piece, the newest of its decoder."""
        self._last_s = now_s = self._clock()
        if now_s - self._window.began_s >= WINDOW_S:
            self._close()
        self._window.add(made, now_s)
        if not self._reset:
            self._reset = kind.reset("--to-earliest")
            if self._pipeline.routed:
                self._reset = "give the pipeline another name, see 'Beginning anew' in docs/operations.md"
        if made.faults[1:].any():
            # Of what was routed only its place in the internal topic is known here.
            topic = kind.named_source if kind.upstream is None else kind.topics.source
            self._look_into(f"{topic}:{partition.number}", piece.columns, made, now_s)
        if self._first is not None:
            self._first.add(made, now_s)
            for watermark in partition.judge.watermarks():
                self._watermark = max(watermark, -(2**63) if self._watermark is None else self._watermark)
            if self._first.records >= NEARLY_ALL_OF:
                self._conclude(self._first)
        if self._window.records >= (ALL_OF if self._is_first and self._all_bad else WINDOW):
            self._close()

    def compared(self, kind: HopKind, partition: OpenPartition) -> None:
        """Count what was found of the dropped records of a commit."""
        if (found := partition.judge.take_compared()) is None:
            return
        (looked_at, unseen), where = found.totals(), f"{kind.named_source}:{partition.number}"
        for counter, count in zip(self._compared, (looked_at, unseen), strict=True):
            counter.labels(kind.hop.name).inc(count)
        self._looked_at += looked_at
        self._unseen += unseen
        self._unseen_at += [f"{where}:{each}" for each in found.unseen_at][: SHOWN - len(self._unseen_at)]

    def look(self) -> None:
        """Judge by what there is where nothing more comes, or comes slowly."""
        now_s, window, first = self._clock(), self._window, self._first
        quiet = now_s - self._last_s >= QUIET_S
        if first is not None and first.records >= LEAST and (quiet or now_s - first.began_s >= SLOW_S):
            self._conclude(first)
        self._say_unseen(now_s)
        soon = self._is_first and quiet and (window.records >= LEAST or self._all_bad)
        if soon or now_s - window.began_s >= WINDOW_S:
            self._close()

    def end(self) -> None:
        """Judge by what there is: nothing more comes in this process."""
        if self._first is not None:
            self._conclude(self._first)
        self._say_unseen(math.inf)
        self._close()

    @property
    def _all_bad(self) -> bool:
        return 0 < self._window.records == self._window.bad

    # ------------------------------------------------- what cannot be judged

    def _look_into(self, where: str, columns: Columns, made: PieceOutcome, now_s: float) -> None:
        """Keep an example of each cause of which a line may be written."""
        for code in map(Fault, np.flatnonzero(made.faults).tolist()):
            if code in {Fault.NONE, *self._examples} or not self._may_say(code, now_s):
                continue
            rows = np.flatnonzero(made.fault == code)
            row = int(rows[0])
            if code is Fault.VALUE_NOT_JSON:
                some = rows[:LOOKED_AT].tolist()
                row = next((each for each in some if self._complaints.forgiven(columns, each)), row)
                self._forgiven = self._complaints.forgiven(columns, row)
            words = self._complaints.of(columns, row, code), self._complaints.names(columns, row, code)
            said = "; ".join(filter(None, words))
            self._examples[code] = f"{where}:{int(columns.offset[row])}{': ' + said if said else ''}"

    def _may_say(self, code: Fault, now_s: float) -> bool:
        return now_s - self._said_s.get(code, -math.inf) >= AGAIN_S

    def _close(self) -> None:
        """Judge by a window, and begin another one."""
        window, first, now_s = self._window, self._is_first, self._clock()
        if not window.records:
            return
        if window.bad <= SHARE * window.records:
            self._note("quarantined", "")
        elif self._may_say(code := Fault(int(window.faults.argmax())), now_s):
            self._said_s[code] = now_s
            short = "all" if self._all_bad else f"{math.floor(100 * window.bad / window.records)} %"
            would_be = "would be " if self._pipeline.observe else ""
            self._warn(window, self._quarantined(window, code, first=first))
            self._note("quarantined", f"{short} {would_be}quarantined")
        self._window, self._is_first, self._examples, self._forgiven = _Counts(), False, {}, False

    def _quarantined(self, window: _Counts, main: Fault, *, first: bool) -> str:
        pipeline, records, bad = self._pipeline, window.records, window.bad
        counts = {Fault(code): int(window.faults[code]) for code in np.argsort(-window.faults, kind="stable")}
        codes = {code: count for code, count in counts.items() if count}
        named = ", ".join(code.code if len(codes) == 1 else f"{code.code} {n:,}" for code, n in codes.items())
        which = "first" if first else "last"
        if bad < records:
            head = f"{bad:,} of the {which} {records:,} records ({100 * bad / records:.0f} %) are"
        else:
            head = f"the {which} record is" if records == 1 else f"all of the {which} {records:,} records are"
        what, then = "quarantined", f"They are in {pipeline.quarantine}, each with what is wrong with it. "
        todo = "Mend the producer, or set dedup of the pipeline right"
        if pipeline.observe:
            what, then = "such as would go to quarantine", "They pass, as the pipeline observes. "
        elif first and bad == records:
            then = f"Nothing of them is in {pipeline.sink or 'the clean stream'}. "
            todo = "Set dedup of the pipeline right, or mend the producer; then have them judged again: "
            todo += self._reset
        if self._forgiven:
            todo = f'json = "lenient" in dedup of the pipeline takes such values. Or: {todo}'
        elif main is Fault.ID_COLLISION:
            todo = "The id does not tell records apart, or copies differ in what the fingerprint should exclude"
        example = self._examples.get(main)
        such = f", such as {example}" if example else ""
        return f"pipeline {pipeline.name}: {head} {what} ({named}){such}. {then}{todo}"

    # ------------------------------------------------- what is dropped

    def _conclude(self, first: _Counts) -> None:
        """Judge by the first records whether nearly all are dropped; once."""
        self._first = None
        if first.records >= LEAST and first.dropped > NEARLY_ALL * first.records:
            would_be = "would be " if self._pipeline.observe else ""
            self._warn(first, self._dropped(first))
            self._note("dropped", f"nearly all {would_be}dropped")

    def _dropped(self, counts: _Counts) -> str:
        share, name = math.floor(100 * counts.dropped / counts.records), self._pipeline.name
        would_be = " (they pass, as the pipeline observes)" if self._pipeline.observe else ""
        first = f"pipeline {name}: {share} % of the first {counts.records:,} records{would_be} are"
        if self._pipeline.id_dedup is not None:
            return (
                f"{first} duplicates: their ids are known within the window. Either the stream was sent a "
                "second time, or the id does not tell records apart: compare dedup.id with some records"
            )
        seen = "" if self._watermark is None else f" (highest seen: {self._watermark:,})"
        return (
            f"{first} late or duplicates: their sequences are not above the sequence watermark of the state"
            f"{seen}. Either the producer counts from the start again, which it may with an epoch, or at the "
            "end of its range with sequence.wraps; or each key or producer has a count of its own: set scope; "
            "or the stream was sent a second time. To judge all "
            f"of it anew, without memory: {self._reset} --forget"
        )

    def _say_unseen(self, now_s: float) -> None:
        """Judge by the dropped records that were compared whether new ones are among them."""
        looked_at, unseen, name = self._looked_at, self._unseen, self._pipeline.name
        if unseen > UNSEEN_SHARE * looked_at:
            if now_s - self._unseen_said_s < AGAIN_S:
                return
            self._unseen_said_s = now_s
            lost = (
                "would be lost (they pass, as the pipeline observes)" if self._pipeline.observe else "are lost"
            )
            text = (
                f"pipeline {name}: of {looked_at:,} dropped records looked at, {unseen:,} have a content that "
                f"never passed, such as {' and '.join(self._unseen_at)}. Unless they are copies that the "
                f"producer has changed they {lost}: their sequence goes back or begins again, or several "
                "producers count in one scope. Set dedup.scope, dedup.epoch or sequence.wraps, or judge by ids "
                "(mode insert-id): see 'New records that are dropped' in docs/guarantees.md"
            )
            fields = {"pipeline": name, "looked_at": looked_at, "unseen": unseen}
            log.warning("%s", text, extra={"fields": fields})
            self._note("unseen", f"{math.ceil(100 * unseen / looked_at)} % of what is dropped is new")
        elif looked_at < COMPARED:
            return
        else:
            self._note("unseen", "")
        self._looked_at = self._unseen = 0
        self._unseen_at = []

    # ------------------------------------------------- how it is said

    def _warn(self, counts: _Counts, text: str) -> None:
        log.warning("%s", text, extra={"fields": {"pipeline": self._pipeline.name, "records": counts.records}})

    def _note(self, about: str, short: str) -> None:
        """Show something in the table, or nothing any more."""
        if self._notes.get(about, "") == short:
            return
        self._notes[about] = short
        observing = OBSERVING if self._pipeline.observe else ""
        said = [f"{each}: see the log" for each in self._notes.values() if each]
        self._metrics.notes[self._pipeline.name] = "; ".join(filter(None, [observing, *said]))


def explained(kind: HopKind, judge: Judge, piece: Piece, made: PieceOutcome) -> StopError | None:
    """Return why a slot cannot go on behind a piece, with what the record has that cannot be judged."""
    stop = made.stop
    if stop is None or kind.upstream is not None:
        return stop
    row = int(np.searchsorted(piece.columns.offset, made.next_offset))
    record = piece.columns.rows(row, row + 1)
    complaints, code = Complaints(kind.hop.pipeline), Fault(int(judge.extract(record).fault[0]))
    found = "; ".join(filter(None, (complaints.of(record, 0, code), complaints.names(record, 0, code))))
    if not found:
        return stop
    # What to do stands at the end, to be copied.
    what, then, todo = str(stop).partition(". Everything before it is committed")
    return StopError(f"{what}; {found}{then}{todo}")
