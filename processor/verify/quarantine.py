"""Compares what cannot be judged with the quarantine: exactly that, as it came, with the right code.

Collisions that the config sends there are compared likewise.

Its records say which source record they are, and that identifies them. There are few: each is read by itself,
and its parts are compared by a digest.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from typing_extensions import override

from processor.engine.verdict import Fault
from processor.verify.align import LOOK_AHEAD, AlignedRecord, Aligner
from processor.verify.report import Rule
from processor.wire.quarantine import OBSERVED, OURS, read_record, source_offset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.verify.align import Stream
    from processor.verify.recent import RecentRecords
    from processor.verify.report import VerifyReport
    from processor.wire.quarantine import Header

_MOST_SHOWN = 60


class _Held(NamedTuple):
    """A record of the quarantine: its code, a digest of each part, or why it is no such record.

    ``before`` is that of the headers before one that says that the record has passed, observed; of a record
    that came with such a header it is neither here nor there.
    """

    code: str
    parts: dict[str, bytes]
    problem: str = ""
    before: bytes | None = None

    def is_observed(self, headers: bytes) -> bool:
        """Whether it has passed, observed; ``headers`` is the digest of those that it came with."""
        return self.before == headers

    def seen_by(self, headers: bytes) -> dict[str, bytes]:
        """Return the parts, without what says that it was observed."""
        return {**self.parts, "headers": headers} if self.is_observed(headers) else self.parts


class QuarantineCheck(Aligner):
    """Compares what goes into quarantine with that topic.

    ``source`` is ``topic:partition`` of the source, ``on_collision`` says what becomes of records that collide.
    """

    def __init__(
        self,
        stream: Stream,
        report: VerifyReport,
        recent: RecentRecords,
        source: str,
        on_collision: str | None = None,
    ) -> None:
        super().__init__(stream, report, recent)
        self._source = source
        # Verdicts of what goes there.
        self._verdicts = {"quarantine", "collision"} if on_collision == "quarantine" else {"quarantine"}

    async def too_large(self, columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the rows that the quarantine says were too large for the sink, and which passed, observed.

        Which they were depends on what the sink took then, so the quarantine is trusted: nothing can be lost by
        that, for each still has to be in it as it came.
        """
        await self._fill_beyond(int(columns.offset[-1]), len(columns))
        code = Fault.TOO_LARGE.code
        named = [each.key for each in self.found if isinstance(each.key, int) and each.content.code == code]
        rows = np.flatnonzero(np.isin(columns.offset, np.array(named, np.int64)))
        return rows, self.observed(columns, rows, near=False)

    def observed(self, columns: Columns, rows: NDArray[np.int64], *, near: bool) -> NDArray[np.bool_]:
        """Return bool[k], which of some rows have passed, observed, as their copies here say.

        What is found is that which `too_large` has looked at. Of a row without a copy it is ``near``.
        """
        said = np.zeros(rows.size, np.bool_)
        for index, row in enumerate(rows.tolist()):
            place = self.found.find(int(columns.offset[row]))
            if place is None:
                said[index] = near
            elif self.found[place].content.before is not None:
                headers = _headers_digest(read_record(columns, row)[3])
                said[index] = self.found[place].content.is_observed(headers)
        return said

    async def expect(self, columns: Columns, rows: NDArray[np.int64], fault: NDArray[np.uint8]) -> None:
        """Compare the ``rows`` that cannot be judged with what comes next; ``fault`` says why, of all rows."""
        for start in range(0, rows.size, LOOK_AHEAD):
            self.expected.extend(
                AlignedRecord(
                    int(columns.offset[row]),
                    int(columns.offset[row]),
                    _held(Fault(int(fault[row])).code, *read_record(columns, row)),
                )
                for row in rows[start : start + LOOK_AHEAD].tolist()
            )
            await self.settle(final=False)

    @override
    def read(self, columns: Columns, start: int, stop: int) -> Iterator[AlignedRecord]:
        for row in range(start, stop):
            offset = int(columns.offset[row])
            key, value, timestamp, headers = read_record(columns, row)
            ours = headers[-len(OURS) :]
            if tuple(name for name, _ in ours) == OURS:
                code, _, position = (content for _, content in ours)
                where = source_offset(position, self._source)
                problem = f"seqmark.source is {_text(position)}, not of {self._source}" if where is None else ""
                own = headers[: -len(OURS)]
                held = _held(_text(code), key, value, timestamp, own, problem)
                if own[-1:] == [OBSERVED]:
                    held = held._replace(before=_headers_digest(own[:-1]))
            else:
                where = None
                held = _Held("", {}, "its last headers are not seqmark.error, seqmark.detail, seqmark.source")
            yield AlignedRecord(offset, ("unreadable", offset) if where is None else where, held)

    @override
    def count(self, records: int) -> None:
        self.report.quarantine += records

    @override
    def same(self, expected: AlignedRecord, found: AlignedRecord) -> None:
        right, held = expected.content, found.content
        headers = right.parts["headers"]
        if held.is_observed(headers):
            self.report.quarantine -= 1
            self.report.observed += 1
        parts = held.seen_by(headers)
        wrong = [f"{part} differs" for part in right.parts if right.parts[part] != parts.get(part)]
        if held.code != right.code:
            wrong.append(f"seqmark.error is {held.code}, must be {right.code}")
        if held.problem:
            wrong = [held.problem]
        if wrong:
            detail = f"the record at {self.cursor.name}:{found.offset} is wrong: {'; '.join(wrong)}"
            self.report.add(Rule.QUARANTINE_WRONG, expected.offset, detail)

    @override
    def missing(self, expected: AlignedRecord) -> None:
        code = expected.content.code
        why = "collides with an earlier record" if code == Fault.ID_COLLISION.code else "cannot be judged"
        detail = f"{why} ({code}), and is not in quarantine; missed before {self._place()}"
        self.report.add(Rule.QUARANTINE_MISSING, expected.offset, detail)

    @override
    def surplus(self, found: AlignedRecord) -> None:
        here = f"{self.cursor.name}:{found.offset}"
        if not isinstance(found.key, int):
            self.report.add(Rule.QUARANTINE_FORGED, found.offset, f"{here}: {found.content.problem}")
            return
        at, why = self._why_surplus(found, self._verdicts, "that record stands there already")
        detail = f"the record at {here} says it is source offset {found.key}: {why}"
        self.report.add(Rule.QUARANTINE_FORGED, at, detail)

    @override
    def neither(self, expected: AlignedRecord, found: AlignedRecord) -> None:
        """Report the same record under another name, or another one."""
        parts = found.content.seen_by(expected.content.parts["headers"])
        if expected.content.parts != parts and isinstance(found.key, int):
            self.surplus(self.drop_found())
            return
        self.same(expected, found)
        if not found.content.problem and expected.key != found.key:
            here = f"the record at {self.cursor.name}:{found.offset}"
            detail = f"{here} is wrong: its seqmark.source says offset {found.key}"
            self.report.add(Rule.QUARANTINE_WRONG, expected.offset, detail)
        self.drop_both()


def _held(
    code: str, key: bytes | None, value: bytes | None, timestamp: int, headers: list[Header], problem: str = ""
) -> _Held:
    parts = {"key": _digest(key), "value": _digest(value), "timestamp": b"%d" % timestamp}
    return _Held(code, {**parts, "headers": _headers_digest(headers)}, problem)


def _headers_digest(headers: list[Header]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name, content in headers:
        digest.update(_digest(name if isinstance(name, bytes) else name.encode()) + _digest(content))
    return digest.digest()


def _digest(content: bytes | None) -> bytes:
    return b"" if content is None else hashlib.blake2b(content, digest_size=16).digest()


def _text(content: bytes | None) -> str:
    return (content or b"").decode(errors="replace")[:_MOST_SHOWN]
