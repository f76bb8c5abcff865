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

import base64
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from typing_extensions import override

from processor.engine.batch.fingerprints import PARTS
from processor.engine.batch.scan import scan_run
from processor.engine.receipts import says_left_out
from processor.engine.verdict import Verdict
from processor.verify.align import LOOK_AHEAD, AlignedRecord, Aligner
from processor.verify.collisions import is_dropped
from processor.verify.report import Rule
from processor.verify.unproved import ReceiptClaims
from processor.wire.receipts import receipts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.receipts import ReceiptGrounds, ReceiptText
    from processor.verify.align import Stream
    from processor.verify.recent import RecentRecords
    from processor.verify.report import VerifyReport

MOST_JSON_BYTES = 64 * 1024
"""Of a receipt that has other bytes than expected: longer ones are not looked into, and are wrong. Most take
a few hundred bytes: the longest parts are names of at most 249, and ids."""
_MOST_SHOWN = 60
_MOST_MS = 2**62
_FINGERPRINT, _CONTENT = re.compile("[0-9a-f]{16}"), re.compile("[0-9a-f]{32}")
"""The forms of what depends on the partition's secret."""
_COLLISION = Verdict.COLLISION.label


class _Receipt(NamedTuple):
    """What a receipt says: the fields of its value, or why it is none; and whether it left its key out."""

    mark: bytes
    fields: dict[str, Any] | None
    problem: str = ""
    keyless: bool = False

    @property
    def word(self) -> str:
        """What people call it."""
        return "note" if (self.fields or {}).get("verdict") == _COLLISION else "receipt"


class ReceiptCheck(Aligner):
    """Compares what was dropped, and what collided, with the duplicates topic.

    ``text`` has the constant parts of the partition's receipts, ``on_collision`` says what becomes of records
    that collide. With ``begins_late`` the topic was added when the pipeline had run already: what was dropped
    before its first receipt has none. ``secret_known`` is false where the judge does not have the partition's.
    """

    def __init__(
        self,
        stream: Stream,
        report: VerifyReport,
        recent: RecentRecords,
        text: ReceiptText,
        on_collision: str | None = None,
        *,
        begins_late: bool = False,
        secret_known: bool = True,
    ) -> None:
        super().__init__(stream, report, recent)
        self._text = text
        self._on_collision = on_collision
        self._begins_late = begins_late
        self._secret_known = secret_known
        self._out = np.empty(0, np.uint8)

    async def expect(self, columns: Columns, rows: NDArray[np.int64], grounds: ReceiptGrounds) -> None:
        """Compare the receipts of ``rows`` (int64[k]) with what comes next: all that have one or a note.

        ``columns`` has all of `RecentRecords`'s rows at hand, ``grounds`` what each was judged by.
        """
        for start in range(0, rows.size, LOOK_AHEAD):
            some = rows[start : start + LOOK_AHEAD]
            made = self._receipts(columns, some, grounds)
            if self._begins_late:
                some, made = await self._leave_out(columns, some, made, grounds)
            at = await self.match(made, np.arange(len(made))) if self.even else 0
            verdict = grounds.verdict[some[:at]]
            self._count_notes(int(np.count_nonzero(verdict == Verdict.COLLISION)), self._on_collision)
            if at < some.size:
                self.expected.extend(self._read(made, at, some.size))
                await self.settle(final=False)

    async def claims(self, columns: Columns) -> ReceiptClaims:
        """Return what receipts say of the records of ``columns``, as far as they name the owner."""
        await self._fill_beyond(int(columns.offset[-1]), len(columns))
        claims = {each.key: _claim(each) for each in reversed(list(self.found)) if isinstance(each.key, int)}
        named = [(row, *claims[at]) for row, at in enumerate(columns.offset.tolist()) if at in claims]
        return ReceiptClaims(*np.array(named, np.int64).reshape(-1, 3).T.copy())

    async def _leave_out(
        self, columns: Columns, rows: NDArray[np.int64], made: Columns, grounds: ReceiptGrounds
    ) -> tuple[NDArray[np.int64], Columns]:
        """Leave out what was dropped before the topic's first receipt."""
        if not self.found and not await self._fill(1, wait=False):
            first = np.iinfo(np.int64).max
        else:
            first = self.found[0].key if isinstance(self.found[0].key, int) else -1
        skipped = int(np.searchsorted(columns.offset[rows], first))
        dropped = is_dropped(grounds.verdict[rows[:skipped]], self._on_collision)
        self.report.unproved += int(np.count_nonzero(dropped))
        self._begins_late = skipped == rows.size
        return rows[skipped:], made.rows(skipped, len(made))

    def _receipts(self, columns: Columns, rows: NDArray[np.int64], grounds: ReceiptGrounds) -> Columns:
        """Return the expected receipts as columns; good until the next call."""
        receipts = receipts_of(self._text, columns, rows, grounds)
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
            content = _parsed(marks[row - start], columns.data, at, size, most)
            content = content._replace(keyless=not source and says_left_out(columns, row))
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
        if found.content.word == "note":
            self._count_notes(1, found.content.fields.get("action"))
        return found

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
        verdicts = {_COLLISION} if word == "note" else {"duplicate", "late"}
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

    def _differences(self, expected: _Receipt, found: _Receipt) -> list[str]:
        if self._secret_known or expected.fields is None or found.fields is None:
            return _differences(expected, found)
        public = _public(expected.fields)
        self.report.secret_unknown |= public != expected.fields
        return _differences(expected._replace(fields=public), found._replace(fields=_public(found.fields)))


def _claim(receipt: AlignedRecord) -> tuple[int, int]:
    """Return owner and expiry that a receipt names; -1 and 0 in place of what cannot be."""
    fields = receipt.content.fields or {}
    owner = fields.get("owner")
    offset = owner.get("offset") if isinstance(owner, dict) else None
    expires_ms = fields.get("expires_at")
    return (
        offset if type(offset) is int and type(receipt.key) is int and 0 <= offset < receipt.key else -1,
        expires_ms if type(expires_ms) is int and abs(expires_ms) < _MOST_MS else 0,
    )


def _parsed(mark: bytes, data: NDArray[np.uint8], at: int, size: int, most_bytes: int) -> _Receipt:
    if size < 0:
        return _Receipt(mark, None, "it has no value")
    if size > most_bytes:
        return _Receipt(mark, None, f"its value takes {size:,} bytes")
    try:
        fields = json.loads(
            data[at : at + size].tobytes().decode(), object_pairs_hook=_object, parse_constant=_constant
        )
    except (ValueError, RecursionError) as error:
        return _Receipt(mark, None, f"its value is not valid JSON: {str(error)[:_MOST_SHOWN]}")
    if not isinstance(fields, dict):
        return _Receipt(mark, None, "its value is no JSON object")
    return _Receipt(mark, fields)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return fields


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _differences(expected: _Receipt, found: _Receipt) -> list[str]:
    """Say what differs, with both values."""
    if expected.mark == found.mark:
        return []
    # Only what has a key can have lost it.
    keyless = found.keyless and expected.mark[PARTS["key"]] != found.mark[PARTS["key"]]
    wrong = [
        name
        for name in (("timestamp",) if keyless else ("timestamp", "key", "headers"))
        if expected.mark[PARTS[name]] != found.mark[PARTS[name]]
    ]
    differences = [f"the record's {name} differs from what it must be" for name in wrong]
    if expected.mark[PARTS["value"]] == found.mark[PARTS["value"]]:
        return differences
    if found.fields is None:
        return [*differences, found.problem]
    assert expected.fields is not None  # noqa: S101 - our own kernel wrote it
    for name in [*expected.fields, *(found.fields.keys() - expected.fields.keys())]:
        right, said = _shown(expected.fields, name), _shown(found.fields, name)
        if right != said and not (name == "id" and _cut(expected.fields.get(name), found.fields.get(name))):
            differences.append(f"{name[:_MOST_SHOWN]} is {said}, must be {right}")
    return differences


def _public(fields: dict[str, Any]) -> dict[str, Any]:
    """Return what a receipt says, with nothing but its form of what depends on the partition's secret."""
    public = dict(fields)
    for name in ("fingerprint", "owner_fingerprint"):
        if isinstance(said := fields.get(name), str) and _FINGERPRINT.fullmatch(said):
            public[name] = _FINGERPRINT.pattern
    if isinstance(parts := fields.get("id"), list):
        public["id"] = [{"content": _CONTENT.pattern} if _is_content(part) else part for part in parts]
    return public


def _is_content(part: object) -> bool:
    said = part.get("content") if isinstance(part, dict) and len(part) == 1 else None
    return isinstance(said, str) and _CONTENT.fullmatch(said) is not None


def _cut(expected: object, found: object) -> bool:
    """Whether an id is the expected one, some of its parts cut to their digests."""
    if not isinstance(expected, list) or not isinstance(found, list) or len(expected) != len(found):
        return False
    return all(
        json.dumps(said, sort_keys=True)
        in {json.dumps(each, sort_keys=True) for each in (right, _digest(right))}
        # A receipt of a version that cut nothing.
        or (_whole(said) is not None and _digest(said) == right)
        for right, said in zip(expected, found, strict=True)
    )


def _digest(part: object) -> object:
    """Return a part of an id as it looks when it is cut; what is no whole one as it is."""
    content = _whole(part)
    return part if content is None else {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def _whole(part: object) -> bytes | None:
    """Return the bytes of a part that is not cut; None: it is, or is none."""
    if isinstance(part, str):
        return part.encode(errors="surrogatepass")
    if not isinstance(part, dict) or part.keys() != {"base64"} or not isinstance(part["base64"], str):
        return None
    try:
        return base64.b64decode(part["base64"], validate=True)
    except ValueError:
        return None


def _shown(fields: dict[str, Any], name: str) -> str:
    """Return a field as JSON, so that 1, 1.0, "1" and true differ."""
    if name not in fields:
        return "missing"
    text = json.dumps(fields[name], sort_keys=True)
    return text if len(text) <= MOST_JSON_BYTES else text[:MOST_JSON_BYTES]
