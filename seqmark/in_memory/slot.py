"""One owner's try at a slot: fence, restore, position, then chunk by chunk, as docs/architecture.md has it.

What a worker does with a consumer group, topic ids and reports is not here (`processor.worker.open_partition`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.judges.ids import worker_clock_ms
from processor.kafka.client import TopicPartition
from processor.kafka.transactions.fencing import SlotId
from processor.kafka.transactions.output import ExactlyOnceOutput
from processor.ops.metrics import Metrics
from processor.pipeline.ports import OpenPartition, new_position
from processor.pipeline.slot_pipeline import SlotPipeline
from processor.pipeline.verdicts import VerdictDraft
from processor.state.kv.store import MemoryStore
from processor.state.restore import restore
from processor.state.table import Table
from processor.wire.decode import Decoder
from processor.wire.encode import Encoder
from schemas.changelog.position import NO_TOPIC, Origin
from schemas.changelog.topic_ids import UNKNOWN_ID
from seqmark.in_memory.ports import MemoryChangelog, MemoryProducer, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from processor.pipeline.hop_kinds import HopKind
    from seqmark.in_memory.cluster import MemoryCluster

TIMEOUT_S = 60.0
"""Of transactions: nobody lets one stay open for so long that it counts."""


@dataclass(eq=False)
class Machine:
    """Where slots run: what survives them, and what they share.

    Attributes:
        stores: The local state, by hop and source partition.
        clock_s: Monotonic seconds.
        now_ms: The time of day.
        random: Makes so many random bytes: names of states.
        decoder: Of what slots take in.
        restorer: Of what they restore from.
    """

    clock_s: Callable[[], float]
    random: Callable[[int], bytes]
    now_ms: Callable[[], int] = worker_clock_ms
    stores: dict[tuple[str, int], MemoryStore] = field(default_factory=dict)
    decoder: Decoder = field(default_factory=Decoder)
    restorer: Decoder = field(default_factory=Decoder)
    encoder: Encoder = field(default_factory=Encoder)
    metrics: Metrics = field(default_factory=Metrics)


class MemorySlot:
    """A slot from `open` until something is raised; then it is to be left, and another one opened.

    Attributes:
        pipeline: From `open` on.
    """

    pipeline: SlotPipeline

    def __init__(
        self, kind: HopKind, application_id: str, cluster: MemoryCluster, machine: Machine, wire: Wire
    ) -> None:
        self.kind = kind
        self._id = SlotId(application_id, kind.hop.name, 0, 1)
        self._cluster, self._machine, self._wire = cluster, machine, wire

    async def open(self, numbers: Sequence[int]) -> None:
        """Fence all others, restore the state of source partitions, and commit where they begin."""
        machine, kind = self._machine, self.kind
        owner = await self._wire.request("fence", partial(self._cluster.fence, self._id.transactional_id))
        producer = MemoryProducer(self._cluster, owner, self._wire)
        output = ExactlyOnceOutput(producer, self._id.application_id, kind.topics.source)
        shared = machine.decoder, machine.encoder, machine.metrics
        self.pipeline = SlotPipeline(kind, output, *shared, clock=machine.clock_s)
        for number in numbers:
            await self._open(number)
        await self.pipeline.commit()

    async def _open(self, number: int) -> None:
        kind, machine = self.kind, self._machine
        judge = kind.judge(machine.now_ms)
        store = machine.stores.setdefault((kind.hop.name, number), MemoryStore())
        table = Table(store, judge.log)
        changelog = TopicPartition(kind.topics.changelog, number)
        read = MemoryChangelog(self._cluster, changelog, machine.restorer, self._wire)
        position = await restore(table, read, TIMEOUT_S, lambda _done, _total: None)
        begins = position is None
        if position is None:
            state_id = machine.random(16)
            position = new_position(0, kind.definition, state_id, 1, machine.now_ms())
        if position.definition != kind.definition:
            raise StopError(f"{changelog}: its state was made by another definition than {kind.judged_by}")
        table.flush()
        judge.load(table)
        partition = OpenPartition(number, table, judge, position)
        partition.changelog_end = table.changelog_end
        if kind.topics.verdicts is not None:
            place = kind.topics.verdicts, kind.topics.verdicts_limit_bytes, number
            partition.verdicts = VerdictDraft(*place, UNKNOWN_ID, position.next_offset, begins=begins)
        self.pipeline.partitions[number] = partition
        if begins:
            if not kind.only_positions:
                topics = kind.topics.sink, kind.topics.duplicates, kind.topics.quarantine
                sink, duplicates, quarantine = (NO_TOPIC if topic is None else 0 for topic in topics)
                partition.origin = Origin(0, sink, duplicates, quarantine)
            self.pipeline.begin_at(partition)

    async def take(self, number: int) -> bool:
        """Take in what one fetch of a source partition brings; False: nothing is there."""
        position = self.pipeline.partitions[number].position.next_offset
        fetch = partial(self._cluster.fetch, self.kind.topics.source, number, position, self._wire.fetch_bytes)
        chunk = await self._wire.request("source", fetch)
        if chunk.data:
            await self.pipeline.take(chunk)
        return bool(chunk.data)

    def trim(self) -> None:
        """Have deleted what the committed states need no more."""
        topics = self.kind.topics
        for topic, offsets in (
            (topics.changelog, self.pipeline.take_changelog_trims()),
            (topics.source, self.pipeline.take_source_trims()),
        ):
            for number, offset in offsets.items():
                self._cluster.log(topic, number).delete_before(offset)
