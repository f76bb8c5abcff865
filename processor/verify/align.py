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
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from processor.engine.batch.columns import Columns
from processor.engine.batch.fingerprints import equal_run
from processor.verify.report import Rule

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator

    from numpy.typing import NDArray

    from processor.verify.recent import RecentRecords
    from processor.verify.report import VerifyReport

LOOK_AHEAD = 4_096
"""Records of each side. One is about 400 bytes: 3 MB for both."""
LOOK_AHEAD_BYTES = 8 * 1024 * 1024
"""Of content that the records of a side carry."""


class Stream(Protocol):
    """Where the pieces of a topic come from; `processor.verify.streams.OutputStream` is one.

    Attributes:
        name: ``topic:partition``, for messages.
        floor: Every record below this offset has to be explained; those above may be of work that goes on.
    """

    name: str
    floor: int

    async def next(self, *, wait: bool) -> Columns | None:
        """Return the next piece, good until the next call; None at the end.

        With ``wait`` the next record has to be there, and records count that have become visible since the
        stream was opened; without it the end is where it ended then.
        """
        ...


class Cursor:
    """A place in a `Stream`, which moves forwards only: ``row`` is the next one of the present piece."""

    def __init__(self, stream: Stream) -> None:
        self.name, self.floor = stream.name, stream.floor
        self._stream = stream
        self.columns = Columns.empty(0, np.empty(0, np.uint8))
        self.row = 0

    @property
    def left(self) -> int:
        """How many rows of the present piece are left."""
        return len(self.columns) - self.row

    @property
    def offset(self) -> int:
        """The next row's offset; only where one is left."""
        return int(self.columns.offset[self.row])

    async def ready(self, *, wait: bool) -> bool:
        """Make sure that a row is left; False at the end. See `Stream.next` for ``wait``."""
        while not self.left:
            piece = await self._stream.next(wait=wait)
            if piece is None:
                return False
            self.columns, self.row = piece, 0
        return True


class AlignedRecord(NamedTuple):
    """One record: what identifies it, what else is compared, and how large that is.

    ``offset`` is in the source where the record is expected, in its own topic where it is found.
    """

    offset: int
    key: Any
    content: Any = None
    size_bytes: int = 0


class Window:
    """Records in order, found by key or by how many stand before."""

    def __init__(self) -> None:
        self._records: deque[AlignedRecord] = deque()
        self._indices: dict[Hashable, deque[int]] = defaultdict(deque)
        self._gone = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[AlignedRecord]:
        return iter(self._records)

    def __getitem__(self, index: int) -> AlignedRecord:
        return self._records[index]

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


class Aligner(ABC):
    """Compares what is expected with a topic, record by record; violations go into the report."""

    def __init__(self, stream: Stream, report: VerifyReport, recent: RecentRecords) -> None:
        self.cursor = Cursor(stream)
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
    def neither(self, expected: AlignedRecord, found: AlignedRecord) -> None:
        """Report what it is where neither head is on the other side, and drop what is done with."""

    async def match(self, columns: Columns, rows: NDArray[np.int64]) -> int:
        """Compare ``rows`` with what comes next until something differs or ends; returns how many agree."""
        at = 0
        cursor = self.cursor
        while at < rows.size and await cursor.ready(wait=True):
            left = cursor.left
            run = equal_run(columns, rows[at:], cursor.columns, cursor.row)
            cursor.row += run
            self.count(run)
            at += run
            if run < left and at < rows.size:
                break
        return at

    async def settle(self, *, final: bool) -> None:
        """Compare as far as nothing that may come later can change the outcome.

        With ``final`` nothing more is expected up to the committed position.
        """
        while self.expected:
            if self._early and self._strike(self._early, self.expected[0].key):
                self.expected.pop()
                continue
            if not self.found and not await self._fill(len(self.expected), wait=True):
                self.missing(self.expected.pop())
                continue
            expected, found = self.expected[0], self.found[0]
            if self._late and self._strike(self._late, found.key):
                self.drop_found()
            elif expected.key == found.key or self.report.given_up:
                self.drop_both()
                if expected.key == found.key:
                    self.same(expected, found)
            elif not final and len(self.expected) < LOOK_AHEAD:
                return
            else:
                await self._fill(LOOK_AHEAD, wait=False)
                self._differ(expected, found)

    async def exhausted(self) -> bool:
        """Whether all records below the stream's floor are explained."""
        if self.found:
            return self.found[0].offset >= self.cursor.floor
        return not await self.cursor.ready(wait=False) or self.cursor.offset >= self.cursor.floor

    async def finish(self) -> None:
        """Report what is left in the topic; nothing explains it."""
        await self.settle(final=True)
        while not await self.exhausted():
            if self.report.given_up:
                await self._count_rest()
                return
            await self._fill(1, wait=False)
            found = self.drop_found()
            if not self._strike(self._late, found.key):
                self.surplus(found)

    async def _count_rest(self) -> None:
        while self.found:
            self.drop_found()
        while not await self.exhausted():
            self.count(self.cursor.left)
            self.cursor.row += self.cursor.left

    async def _fill_beyond(self, offset: int, records: int) -> None:
        """Look ahead until a record of the source behind ``offset`` is named, or ``records`` and some more."""
        while len(self.found) < records + LOOK_AHEAD:
            if self.found and isinstance(self.found[-1].key, int) and self.found[-1].key > offset:
                return
            before = len(self.found)
            # Where the topic has no more, that is asked for only once: see `Stream.next`.
            await self._fill(before + 64, wait=True)
            if len(self.found) == before:
                return

    def _why_surplus(self, found: AlignedRecord, verdicts: Collection[str], already: str) -> tuple[int, str]:
        """Return the offset to report what names a source record at, and why it is surplus."""
        known = self.recent.at(found.key)
        if known is None:
            return found.offset, "there is no such record in the source here"
        label = known.verdict.label
        return known.offset, already if label in verdicts else f"that record's verdict is {label}"

    def _place(self) -> str:
        """Return where the next record of the topic stands, for people."""
        if self.found:
            return f"{self.cursor.name}:{self.found[0].offset}"
        return f"the end of {self.cursor.name}"

    async def _fill(self, most: int, *, wait: bool) -> bool:
        """Look ahead until ``most`` records are found, or no more; False where there is none at all."""
        while len(self.found) < most and self.found.size_bytes < LOOK_AHEAD_BYTES:
            cursor = self.cursor
            if not await cursor.ready(wait=wait):
                break
            # A few at a time: they may carry a record's content.
            stop = cursor.row + min(cursor.left, most - len(self.found), 256)
            self.found.extend(self.read(cursor.columns, cursor.row, stop))
            cursor.row = stop
        return bool(self.found)

    def drop_found(self) -> AlignedRecord:
        """Take the found head off: it is done with."""
        self.count(1)
        return self.found.pop()

    def drop_both(self) -> None:
        """Take both heads off."""
        self.expected.pop()
        self.drop_found()

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
                self._reordered(expected, self.found[later], "later")
            else:
                self.drop_found()
                self._early[found.key] += 1
                self._reordered(self.expected[ahead], found, "earlier")
        elif ahead is not None:
            self.missing(self.expected.pop())
        elif later is not None:
            self.surplus(self.drop_found())
        else:
            self.neither(expected, found)

    def _reordered(self, expected: AlignedRecord, found: AlignedRecord, where: str) -> None:
        detail = f"stands at {self.cursor.name}:{found.offset}, {where} than its place in the source's order"
        self.report.add(Rule.REORDERED, expected.offset, detail)
