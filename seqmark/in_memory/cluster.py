"""What a Kafka cluster holds, in memory: logs, transactions with their markers, group offsets.

As far as a slot sees them: batches as bytes, read_committed up to the last stable offset with the aborted
transactions beside it, one open transaction per transactional id, and an epoch by which an older owner of the
id is refused. Requests take effect at once and as a whole; who asks decides when (`seqmark.in_memory.ports`).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from processor.errors import FencedError
from processor.kafka.client import TopicPartition
from processor.wire.decode import Chunk
from processor.wire.encode import plain_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from processor.wire.encode import EncodedBatch

_CONTROL = 0x20
_LAST_DELTA = struct.Struct(">23xi")
_OFFSET = struct.Struct(">q")
_MARKER_KEY, _MARKER_VALUE = struct.Struct(">hh"), struct.Struct(">hi")


class TransactionOwner(NamedTuple):
    """Who holds a transactional id: refused once somebody has fenced it."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(slots=True)
class MemoryLog:
    """One partition's batches.

    Attributes:
        start: The first offset that is left.
        end: Where the next batch goes.
        open: By producer, where its open transaction begins.
        aborted: Producer, first offset and marker of each aborted transaction.
    """

    start: int = 0
    end: int = 0
    open: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    _batches: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self.open.values(), default=self.end)

    def append(self, batch: bytes) -> int:
        """Add a batch, which takes its base offset here; return it."""
        base = self.end
        self.end += _LAST_DELTA.unpack_from(batch)[0] + 1
        self._batches.append((self.end, _OFFSET.pack(base) + batch[_OFFSET.size :]))
        return base

    def delete_before(self, offset: int) -> None:
        """Delete what lies before an offset, whole batches at a time."""
        self.start = max(self.start, offset)
        self._batches = [each for each in self._batches if each[0] > self.start]

    def fetch(self, position: int, most_bytes: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Return batches from a position on, one at least, and the aborted transactions among them."""
        found: list[bytes] = []
        size, stable, after = 0, self.stable, position
        for end, batch in self._batches:
            if end <= position:
                continue
            if end > stable or (found and size + len(batch) > most_bytes):
                break
            found.append(batch)
            size, after = size + len(batch), end
        among = [(who, first) for who, first, ends in self.aborted if first < after and ends >= position]
        return b"".join(found), among


@dataclass(slots=True)
class _Transaction:
    partitions: set[TopicPartition] = field(default_factory=set)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


class MemoryCluster:
    """Topics, transactions and one group's offsets.

    Attributes:
        logs: By partition; one is there once it is asked for.
        offsets: What the group has committed.
    """

    def __init__(self) -> None:
        self.logs: defaultdict[TopicPartition, MemoryLog] = defaultdict(MemoryLog)
        self.offsets: dict[TopicPartition, int] = {}
        self._owners: dict[str, TransactionOwner] = {}
        self._open: dict[TransactionOwner, _Transaction] = {}

    def log(self, topic: str, partition: int) -> MemoryLog:
        """Return a partition's log."""
        return self.logs[TopicPartition(topic, partition)]

    def fetch(self, topic: str, partition: int, position: int, most_bytes: int) -> Chunk:
        """Answer a fetch as a leader does."""
        log = self.log(topic, partition)
        data, aborted = log.fetch(position, most_bytes)
        return Chunk(topic, partition, position, data, aborted, log.stable)

    def fence(self, transactional_id: str) -> TransactionOwner:
        """Give a transactional id to a new owner: the one before writes no more, what it began is aborted."""
        before = self._owners.get(transactional_id)
        if before is not None:
            self._finish(before, commit=False)
        owner = TransactionOwner(
            transactional_id,
            len(self._owners) if before is None else before.producer_id,
            0 if before is None else before.epoch + 1,
        )
        self._owners[transactional_id] = owner
        return owner

    def expire(self, transactional_id: str) -> None:
        """Take a transactional id from its owner, as a coordinator does when a transaction has timed out."""
        if transactional_id in self._owners:
            self.fence(transactional_id)

    def produce(
        self, owner: TransactionOwner, tp: TopicPartition, batch: EncodedBatch, also: Iterable[TopicPartition]
    ) -> int:
        """Append a batch to the owner's transaction, whose part ``also`` become; return the offset after it."""
        transaction = self._transaction(owner)
        for each in (tp, *also):
            transaction.partitions.add(each)
            self.logs[each].open.setdefault(owner.producer_id, self.logs[each].end)
        self.logs[tp].append(batch.build(owner.producer_id, owner.epoch, 0, transactional=True))
        return self.logs[tp].end

    def add_offsets(self, owner: TransactionOwner, offsets: Mapping[TopicPartition, int]) -> None:
        """Make group offsets part of the owner's transaction."""
        self._transaction(owner).offsets.update(offsets)

    def end(self, owner: TransactionOwner, *, commit: bool) -> None:
        """End the owner's transaction: markers are there at once."""
        self._require(owner)
        self._finish(owner, commit=commit)

    def _transaction(self, owner: TransactionOwner) -> _Transaction:
        self._require(owner)
        return self._open.setdefault(owner, _Transaction())

    def _require(self, owner: TransactionOwner) -> None:
        if self._owners[owner.transactional_id] != owner:
            raise FencedError(f"{owner.transactional_id}: epoch {owner.epoch} has been fenced")

    def _finish(self, owner: TransactionOwner, *, commit: bool) -> None:
        transaction = self._open.pop(owner, None)
        if transaction is None:
            return
        for tp in sorted(transaction.partitions):
            log = self.logs[tp]
            first, marker = log.open.pop(owner.producer_id), log.append(_marker(owner, commit=commit))
            if not commit:
                log.aborted.append((owner.producer_id, first, marker))
        if commit:
            self.offsets.update(transaction.offsets)


def _marker(owner: TransactionOwner, *, commit: bool) -> bytes:
    """Return the control batch that ends a transaction."""
    batch = plain_batch([(_MARKER_KEY.pack(0, int(commit)), _MARKER_VALUE.pack(0, 0), 0, ())])
    return replace(batch, codec=_CONTROL).build(owner.producer_id, owner.epoch, -1, transactional=True)
