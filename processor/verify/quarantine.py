"""Does the quarantine hold exactly what cannot be judged, as it came, with the right code?

Its records say themselves which source record they are, so they are told apart by that. There are few of them:
each is read one by one, and its parts are compared by a digest.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.verdict import Fault
from processor.verify.align import LOOK_AHEAD, Advance, AlignedRecord, Aligner
from processor.verify.report import Rule
from processor.wire.quarantine import OURS, called, read_record, source_offset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.verify.cursor import Cursor
    from processor.verify.recent import RecentRecords
    from processor.verify.report import VerifyReport
    from processor.wire.quarantine import Header

_MOST_SHOWN = 60


class _Held(NamedTuple):
    """A record of the quarantine.

    Attributes:
        code: Why it is there.
        parts: Digest by part.
        problem: Why it is not a record of a quarantine.
    """

    code: str
    parts: dict[str, bytes]
    problem: str = ""


class QuarantineCheck(Aligner):
    """Compares what cannot be judged with the quarantine.

    Args:
        tape: The quarantine.
        report: Where violations go.
        history: The source near here.
        source: ``topic:partition`` of the source.
    """

    def __init__(self, tape: Cursor, report: VerifyReport, history: RecentRecords, source: str) -> None:
        super().__init__(tape, report)
        self._history = history
        self._source = source

    async def too_large(self, columns: Columns) -> NDArray[np.int64]:
        """Return the rows that the quarantine says were too large for the sink.

        Which they were depends on what the sink took then, so its word is taken: none is lost there, for each
        still has to be in the quarantine as it came.
        """
        last = int(columns.offset[-1])
        while len(self.found) < len(columns) + LOOK_AHEAD:
            if self.found and isinstance(self.found.last.key, int) and self.found.last.key > last:
                break
            before = len(self.found)
            # Where the quarantine has no more, that is asked for only once: see `Stream.next`.
            await self._fill(before + 64, wait=True)
            if len(self.found) == before:
                break
        return np.flatnonzero(np.isin(columns.offset, np.array(_too_large(self.found), np.int64)))

    def called_too_large(self, columns: Columns) -> list[tuple[int, int]]:
        """Return source offset and timestamp of the records that these of the quarantine call too large."""
        return called(columns, Fault.TOO_LARGE, self._source)

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

    def lines(self, columns: Columns, start: int, stop: int) -> Iterator[AlignedRecord]:
        """See `Aligner.lines`."""
        for row in range(start, stop):
            offset = int(columns.offset[row])
            key, value, timestamp, headers = read_record(columns, row)
            ours = headers[-len(OURS) :]
            if tuple(name for name, _ in ours) != OURS:
                content = _Held(
                    "", {}, "its last headers are not seqmark.error, seqmark.detail, seqmark.source"
                )
                yield AlignedRecord(offset, ("unreadable", offset), content)
                continue
            code, _, position = (content for _, content in ours)
            where = source_offset(position, self._source)
            problem = "" if where is not None else f"seqmark.source is {_text(position)}, not of {self._source}"
            held = _held(_text(code), key, value, timestamp, headers[: -len(OURS)], problem)
            yield AlignedRecord(offset, ("unreadable", offset) if where is None else where, held)

    def count(self, records: int) -> None:
        """See `Aligner.count`."""
        self.report.quarantine += records

    def same(self, expected: AlignedRecord, found: AlignedRecord) -> None:
        """See `Aligner.same`."""
        right, held = expected.content, found.content
        wrong = [f"{part} differs" for part in right.parts if right.parts[part] != held.parts.get(part)]
        if held.code != right.code:
            wrong.append(f"seqmark.error is {held.code}, must be {right.code}")
        if held.problem:
            wrong = [held.problem]
        if wrong:
            detail = f"the record at {self.tape.name}:{found.offset} is wrong: {'; '.join(wrong)}"
            self.report.add(Rule.QUARANTINE_WRONG, expected.offset, detail)

    def missing(self, expected: AlignedRecord) -> None:
        """See `Aligner.missing`."""
        place = f"{self.tape.name}:{self.found.head.offset}" if self.found else f"the end of {self.tape.name}"
        detail = f"cannot be judged ({expected.content.code}), and is not in quarantine; missed before {place}"
        self.report.add(Rule.QUARANTINE_MISSING, expected.offset, detail)

    def surplus(self, found: AlignedRecord) -> None:
        """See `Aligner.surplus`."""
        here = f"{self.tape.name}:{found.offset}"
        if not isinstance(found.key, int):
            self.report.add(Rule.QUARANTINE_FORGED, found.offset, f"{here}: {found.content.problem}")
            return
        known = self._history.at(found.key)
        why = "there is no such record in the source here"
        if known is not None:
            why = f"that record's verdict is {known.verdict.label}"
            if known.verdict.label == "quarantine":
                why = "that record stands there already"
        detail = f"the record at {here} says it is source offset {found.key}: {why}"
        self.report.add(Rule.QUARANTINE_FORGED, found.key if known else found.offset, detail)

    def neither(self, expected: AlignedRecord, found: AlignedRecord) -> Advance:
        """See `Aligner.neither`: the same record under another name, or another one."""
        if expected.content.parts == found.content.parts or not isinstance(found.key, int):
            self.same(expected, found)
            if not found.content.problem and expected.key != found.key:
                here = f"the record at {self.tape.name}:{found.offset}"
                detail = f"{here} is wrong: its seqmark.source says offset {found.key}"
                self.report.add(Rule.QUARANTINE_WRONG, expected.offset, detail)
            return Advance.BOTH
        self.surplus(found)
        return Advance.FOUND


def _too_large(lines: Iterable[AlignedRecord]) -> list[int]:
    code = Fault.TOO_LARGE.code
    return [line.key for line in lines if isinstance(line.key, int) and line.content.code == code]


def _held(
    code: str,
    key: bytes | None,
    value: bytes | None,
    timestamp: int,
    headers: list[Header],
    problem: str = "",
) -> _Held:
    parts = {"key": _digest(key), "value": _digest(value), "timestamp": b"%d" % timestamp}
    digest = hashlib.blake2b(digest_size=16)
    for name, content in headers:
        digest.update(_digest(name if isinstance(name, bytes) else name.encode()) + _digest(content))
    return _Held(code, {**parts, "headers": digest.digest()}, problem)


def _digest(content: bytes | None) -> bytes:
    return b"" if content is None else hashlib.blake2b(content, digest_size=16).digest()


def _text(content: bytes | None) -> str:
    return (content or b"").decode(errors="replace")[:_MOST_SHOWN]
