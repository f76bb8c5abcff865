"""The offsets that a slot has to commit before its worker is drained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import SeqmarkError
from processor.kafka.client import KafkaError, TopicPartition
from processor.kafka.group.drain import taken_in
from processor.kafka.offsets import bounds
from processor.kafka.topics.plan import positions_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from processor.kafka.offsets import Bounds
    from processor.pipeline.slot_pipeline import SlotPipeline
    from processor.wire.decode import Chunk
    from processor.worker.context import Context
    from processor.worker.open_slot import OpenSlot


class DrainGoal:
    """Where each partition of a slot ended when it was assigned; a rebuild does not move it."""

    def __init__(self, context: Context, numbers: list[int]) -> None:
        self._context = context
        self._numbers = numbers
        self._targets: dict[int, int] = {}
        self._nothing_until: dict[int, tuple[int, int]] = {}

    def ends_at(self, limits: Mapping[TopicPartition, Bounds]) -> None:
        """Note where the partitions of a source end now, unless that was noted before."""
        for tp, found in limits.items():
            self._targets.setdefault(tp.partition, found.stable)

    async def learn(self, slot: OpenSlot) -> None:
        """Learn where an internal topic ends, once all of the topic that it is filled from has been taken in.

        That is the log's end, not its last stable offset: what the first hop has committed may be on its way to
        being committed here, and lies below the end all the same.
        """
        upstream, topic = slot.kind.upstream, slot.kind.topics.source
        if not self._context.drain or upstream is None or self._targets:
            return
        try:
            positions = positions_topic(self._context.settings, slot.kind.hop.pipeline.name)
            client = await slot.connect("upstream", upstream, topic, positions)
            await taken_in(client, upstream, positions)
            ends = await bounds(client, [TopicPartition(topic, number) for number in self._numbers])
        except (SeqmarkError, KafkaError, TimeoutError, OSError) as error:
            slot.fail(error)
            return
        self._targets = {tp.partition: limits.end for tp, limits in ends.items()}
        self._context.progressed()

    def nothing_in(self, chunk: Chunk) -> None:
        """Note that there is nothing between a chunk's position and its last stable offset."""
        self._nothing_until[chunk.partition] = (chunk.position, chunk.last_stable_offset)

    def reached_by(self, pipeline: SlotPipeline) -> bool:
        """Whether all partitions are committed up to where they have to be."""
        if pipeline.begun_at is not None or len(self._targets) < len(self._numbers):
            return False  # the latter of a second hop, while the first is at work
        return all(self._reached(pipeline, number, target) for number, target in self._targets.items())

    def _reached(self, pipeline: SlotPipeline, number: int, target: int) -> bool:
        position = pipeline.partitions[number].position.next_offset
        empty_at, until = self._nothing_until.get(number, (-1, -1))
        return position >= target or (empty_at == position and until >= target)
