"""Finds out what is known of a partition before it is reset."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from processor.errors import StopError, reset_command
from processor.judges.factory import mode_of
from processor.kafka.offsets import offsets_at
from processor.kafka.reader import PartitionReader, StepOver
from processor.kafka.source_identity import check_same_source
from processor.kafka.topics.ensure import is_compacted
from processor.reset.backfill.found import find
from processor.reset.decide import PartitionFacts, begin
from processor.reset.state import LOSS, UNKNOWN
from processor.state.belonging import SEE, require_own
from processor.state.changelog import ChangelogHead, read_head
from processor.state.restore import settled

if TYPE_CHECKING:
    from processor.kafka.client import Client, TopicPartition
    from processor.kafka.offsets import Bounds
    from processor.reset.context import ResetContext
    from processor.reset.fences import SlotFences
    from processor.wire.decode import Decoder

_WINDOW = StepOver(
    damage=f"{UNKNOWN}so nobody can tell whether what is retained lasts for a window. With --forget the state "
    "begins empty",
    loss=LOSS,
    # Later records last for a window less easily.
    to_the_end=False,
)


async def learn(
    context: ResetContext, fences: SlotFences | None, limits: Bounds, number: int, to: int, *, has_offset: bool
) -> PartitionFacts:
    """Return what is known of partition ``number``, which shall go to offset ``to``.

    ``fences`` fence who wrote the state, so that it cannot change any more; None: it may. With ``has_offset``
    the group has committed an offset of it.
    """
    head, changelog_end = await read_changelog_head(context, fences, number)
    lost = head.position is None and has_offset
    now = context.topics_now().changelog
    if head.position and not head.origin and head.position.topics.changelog.made_anew(now):
        # It has a part of a state: created again under a worker without transactions.
        head, lost = ChangelogHead(), True
    tp = context.source(number)
    said = mode_of(context.pipeline).dates_renewals
    dedup = context.pipeline.id_dedup
    # Without a position it is one that is not loaded to its end.
    backfill = "" if head.origin is None else head.origin.backfill
    if dedup is not None and head.position is not None:
        backfill = await _backfill(context, number, backfill)
    name = f"{tp.topic}:{number}"
    facts = PartitionFacts(
        name, limits, *head, lost, renewals_said=said, backfill=backfill, changelog_end=changelog_end
    )
    # By arrival they are all of now.
    if dedup is not None and dedup.time != "arrival" and begin(facts) < limits.start < to:
        span = limits.start, to
        end_ms = await window_end_ms(context.client, context.decoder, tp, span, dedup.window)
        facts = replace(facts, window_end_ms=end_ms)
    return facts


async def _backfill(context: ResetContext, number: int, begun: str) -> str:
    """Return the name of the backfill that a state of ids began with; empty where there was none.

    ``begun`` is what the origin says, which counts where the ids' state cannot be read.
    """
    changelog = context.changelog(number)
    try:
        found = await find(changelog, await changelog.bounds(), context.application, context.pipeline.name)
    except StopError:
        return begun  # it is corrupt, which may be why it is reset
    return found.backfill


async def read_changelog_head(
    context: ResetContext, fences: SlotFences | None, number: int
) -> tuple[ChangelogHead, int]:
    """Return position, origin and the end; with ``fences`` after whoever wrote them is fenced and done."""
    changelog = context.changelog(number)
    limits = await changelog.bounds()
    head = await read_head(changelog, limits.start, limits.stable)
    if head.position is not None:
        require_own(head.position, context.application, context.pipeline.name, changelog.name)
    if fences is None:
        return head, limits.end
    if head.position is not None:
        await fences.fence_former(number, head.position.slots)
    settling = await settled(changelog, context.transaction_timeout_s)
    return await read_head(changelog, limits.stable, settling.stable, head), settling.end


async def window_end_ms(
    client: Client, decoder: Decoder, tp: TopicPartition, span: tuple[int, int], window_ms: int
) -> int | None:
    """Return the timestamp a window after a span's first record; None where the span does not last so long."""
    start, stop = span
    first_ms: int | None = None
    async with aclosing(PartitionReader(client, decoder, tp, _WINDOW).columns(start, stop)) as pieces:
        async for columns, _ in pieces:
            if len(columns):
                first_ms = int(columns.timestamp[0])
                break
    if first_ms is None:
        return None
    last_ms = first_ms + window_ms
    after = (await offsets_at(client, [tp], last_ms))[tp]
    return None if after is None or after >= stop else last_ms


def of_another_source(context: ResetContext, facts: PartitionFacts) -> bool:
    """Return whether the state was made from another topic than the source of now: it cannot be kept."""
    position = facts.position
    return position is not None and position.topics.source.is_other(context.topics_now().source)


async def require_same_source(context: ResetContext, tp: TopicPartition, facts: PartitionFacts) -> None:
    """Look whether the source is still the one that the state was made from.

    Raises:
        StopError: It is another, or has lost its end.
    """
    position = facts.position
    if position is None:
        return
    if of_another_source(context, facts):
        to = "--to-earliest --forget" if facts.backfill else "--to-earliest"
        raise StopError(
            f"{facts.name}: topic {tp.topic} was deleted and made anew, or is another than the one that the "
            "state was made from: nothing of it can be kept. Begin it with an empty state: "
            f"{reset_command(context.pipeline.name, to)}; {SEE}"
        )
    compacted = is_compacted(context.view, tp.topic)
    await check_same_source(context.client, tp, position, facts.limits, compacted=compacted)
