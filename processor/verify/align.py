"""Where two sequences differ, what is it: missing, too much, out of order, or changed?

What must be there (``expected``) and what is there (``found``) are both looked at some thousand lines ahead,
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
    from collections.abc import Hashable, Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.verify.cursor import Cursor
    from processor.verify.report import VerifyReport

LOOK_AHEAD = 4_096
"""Lines of each side. A line is some 400 bytes: 3 MB for both."""
LOOK_AHEAD_BYTES = 8 * 1024 * 1024
"""Of content that lines carry."""


class AlignedRecord(NamedTuple):
    """One record.

    Attributes:
        offset: In the source where it is expected, in its own topic where it is found.
        key: What tells it from others.
        content: What else is compared.
        size_bytes: What that takes.
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
    """Lines in order, found by key."""

    def __init__(self) -> None:
        self._lines: deque[AlignedRecord] = deque()
        self._places: dict[Hashable, deque[int]] = defaultdict(deque)
        self._gone = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[AlignedRecord]:
        return iter(self._lines)

    @property
    def head(self) -> AlignedRecord:
        """The first line."""
        return self._lines[0]

    @property
    def last(self) -> AlignedRecord:
        """The last line."""
        return self._lines[-1]

    def extend(self, lines: Iterable[AlignedRecord]) -> None:
        """Append lines."""
        for line in lines:
            self._places[line.key].append(self._gone + len(self._lines))
            self._lines.append(line)
            self.size_bytes += line.size_bytes

    def pop(self) -> AlignedRecord:
        """Take the first line."""
        line = self._lines.popleft()
        self._gone += 1
        self.size_bytes -= line.size_bytes
        places = self._places[line.key]
        places.popleft()
        if not places:
            del self._places[line.key]
        return line

    def find(self, key: Hashable) -> int | None:
        """Return how many lines stand before the first with this key; None where there is none."""
        places = self._places.get(key)
        return places[0] - self._gone if places else None

    def at(self, index: int) -> AlignedRecord:
        """Return a line by its place."""
        return self._lines[index]


class Aligner(ABC):
    """Compares what is expected with a tape, line by line.

    Args:
        tape: What is there.
        report: Where violations go.
    """

    def __init__(self, tape: Cursor, report: VerifyReport) -> None:
        self.tape = tape
        self.report = report
        self.expected = Window()
        self.found = Window()
        self._early: Counter[Hashable] = Counter()
        self._late: Counter[Hashable] = Counter()

    @property
    def even(self) -> bool:
        """Whether both sides stand at the same place and nothing is looked ahead at."""
        return not (self.expected or self.found or self._early or self._late)

    @abstractmethod
    def lines(self, columns: Columns, start: int, stop: int) -> Iterable[AlignedRecord]:
        """Read rows of the tape."""

    @abstractmethod
    def count(self, records: int) -> None:
        """Count records of the tape as compared."""

    @abstractmethod
    def same(self, expected: AlignedRecord, found: AlignedRecord) -> None:
        """Compare two lines with the same key."""

    @abstractmethod
    def missing(self, expected: AlignedRecord) -> None:
        """Tell of a line that is not there."""

    @abstractmethod
    def surplus(self, found: AlignedRecord) -> None:
        """Tell of a line that is not expected."""

    @abstractmethod
    def neither(self, expected: AlignedRecord, found: AlignedRecord) -> Advance:
        """Tell what it is where neither head is to be found on the other side."""

    async def match(self, columns: Columns, rows: NDArray[np.int64]) -> int:
        """Compare ``rows`` with what comes next until something differs or ends; returns how many agree."""
        at = 0
        while at < rows.size and await self.tape.ready(wait=True):
            other = self.tape.columns
            assert other is not None  # noqa: S101 - it is ready
            left = self.tape.left
            run = equal_run(columns, rows[at:], other, self.tape.row)
            self.tape.take(run)
            self.count(run)
            at += run
            if run < left and at < rows.size:
                break
        return at

    async def settle(self, *, final: bool) -> None:
        """Compare as far as what is expected can be told from what may come later.

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
        """Whether all records below the tape's floor are explained."""
        if self.found:
            return self.found.head.offset >= self.tape.floor
        return not await self.tape.ready(wait=False) or self.tape.offset >= self.tape.floor

    async def finish(self) -> None:
        """Tell of what is left on the tape; nothing explains it."""
        await self.settle(final=True)
        while not await self.exhausted():
            if self.report.given_up:
                await self._count_rest()
                return
            await self._fill(1, wait=False)
            line = self.found.head
            self._drop_found()
            if not self._strike(self._late, line.key):
                self.surplus(line)

    async def _count_rest(self) -> None:
        while self.found:
            self._drop_found()
        while await self.tape.ready(wait=False) and self.tape.offset < self.tape.floor:
            rows = self.tape.left
            self.count(rows)
            self.tape.take(rows)

    async def _fill(self, most: int, *, wait: bool) -> bool:
        """Look ahead until there are ``most`` lines found, or no more; False where there is none at all."""
        while len(self.found) < most and self.found.size_bytes < LOOK_AHEAD_BYTES:
            if not await self.tape.ready(wait=wait):
                break
            columns, row = self.tape.columns, self.tape.row
            assert columns is not None  # noqa: S101 - it is ready
            # A few at a time: lines may carry a record's content.
            rows = min(self.tape.left, most - len(self.found), 256)
            self.found.extend(self.lines(columns, row, row + rows))
            self.tape.take(rows)
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
        detail = f"stands at {self.tape.name}:{found.offset}, {where} than its place in the source's order"
        self.report.add(Rule.REORDERED, expected.offset, detail)
