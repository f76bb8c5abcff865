"""Reads spans of a topic for one member of a family, and for the others what they have not read yet.

A member takes what another one has left it, and reads the rest itself, for all: records are fetched and parsed
once, and summed up by each member's plan. One task at a time reads a partition for the family; others that want
it take what comes meanwhile.

Rows are a function of offsets and plan. So members need no common batches: what is left is cut into stretches,
at the offsets where another member begins or ends, and here and there between, and a member takes those that
follow each other within its span. What does not fit, was removed or is damaged is read from Kafka.

Invariant: the rows that a span gives are of each of its offsets once, whoever has summed them up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema

from processor.engine.events import EventReader
from processor.errors import StopError
from processor.kafka.plain.topic_log import LogSpan
from spark_sink.source.partials import PartialSums
from spark_sink.source.shared.store import HeldLock, RowStretch, StretchStore

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from processor.engine.events import Columns, EventColumns
    from spark_sink.source.shared.plan import SharedRead

    Read = Callable[[LogSpan], Iterator[Columns]]

CELL_RECORDS = 1 << 16
"""Records of a stretch at least, where nobody stands within: a member that ends elsewhere reads about as many
again at most, which takes 40 ms."""
RECORDS_PER_ROW = 256
"""Records per row at least, before a stretch is cut: a row that is left costs about 10 µs, a record 0.6."""
CUT_BYTES = 4 << 20
"""Rows of a stretch after which it is cut all the same: they are kept in memory until then."""
MOST_UNASKED = 64
"""Stretches that are left for a member that has not read the partition on this executor yet."""
PATIENCE_S = 10.0
"""For whoever holds the lock to go on: longer than the read of some thousand records takes."""
MOST_WAIT_S = 300.0
_LOOK_S = 0.02


class FamilyReading:
    """Reads for one member.

    Args:
        shared: The family, and the member.
        folder: The family's folder.
        read: Reads a span of the topic from Kafka.
        patience_s: For whoever reads a partition to go on.
    """

    def __init__(self, shared: SharedRead, folder: Path, read: Read, *, patience_s: float = PATIENCE_S) -> None:
        self._shared, self._folder, self._read, self._patience_s = shared, folder, read, patience_s

    def batches(self, spans: Sequence[LogSpan]) -> Iterator[pa.RecordBatch]:
        """Yield the member's rows of all spans.

        Raises:
            StopError: A span cannot be read, or a sum of the member's leaves its digits.
        """
        left: list[_SpanReading] = []
        for span in spans:
            try:
                store = StretchStore(self._folder, span.partition, len(self._shared.plans))
            except OSError:
                yield from read_alone(self._shared, span, self._read)
                continue
            left.append(_SpanReading(self._shared, store, span, self._read))
        while left:
            for each in left:
                yield from each.go_on()
            left = [each for each in left if not each.done]
            for each in left:
                if each.gives_up(self._patience_s):
                    yield from each.go_on(alone=True)
            if left:
                time.sleep(_LOOK_S)


def read_alone(shared: SharedRead, span: LogSpan, read: Read) -> Iterator[pa.RecordBatch]:
    """Yield a member's rows of a span that is read for it alone."""
    sums = PartialSums(shared.plans[shared.mine])
    for columns in read(span):
        if len(columns):
            yield from sums.take(columns, span.partition)
    yield from sums.left()


class _SpanReading:
    """One span of one member."""

    def __init__(self, shared: SharedRead, store: StretchStore, span: LogSpan, read: Read) -> None:
        self._shared, self._store, self._span, self._read = shared, store, span, read
        self._at = span.start
        self._since = time.monotonic()
        store.want(shared.mine, RowStretch(span.start, span.stop))

    @property
    def done(self) -> bool:
        """Whether all of it is read."""
        return self._at >= self._span.stop

    def gives_up(self, patience_s: float) -> bool:
        """Return whether whoever reads the partition was waited for long enough."""
        waited_s = time.monotonic() - self._since
        return waited_s > MOST_WAIT_S or (waited_s > patience_s and self._store.idle_s() > patience_s)

    def go_on(self, *, alone: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield rows, until all are there or somebody else reads the partition.

        Args:
            alone: Read although somebody else does, and for this member only.
        """
        while not self.done:
            end = yield from self._taken()
            if self._at >= end:
                return
            if alone:
                yield from self._read_alone(end)
                continue
            try:
                lock = self._store.try_lock()
            except OSError:
                alone = True
                continue
            if lock is None:
                return
            with lock:
                # Whoever had it before may have left something since.
                end = yield from self._taken()
                if self._at < end:
                    span = self._to(end)
                    family = _FamilySums(self._shared, self._store, span)
                    yield from family.rows(self._read(span), lock)
                    self._moved(end)

    def _taken(self) -> Generator[pa.RecordBatch, None, int]:
        """Yield what was left for this member; returns where the next stretch begins, or the span's end."""
        mine = self._shared.mine
        for each in self._store.stretches(mine):
            if each.start < self._at or each.stop > self._span.stop or each.stop <= each.start:
                continue
            if each.start > self._at:
                return each.start
            rows = self._store.take(mine, each)
            if rows is None:
                self._store.remove(mine, each)
                continue
            yield from rows
            self._moved(each.stop)
        return self._span.stop

    def _read_alone(self, end: int) -> Iterator[pa.RecordBatch]:
        yield from read_alone(self._shared, self._to(end), self._read)
        self._moved(end)

    def _to(self, end: int) -> LogSpan:
        return LogSpan(self._span.partition, self._at, end)

    def _moved(self, to: int) -> None:
        self._at, self._since = to, time.monotonic()
        if self.done:
            # Of what it has read it needs nothing any more; here it will go on.
            self._store.want(self._shared.mine, RowStretch(to, to))


class _FamilySums:
    """Sums records up for all members: one's rows are given, those of the others left to them."""

    def __init__(self, shared: SharedRead, store: StretchStore, span: LogSpan) -> None:
        self._shared, self._store, self._span = shared, store, span
        self._begin, self._records = span.start, 0
        self._most_bytes = store.most_bytes()
        others = [number for number in range(len(shared.plans)) if self._waits(number)]
        self._wants = {number: store.wants(number) for number in others}
        within = [each for want in self._wants.values() if want for each in want]
        self._marks = sorted({each for each in within if span.start < each < span.stop})
        # By plan: two members may have the same one.
        self._members: dict[str, list[int]] = {}
        self._sums: dict[str, PartialSums] = {}
        self._mine = shared.plans[shared.mine].written()
        for number in (shared.mine, *others):
            plan = shared.plans[number].written()
            if plan not in self._sums:
                self._sums[plan], self._members[plan] = PartialSums(shared.plans[number]), []
            if number != shared.mine:
                self._members[plan].append(number)
        self._rows: dict[str, list[pa.RecordBatch]] = {plan: [] for plan in self._sums}

    def _waits(self, member: int) -> bool:
        """Return whether a member may take something of the span."""
        wanted = self._store.wants(member)
        if wanted is None:
            # Where it never comes by, on a cluster, it is nobody's loss.
            return member != self._shared.mine and len(self._store.stretches(member)) < MOST_UNASKED
        return member != self._shared.mine and wanted.start < self._span.stop

    def rows(self, records: Iterator[Columns], lock: HeldLock) -> Iterator[pa.RecordBatch]:
        """Yield the member's rows of all records, and leave the others theirs."""
        reader = EventReader(self._shared.plans[self._shared.mine].rules)
        for columns in records:
            lock.touch()
            row = 0
            while row < len(columns):
                # Records before a mark end the stretch there, also where there are none.
                while self._marks and self._marks[0] <= int(columns.offset[row]):
                    yield from self._cut(self._marks.pop(0))
                stop = int(columns.offset.searchsorted(self._marks[0])) if self._marks else len(columns)
                part = columns.rows(row, stop)
                yield from self._add(reader.read(part), part)
                row = stop
            if len(columns) and self._is_worth_it():
                yield from self._cut(int(columns.offset[-1]) + 1)
        for mark in self._marks:
            yield from self._cut(mark)
        yield from self._cut(self._span.stop)
        yield from self._sums[self._mine].left()

    def _add(self, events: EventColumns, part: Columns) -> Iterator[pa.RecordBatch]:
        self._records += len(part)
        for plan in list(self._sums):
            try:
                for batch in self._sums[plan].add(events, part, self._span.partition):
                    yield from self._out(plan, batch)
            except StopError:
                # Its own task meets the same, and says so.
                if plan == self._mine:
                    raise
                self._drop(plan)

    def _out(self, plan: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._members[plan]:
            self._rows[plan].append(batch)
        if plan == self._mine:
            yield batch

    def _drop(self, plan: str) -> None:
        for each in (self._sums, self._members, self._rows):
            each.pop(plan)

    def _is_worth_it(self) -> bool:
        """Return whether what there is makes a stretch, though nobody stands at its end."""
        left = [plan for plan, members in self._members.items() if members]
        rows = sum(self._sums[plan].groups + sum(map(len, self._rows[plan])) for plan in left)
        kept = max((sum(each.nbytes for each in self._rows[plan]) for plan in left), default=0)
        return kept > CUT_BYTES or self._records >= max(CELL_RECORDS, RECORDS_PER_ROW * rows)

    def _cut(self, stop: int) -> Iterator[pa.RecordBatch]:
        """End the stretch before an offset, and begin the next one there."""
        stretch = RowStretch(self._begin, stop)
        if stop <= self._begin:
            return
        for plan in [plan for plan, members in self._members.items() if members]:
            try:
                for batch in self._sums[plan].left():
                    yield from self._out(plan, batch)
            except StopError:
                if plan == self._mine:
                    raise
                self._drop(plan)
                continue
            self._leave(plan, stretch)
            self._rows[plan].clear()
        self._begin, self._records = stop, 0

    def _leave(self, plan: str, stretch: RowStretch) -> None:
        for member in self._members[plan]:
            schema = to_arrow_schema(self._shared.plans[member].schema())
            wanted = self._wants[member]
            if wanted is not None and wanted.start >= stretch.stop:
                continue  # it has read that
            try:
                self._store.put(member, stretch, schema, self._rows[plan], self._most_bytes)
            except OSError:
                continue  # it reads by itself
