"""Judges the quarantined records of a stopped pipeline again, each once.

The order is that of a reset (`processor.reset.run`), so that it is safe against a worker:

    stopped   nobody in the group reads the source; asked again before each commit, and in it
    fence     the transactional ids of the slots: a zombie of theirs can write no more
    index     what stands in quarantine, and what of it notes say was judged again
    state     the committed one, restored into memory; a partition with nothing to judge needs none
    commit    some thousand records each, by the steps of a worker's commit; a note goes into quarantine

The position stays, and so does the state's id: a local copy of the state catches up from the changelog. What a
process that ends has committed counts, and its notes keep the next run from doing it again.
"""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from processor.errors import FencedError, RebuildError, StopError, reset_command
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds
from processor.kafka.reader import PartitionReader, StopReading
from processor.kafka.transactions.broker_time import BrokerTime, ClockMove
from processor.kafka.transactions.output import ExactlyOnceOutput
from processor.reset.context import connected
from processor.reset.decide import PartitionFacts
from processor.reset.facts import read_changelog_head, require_same_source
from processor.reset.fences import SlotFences
from processor.reset.redrive.work import RedriveReport, RedriveWork, opened_state
from processor.state.belonging import refusal
from processor.wire.decode import Decoder
from processor.wire.quarantine import QuarantineIndex
from schemas.changelog.position import Origin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from processor.judges.judge import Judge
    from processor.reset.context import ResetContext
    from processor.reset.redrive.work import RedriveChoice
    from schemas.changelog.position import Position
    from schemas.config import Pipeline, Settings

_POLICY = StopReading(
    damage=": what stands behind it in quarantine is not known, and nothing of it can be judged again",
    loss=": retention has removed it meanwhile. Run the same redrive again",
)


class Redrive:
    """One pipeline whose quarantined records are judged again.

    Args:
        context: Of its only hop.
        choice: Which of them.
        dry: Write nothing, and fence nobody.
    """

    def __init__(self, context: ResetContext, choice: RedriveChoice, *, dry: bool) -> None:
        self._context, self._choice = context, choice
        self._fences = None if dry else SlotFences(context)
        self._fenced: set[int] = set()
        # Of its own: what is judged must stay while a commit waits.
        self._decoder = Decoder()

    async def size(self) -> int:
        """Return how many offsets the quarantine has."""
        places = [self._place(number) for number in range(self._context.partitions)]
        found = await bounds(self._context.client, places)
        return sum(each.stable - each.start for each in found.values())

    async def run(self, advance: Callable[[int], None]) -> AsyncGenerator[RedriveReport]:
        """Do all partitions, one after the other; yields what became of the records of each.

        ``advance`` is called with the number of offsets of the quarantine read since its last call; each is
        read twice where there is something to judge.

        Raises:
            StopError: A worker runs, or something does not fit; says which partitions are done.
        """
        context, finished = self._context, list[int]()
        for number in range(context.partitions):
            try:
                await context.require_stopped()
                report = await self._partition(number, advance)
            except (StopError, RebuildError, FencedError) as error:
                raise StopError(_unfinished(error, context.source(number), finished)) from error
            finished.append(number)
            yield report

    async def close(self) -> None:
        """Give the slots up."""
        if self._fences is not None:
            await self._fences.close()

    async def _partition(self, number: int, advance: Callable[[int], None]) -> RedriveReport:
        context, tp = self._context, self._context.source(number)
        slot = number % context.settings.worker.slots
        if self._fences is not None and slot not in self._fenced:
            await self._fences.fence(slot)
            self._fenced.add(slot)
        head, end = await read_changelog_head(context, self._fences, number)
        if (position := head.position) is None:
            return RedriveReport(number)  # no worker has come to it yet
        self._require_fit(tp, position)
        limits = (await bounds(context.client, [tp]))[tp]
        await require_same_source(context, tp, PartitionFacts(str(tp), limits, position, head.origin))
        index = await self._index(number, advance)
        origin = head.origin or Origin(0, 0)
        work = RedriveWork(context.kind, number, index, position, origin, self._choice)
        start, stop = work.span
        if start == stop:
            return work.report
        # Our ids write from here on: whoever restores it next has to fence those.
        position = replace(context.named(position), slots=context.settings.worker.slots)
        changelog, timeout_s = context.changelog(number), context.transaction_timeout_s
        partition = await opened_state(context.kind, number, position, changelog, timeout_s)
        partition.changelog_end = end
        if context.pipeline.id_dedup is None:
            await work.learn(partition.judge, self._quarantine(number).columns)
        if self._fences is None:
            async with aclosing(self._quarantine(number).pieces(start, stop)) as pieces:
                await work.run(pieces, partition, None, advance)
            return work.report
        producer = self._fences.producer(slot)

        async def check() -> None:
            await context.require_stopped()
            await _require_clock(BrokerTime(producer.beginning), tp, partition.judge)

        output = ExactlyOnceOutput(producer, context.application, context.topics.source, check)
        try:
            async with aclosing(self._quarantine(number).pieces(start, stop)) as pieces:
                await work.run(pieces, partition, output, advance)
        finally:
            await producer.abort()
        return work.report

    def _require_fit(self, tp: TopicPartition, position: Position) -> None:
        """Refuse a state that a worker would refuse."""
        context, where = self._context, f"{tp.topic}:{tp.partition}"
        if position.definition != context.definition:
            to = f"--to-offset {tp.partition}:{position.next_offset}"
            raise StopError(
                f"the state was made by other rules than the config has now, so nothing can be judged by it. "
                f"Have it made anew where it stands: {reset_command(context.pipeline.name, to)} (of all "
                "partitions at once, with a --to-offset each); see 'Quarantine' in docs/operations.md"
            )
        text = refusal(position, context.topics_now(), context.topics.named, where, context.kind.reset)
        if text is not None:
            raise StopError(text)

    def _quarantine(self, number: int) -> PartitionReader:
        return PartitionReader(self._context.client, self._decoder, self._place(number), _POLICY)

    def _place(self, number: int) -> TopicPartition:
        return TopicPartition(self._context.topics.quarantine or "", number)

    async def _index(self, number: int, advance: Callable[[int], None]) -> QuarantineIndex:
        place = self._place(number)
        at, stop, _ = (await bounds(self._context.client, [place]))[place]
        index = QuarantineIndex(self._context.topics.source, number)
        async with aclosing(self._quarantine(number).columns(at, stop)) as pieces:
            async for columns, after in pieces:
                index.take(columns)
                advance(after - at)
                at = after
        return index


async def _require_clock(broker_time: BrokerTime, tp: TopicPartition, judge: Judge) -> None:
    if (move := judge.clock_move) is not None:
        await broker_time.require([ClockMove(f"{tp.topic}:{tp.partition}", *move)])


def _unfinished(error: Exception, tp: TopicPartition, finished: list[int]) -> str:
    text = str(error)
    if isinstance(error, FencedError):
        text = f"a worker has started in between and taken its slot: {error}"
    elif isinstance(error, RebuildError) and error.reason == "end":
        text = f"whether the last commit counts is not known: {error}. Run the same redrive again"
    done = f"; partitions {finished} are done" if finished else ""
    return f"{tp.topic}:{tp.partition}: {text}{done}"


@asynccontextmanager
async def opened(
    settings: Settings, pipeline: Pipeline, choice: RedriveChoice, *, dry: bool
) -> AsyncIterator[Redrive]:
    """Connect, look at the pipeline's topics, and give what judges its quarantine again.

    Raises:
        StopError: A topic is not right, or no broker answers.
    """
    async with connected(settings, pipeline, "redrive", "run the same redrive again", create=False) as context:
        redrive = Redrive(context, choice, dry=dry)
        try:
            yield redrive
        finally:
            await redrive.close()
