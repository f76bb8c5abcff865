"""Judges where what the partition's clock read is not known: by receipts, or by timestamps alone.

The changelog says where a worker's clock mattered (`processor.state.clock_history`), and that is deleted with
the ids that have expired. Then records are judged by their receipts, from the beginning on::

    before what is known     no verdict can be proved: receipts are trusted; also of what a backfill brought
    for a window after that  an id may have passed before what is known. One that has passed since is known: its
                             duplicates must have been dropped, with the right owner and expiry. Of another one
                             the receipt is trusted, as far as it speaks of what was before; without a receipt
                             it must have passed
    from then on             all that is remembered is known

Trusted or not, each record has to be in its one place as it came, and a receipt to be that of its record.

Where there is no changelog, timestamps have to say it. A record far ahead of those before it is one of the
future, which a worker held back, or the first after a quiet spell. The records behind it decide: after a quiet
spell none lies far behind it. Where some do, it is not known. A clock that creeps ahead, by less than
`max_ahead` per record, is not noticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from typing_extensions import override

from processor.engine.ids.clock import NEVER, RecordedClock
from processor.engine.ids.page import BACKFILLED
from processor.engine.receipts import IdGrounds
from processor.engine.verdict import Verdict
from processor.errors import StopError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.ids.clock import Readings
    from processor.judges.exact import ExactIds
    from processor.judges.ids import IdEvidence

ROWS = 1_024
"""Records that are judged at a time: their receipts have to be held."""


class ReceiptClaims(NamedTuple):
    """What receipts say of some records.

    Attributes:
        row: int64[k], rows of those that have one, rising.
        owner: int64[k], the owner's offset, or `BACKFILLED`; -1 where the receipt names none that can be.
        expires_ms: int64[k].
    """

    row: NDArray[np.int64]
    owner: NDArray[np.int64]
    expires_ms: NDArray[np.int64]


class KnownClock(NamedTuple):
    """From where on a partition's clock is known.

    Attributes:
        known_from: The source offset.
        before_ms: What it read there.
        backfill: The name of the backfill that the state began with, of which ids may be remembered.
    """

    known_from: int
    before_ms: int
    backfill: str = ""


class TrustedReceipts:
    """Judges the records of one partition as long as not all that is remembered is known.

    Attributes:
        over: Whether all is known now: the judge alone goes on.
        trusted: Duplicates whose receipts were trusted so far.
        backfilled: Those of them whose owner is of a backfill.

    Args:
        judge: Empty.
        known: From where on the clock is known.
    """

    def __init__(self, judge: ExactIds, known: KnownClock) -> None:
        self._judge = judge
        self._known_from = known.known_from
        self._backfill = known.backfill
        self._certain_ms = known.before_ms + judge.window_ms
        self._unseen_before = known.known_from
        self.over = False
        self.trusted = self.backfilled = 0
        judge.set_clock(known.before_ms)

    def pass_over(self, evidence: IdEvidence) -> None:
        """Take note of records that are not compared: what they have left behind is not known either."""
        known = self._known(evidence)
        self._certain_ms = self._judge.pass_over(evidence.part(slice(known, None))) + self._judge.window_ms
        if evidence.offset.size:
            self._unseen_before = max(self._unseen_before, int(evidence.offset[-1]) + 1)

    def judge(self, evidence: IdEvidence, claims: ReceiptClaims) -> IdGrounds:
        """Judge the next records, of which receipts say ``claims``."""
        known = self._known(evidence)
        rows = evidence.fault.size
        verdict = np.where(evidence.fault != 0, np.uint8(Verdict.QUARANTINE), np.uint8(Verdict.PASS))
        owner, expires_ms = np.full(rows, -1, np.int64), np.zeros(rows, np.int64)
        claimed = np.zeros(rows, np.bool_)
        claimed[claims.row] = (evidence.fault[claims.row] == 0) & ~evidence.ids.unjudged[claims.row]
        trusted = claimed.copy()
        possible = self._possible(claims, known)
        if known < rows:
            judged, doubtful = self._judged(evidence.part(slice(known, None)), claimed[known:])
            verdict[known:], owner[known:], expires_ms[known:] = judged.verdict, judged.owner, judged.expires_ms
            trusted[known:] = doubtful
        taken = trusted[claims.row]
        verdict[claims.row[taken]] = Verdict.DUPLICATE
        owner[claims.row[taken]] = possible.owner[taken]
        expires_ms[claims.row[taken]] = possible.expires_ms[taken]
        self.trusted += int(np.count_nonzero(taken))
        self.backfilled += int(np.count_nonzero(taken & (possible.owner == BACKFILLED)))
        self.over = self._judge.log.clock_ms >= self._certain_ms and known < rows
        return IdGrounds(verdict, evidence.ids, owner, expires_ms, backfill=self._backfill)

    def _possible(self, claims: ReceiptClaims, known: int) -> ReceiptClaims:
        """Return what receipts say, without what cannot be of records whose clock is known.

        What they are trusted in has passed unseen, so it cannot expire later than that can, nor have expired.
        """
        unseen = (claims.owner < self._unseen_before) & (claims.expires_ms <= self._certain_ms)
        can_be = (claims.row < known) | (unseen & (claims.expires_ms > self._judge.log.clock_ms))
        return ReceiptClaims(
            claims.row, np.where(can_be, claims.owner, -1), np.where(can_be, claims.expires_ms, 0)
        )

    def _known(self, evidence: IdEvidence) -> int:
        """Return the first row at which the clock is known."""
        return int(np.searchsorted(evidence.offset, self._known_from))

    def _judged(self, evidence: IdEvidence, claimed: NDArray[np.bool_]) -> tuple[IdGrounds, NDArray[np.bool_]]:
        """Judge records of which some have receipts; those of ids that are not known are not remembered."""
        doubtful = np.zeros(claimed.size, np.bool_)
        before = evidence.ids.unjudged.copy()
        which = np.unique(evidence.ids.hash, axis=0, return_inverse=True)[1].reshape(-1)
        while True:
            evidence.ids.unjudged[:] = before | doubtful
            judged = self._judge.judge(evidence)
            passed = claimed & ~doubtful & (judged.verdict == Verdict.PASS)
            if not passed.any():
                evidence.ids.unjudged[:] = before
                self._judge.absorb()
                return judged, doubtful
            # What was remembered of them is wrong, and so may be the receipts of later ones with the same id.
            self._judge.undo()
            for each in np.unique(which[passed]):
                rows = np.flatnonzero(which == each)
                first = rows[passed[rows]][0]
                # The id stays unknown up to the next that has passed.
                later = rows[(rows > first) & ~claimed[rows]]
                stop = later[0] if later.size else claimed.size
                doubtful[rows[(rows >= first) & (rows < stop)]] = True


class InferredClock(RecordedClock):
    """The partition's clock by its records' timestamps.

    Args:
        name: Of the source partition.
        max_ahead_ms: How far ahead of the worker's clock a record may move the partition's.
    """

    def __init__(self, name: str, max_ahead_ms: int) -> None:
        super().__init__(*np.zeros((2, 0), np.int64), arrival=False)
        self._name = name
        self._max_ahead_ms = max_ahead_ms
        # The highest reading that one record has moved the clock far ahead to.
        self._led_to_ms = NEVER

    @override
    def read(
        self,
        clock_ms: int,
        offset: NDArray[np.int64],
        timestamp_ms: NDArray[np.int64],
        fault: NDArray[np.uint8],
    ) -> Readings:
        """Return what the clock reads at each record.

        Raises:
            StopError: A record lies far behind one that lay far ahead.
        """
        found = super().read(clock_ms, offset, timestamp_ms, fault)
        before = np.append(np.int64(clock_ms), found.reading_ms[:-1])
        far = (before == NEVER) | (found.reading_ms - np.maximum(before, 0) > self._max_ahead_ms)
        leads = np.where(far, found.reading_ms, np.int64(NEVER))
        led = np.maximum(np.maximum.accumulate(leads), self._led_to_ms)
        behind = np.flatnonzero((fault == 0) & (timestamp_ms < np.maximum(led, 0) - self._max_ahead_ms))
        if behind.size:
            raise StopError(
                f"{self._name}: the changelog says nothing of the partition's clock, and the record at offset "
                f"{offset[behind[0]]} lies more than max_ahead behind one before it, which lay as far ahead: "
                "whether the worker's clock followed that one is not known, so nothing can be proved from there"
            )
        self._led_to_ms = int(led[-1]) if led.size else self._led_to_ms
        return found
