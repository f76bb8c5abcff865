"""Reads a topic as a history, and takes in what a worker would have read of its records.

Partition by partition, read_committed, in the order of the offsets; what the worker cannot judge is left out,
as it leaves it out. Where the topic is the source itself, it is read up to the cut: behind it stand the
records that the stream goes on with. With ``route`` ids go to the partition that the worker sends them to,
wherever they stood.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

import numpy as np
from typing_extensions import override

from processor.engine.extract.routing import ROUTE_KEY
from processor.engine.ids import clock
from processor.engine.repartition import targets
from processor.engine.verdict import Fault
from processor.errors import StopError
from processor.judges.ids import make_id_extractor
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds
from processor.kafka.reader import PartitionReader, StopReading
from processor.reset.backfill.fold import NO_NUMBERS, SequenceRows
from processor.reset.backfill.intake.folder import HistoryCounts
from processor.reset.backfill.prepare import HistoryRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.judges.judge import Judge
    from processor.judges.watermark import SequenceEvidence
    from processor.kafka.client import Client
    from processor.kafka.offsets import Bounds
    from processor.reset.backfill.fold import WatermarkPreparation
    from processor.reset.backfill.prepare import Preparation
    from processor.wire.decode import Decoder
    from schemas.config import InsertIdDedup

_POLICY = StopReading(
    damage="; a history has to be whole: what was delivered in it would pass again",
    loss=": retention has removed it meanwhile. Run the same backfill again",
)


class TopicHistory:
    """A topic of the same cluster.

    Args:
        client: Connected to it, and used for nothing else meanwhile.
        decoder: Used for nothing else meanwhile.
        topic: Its name.
        partitions: How many partitions it must have: the source's. None: any, for the id says where it goes.
    """

    def __init__(self, client: Client, decoder: Decoder, topic: str, partitions: int | None) -> None:
        self._client, self._decoder = client, decoder
        self._topic, self._partitions = topic, partitions

    async def limits(self) -> dict[int, Bounds]:
        """Return where its partitions begin and end.

        Raises:
            StopError: It is not there, or its partitions are not those of the source.
            RebuildError: The broker does not answer.
        """
        numbers = sorted(self._client.partitions(self._topic))
        if not numbers:
            raise StopError(f"there is no topic {self._topic}")
        if self._partitions is not None and len(numbers) != self._partitions:
            raise StopError(
                f"{self._topic} has {len(numbers)} partitions, and the source {self._partitions}: in which "
                "partition of the source a record stood is not known. Export it to Parquet with the column "
                "that says it: --format parquet --columns partition=COL"
            )
        found = await bounds(self._client, [TopicPartition(self._topic, number) for number in numbers])
        return {tp.partition: limits for tp, limits in found.items()}

    async def take(
        self, spans: Mapping[int, tuple[int, int]], intake: RecordIntake, advance: Callable[[int], None]
    ) -> HistoryCounts:
        """Take the records of some spans of offsets in; ``advance`` gets how many offsets were read since.

        Args:
            spans: By partition, from where to before where.
            intake: Takes them.
            advance: Told how far it is.

        Raises:
            StopError: A batch cannot be decoded, or retention has taken what was to be read.
            RebuildError: Nothing comes any more.
        """
        rows = faults = 0
        first = ""
        for number, (start, stop) in spans.items():
            reader = PartitionReader(self._client, self._decoder, TopicPartition(self._topic, number), _POLICY)
            at = start
            async with aclosing(reader.columns(start, stop)) as pieces:
                async for columns, after in pieces:
                    fault, good = intake.take(number, columns)
                    rows, faults = rows + good.size, faults + int((~good).sum())
                    first = first or self._told(number, columns, fault)
                    advance(after - at)
                    at = after
            advance(max(0, stop - at))
        return HistoryCounts(len(spans), rows, 0, faults, first, {}, {})

    def _told(self, number: int, columns: Columns, fault: NDArray[np.uint8]) -> str:
        bad = np.flatnonzero(fault)
        if not bad.size:
            return ""
        return f"{self._topic}:{number}:{int(columns.offset[bad[0]])}: {Fault(int(fault[bad[0]])).code}"


class RecordIntake(Protocol):
    """Takes records in, as a mode reads them."""

    def take(self, number: int, columns: Columns) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Take the next records of a partition in; returns their `Fault` codes, and which of them count.

        Raises:
            OSError: They cannot be written.
        """
        ...


class IdIntake(RecordIntake):
    """Takes ids in, with the readings that a worker's clock would have had.

    With ``route``, how the records of several partitions fall in between each other nothing says. So a clock is
    kept per partition of the topic and per partition that ids are sent to: that of the worker reads no less.

    Args:
        dedup: The definition.
        secret: 16 bytes, the backfill's key.
        route: Over how many partitions ids are sent; None: they stay in that of their record.
        latest_ms: No timestamp moves the clock further.
        work: Takes them.
    """

    def __init__(
        self, dedup: InsertIdDedup, secret: bytes, route: int | None, latest_ms: int, work: Preparation
    ) -> None:
        self._extractor = make_id_extractor(dedup, secret)
        self._router = make_id_extractor(dedup, ROUTE_KEY)
        self._route, self._latest_ms, self._work = route, latest_ms, work
        self._clock_ms: dict[tuple[int, int], int] = {}

    @override
    def take(self, number: int, columns: Columns) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        ids = self._extractor.extract(columns)
        sent = np.full(len(columns), number, np.int64)
        if self._route is not None:
            sent, _ = targets(self._router.extract(columns), ids.fault, number, self._route)
        good = (ids.fault == Fault.NONE) & ~ids.unjudged
        reading_ms = np.empty(sent.size, np.int64)
        for to in np.unique(sent[ids.fault == Fault.NONE]).tolist():
            rows = np.flatnonzero(sent == to)
            before_ms = self._clock_ms.get((number, to), clock.NEVER)
            some = clock.by_records(before_ms, columns.timestamp[rows], ids.fault[rows], self._latest_ms, 0)
            reading_ms[rows], self._clock_ms[number, to] = some.reading_ms, some.clock_ms
        prints = ids.fingerprint[good] if ids.fingerprint.size else ids.fingerprint
        if good.any():
            self._work.take(HistoryRows(sent[good], ids.hash[good], reading_ms[good], prints))
        return ids.fault, good


class SequenceIntake(RecordIntake):
    """Takes sequences in.

    Args:
        judge: Of the pipeline; it reads records and judges none.
        work: Takes them.
    """

    def __init__(self, judge: Judge[SequenceEvidence], work: WatermarkPreparation) -> None:
        self._judge, self._work = judge, work

    @override
    def take(self, number: int, columns: Columns) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        read = self._judge.extract(columns)
        good = read.fault == Fault.NONE
        some = np.full(int(good.sum()), number, np.int64)
        epoch = NO_NUMBERS if read.epoch is None else read.epoch[good]
        at, size = (NO_NUMBERS, NO_NUMBERS) if read.scope is None else (each[good] for each in read.scope)
        if some.size:
            self._work.take(SequenceRows(some, read.sequence[good], epoch, read.data, at, size))
        return read.fault, good
