"""Compares dropped records with their receipts, and collisions with their notes.

Each has one, and it says what is true. Where receipts are spoken of here, notes are meant, too.

The worker's kernel writes the expected receipts, and they are compared byte for byte. Where bytes differ the
JSON is read, strictly and within bounds, and compared field by field: other spaces and another order of keys
are right as well. So is a receipt that was made smaller, since what the topic took then is not known: without
its record's key, which a header says, and with digests in place of parts of the id. The source offset that they
speak of identifies receipts that differ. Where nobody knows the partition's secret any more, only the form is
compared of what depends on it: fingerprints, and what is shown of content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from processor.engine.batch.scan import scan_run
from processor.engine.ids.page import BACKFILLED
from processor.engine.receipts import says_left_out
from processor.engine.verdict import RECEIPTED, Verdict
from processor.verify.align import LOOK_AHEAD, AlignedRecord, Aligner
from processor.verify.report import Rule
from processor.verify.said_receipts import (
    MOST_JSON_BYTES,
    differences,
    parsed,
    public,
    without_observed,
)
from processor.verify.unproved import ReceiptClaims
from processor.wire.receipt_values import COLLISION
from processor.wire.receipts import receipts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.receipts import ReceiptGrounds, ReceiptText
    from processor.verify.align import Stream
    from processor.verify.recent import RecentRecords
    from processor.verify.report import VerifyReport
    from processor.verify.said_receipts import ReceiptContent

_MOST_MS = 2**62


class ReceiptCheck(Aligner):
    """Compares what was dropped, and what collided, with the duplicates topic.

    ``texts`` have the constant parts of the partition's receipts, by whether they say that the record has
    passed, observed: each receipt says it, for a pipeline may have observed at times. ``on_collision`` says
    what becomes of records that collide. With ``begins_late`` the topic was added when the pipeline had run
    already: what was dropped before its first receipt has none. ``secret_known`` is false where the judge does
    not have the partition's.

    Attributes:
        observing: Whether the last receipt says that its record has passed, observed; at first what is to be
            taken of records that have none.
    """

    observing = False

    def __init__(
        self,
        stream: Stream,
        report: VerifyReport,
        recent: RecentRecords,
        texts: Mapping[bool, ReceiptText],
        on_collision: str | None = None,
        *,
        begins_late: bool = False,
        secret_known: bool = True,
    ) -> None:
        super().__init__(stream, report, recent)
        self._texts = texts
        self._on_collision = on_collision
        self._begins_late = begins_late
        self._secret_known = secret_known
        self._out = np.empty(0, np.uint8)
        # Whether any receipt has said what `observing` is.
        self._told = False

    async def expect(
        self, columns: Columns, rows: NDArray[np.int64], grounds: ReceiptGrounds
    ) -> NDArray[np.bool_]:
        """Compare the receipts of ``rows`` (int64[k]) with what comes next: all that have one or a note.

        ``columns`` has all of `RecentRecords`'s rows at hand, ``grounds`` what each was judged by.

        Returns:
            bool[k], which of them have passed all the same, observed.
        """
        observed = np.full(rows.size, self.observing)
        for start in range(0, rows.size, LOOK_AHEAD):
            some = rows[start : start + LOOK_AHEAD]
            left_out = await self._leave_out(columns, some, grounds) if self._begins_late else 0
            said = await self._expect(columns, some[left_out:], grounds)
            observed[start + left_out : start + some.size] = said
        return observed

    async def observes(self) -> bool:
        """Whether the receipt before this place, or the one behind it, says that its record was observed."""
        following: bool | None = None
        if self.found:
            following = self.found[0].content.observed
        elif await self.cursor.ready(wait=False):
            row = self.cursor.row
            (receipt,) = self._read(self.cursor.columns, row, row + 1, source=False)
            following = receipt.content.observed
        if following is None or self._told:
            return self.observing or bool(following)
        return following

    async def _expect(
        self, columns: Columns, rows: NDArray[np.int64], grounds: ReceiptGrounds
    ) -> NDArray[np.bool_]:
        observed = np.zeros(rows.size, np.bool_)
        at, failed, before = 0, 0, self.observing
        made = self._receipts(columns, rows, grounds)
        while self.even and at < rows.size and failed < len(self._texts) and await self.cursor.ready(wait=True):
            run = await self.match(made, np.arange(at, rows.size))
            self._count_matched(grounds.verdict[rows[at : at + run]])
            observed[at : at + run] = self.observing
            at += run
            failed, before = (0, self.observing) if run else (failed + 1, before)
            self._told |= run > 0
            if at < rows.size:
                # The others may have been written while the pipeline did not observe, or while it did.
                self.observing = not self.observing
                made = self._receipts(columns, rows, grounds)
        self.observing = before
        if at < rows.size:
            self.expected.extend(self._read(made, at, rows.size))
            await self._fill(len(self.expected), wait=True)
            if self.found and not self._told:
                self.observing, self._told = self.found[0].content.observed, True
            for index in range(at, rows.size):
                place = self.found.find(int(columns.offset[rows[index]]))
                if place is not None:
                    self.observing = self.found[place].content.observed
                observed[index] = self.observing
            await self.settle(final=False)
        return observed

    async def claims(self, columns: Columns, last: int) -> ReceiptClaims:
        """Return what receipts say of the records of ``columns``, as far as they name the owner.

        What comes behind them in the source begins behind the offset ``last``.
        """
        await self._fill_beyond(last, len(columns))
        claims = {each.key: _claim(each) for each in reversed(list(self.found)) if isinstance(each.key, int)}
        named = [(row, *claims[at]) for row, at in enumerate(columns.offset.tolist()) if at in claims]
        return ReceiptClaims(*np.array(named, np.int64).reshape(-1, 3).T.copy())

    async def _leave_out(self, columns: Columns, rows: NDArray[np.int64], grounds: ReceiptGrounds) -> int:
        """Leave out what was dropped before the topic's first receipt; returns how many that are."""
        if not self.found and not await self._fill(1, wait=False):
            first = np.iinfo(np.int64).max
        else:
            first = self.found[0].key if isinstance(self.found[0].key, int) else -1
        skipped = int(np.searchsorted(columns.offset[rows], first))
        if not self.observing:
            dropped = is_dropped(grounds.verdict[rows[:skipped]], self._on_collision)
            self.report.unproved += int(np.count_nonzero(dropped))
        self._begins_late = skipped == rows.size
        return skipped

    def _receipts(self, columns: Columns, rows: NDArray[np.int64], grounds: ReceiptGrounds) -> Columns:
        """Return the expected receipts as columns; good until the next call."""
        receipts = receipts_of(self._texts[self.observing], columns, rows, grounds)
        most = int(receipts.most_bytes().sum())
        if self._out.size < most:
            self._out = np.empty(most, np.uint8)
        used = receipts.encode(0, self._out)
        made, wrong = scan_run(self._out, used, rows.size)
        assert not wrong  # noqa: S101 - our own kernel wrote it
        made.offset[:] = columns.offset[rows]
        return made

    def _read(self, columns: Columns, start: int, stop: int, *, source: bool = True) -> Iterator[AlignedRecord]:
        """Read receipts; ``source``: the columns' offsets are those of the dropped records."""
        marks = self.recent.marks(columns, start, stop)
        for row in range(start, stop):
            at, size = int(columns.value[row]), int(columns.value_length[row])
            most = size if source else MOST_JSON_BYTES
            content = parsed(marks[row - start], columns.data, at, size, most)
            content = content._replace(keyless=not source and says_left_out(columns, row))
            content = without_observed(content)
            offset = int(columns.offset[row])
            said = offset if source else (content.fields or {}).get("offset")
            key = said if type(said) is int else ("unreadable", offset)
            yield AlignedRecord(offset, key, content, max(size, 0))

    @override
    def read(self, columns: Columns, start: int, stop: int) -> Iterator[AlignedRecord]:
        return self._read(columns, start, stop, source=False)

    @override
    def count(self, records: int) -> None:
        self.report.duplicates += records

    @override
    def drop_found(self) -> AlignedRecord:
        found = super().drop_found()
        if found.content.observed:
            self._count_observed(1, found.content.word == "note")
        elif found.content.word == "note":
            self._count_notes(1, found.content.fields.get("action"))
        return found

    def _count_matched(self, verdict: NDArray[np.uint8]) -> None:
        """Note what receipts were that have been counted; they say whether they are of observed records."""
        notes = int(np.count_nonzero(verdict == Verdict.COLLISION))
        if self.observing:
            self._count_observed(verdict.size, notes)
        else:
            self._count_notes(notes, self._on_collision)

    def _count_observed(self, receipts: int, notes: int) -> None:
        """Note that so many of those counted are of records that have passed, and so many of them notes."""
        self.report.duplicates -= receipts
        self.report.observed += receipts
        self.report.collisions += notes

    def _count_notes(self, notes: int, action: object) -> None:
        """Note that so many of those counted are notes; the records of most are elsewhere."""
        self.report.collisions += notes
        if action != "drop":
            self.report.duplicates -= notes

    @override
    def same(self, expected: AlignedRecord, found: AlignedRecord) -> None:
        if wrong := self._differences(expected.content, found.content):
            here = f"the {found.content.word} at {self.cursor.name}:{found.offset}"
            self.report.add(Rule.RECEIPT_WRONG, expected.offset, f"{here} is wrong: {'; '.join(wrong)}")

    @override
    def missing(self, expected: AlignedRecord) -> None:
        known = self.recent.at(expected.offset)
        what = f"is {known.verdict.label if known else 'dropped'}, and has no receipt"
        if expected.content.word == "note":
            what = "collides with an earlier record, and has no note"
        detail = f"{what}; missed before {self._place()}"
        self.report.add(Rule.RECEIPT_MISSING, expected.offset, detail)

    @override
    def surplus(self, found: AlignedRecord) -> None:
        here = f"{self.cursor.name}:{found.offset}"
        if not isinstance(found.key, int):
            detail = f"{here} is no receipt: {found.content.problem or 'it names no offset'}"
            self.report.add(Rule.RECEIPT_FORGED, found.offset, detail)
            return
        word = found.content.word
        verdicts = {COLLISION} if word == "note" else {"duplicate", "late"}
        at, why = self._why_surplus(found, verdicts, f"that record has its {word} already")
        detail = f"the {word} at {here} is for source offset {found.key}: {why}"
        self.report.add(Rule.RECEIPT_FORGED, at, detail)

    @override
    def neither(self, expected: AlignedRecord, found: AlignedRecord) -> None:
        """Report the receipt of this record with a wrong offset, or one for nothing."""
        named = isinstance(found.key, int) and self.recent.at(found.key) is not None
        wrong = self._differences(expected.content, found.content)
        if named and not all(each.startswith("offset ") for each in wrong):
            self.surplus(self.drop_found())
        else:
            self.same(expected, found)
            self.drop_both()

    def _differences(self, expected: ReceiptContent, found: ReceiptContent) -> list[str]:
        if self._secret_known or expected.fields is None or found.fields is None:
            return differences(expected, found)
        shown = public(expected.fields)
        self.report.secret_unknown |= shown != expected.fields
        return differences(expected._replace(fields=shown), found._replace(fields=public(found.fields)))


def _claim(receipt: AlignedRecord) -> tuple[int, int]:
    """Return owner and expiry that a receipt names; -1 and 0 in place of what cannot be."""
    fields = receipt.content.fields or {}
    owner = fields.get("owner")
    owner = owner if isinstance(owner, dict) else {}
    offset = owner.get("offset")
    nobody = BACKFILLED if "backfill" in owner else -1
    expires_ms = fields.get("expires_at")
    return (
        offset if type(offset) is int and type(receipt.key) is int and 0 <= offset < receipt.key else nobody,
        expires_ms if type(expires_ms) is int and abs(expires_ms) < _MOST_MS else 0,
    )


def is_dropped(verdict: NDArray[np.uint8], on_collision: str | None) -> NDArray[np.bool_]:
    """Return bool[n], by verdict: which records are in no other topic than that of duplicates."""
    dropped: NDArray[np.bool_] = RECEIPTED[verdict]
    return dropped if on_collision == "drop" else dropped & (verdict != Verdict.COLLISION)
