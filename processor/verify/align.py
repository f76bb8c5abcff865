"""Says how two sequences differ: missing, surplus, out of order, or changed.

Both what must be there (``expected``) and what is there (``found``) are looked at some thousand records ahead,
and no further: whatever stands in a topic, memory and time stay bounded. While the heads of both agree nothing
is looked ahead at all. Where they differ::

    the expected one comes later, the found one is expected later   reordered: the one that has moved further
    the expected one comes later, the found one is not expected     surplus: the found one
    the expected one does not come, the found one is expected later missing: the expected one
    neither                                                         for the subclass to say
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.engine.batch.fingerprints import equal_run
from processor.verify.report import Rule

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.verify.cursor import Cursor
    from processor.verify.recent import RecentRecords
    from processor.verify.report import VerifyReport

LOOK_AHEAD = 4_096
"""Records of each side. One is about 400 bytes: 3 MB for both."""
LOOK_AHEAD_BYTES = 8 * 1024 * 1024
"""Of content that the records of a side carry."""


class AlignedRecord(NamedTuple):
    """One record.

    Attributes:
        offset: In the source where it is expected, in its own topic where it is found.
        key: Identifies it.
        content: What else is compared.
        size_bytes: Of the content.
    """

    offset: int
    key: Hashable
    content: Any = None
    size_bytes: int = 0


class Advance(Enum):
    """Which heads are done with."""

    EXPECTED = 1
    FOUND = 2
    BOTH = 3


class Window:
    """Records in order, found by key."""

    def __init__(self) -> None:
        self._records: deque[AlignedRecord] = deque()
        self._indices: dict[Hashable, deque[int]] = defaultdict(deque)
        self._gone = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[AlignedRecord]:
        return iter(self._records)

    @property
    def head(self) -> AlignedRecord:
        """The first record."""
        return self._records[0]

    @property
    def last(self) -> AlignedRecord:
        """The last record."""
        return self._records[-1]

    def extend(self, records: Iterable[AlignedRecord]) -> None:
        """Append records."""
        for record in records:
            self._indices[record.key].append(self._gone + len(self._records))
            self._records.append(record)
            self.size_bytes += record.size_bytes

    def pop(self) -> AlignedRecord:
        """Take the first record."""
        record = self._records.popleft()
        self._gone += 1
        self.size_bytes -= record.size_bytes
        indices = self._indices[record.key]
        indices.popleft()
        if not indices:
            del self._indices[record.key]
        return record

    def find(self, key: Hashable) -> int | None:
        """Return how many records stand before the first with this key; None where there is none."""
        indices = self._indices.get(key)
        return indices[0] - self._gone if indices else None

    def at(self, index: int) -> AlignedRecord:
        """Return a record by how many stand before it."""
        return self._records[index]


class Aligner(ABC):
    """Compares what is expected with a topic, record by record; violations go into the report."""

    def __init__(self, cursor: Cursor, report: VerifyReport, recent: RecentRecords) -> None:
        self.cursor = cursor
        self.report = report
        self.recent = recent
        self.expected = Window()
        self.found = Window()
        self._early: Counter[Hashable] = Counter()
        self._late: Counter[Hashable] = Counter()

    @property
    def even(self) -> bool:
        """Whether both sides stand at the same place and nothing is looked ahead at."""
        return not (self.expected or self.found or self._early or self._late)

    @abstractmethod
    def read(self, columns: Columns, start: int, stop: int) -> Iterable[AlignedRecord]:
        """Read rows of the topic."""

    @abstractmethod
    def count(self, records: int) -> None:
        """Count records of the topic as compared."""

    @abstractmethod
    def same(self, expected: AlignedRecord, found: AlignedRecord) -> None:
        """Compare two records with the same key."""

    @abstractmethod
    def missing(self, expected: AlignedRecord) -> None:
        """Report a record that is not there."""

    @abstractmethod
    def surplus(self, found: AlignedRecord) -> None:
        """Report a record that is not expected."""

    @abstractmethod
    def neither(self, expected: AlignedRecord, found: AlignedRecord) -> Advance:
        """Report what it is where neither head is on the other side; say which of them is done with."""

    async def match(self, columns: Columns, rows: NDArray[np.int64]) -> int:
        """Compare ``rows`` with what comes next until something differs or ends; returns how many agree."""
        at = 0
        while at < rows.size and await self.cursor.ready(wait=True):
            other = self.cursor.columns
            assert other is not None  # noqa: S101 - it is ready
            left = self.cursor.left
            run = equal_run(columns, rows[at:], other, self.cursor.row)
            self.cursor.take(run)
            self.count(run)
            at += run
            if run < left and at < rows.size:
                break
        return at

    async def settle(self, *, final: bool) -> None:
        """Compare as far as nothing that may come later can change the outcome.

        Args:
            final: Nothing more is expected up to the committed position.
        """
        while self.expected:
            if self._early and self._strike(self._early, self.expected.head.key):
                self.expected.pop()
                continue
            if not self.found and not await self._fill(len(self.expected), wait=True):
                self.missing(self.expected.pop())
                continue
            expected, found = self.expected.head, self.found.head
            if self._late and self._strike(self._late, found.key):
                self._drop_found()
            elif expected.key == found.key:
                self.expected.pop()
                self._drop_found()
                self.same(expected, found)
            elif self.report.given_up:
                self.expected.pop()
                self._drop_found()
            elif not final and len(self.expected) < LOOK_AHEAD:
                return
            else:
                await self._fill(LOOK_AHEAD, wait=False)
                self._differ(expected, found)

    async def exhausted(self) -> bool:
        """Whether all records below the stream's floor are explained."""
        if self.found:
            return self.found.head.offset >= self.cursor.floor
        return not await self.cursor.ready(wait=False) or self.cursor.offset >= self.cursor.floor

    async def finish(self) -> None:
        """Report what is left in the topic; nothing explains it."""
        await self.settle(final=True)
        while not await self.exhausted():
            if self.report.given_up:
                await self._count_rest()
                return
            await self._fill(1, wait=False)
            found = self.found.head
            self._drop_found()
            if not self._strike(self._late, found.key):
                self.surplus(found)

    async def _count_rest(self) -> None:
        while self.found:
            self._drop_found()
        while await self.cursor.ready(wait=False) and self.cursor.offset < self.cursor.floor:
            rows = self.cursor.left
            self.count(rows)
            self.cursor.take(rows)

    async def _fill_beyond(self, offset: int, records: int) -> None:
        """Look ahead until a record of the source behind ``offset`` is named, or ``records`` and some more."""
        while len(self.found) < records + LOOK_AHEAD:
            if self.found and isinstance(self.found.last.key, int) and self.found.last.key > offset:
                return
            before = len(self.found)
            # Where the topic has no more, that is asked for only once: see `Stream.next`.
            await self._fill(before + 64, wait=True)
            if len(self.found) == before:
                return

    def _why_surplus(self, offset: int, verdicts: Collection[str], already: str) -> tuple[bool, str]:
        """Return whether a source record is near here, and why what names it is surplus."""
        known = self.recent.at(offset)
        if known is None:
            return False, "there is no such record in the source here"
        label = known.verdict.label
        return True, already if label in verdicts else f"that record's verdict is {label}"

    def _place(self) -> str:
        """Return where the next record of the topic stands, for people."""
        if self.found:
            return f"{self.cursor.name}:{self.found.head.offset}"
        return f"the end of {self.cursor.name}"

    async def _fill(self, most: int, *, wait: bool) -> bool:
        """Look ahead until ``most`` records are found, or no more; False where there is none at all."""
        while len(self.found) < most and self.found.size_bytes < LOOK_AHEAD_BYTES:
            if not await self.cursor.ready(wait=wait):
                break
            columns, row = self.cursor.columns, self.cursor.row
            assert columns is not None  # noqa: S101 - it is ready
            # A few at a time: they may carry a record's content.
            rows = min(self.cursor.left, most - len(self.found), 256)
            self.found.extend(self.read(columns, row, row + rows))
            self.cursor.take(rows)
        return bool(self.found)

    def _drop_found(self) -> None:
        self.found.pop()
        self.count(1)

    @staticmethod
    def _strike(noted: Counter[Hashable], key: Hashable) -> bool:
        """Take a key off the notes; False where it is not there."""
        if key not in noted:
            return False
        noted[key] -= 1
        if not noted[key]:
            del noted[key]
        return True

    def _differ(self, expected: AlignedRecord, found: AlignedRecord) -> None:
        later, ahead = self.found.find(expected.key), self.expected.find(found.key)
        if later is not None and ahead is not None:
            if later >= ahead:
                self.expected.pop()
                self._late[expected.key] += 1
                self._reordered(expected, self.found.at(later), "later")
            else:
                self._drop_found()
                self._early[found.key] += 1
                self._reordered(self.expected.at(ahead), found, "earlier")
        elif ahead is not None:
            self.missing(self.expected.pop())
        elif later is not None:
            self._drop_found()
            self.surplus(found)
        else:
            step = self.neither(expected, found)
            if step is not Advance.FOUND:
                self.expected.pop()
            if step is not Advance.EXPECTED:
                self._drop_found()

    def _reordered(self, expected: AlignedRecord, found: AlignedRecord, where: str) -> None:
        detail = f"stands at {self.cursor.name}:{found.offset}, {where} than its place in the source's order"
        self.report.add(Rule.REORDERED, expected.offset, detail)
