"""Reads a few records at any place of a partition, read_committed, and keeps what it has read.

What lies below a last stable offset never changes, but for what compaction and retention take away, so what was
read once serves the next question as well. Fetches are small: who looks for one record in ten million asks a
dozen times, and each answer is to take a millisecond.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_COLUMNS,
    CONTROL,
    HEADER_BYTES,
    LAST_DELTA,
    Columns,
    RecordTable,
)
from processor.engine.batch.scan import walk
from processor.errors import StopError
from processor.inspection.explain.story import ShownRecord
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.wire.batch_run import BatchRun
from processor.wire.decode import Decoder, UndecodableError
from processor.wire.quarantine import read_record
from processor.wire.receipt_values import RecordRef

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from numpy.typing import NDArray

    from processor.kafka.client import Client, TopicPartition
    from processor.wire.decode import Chunk

LOOK_BYTES = 16 * 1024
"""Of a fetch that looks at one place: some hundred receipts, or a worker's whole batch where that is larger."""
READ_BYTES = 1024 * 1024
"""Of a fetch that reads on."""
MOST_KEPT_BYTES = 128 * 1024 * 1024
"""Of records that have been read: a day's receipts of most partitions."""
_TRIES = 20
"""Half a second each, for a leader that moves."""
_OFFSET_BYTES = 8
_SPANS = ("body", "end", "key", "value", "headers")
"""Columns that point into the bytes."""


class Missing(StrEnum):
    """Why there is no record at an offset, as a clause."""

    CONTROL = "a control record stands there, the end of a transaction, which no consumer sees"
    ABORTED = "the record there was aborted with its producer's transaction"
    COMPACTED = "no record is there any more: compaction has removed it"


@dataclass(frozen=True, eq=False)
class LogStretch:
    """The committed records of a partition from one offset to before another, with bytes of their own.

    Attributes:
        start: The first offset that it covers.
        stop: The offset behind the last.
        columns: The records.
        batches: int64[b, BATCH_COLUMNS], all batches, those of aborted records and markers included.
        counts: bool[b], which of them have records that count.
    """

    start: int
    stop: int
    columns: Columns
    batches: NDArray[np.int64]
    counts: NDArray[np.bool_]

    @property
    def size_bytes(self) -> int:
        """About what it takes of memory."""
        return self.columns.data.size + 72 * len(self.columns) + self.batches.size * 8 + 1024

    @property
    def has_gaps(self) -> bool:
        """Whether compaction has removed records of it: in a batch, or whole batches."""
        first, last = self.batches[:, BASE_OFFSET], self.batches[:, BASE_OFFSET] + self.batches[:, LAST_DELTA]
        inside = self.counts & (first >= self.start) & (last < self.stop)
        records = self.columns.offset.searchsorted(last, "right") - self.columns.offset.searchsorted(first)
        missing = records[inside] < (last - first + 1)[inside]
        return bool(missing.any() or (first[1:] > last[:-1] + 1).any())

    def is_late(self, offset: int) -> bool:
        """Whether nothing at all is left of what stood at an offset from which on it was read."""
        return not len(self.batches) or int(self.batches[0, BASE_OFFSET]) > offset

    def row(self, offset: int) -> int | None:
        """Return the row of an offset; None: there is no record."""
        at = int(self.columns.offset.searchsorted(offset))
        return at if at < len(self.columns) and int(self.columns.offset[at]) == offset else None

    def missing(self, offset: int) -> Missing:
        """Say why there is no record at an offset that it covers."""
        first = self.batches[:, BASE_OFFSET]
        for at in np.flatnonzero((first <= offset) & (offset <= first + self.batches[:, LAST_DELTA])).tolist():
            if self.batches[at, ATTRIBUTES] & CONTROL:
                return Missing.CONTROL
            if not self.counts[at]:
                return Missing.ABORTED
        return Missing.COMPACTED


class LogReader:
    """Reads partitions of topics, one fetch at a time.

    Args:
        client: For fetches; others may ask other things over it.
    """

    def __init__(self, client: Client) -> None:
        self._fetcher = Fetcher(client)
        self._decoder = Decoder()
        self._starts: dict[TopicPartition, list[int]] = defaultdict(list)
        self._kept: OrderedDict[tuple[TopicPartition, int], LogStretch] = OrderedDict()
        self._kept_bytes = 0

    def close(self) -> None:
        """Leave what is on its way."""
        self._fetcher.close()

    def forget(self) -> None:
        """Forget what was read: topics may be others now."""
        self._starts.clear()
        self._kept.clear()
        self._kept_bytes = 0

    async def stretch(
        self, tp: TopicPartition, offset: int, stop: int, most_bytes: int = LOOK_BYTES
    ) -> LogStretch:
        """Return the records around an offset that is retained and below ``stop``, a last stable offset.

        Raises:
            StopError: They cannot be read, or are not there any more.
        """
        starts = self._starts[tp]
        if at := bisect_right(starts, offset):
            kept = self._kept[tp, starts[at - 1]]
            if offset < kept.stop:
                self._kept.move_to_end((tp, kept.start))
                return kept
        found = self._opened(await self._fetch(tp, offset, stop, most_bytes), stop)
        self._keep(tp, found)
        return found

    async def stretches(self, tp: TopicPartition, start: int, stop: int) -> AsyncGenerator[LogStretch]:
        """Yield the records from ``start`` to before ``stop``, in order; the first and last may go beyond.

        Raises:
            StopError: As `stretch`.
        """
        size = LOOK_BYTES
        while start < stop:
            found = await self.stretch(tp, start, stop, size)
            yield found
            start = found.stop
            size = min(size * 4, READ_BYTES)

    async def record(self, tp: TopicPartition, offset: int, stop: int) -> Columns | Missing:
        """Return the one record at an offset, or why there is none; otherwise as `stretch`."""
        found = await self.stretch(tp, offset, stop)
        row = found.row(offset)
        return found.missing(offset) if row is None else found.columns.rows(row, row + 1)

    async def first_time(self, tp: TopicPartition, start: int, stop: int) -> int | None:
        """Return the timestamp in ms of the first record from ``start`` on; None: there is none right there."""
        if start >= stop:
            return None
        columns = (await self.stretch(tp, start, stop)).columns
        # A batch is retained as a whole where only some of its records are.
        at = int(columns.offset.searchsorted(start))
        return int(columns.timestamp[at]) if at < len(columns) else None

    async def _fetch(self, tp: TopicPartition, offset: int, stop: int, most_bytes: int) -> Chunk:
        name = f"{tp.topic}:{tp.partition}"
        for _ in range(_TRIES):
            try:
                chunks = await self._fetcher.fetch({tp: offset}, most_bytes)
            except OutOfRangeError as error:
                raise StopError(
                    f"{error}: retention has removed it, or the topic was made anew, meanwhile"
                ) from error
            for chunk in chunks:
                if chunk.data or chunk.last_stable_offset >= stop:
                    return chunk
            await asyncio.sleep(0)
        raise StopError(f"{name}: nothing comes from offset {offset} on, of {stop}. Is the cluster well?")

    def _opened(self, chunk: Chunk, stop: int) -> LogStretch:
        """Open what was fetched, from the beginning of its first batch on."""
        raw = np.frombuffer(chunk.data, np.uint8)
        table = np.empty((raw.size // HEADER_BYTES + 1, BATCH_COLUMNS), np.int64)
        if not raw.size:
            # Nothing is left from there on, see `Fetcher.fetch`.
            return LogStretch(chunk.position, stop, Columns.empty(0, raw), table[:0], np.zeros(0, np.bool_))
        asked = chunk.position
        base = int.from_bytes(chunk.data[:_OFFSET_BYTES], "big")
        start = min(base, asked)
        chunk = replace(chunk, position=start)
        batches = table[: walk(raw, table)[0]]
        wanted = BatchRun(raw, batches, start, chunk.aborted, 0).wanted
        parts: list[Columns] = []
        after = start
        try:
            for piece in self._decoder.pieces(chunk):
                parts.append(_copied(piece.columns))
                after = piece.next_offset
        except UndecodableError as error:
            if after <= asked:
                raise StopError(
                    f"{chunk.topic}:{chunk.partition}: {error}, so that nothing can be said of it"
                ) from error
        return LogStretch(start, max(after, asked + 1), _joined(parts), batches, wanted)

    def _keep(self, tp: TopicPartition, found: LogStretch) -> None:
        key = tp, found.start
        if (before := self._kept.pop(key, None)) is not None:
            self._kept_bytes -= before.size_bytes
        else:
            insort(self._starts[tp], found.start)
        self._kept[key] = found
        self._kept_bytes += found.size_bytes
        while self._kept_bytes > MOST_KEPT_BYTES and len(self._kept) > 1:
            (old, start), oldest = self._kept.popitem(last=False)
            self._starts[old].remove(start)
            self._kept_bytes -= oldest.size_bytes


def shown(tp: TopicPartition, columns: Columns, row: int = 0) -> ShownRecord:
    """Return a record with bytes of its own."""
    key, value, timestamp, headers = read_record(columns, row)
    named = tuple((name if isinstance(name, bytes) else name.encode(), content) for name, content in headers)
    ref = RecordRef(tp.topic, tp.partition, int(columns.offset[row]))
    return ShownRecord(ref, timestamp, key, value, named)


def _copied(columns: Columns) -> Columns:
    """Return columns over bytes of their own, and no more of those than they need."""
    if not len(columns):
        return Columns.empty(0, np.empty(0, np.uint8))
    begin, end = int(columns.body.min()), int(columns.end.max())
    table = columns.table
    spans = {name: getattr(table, name) - begin for name in _SPANS}
    others = {name: getattr(table, name).copy() for name in table._fields if name not in _SPANS}
    return Columns(columns.data[begin:end].copy(), RecordTable(**spans, **others))


def _joined(parts: list[Columns]) -> Columns:
    """Return one after the other."""
    parts = [each for each in parts if len(each)]
    if len(parts) <= 1:
        return parts[0] if parts else Columns.empty(0, np.empty(0, np.uint8))
    moved, at = [], 0
    for each in parts:
        table = each.table
        spans = {name: getattr(table, name) + at for name in _SPANS}
        moved.append(table._replace(**spans))
        at += each.data.size
    table = RecordTable(*(np.concatenate(columns) for columns in zip(*moved, strict=True)))
    return Columns(np.concatenate([each.data for each in parts]), table)
