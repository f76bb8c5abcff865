"""Runs the pipelines of a config without Kafka, for tests: records in, and what became of them.

Judges, state, codecs and the commit's steps are the worker's own; only the cluster is in memory. It does
without a consumer group, topic ids, retention and the broker's own limits: for those there is `seqmark_broker`.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from processor.kafka.topics.feeding import feeders_first
from processor.kafka.topics.plan import TopicView, plan
from processor.ops.status import read
from processor.pipeline.hop_kinds import kind_of
from processor.pipeline.hops import hops_of
from processor.wire.encode import plain_batch
from processor.wire.quarantine import read_record
from seqmark.in_memory.cluster import MemoryCluster
from seqmark.in_memory.ports import Wire
from seqmark.in_memory.slot import Machine, MemorySlot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from processor.pipeline.hop_kinds import HopKind
    from processor.wire.decode import Piece
    from seqmark.face import Config

_LIMIT_BYTES = 1_048_588
"""Of a batch, as Kafka has it by default."""


class DriverRecord(NamedTuple):
    """A record, to be produced or read.

    Attributes:
        timestamp_ms: None: when it is produced.
        offset: Where it stands; not looked at where it is produced.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int = 0
    offset: int = -1


class Driver:
    """A worker and a cluster in memory, that do what they are told and nothing else.

    Args:
        config: Whose pipelines; `kafka` and folders are not looked at.
        partitions: Of each source.
    """

    def __init__(self, config: Config, *, partitions: int = 1) -> None:
        settings = config.settings
        self._application_id = settings.worker.application_id
        ordered = feeders_first(settings.pipelines)
        fed = {pipeline.sink for pipeline in ordered}
        view = TopicView(partitions, 1, {"max.message.bytes": str(_LIMIT_BYTES)})
        sources = {pipeline.source: view for pipeline in ordered if pipeline.source not in fed}
        self._topics = {topic.topic: topic for topic in plan(settings, sources).topics}
        self._kinds = [
            kind_of(settings, hop, self._topics) for pipeline in ordered for hop in hops_of(settings, pipeline)
        ]
        self._now_ms = int(time.time() * 1000)
        self._cluster, self._wire = MemoryCluster(), Wire()
        self._machine = Machine(lambda: self._now_ms / 1000, os.urandom, lambda: self._now_ms)
        self._slots: dict[str, MemorySlot] = {}

    def produce(self, topic: str, records: Iterable[bytes | DriverRecord]) -> None:
        """Append records to a topic, each as a batch of its own; bytes are a value in partition 0."""
        for each in records:
            record = each if isinstance(each, DriverRecord) else DriverRecord(each)
            self._require(topic, record.partition)
            at_ms = self._now_ms if record.timestamp_ms is None else record.timestamp_ms
            batch = plain_batch([(record.key, record.value, at_ms, record.headers)])
            self._cluster.log(topic, record.partition).append(batch.build(-1, -1, -1, transactional=False))

    def run(self) -> dict[str, dict[str, int]]:
        """Have everything that is there judged and committed.

        Returns:
            By pipeline the records by verdict, as `seqmark.run_worker` has them, since the driver was made.

        Raises:
            StopError: A worker would stop here, and says why; what came before is committed.
        """
        asyncio.run(self._run())
        readings = read(self._machine.metrics, [kind.hop.name for kind in self._kinds], 0).readings
        return {name: dict(reading.counts) for name, reading in readings.items()}

    def read(self, topic: str) -> list[DriverRecord]:
        """Return all committed records of a topic, by partition."""
        self._require(topic, 0)
        found: list[DriverRecord] = []
        for number in range(self._topics[topic].partitions):
            start = self._cluster.log(topic, number).start
            chunk = self._cluster.fetch(topic, number, start, 2**62)
            for piece in self._machine.decoder.pieces(chunk):
                found += _records(piece, number)
        return found

    def advance(self, seconds: float) -> None:
        """Let time pass: what is produced from now on has a later timestamp, and arrives later."""
        self._now_ms += int(seconds * 1000)

    def restart(self, *, wipe: bool = False) -> None:
        """Have the next `run` begin as a worker does; with ``wipe`` without its local state."""
        self._slots.clear()
        if wipe:
            self._machine.stores.clear()

    def _require(self, topic: str, number: int) -> None:
        if topic not in self._topics:
            raise ValueError(f"there is no topic {topic}: the config has {', '.join(sorted(self._topics))}")
        if not 0 <= number < self._topics[topic].partitions:
            raise ValueError(f"{topic} has {self._topics[topic].partitions} partitions, and none is {number}")

    async def _run(self) -> None:
        for kind in self._kinds:
            name = kind.hop.name
            # Out of the table until it is done: what has failed is opened again.
            slot = self._slots.pop(name, None) or await self._opened(kind)
            for number in slot.pipeline.partitions:
                while await slot.take(number):
                    pass
            await slot.pipeline.finish()
            slot.trim()
            self._slots[name] = slot

    async def _opened(self, kind: HopKind) -> MemorySlot:
        slot = MemorySlot(kind, self._application_id, self._cluster, self._machine, self._wire)
        await slot.open(range(self._topics[kind.topics.source].partitions))
        return slot


def _records(piece: Piece, number: int) -> list[DriverRecord]:
    found = []
    for row in range(len(piece.columns)):
        key, value, at_ms, headers = read_record(piece.columns, row)
        named = tuple((name if isinstance(name, str) else name.decode(), each) for name, each in headers)
        found.append(DriverRecord(value, key, named, at_ms, number, int(piece.columns.offset[row])))
    return found
