"""Loads a staged backfill into the changelog of a stopped pipeline that has no state yet.

The order is that of a reset, so that it is safe against a worker:

    1 stopped   nobody in the group reads the source; asked again before each transaction ends
    2 fence     the transactional ids of the slots, and of whoever began to load this before
    3 look      each partition: nothing there, a part of this backfill, or all of it; anything else is refused
    4 mark      all partitions in one transaction: origin, at which readers forget what lies before it, and how
                far this has come, nowhere yet
    5 blocks    the ids or scopes, in transactions that each end with how far it has come
    6 state     once all blocks are there, per partition one transaction: secret, clock and numbers of its ids,
                position, and the group's offset

With ``route`` steps 2 to 4 are of both hops, and the transaction of step 4 is one all the same. Step 6 is first
of the hop that judges, then of the one that reads the source: where that begins, all ids are there.

From step 4 on a worker refuses each partition by the backfill's name, until its step 6 is done: were it marked
later than another one, a worker could begin it with an empty state meanwhile. A process that ends anywhere is
started again: what has committed is not written once more.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from processor.errors import FencedError, RebuildError, StopError
from processor.kafka.offsets import bounds
from processor.reset.backfill.hop_load import FirstHopLoad, HopLoad, LoadStep
from processor.reset.backfill.sample import CutSample, sample_ids, sample_sequences
from processor.reset.context import ResetContext, connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from processor.kafka.client import TopicPartition
    from processor.kafka.transactions.producer import Producer
    from processor.reset.backfill.hop_load import Item
    from processor.reset.backfill.staging import Staging
    from schemas.config import Pipeline, Settings


class LoadPlan(NamedTuple):
    """What is to be loaded of a pipeline.

    Attributes:
        steps: Of the partitions that have ids or scopes.
        firsts: With ``route``: of those of the source, which have a cut each, and nothing else.
    """

    steps: list[LoadStep]
    firsts: list[LoadStep]

    @property
    def cuts(self) -> list[LoadStep]:
        """The steps of the source's partitions: where the stream goes on."""
        return self.firsts or self.steps

    @property
    def whole(self) -> bool:
        """Whether nothing is left to be loaded."""
        return all(step.whole for step in (*self.steps, *self.firsts))


class BackfillLoad:
    """One backfill, ready to be loaded; made by `loading`."""

    def __init__(self, context: ResetContext, staging: Staging) -> None:
        self._context = context
        self._staging = staging
        first = context.first
        self._first = None if first is None else FirstHopLoad(first, staging)
        # Who marks one hop marks both, by an id of the other one's slots.
        marked = [] if first is None else [first.changelog_at(number) for number in sorted(staging.cuts)]
        self._last = HopLoad(context, staging, marked)

    async def plan(self) -> LoadPlan:
        """Fence the slots, look at each partition and say what is to be loaded.

        Raises:
            StopError: The pipeline is not stopped, or has a state, or the backfill is of another one; names
                everything that is wrong.
            RebuildError: The broker does not answer.
        """
        await self._context.require_stopped()
        if misfits := list(self._misfits()):
            raise StopError("nothing was loaded:\n" + "\n".join(misfits))
        hops = [self._last] if self._first is None else [self._first, self._last]
        for hop in hops:
            await hop.fence()
        looked = [await hop.look() for hop in hops]
        if refused := [text for _, texts in looked for text in texts]:
            raise StopError("nothing was loaded:\n" + "\n".join(refused))
        *firsts, steps = [found for found, _ in looked]
        return LoadPlan(steps, firsts[0] if firsts else [])

    async def sample(self, plan: LoadPlan) -> dict[int, CutSample]:
        """Look on both sides of the cuts, see `sample_ids`; by source partition, of those not loaded yet.

        Raises:
            StopError: A file is not whole, or retention has taken what was to be read.
            RebuildError: The broker does not answer.
        """
        context, staging, dedup = self._context.reading, self._staging, self._context.pipeline.id_dedup
        numbers = [step.partition for step in plan.cuts if not step.whole]
        found = await bounds(context.client, [context.source(number) for number in numbers])
        limits = {number: found[context.source(number)] for number in numbers}
        if dedup is None:
            return {each: await sample_sequences(context, staging, each, limits[each]) for each in numbers}
        return await sample_ids(context, staging, limits, dedup)

    async def apply(self, plan: LoadPlan, advance: Callable[[int], None]) -> None:
        """Load what `plan` has said; ``advance`` gets the number of blocks loaded since its last call.

        Raises:
            StopError: A worker came in between, or an outcome is not known, or a file is not whole.
        """
        left = [step for step in plan.steps if not step.whole]
        try:
            await self._mark(plan)
            for step in left:
                await self._last.blocks(step, advance)
            for step in left:
                await self._last.state(step)
            for step in plan.firsts:
                if self._first is not None and not step.whole:
                    await self._first.state(step)
        except (RebuildError, FencedError) as error:
            raise StopError(
                f"backfill {self._staging.run} is not loaded to its end: {error}. Load it again: it goes on "
                "where it was"
            ) from error

    async def close(self) -> None:
        """Give the slots up."""
        await self._last.close()
        if self._first is not None:
            await self._first.close()

    def _misfits(self) -> Iterator[str]:
        """Say what of the backfill is not this pipeline's."""
        context, staging = self._context, self._staging
        dedup, name = context.pipeline.id_dedup, context.pipeline.name
        if staging.pipeline != name:
            yield f"backfill {staging.run} was staged for pipeline {staging.pipeline}, not for {name}"
        if dedup is not None and dedup.on_collision == "tag":
            yield f"pipeline {name} tags collisions with the first record, which of a history stands nowhere"
        if staging.definition != context.definition:
            yield (
                f"backfill {staging.run} was staged for another dedup definition of {name} (mode, id or "
                "sequence, window, fingerprint): stage it again"
            )
        yield from _other_partitions(context, staging.run, sorted(staging.partitions))
        if context.first is not None:
            yield from _other_partitions(context.first, staging.run, sorted(staging.cuts))
        elif staging.cuts:
            yield f"backfill {staging.run} was staged for a route, and pipeline {name} has none: stage it again"

    async def _mark(self, plan: LoadPlan) -> None:
        """Do step 4: from here on no worker begins any of these partitions."""
        items: list[Item] = []
        ends: dict[TopicPartition, int] = {}
        for hop, steps in ((self._first, plan.firsts), (self._last, plan.steps)):
            marking = [step for step in steps if not (step.whole or step.marked)]
            if hop is not None and marking:
                items += await hop.marks(marking)
                ends |= {hop.context.changelog_at(step.partition): step.changelog_end for step in marking}

        written = Counter(tp for tp, _, _ in items)

        def require_alone(producer: Producer) -> None:
            for tp, end in ends.items():
                if producer.next_offset(*tp) != end + written[tp]:
                    raise StopError(
                        f"{tp.topic}:{tp.partition} was written to meanwhile: a worker has begun. Nothing was "
                        "loaded"
                    )

        if items:
            await self._last.write(0, items, written=require_alone)


def _other_partitions(context: ResetContext, run: str, staged: list[int]) -> Iterator[str]:
    if staged != list(range(context.partitions)):
        there = f"{context.topics.source} has the partitions 0 to {context.partitions - 1}"
        yield f"backfill {run} has partitions {staged}, and {there}: stage it again"


@asynccontextmanager
async def loading(settings: Settings, pipeline: Pipeline, staging: Staging) -> AsyncIterator[BackfillLoad]:
    """Connect, create the topics that are missing, and give what loads a backfill.

    Raises:
        StopError: A topic is not right, or no broker answers.
    """
    again = "load the same backfill again"
    async with connected(settings, pipeline, "backfill", again, create=True) as context:
        load = BackfillLoad(context, staging)
        try:
            yield load
        finally:
            await load.close()
