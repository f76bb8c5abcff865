"""Judges records by their receipts where what the partition's clock read is no longer known.

The changelog says where a worker's clock mattered (`processor.state.clock_history`), and that is deleted with
the ids that have expired. Then, from the beginning on::

    before what is known     no verdict can be proved: receipts are trusted
    for a window after that  an id may have passed before what is known. One that has passed since is known: its
                             duplicates must have been dropped, with the right owner and expiry. Of another one
                             the receipt is trusted, as far as it speaks of what was before; without a receipt
                             it must have passed
    from then on             all that is remembered is known

Trusted or not, each record has to be in its one place as it came, and a receipt to be that of its record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.verdict import Verdict
from processor.judges.evidence import InsertIdJudgement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.judges.evidence import IdEvidence
    from processor.judges.exact import ExactIds

ROWS = 1_024
"""Records that are judged at a time: their receipts have to be held."""


class ReceiptClaims(NamedTuple):
    """What receipts say of some records.

    Attributes:
        row: int64[k], rows of those that have one, rising.
        owner: int64[k], the owner's offset; -1 where the receipt names none that can be.
        expires_ms: int64[k].
    """

    row: NDArray[np.int64]
    owner: NDArray[np.int64]
    expires_ms: NDArray[np.int64]


class TrustedReceipts:
    """Judges the records of one partition as long as not all that is remembered is known.

    Attributes:
        over: Whether all is known now: the judge alone goes on.
        trusted: Duplicates whose receipts were trusted so far.

    Args:
        judge: Empty.
        known_from: From which source offset on the clock is known.
        before_ms: What it read there.
        window_ms: How long an id is remembered.
    """

    def __init__(self, judge: ExactIds, known_from: int, before_ms: int, window_ms: int) -> None:
        self._judge = judge
        self._known_from = known_from
        self._window_ms = window_ms
        self._certain_ms = before_ms + window_ms
        self._unseen_before = known_from
        self.over = False
        self.trusted = 0
        judge.set_clock(before_ms)

    def pass_over(self, evidence: IdEvidence) -> None:
        """Take note of records that are not compared: what they have left behind is not known either."""
        known = self._known(evidence)
        self._certain_ms = self._judge.pass_over(evidence.after(known)) + self._window_ms
        if evidence.offset.size:
            self._unseen_before = max(self._unseen_before, int(evidence.offset[-1]) + 1)

    def judge(self, evidence: IdEvidence, claims: ReceiptClaims) -> InsertIdJudgement:
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
            judged, doubtful = self._judged(evidence.after(known), claimed[known:])
            verdict[known:], owner[known:], expires_ms[known:] = judged.verdict, judged.owner, judged.expires_ms
            trusted[known:] = doubtful
        taken = trusted[claims.row]
        verdict[claims.row[taken]] = Verdict.DUPLICATE
        owner[claims.row[taken]] = possible.owner[taken]
        expires_ms[claims.row[taken]] = possible.expires_ms[taken]
        self.trusted += int(np.count_nonzero(taken))
        self.over = self._judge.log.clock_ms >= self._certain_ms and known < rows
        return InsertIdJudgement(verdict, evidence.ids, owner, expires_ms)

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

    def _judged(
        self, evidence: IdEvidence, claimed: NDArray[np.bool_]
    ) -> tuple[InsertIdJudgement, NDArray[np.bool_]]:
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
