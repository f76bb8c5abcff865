"""Opens a partition: restores its state, and finds where its source goes on.

The owner has fenced all others when this begins (docs/architecture.md, "restore" and "position"): the table is
restored to the last stable offset of its changelog, the state in it says the position, and the source is
checked against that. A partition without state begins where the config says. Where no state fits, the worker
stops and says how to go on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from processor.errors import FencedError, RebuildError, StopError
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import bounds, committed, origin_at
from processor.kafka.reader import ChangelogPartition
from processor.kafka.source_identity import check_same_source
from processor.pipeline.ports import OpenPartition, new_position
from processor.pipeline.verdicts import VerdictDraft
from processor.state.belonging import named, refusal, require_own
from processor.state.changelog import last_position, origin_of, read_head
from processor.state.definition import changes_since, note_definition
from processor.state.kv.rocks import open_store
from processor.state.kv.store import CorruptStoreError
from processor.state.restore import restore
from processor.state.table import Table
from processor.wire.decode import Decoder
from schemas.changelog.position import NO_ENDS, NO_TOPIC, Origin
from schemas.changelog.topic_ids import UNKNOWN_ID
from schemas.changelog.values import CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from processor.judges.judge import Judge
    from processor.kafka.client import Client
    from processor.kafka.offsets import Bounds
    from processor.kafka.transactions.fencing import SlotId
    from processor.kafka.transactions.producer import Producer
    from processor.pipeline.hop_kinds import HopKind
    from processor.pipeline.slot_pipeline import SlotPipeline
    from processor.worker.context import Context
    from schemas.changelog.position import Position
    from schemas.changelog.topic_ids import TopicId

log = logging.getLogger(__name__)

SOME_OFFSETS = 1000
"""At the end of a topic of positions: about 500 commits, of which one that has not been aborted is enough."""


class PartitionOpener:
    """Opens the partitions of one slot, one after the other, into its pipeline.

    Args:
        work: What differs from hop to hop.
        client: Knows the topics of the hop.
        fence: Fences the owners of a slot, who wrote to the outputs of these source partitions.
    """

    def __init__(
        self,
        context: Context,
        slot: SlotId,
        work: HopKind,
        client: Client,
        fence: Callable[[SlotId, Sequence[int]], Awaitable[Producer]],
    ) -> None:
        self._context = context
        self._slot = slot
        self._name = slot.pipeline
        self._work = work
        self._topics = work.topics
        self._client = client
        # Not the worker's, which others may be using meanwhile, in a thread.
        self._decoder = Decoder()
        self._fence = fence
        self._meaning = work.definition

    async def partition(self, pipeline: SlotPipeline, tp: TopicPartition, limits: Bounds) -> None:
        """Open a partition and put it into the pipeline, which has to commit where it begins.

        ``limits`` say where the source partition begins and ends now.

        Raises:
            RebuildError: The local state is corrupt; it is thrown away.
            FencedError: Another has taken the slot meanwhile.
            StopError: State and source do not fit each other, or the config.
        """
        context, name = self._context, self._name
        folder = context.home.partition(name, tp.partition)
        judge = self._work.judge()
        gauge = context.metrics.restore_ratio.labels(name, str(tp.partition))
        changelog = ChangelogPartition(self._client, self._decoder, self._topics.changelog, tp.partition)
        store, damage = open_store(folder)
        table = Table(store, judge.log)
        try:
            if damage:
                log.error("local state of %s:%s is damaged, reading it again: %s", name, tp.partition, damage)
            self._forget_foreign(table, tp)
            with context.restoring(judge.log):
                position = await self._restored(tp.partition, table, changelog, gauge.set)
            try:
                partition = await self._opened(tp, limits, judge, table, changelog, position)
            except StopError:
                await self._require_ours(changelog, table.changelog_end)
                raise
            pipeline.partitions[tp.partition] = partition
        except CorruptStoreError as error:
            # Where the restore has not looked: all of it is read from the changelog next time.
            table.clear()
            table.close()
            raise RebuildError("local", f"local state: {error}") from error
        except BaseException:
            table.close()
            raise
        started = partition.position
        context.metrics.begin(name, tp.partition, started.next_offset, limits.stable)
        if position is None:
            pipeline.begin_at(partition)
        elif position.next_offset < limits.start:
            pipeline.skip(tp.partition, limits.start)
        else:
            await check_same_source(
                self._client, tp, position, limits, compacted=await context.compacted(tp.topic)
            )
            # A first hop commits where it stands at each assignment: whoever drains the second one with another
            # worker looks for it, and a group's offsets are forgotten after a week without members.
            if started != position or self._work.only_positions or context.take_over_sink:
                pipeline.begin_at(partition)

    async def _opened(
        self,
        tp: TopicPartition,
        limits: Bounds,
        judge: Judge,
        table: Table,
        changelog: ChangelogPartition,
        position: Position | None,
    ) -> OpenPartition:
        """Return a partition at work on what was restored, where that fits config and topics."""
        started, beginning = (position, ()) if position else await self._first_position(tp, limits)
        before, started = started.verdicts, self._of_now(started)
        self._check_definition(tp, started)
        if self._work.meaning:
            folder = self._context.home.partition(self._name, tp.partition).parent
            note_definition(folder, self._work.meaning)
        if position is not None:
            self._require_same_topics(tp, position)
            await self._require_newest(tp, position, changelog)
        # Not before: under a mark there must be no state that was read as something else than it is.
        table.flush()
        judge.load(table)
        self._context.escapes.watch(self._work.hop, judge, tp.partition)
        judge.compare_drops(self._context.failures_of(self._work.hop).passed, tp.partition)
        partition = OpenPartition(tp.partition, table, judge, started, stable=limits.stable)
        partition.changelog_end = table.changelog_end
        partition.verdicts = self._draft(tp, started, before)
        if position is None:
            origin = await self._origin(tp.partition, started.next_offset, beginning)
            partition.origin = origin
            partition.position = replace(started, ends=origin.ends if origin else NO_ENDS)
        return partition

    @staticmethod
    async def _require_ours(changelog: ChangelogPartition, end: int) -> None:
        """Look whether somebody has written to a changelog since it was restored up to its ``end``.

        Raises:
            FencedError: So it is: another has taken the slot, and what does not fit together, a state of before
                and what the group has committed by now, says nothing.
        """
        if (await changelog.bounds()).end != end:
            raise FencedError(f"{changelog.name} has been written to since it was restored: by another owner")

    def _draft(self, tp: TopicPartition, started: Position, before: TopicId) -> VerdictDraft | None:
        """Return what the next verdict record says; ``before``: in which topic the last one stands."""
        topics = self._topics
        if topics.verdicts is None:
            return None
        topic_id = self._client.ids.get(tp.topic, UNKNOWN_ID)
        begins = not before.is_same(started.verdicts)
        place = topics.verdicts, topics.verdicts_limit_bytes, tp.partition
        return VerdictDraft(*place, topic_id, started.next_offset, begins=begins)

    def _of_now(self, position: Position) -> Position:
        """Return a position that says whose it is and of which topics; old ones do not."""
        context = self._context
        now = self._topics.identified(self._client.ids)
        position = named(position, now, context.application_id, self._name)
        verdicts = self._topics.verdicts_of(self._client.ids)
        if verdicts.known or not position.verdicts.is_same(verdicts):
            position = replace(position, verdicts=verdicts)
        if self._topics.shares_quarantine:
            # Which partition of it is written to changes with their number.
            position = replace(position, ends=position.ends._replace(quarantine=NO_ENDS.quarantine))
        # Whose ids wrote this state: the next to restore it has to fence them, and no others.
        return replace(position, slots=context.slots) if context.exactly_once else position

    async def _restored(
        self, number: int, table: Table, changelog: ChangelogPartition, show: Callable[[float], None]
    ) -> Position | None:
        def progress(done: int, total: int) -> None:
            show(done / total if total else 1.0)

        context = self._context
        timeout_s = context.transaction_timeout_ms / 1000
        try:
            position = await restore(table, changelog, timeout_s, progress)
        except StopError:
            # What another application has written may not be readable for this one: whose it is comes first.
            self._require_own(await last_position(changelog), changelog)
            raise
        self._require_own(position, changelog)
        if position is None or not context.exactly_once:
            return position
        former = self._slot.former(number, position.slots)
        if former is None:
            return position
        identity = former.transactional_id
        log.warning("%s was written with slots = %s: fencing %s", changelog.name, position.slots, identity)
        # What waits for a place has nothing there, and was written to by nobody.
        placed = min(len(self._client.partitions(self._topics.source)), self._topics.width)
        await (await self._fence(former, former.numbers(placed))).close()
        return await restore(table, changelog, timeout_s, progress)

    def _require_own(self, position: Position | None, changelog: ChangelogPartition) -> None:
        if position is not None:
            require_own(position, self._context.application_id, self._name, changelog.name)

    async def _origin(self, number: int, offset: int, beginning: tuple[int, ...]) -> Origin | None:
        if self._work.only_positions:
            # Nobody compares what a first hop writes.
            return Origin(offset, NO_TOPIC, beginning=beginning) if beginning else None
        # Where the source is another hop's, all partitions share quarantine: nobody compares it.
        quarantine = None if self._work.upstream else self._topics.quarantine
        outputs = self._topics.sink, self._topics.duplicates, quarantine
        origin = await origin_at(self._client, *outputs, number, offset)
        return replace(origin, beginning=beginning)

    async def _first_position(self, tp: TopicPartition, limits: Bounds) -> tuple[Position, tuple[int, ...]]:
        """Return where a partition without state begins, and where the source ended when the pipeline began."""
        group = self._context.application_id
        known = await committed(self._client, group, [tp])
        if tp in known:
            again = self._work.reset(f"--to-offset {tp.partition}:{known[tp]}")
            raise StopError(
                f"{tp.topic}:{tp.partition}: the group {group} has committed offset {known[tp]}, but the "
                "changelog holds no state: it was deleted, or the pipeline was renamed. Going on would "
                "judge without memory. Restore the changelog, or set the name back; or have the state "
                f"recomputed from the source: {again}; to begin anew at worker.start see 'Beginning anew' in "
                "docs/operations.md."
            )
        if self._work.only_positions:
            await self._require_same_meaning(tp)
        beginning: tuple[int, ...] = ()
        if self._context.start == "latest" and self._work.upstream is None:
            known_beginning = await self._beginning(tp)
            beginning = await self._ends(tp.topic) if known_beginning is None else known_beginning
        # One that was added since, or of which nobody says where it ended, begins with its first record.
        offset = beginning[tp.partition] if tp.partition < len(beginning) else limits.start
        offset = max(offset, limits.start)
        now_ms = int(time.time() * 1000)
        return new_position(offset, self._meaning, os.urandom(16), self._context.slots, now_ms), beginning

    async def _ends(self, topic: str) -> tuple[int, ...]:
        every = [TopicPartition(topic, each) for each in sorted(self._client.partitions(topic))]
        ends = await bounds(self._client, every)
        return tuple(ends[each].end for each in every)

    async def _beginning(self, tp: TopicPartition) -> tuple[int, ...] | None:
        """Say where the source ended when the pipeline began at its end; None: it begins now.

        A partition without state is not a pipeline without state: what came into it since the others began is
        not to be skipped. Empty where they have begun and nobody says where the source ended then.
        """
        changelogs = self._client.partitions(self._topics.changelog)
        sources = sorted(self._client.partitions(tp.topic) - {tp.partition})
        for number in sources:
            if number not in changelogs:
                continue
            changelog = ChangelogPartition(self._client, self._decoder, self._topics.changelog, number)
            last = await last_position(changelog)
            if last is None:
                continue
            source = self._topics.identified(self._client.ids).source
            origin = await origin_of(changelog, last.state_id)
            if origin is None or last.topics.source.is_other(source):
                return ()  # nobody tells, or of another topic by this name
            return origin.beginning  # a reset's has none: what ended then may be another topic by this name
        known = await committed(
            self._client, self._context.application_id, [TopicPartition(tp.topic, each) for each in sources]
        )
        return () if known else None

    async def _require_same_meaning(self, tp: TopicPartition) -> None:
        """Look whether ids go where the source's other partitions send them: a new one has no state to say so.

        Raises:
            StopError: They do not. Whoever works on the others stops for that, too, but maybe later.
        """
        positions = self._topics.changelog
        numbers = sorted(self._client.partitions(positions) - {tp.partition})
        ends = await bounds(self._client, [TopicPartition(positions, each) for each in numbers])
        for other, limits in ends.items():
            changelog = ChangelogPartition(self._client, self._decoder, positions, other.partition)
            # Each commit writes a position, and all that are there mean the same.
            head = await read_head(changelog, max(limits.start, limits.stable - SOME_OFFSETS), limits.stable)
            if head.position is not None:
                self._check_definition(TopicPartition(tp.topic, other.partition), head.position)
                return

    def _forget_foreign(self, table: Table, tp: TopicPartition) -> None:
        """Throw a local state of another definition away: `_check_definition` sees the changelog's."""
        with contextlib.suppress(CorruptStateError, CorruptStoreError):  # the restore finds that too
            position = table.position()
            if position is not None and position.definition != self._meaning:
                log.warning("local state of %s:%s is of another definition", tp.topic, tp.partition)
                table.clear()

    def _require_same_topics(self, tp: TopicPartition, position: Position) -> None:
        now = self._topics.identified(self._client.ids)
        where = f"{tp.topic}:{tp.partition}"
        verdicts = self._topics.verdicts_of(self._client.ids)
        text = refusal(position, now, self._topics.named, where, self._work.reset, verdicts)
        if text is not None:
            raise StopError(text)

    async def _require_newest(
        self, tp: TopicPartition, position: Position, changelog: ChangelogPartition
    ) -> None:
        """Look whether the state is that of the group's last commit, which was in the same transaction.

        Raises:
            StopError: It is older: the changelog has lost its end, or a broker that no longer leads it has
                answered. Records that have been judged would be judged again.
        """
        group = self._context.application_id
        known = (await committed(self._client, group, [tp])).get(tp, position.next_offset)
        if self._context.exactly_once and known > position.next_offset:
            again = self._work.reset(f"--to-offset {tp.partition}:{known}")
            raise StopError(
                f"{tp.topic}:{tp.partition}: the group {group} has committed offset {known}, but the state in "
                f"{changelog.name} only reaches {position.next_offset}: the changelog has lost records, or the "
                "group's offset was set by hand. Restore the topic from a copy, or have the state recomputed "
                f"from the source: {again}; or set the group's offset back to {position.next_offset}"
            )

    def _check_definition(self, tp: TopicPartition, position: Position) -> None:
        if position.definition != self._meaning:
            again = self._work.reset("--to-earliest")
            changed = self._changed(tp, position)
            raise StopError(
                f"pipeline {self._name}: its dedup definition differs from the one that its state of "
                f"{tp.topic}:{tp.partition} was made with ({changed or self._work.judged_by}). State of one "
                "definition means nothing under another: set the definition back, or rebuild the state: "
                f"{again}; see 'Reprocessing' and 'Beginning anew' in docs/operations.md."
            )

    def _changed(self, tp: TopicPartition, position: Position) -> str:
        """Say what of the definition was changed, where this host knows; a first hop's is not kept."""
        if not self._work.meaning:
            return ""
        folder = self._context.home.partition(self._name, tp.partition).parent
        return changes_since(folder, position.definition, self._work.meaning)
