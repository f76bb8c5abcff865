"""Reads what a certificate compares of one partition, without what other pipelines have written.

Pipelines may share a topic of receipts or of quarantined records: both say where they come from. A certificate
leaves out what another pipeline has written, which that one's certificate checks. Only what says clearly that
it is another's is left out; everything else has to be explained.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import RecordTable
from processor.errors import StopError
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds, committed
from processor.kafka.reader import PartitionReader, StopReading
from processor.wire.quarantine import OURS, note_rows, read_record
from processor.wire.receipts import receipt_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.kafka.client import Client
    from processor.kafka.offsets import Bounds
    from processor.kafka.reader import ReadPolicy
    from processor.wire.decode import Decoder
    from schemas.config import Pipeline

    Others = Callable[[Columns], NDArray[np.bool_]]

DECODERS = 6
"""One for the source and the changelog, one for each output, one for what is judged again, one for verdicts."""
PATIENCE_S = 3.0
"""How long what must be there may stay invisible. The end of a transaction is written to one partition after
another, within milliseconds where brokers are well."""
POLL_S, MOVED_POLL_S = 0.05, 0.1
LOST = ": retention has removed it, or the topic was made anew, meanwhile"
_POLICY = StopReading(damage=": nothing can be said of what follows", loss=LOST)


@dataclass(frozen=True)
class PartitionStreams:
    """One source partition of a pipeline with its outputs, and what reads them.

    ``decoders`` are `DECODERS` of nobody else. ``everybody`` is the pipeline and those it may share topics
    with, ``group`` that of their workers. ``changelog`` is None where that topic has no such partition.
    Of a source that is ``compacted`` batches may be written anew.
    """

    client: Client
    decoders: Sequence[Decoder]
    group: str
    pipeline: Pipeline
    everybody: Iterable[Pipeline]
    number: int
    changelog: str | None
    compacted: bool = False

    @cached_property
    def source(self) -> TopicPartition:
        """The source partition."""
        return TopicPartition(self.pipeline.source, self.number)

    @cached_property
    def theirs(self) -> dict[str, Others]:
        """By shared topic: what returns bool[n], True where another pipeline has written the record."""
        return others(self.pipeline, self.everybody)

    def quarantine_again(self) -> PartitionReader:
        """Return what reads the quarantine beside its stream."""
        tp = TopicPartition(self.pipeline.quarantine or "", self.number)
        return PartitionReader(self.client, self.decoders[-2], tp, _POLICY)

    def reader(self, topic: str, policy: ReadPolicy = _POLICY) -> PartitionReader:
        """Return what reads a topic; two for one output, or for source and changelog, share a decoder."""
        outputs = self.pipeline.outputs
        decoder = self.decoders[1 + outputs.index(topic) if topic in outputs else 0]
        if topic == self.pipeline.verdicts:
            decoder = self.decoders[-1]
        return PartitionReader(self.client, decoder, TopicPartition(topic, self.number), policy, ahead=True)

    def own(self, topic: str, columns: Columns) -> Columns:
        """Return the records of a topic that no other pipeline has written; their bytes are not copied.

        Notes of a redrive are left out, too: they are no copies.
        """
        left_out = np.zeros(len(columns), np.bool_)
        if topic in self.theirs:
            left_out = self.theirs[topic](columns)
        if topic == self.pipeline.quarantine:
            left_out[note_rows(columns)] = True
        if not left_out.any():
            return columns
        rows = np.flatnonzero(~left_out)
        return columns.over(RecordTable(*(each[rows] for each in columns.table)))

    async def bounds(self, *topics: str) -> dict[str, Bounds]:
        """Return where the partition begins and ends in some topics."""
        found = await bounds(self.client, [TopicPartition(topic, self.number) for topic in topics])
        return {tp.topic: each for tp, each in found.items()}

    async def committed(self) -> int | None:
        """Return what the group has committed; None where nothing."""
        return (await committed(self.client, self.group, [self.source])).get(self.source)

    async def moved_on(self, beyond: int) -> int | None:
        """Wait until the group has committed more than ``beyond``; None where it does not within seconds."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            offset = await self.committed()
            if offset is not None and offset > beyond:
                return offset
            if time.monotonic() >= deadline:
                return None
            await asyncio.sleep(MOVED_POLL_S)


class OutputStream:
    """A `processor.verify.align.Stream` in Kafka, of ``topic`` from its offset ``start`` on.

    The log's bounds ``limits`` were asked for after the committed position: whatever belongs to that stands
    below ``limits.end``, though the end of its transaction may not be there yet.
    """

    def __init__(self, streams: PartitionStreams, topic: str, start: int, limits: Bounds) -> None:
        self.name = f"{topic}:{streams.number}"
        self.floor = limits.stable
        self._streams = streams
        self._topic = topic
        self._reader = streams.reader(topic)
        self._at = start
        self._end = limits.end
        self._pieces = self._reader.columns(start, limits.stable)
        self._patience_s = PATIENCE_S
        self._over = limits.stable >= limits.end

    async def close(self) -> None:
        """Ask for nothing more."""
        await self._pieces.aclose()

    def go_on(self) -> None:
        """The committed position has moved: look for more where the stream has ended."""
        self._over = False
        self._end = -1
        self._patience_s = PATIENCE_S

    async def next(self, *, wait: bool) -> Columns | None:
        """See `processor.verify.align.Stream`."""
        while True:
            async for columns, after in self._pieces:
                self._at = after
                return self._streams.own(self._topic, columns)
            if not wait or self._over or not await self._more():
                return None

    async def _more(self) -> bool:
        """Wait until more is visible, or all that belongs to the committed position."""
        began = time.monotonic()
        while True:
            now = (await self._streams.bounds(self._topic))[self._topic]
            self._end = now.end if self._end < 0 else self._end
            waited = time.monotonic() - began
            if now.stable > self._at:
                self._pieces = self._reader.columns(self._at, now.stable)
                return True
            if now.stable >= self._end or waited >= self._patience_s:
                if self._topic in self._streams.theirs and now.stable < self._end:
                    # Another pipeline's transaction may stay open for as long as its time-out is.
                    raise StopError(
                        f"{self.name}: a transaction is open from offset {now.stable} on, perhaps of another "
                        "pipeline that writes to this topic, so that nothing can be said of what follows. Run "
                        "it again when it has ended"
                    )
                # What is missing once is missing: the next record that is need not be waited for again.
                self._patience_s = max(0.0, self._patience_s - waited)
                self._over = True
                return False
            await asyncio.sleep(POLL_S)


def others(pipeline: Pipeline, everybody: Iterable[Pipeline]) -> dict[str, Others]:
    """Return by topic what finds the records of other pipelines; a topic that is not shared is not in it."""
    rest = [each for each in everybody if each.name != pipeline.name]
    prefixes = [
        receipt_prefix(each.name, each.source) for each in rest if each.duplicates == pipeline.duplicates
    ]
    sources = {each.source.encode() for each in rest if each.quarantine == pipeline.quarantine}
    found: dict[str, Others] = {}
    if pipeline.duplicates is not None and prefixes:
        found[pipeline.duplicates] = partial(_begin_with, prefixes)
    if pipeline.quarantine is not None and sources:
        found[pipeline.quarantine] = partial(_come_from, sources)
    return found


def _begin_with(prefixes: Iterable[bytes], columns: Columns) -> NDArray[np.bool_]:
    """Find receipts by their first bytes, as a worker writes them."""
    theirs = np.zeros(len(columns), np.bool_)
    for prefix in prefixes:
        begin = np.frombuffer(prefix, np.uint8)
        rows = np.flatnonzero(columns.value_length >= begin.size)
        at = columns.value[rows, np.newaxis] + np.arange(begin.size)
        theirs[rows[(columns.data[at] == begin).all(axis=1)]] = True
    return theirs


def _come_from(sources: Collection[bytes], columns: Columns) -> NDArray[np.bool_]:
    """Find quarantined records by the source that their last header names."""

    def named(row: int) -> bool:
        name, content = (read_record(columns, row)[3] or [(b"", None)])[-1]
        return name == OURS[-1] and (content or b"").rsplit(b":", 2)[0] in sources

    return np.array([named(row) for row in range(len(columns))], np.bool_)
