"""Writes the clean topic from the source and its verdicts, exactly once, to where the verdicts end now.

A run takes some verdict records at a time, reads their ranges from the source, and writes what they let pass to
the sink. The sink's batches and the position in the topic of verdicts are in one transaction, of an id per
partition: a second run at the same time fences the first, and one that dies is gone on with where it was. The
position says which sink it is of, and where that ended: a run that finds it otherwise writes nothing.

Invariant: nothing of a range is committed before its sums are those of the source.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.errors import StopError
from processor.kafka.client import Client, TopicPartition, check_aiokafka, open_client
from processor.kafka.group.names import materialize_group
from processor.kafka.offsets import bounds, committed_with_notes
from processor.kafka.options import client_options
from processor.kafka.reader import PartitionReader, StopReading, first_record
from processor.kafka.topics.ensure import ensure, is_compacted, look
from processor.kafka.topics.plan import limit_bytes
from processor.kafka.transactions.fencing import fenced
from processor.kafka.transactions.output import transaction
from processor.ops.fault_points import CommitStep
from processor.pipeline.piece import before
from processor.wire.decode import Decoder
from processor.wire.encode import Encoder, TooLargeError
from processor.wire.range_sums import RangeSums
from processor.wire.verdict_walk import VerdictRun, VerdictWalk
from schemas.verdicts.ranges import VerdictRanges, unspoken
from schemas.verdicts.record import UNKNOWN_TOPIC, CorruptVerdictError, VerdictRecord
from schemas.verdicts.sink_note import SinkNote

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from numpy.typing import NDArray

    from processor.kafka.offsets import Bounds
    from processor.kafka.topics.plan import ClusterView
    from processor.kafka.transactions.output import Transaction
    from processor.kafka.transactions.producer import Producer
    from processor.wire.decode import Piece
    from processor.wire.encode import EncodedBatch
    from schemas.config import Pipeline, Settings

DEADLINE_S = 60.0
_LOST = ": retention has removed it meanwhile. Run the same command again"
_READ = StopReading(damage=": nothing behind it was written", loss=_LOST)


@dataclass(slots=True)
class Materialized:
    """What was done to one partition.

    Attributes:
        start: The offset in the topic of verdicts from which on it was done.
        stop: The one after the last that was done.
        records: Records written to the sink.
        skipped: Records of the source that the verdicts skip.
        expired: Records of the source that were judged, and that were no longer there.
        unjudged: Offsets of the source that no verdict speaks of.
        sink_end: The offset in the sink behind the last record that was ever written.
        source_end: Where the last range that was ever written ends in the source; -1: none was.
    """

    partition: int
    start: int = 0
    stop: int = 0
    records: int = 0
    skipped: int = 0
    expired: int = 0
    unjudged: int = 0
    sink_end: int = 0
    source_end: int = -1


class Skipping(NamedTuple):
    """What a run goes on behind, where it would stop without.

    Attributes:
        expired: Records and verdicts that are gone.
        unjudged: Offsets of the source that no verdict speaks of.
    """

    expired: bool = False
    unjudged: bool = False


class Materializer:
    """One pipeline; made by `materialize`."""

    def __init__(
        self, settings: Settings, pipeline: Pipeline, client: Client, view: ClusterView, skipping: Skipping
    ) -> None:
        assert pipeline.verdicts is not None  # noqa: S101 - the command has asked
        self._settings = settings
        self._pipeline = pipeline
        self._source, self._verdicts, self._sink = pipeline.source, pipeline.verdicts, pipeline.clean_topic
        self._client = client
        self._limit_bytes = limit_bytes(view, self._sink)
        self._checked = not is_compacted(view, self._source)
        self._skipping = skipping
        self._decoder, self._verdict_decoder = Decoder(), Decoder()
        self._encoder = Encoder()
        self._name = materialize_group(settings, pipeline)
        self.partitions = view[self._source].partitions

    async def partition(self, number: int, advance: Callable[[int], None]) -> Materialized:
        """Write one partition; ``advance`` gets the number of source offsets done since its last call.

        Raises:
            StopError: A verdict record is not right, or source and verdicts do not fit each other.
        """
        identity = f"{self._name}-{number}"
        sink, verdicts = TopicPartition(self._sink, number), TopicPartition(self._verdicts, number)
        options = client_options(self._settings.kafka)
        timeout_ms = self._settings.worker.transaction_timeout_ms
        own = await Client.open(options, identity, [self._sink])
        producer = await fenced(own, identity, timeout_ms, [sink], deadline_s=DEADLINE_S)
        try:
            limits = await bounds(self._client, [sink, verdicts])
            begin, note = await self._begin(verdicts, limits[sink], limits[verdicts])
            done = Materialized(number, begin, begin, sink_end=note.end, source_end=note.source)
            async for run in self._runs(done, limits[verdicts]):
                await self._write(producer, number, run, done)
                advance(run.end - run.base)
            # Brokers forget a position that nobody commits for a week, and retention takes what lies before it.
            async with transaction(producer, self._name, self._verdicts) as writing:
                await writing.done({number: done.stop}, self._note(done, limits[verdicts].stable))
        finally:
            await producer.close()
        return done

    def _note(self, done: Materialized, seen: int) -> str:
        ids = self._id(self._sink), self._id(self._verdicts)
        return SinkNote(ids[0], done.sink_end, ids[1], seen, done.source_end).text()

    async def _begin(self, verdicts: TopicPartition, sink: Bounds, limits: Bounds) -> tuple[int, SinkNote]:
        """Return where to go on in the topic of verdicts, and what is known there: its last owner is fenced.

        Raises:
            StopError: Nobody knows, or the sink is not what the position speaks of.
        """
        number = verdicts.partition
        found = (await committed_with_notes(self._client, self._name, [verdicts])).get(verdicts)
        if found is None:
            if sink.start == 0 and await self._first_record(number, sink.start, sink.stable) is None:
                return limits.start, SinkNote(self._id(self._sink), sink.stable, self._id(self._verdicts))
            raise self._refused(
                f"{self._sink}:{number} holds records, or has held some, and the group {self._name} has no "
                "position: somebody else has written them, or the group's offsets were forgotten (a week "
                "without a run, by the brokers' default)"
            )
        note = SinkNote.read(found.note)
        if note is None:
            raise self._refused(f"the position of group {self._name} was set by another program")
        same_sink, same_verdicts = note.is_of(self._id(self._sink), self._id(self._verdicts))
        if not same_sink or sink.end < note.end:
            raise self._refused(
                f"{self._sink}:{number} is not the topic that was written up to now: it was deleted and made "
                "anew, has lost records, or the config names another one. What is before would be missing in it"
            )
        seen = max(found.offset, note.seen)
        if not same_verdicts or seen > limits.end:
            raise self._refused(f"{self._verdicts} was deleted and made anew")
        if seen < limits.start:
            raise self._refused(
                f"{self._verdicts}:{number} begins at offset {limits.start}, and {seen} would be next: "
                "verdicts have expired unread"
            )
        foreign = await self._first_record(number, max(sink.start, note.end), sink.stable)
        if foreign is not None:
            raise self._refused(
                f"{self._sink}:{number} holds records from offset {foreign} on, which were not written from "
                'verdicts: the pipeline ran with output "both" or "records" meanwhile, somebody else writes '
                "there, or the brokers have lost a position"
            )
        return found.offset, note

    def _id(self, topic: str) -> bytes:
        return self._client.ids.get(topic, UNKNOWN_TOPIC)

    def _refused(self, why: str) -> StopError:
        """Return the error of a sink and a position that do not fit each other."""
        return StopError(
            f"{why}. To write it again from the first verdict on, delete the topic {self._sink} and the group "
            f"{self._name} (kafka-consumer-groups.sh --delete --group {self._name})"
        )

    async def _first_record(self, number: int, start: int, stable: int) -> int | None:
        """Return the offset of the first committed record of a part of the sink; what is aborted is none."""
        reader = PartitionReader(self._client, self._decoder, TopicPartition(self._sink, number), _READ)
        return await first_record(reader, start, stable)

    async def _runs(self, done: Materialized, limits: Bounds) -> AsyncIterator[VerdictRun]:
        """Yield what is to be done, in order, up to where the verdicts end now."""
        tp = TopicPartition(self._verdicts, done.partition)
        ranges = VerdictRanges(done.partition, self._id(self._source))
        ranges.end = done.source_end if done.source_end >= 0 else None
        walk = VerdictWalk(
            f"{tp.topic}:{tp.partition}",
            lambda offset, value: self._taken(ranges, value, done, finished=offset < done.start),
        )
        # The last one that was done says where the next has to go on.
        reader = PartitionReader(self._client, self._verdict_decoder, tp, _READ)
        async with aclosing(reader.columns(max(limits.start, done.start - 1), limits.stable)) as pieces:
            async for columns, _ in pieces:
                for run in walk.runs(columns):
                    yield run
        for run in walk.rest():
            yield run

    def _taken(
        self, ranges: VerdictRanges, value: bytes, done: Materialized, *, finished: bool
    ) -> VerdictRecord | None:
        """Return the next verdict record; None: it was done in a run before, or its source is gone.

        Raises:
            CorruptVerdictError: It is not right.
            StopError: Nobody has judged what lies before it.
        """
        found = VerdictRecord.decode(value)
        other = ranges.is_other(found)
        if finished or (other and self._skipping.expired):
            # What follows on another topic's ranges has to begin.
            ranges.end = -1 if other else found.end
            done.expired += 0 if finished else found.sums.records
            return None
        if other:
            raise CorruptVerdictError(
                "it was made from another topic by the source's name, which was deleted and made anew. With "
                "--skip-expired it goes on behind what that topic held"
            )
        was = ranges.end
        found = ranges.take(value)
        if was is not None and was >= 0 and (told := unspoken(was, found)) is not None:
            if not self._skipping.unjudged:
                raise StopError(
                    f"{self._source}:{ranges.partition}: {told}. With --skip-unjudged it goes on behind them: "
                    "their records will not be in the sink"
                )
            done.unjudged += found.base - was
        return found

    async def _write(self, producer: Producer, number: int, run: VerdictRun, done: Materialized) -> None:
        """Write what passes of a run of ranges, and the position behind it, in one transaction."""
        source = TopicPartition(self._source, number)
        first = (await bounds(self._client, [source]))[source].start
        async with transaction(producer, self._name, self._verdicts, name=self._name) as writing:
            seen = await self._copy(writing, source, run, first, done)
            done.expired += self._compare(source, run.verdicts, seen, first)
            await writing.written(CommitStep.OUTPUT)
            if done.records:
                done.sink_end = writing.next_offset(self._sink, number)
            done.stop, done.source_end = run.after, run.end
            await writing.done({number: run.after}, self._note(done, run.after))

    async def _copy(
        self, writing: Transaction, source: TopicPartition, run: VerdictRun, first: int, done: Materialized
    ) -> RangeSums:
        """Send what passes of a run; returns what the source has of it, from its ``first`` offset on."""
        skipped = np.concatenate([each.skipped for each in run.verdicts])
        seen, start = RangeSums(), max(run.base, first)
        if start >= run.end:
            return seen
        reader = PartitionReader(self._client, self._decoder, source, _READ)
        async with aclosing(reader.pieces(start, run.end)) as pieces:
            async for piece in pieces:
                seen.take(piece, run.end)
                cut = int(piece.columns.offset.searchsorted(run.end))
                some = before(piece, cut) if cut < len(piece.columns) else piece
                stays = np.isin(some.columns.offset, skipped).view(np.uint8)
                done.records += int(np.count_nonzero(stays == 0))
                done.skipped += int(np.count_nonzero(stays))
                await writing.send(self._sink, source.partition, self._encoded(some, stays, source.partition))
        return seen

    def _encoded(self, piece: Piece, stays: NDArray[np.uint8], number: int) -> list[EncodedBatch]:
        try:
            return self._encoder.encode(piece, stays, self._limit_bytes)
        except TooLargeError as error:
            raise StopError(
                f"{self._source}:{number}:{int(piece.columns.offset[error.row])}: topic {self._sink} needs "
                f"max.message.bytes of at least {error.size_bytes} (it has {self._limit_bytes}) for it. "
                "Raise it, and run the same command again"
            ) from error

    def _compare(
        self, source: TopicPartition, verdicts: Sequence[VerdictRecord], seen: RangeSums, first: int
    ) -> int:
        """Compare ranges with their verdicts; returns how many records have expired of those before ``first``.

        Raises:
            StopError: They differ, or have expired.
        """
        cuts, expired = [verdicts[0].base, *(each.end for each in verdicts)], 0
        for found, sums in zip(verdicts, seen.sums(cuts), strict=True):
            gone = found.sums.records - sums.records
            if found.base < first and gone > 0:
                if not self._skipping.expired:
                    raise StopError(
                        f"{source.topic}:{source.partition}: of offsets {found.base} to "
                        f"{min(first, found.end) - 1}, {gone} records are gone: retention removed them before "
                        f"they were written to {self._sink}. With --skip-expired it goes on behind them"
                    )
                expired += gone
            elif self._checked and sums != found.sums:
                raise StopError(
                    f"{source.topic}:{source.partition}: offsets {found.base} to {found.end - 1} are not what "
                    f"was judged: the verdicts speak of {found.sums}, the source has {sums}. The topic was "
                    "changed or made anew, or the verdicts are another's; nothing of this range was written"
                )
        return expired


async def materialize(
    settings: Settings,
    pipeline: Pipeline,
    done: Callable[[Materialized], None],
    advance: Callable[[int], None],
    skipping: Skipping,
) -> None:
    """Write the clean topic of a pipeline; ``done`` gets each partition as soon as it is.

    Raises:
        StopError: See `Materializer.partition`; or a topic is not right, or no broker answers.
    """
    check_aiokafka()
    alone = settings.model_copy(update={"pipelines": [pipeline]})
    (await ensure(alone, create=settings.worker.create_topics)).require()
    view = await look(alone)
    again = "; run the same command again, it goes on where it was"
    async with open_client(
        settings.kafka, f"{settings.worker.application_id}-materialize", view, again
    ) as client:
        work = Materializer(settings, pipeline, client, view, skipping)
        for number in range(work.partitions):
            done(await work.partition(number, advance))
