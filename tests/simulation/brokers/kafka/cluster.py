"""What a cluster holds, as its clients see it: topics with ids, logs, transactions, a group's offsets.

More than `seqmark.in_memory.cluster` knows: a coordinator whose markers come later, one by one, or are left
out in a partition (KAFKA-20734); an epoch by partition, by which a marker or a batch is refused; brokers that
verify whether a transaction is open (since 3.6) and such that do not; topics that are made again.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from processor.kafka.client import KafkaCode, TopicPartition
from processor.wire.decode import Chunk
from seqmark.in_memory.cluster import MemoryLog
from tests.support.wire import batches

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping

ID_BYTES = 16
TRANSACTIONAL = batches.TRANSACTIONAL
OPEN = "Ongoing"
ENDING = {"PrepareCommit", "PrepareAbort"}
ENDED = {"CompleteCommit", "CompleteAbort"}
OPERATOR_S = 120.0
"""After which somebody looks at what hangs: no worker waits for so long before it says so."""


@dataclass(frozen=True)
class Topic:
    """A topic, from its creation until it is deleted."""

    topic_id: bytes
    partitions: int
    configs: Mapping[str, str]


@dataclass(slots=True)
class TransactionalId:
    """How an id stands with its coordinator; the states have Kafka's names."""

    producer_id: int
    epoch: int = 0
    state: str = "Empty"
    timeout_ms: int = 0
    began_ms: int = -1
    partitions: set[TopicPartition] = field(default_factory=set)
    offsets: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    unmarked: set[TopicPartition] = field(default_factory=set)
    commits: bool = False
    ends: int = 0
    told_to: dict[object, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Writer:
    """A producer as a partition knows it; one that it does not know may begin with any sequence.

    Attributes:
        committed: Where the last transaction ended that it has committed here.
    """

    epoch: int
    next_sequence: int | None = 0
    committed: int = 0


class Luck(NamedTuple):
    """What of the brokers' own doing is drawn.

    Attributes:
        marker_s: How long a marker takes.
        leaves_out: Whether a partition is left out.
        fetch_bytes: What a fetch brings of a partition, about.
    """

    marker_s: Callable[[], float] = lambda: 0.0
    leaves_out: Callable[[], bool] = lambda: False
    fetch_bytes: Callable[[], int] = lambda: 2**20


class Brokers:
    """Topics, transactions and one group's offsets.

    Attributes:
        gone: Topics that were deleted, by the names that they had.
        logs: By partition; there from a topic's creation on.
        offsets: What the group has committed, with `notes` beside it.
        verifies: Whether a batch of a transaction that is not open is refused.
        group_owner: Whoever is a member of the group's present generation.
        slots: How many slots workers have now.
        commits: How often a member has committed offsets outside of a transaction.
        ended: Called when a transaction ends.
        written_on: Where a producer has committed what it wrote into a topic that was made again, below what it
            had committed into the one before: it has not noticed.
        lost_ends: Partitions without the end of a transaction of which nobody could have said how it ended.
    """

    def __init__(self, dice: random.Random, *, nodes: int = 1, verifies: bool = True) -> None:
        self.nodes = list(range(nodes))
        self.verifies = verifies
        self.luck = Luck()
        self.topics: dict[str, Topic] = {}
        self.gone: dict[str, Topic] = {}
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.offsets: dict[TopicPartition, int] = {}
        self.notes: dict[TopicPartition, str] = {}
        self.ids: dict[str, TransactionalId] = {}
        self.group_owner: object = None
        self.slots = 1
        self.commits = 0
        self._dice = dice
        self.ended: Callable[[], None] = lambda: None
        self.written_on: set[TopicPartition] = set()
        self.lost_ends = 0
        self._writers: defaultdict[TopicPartition, dict[int, _Writer]] = defaultdict(dict)
        self._former_until: dict[tuple[int, str], tuple[Topic, float]] = {}
        self._former: defaultdict[TopicPartition, dict[int, _Writer]] = defaultdict(dict)
        self._producers = 0

    # ---------------------------------------------------------------- topics

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create a topic; one of that name must not be there."""
        assert name not in self.topics
        self.topics[name] = Topic(self._dice.randbytes(ID_BYTES), partitions, dict(configs))
        for number in range(partitions):
            self.logs[TopicPartition(name, number)] = MemoryLog()

    def configure(self, name: str, configs: Mapping[str, str]) -> None:
        """Change some of a topic's settings."""
        topic = self.topics[name]
        self.topics[name] = replace(topic, configs={**topic.configs, **configs})

    def grow(self, name: str) -> None:
        """Add a partition to a topic."""
        topic = self.topics[name]
        self.topics[name] = replace(topic, partitions=topic.partitions + 1)
        self.logs[TopicPartition(name, topic.partitions)] = MemoryLog()

    def recreate(self, name: str, *, late: bool = False) -> None:
        """Delete a topic, and create one of its name."""
        topic = self.delete(name, late=late)
        self.create(name, topic.partitions, topic.configs)

    def delete(self, name: str, *, late: bool = False) -> Topic:
        """Delete a topic; return what it was. With ``late`` some brokers tell of it for a while."""
        topic = self.gone[name] = self.topics.pop(name)
        for node in self.nodes[1:] if late else ():
            after_s = self._dice.choice((0.0, 3.0)) * self._dice.random()
            self._former_until[node, name] = topic, asyncio.get_running_loop().time() + after_s
        for number in range(topic.partitions):
            tp = TopicPartition(name, number)
            del self.logs[tp]
            self._former[tp].update(self._writers.pop(tp, {}))
            for held in self.ids.values():
                held.unmarked.discard(tp)
        return topic

    def known_to(self, node: int, name: str) -> Topic | None:
        """Return a topic as a broker tells of it."""
        former, until_s = self._former_until.get((node, name), (None, 0.0))
        known = asyncio.get_running_loop().time() < until_s
        return former if known else self.topics.get(name)

    def leader(self, tp: TopicPartition) -> int:
        """Return who leads a partition."""
        return int(sum(tp.topic.encode()) + tp.partition) % len(self.nodes)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id; None: there is none."""
        return next((name for name, topic in self.topics.items() if topic.topic_id == topic_id), None)

    def log(self, topic: str, partition: int) -> MemoryLog:
        """Return a partition's log; an empty one, where there is no such topic."""
        return self.logs.get(TopicPartition(topic, partition)) or MemoryLog()

    def fetch(self, topic: str, partition: int, position: int, most_bytes: int) -> Chunk:
        """Answer a fetch as a leader does that leads for sure."""
        log = self.log(topic, partition)
        data, aborted = log.fetch(position, most_bytes)
        return Chunk(topic, partition, position, data, aborted, log.stable)

    # ---------------------------------------------------------------- writing

    def append(self, tp: TopicPartition, identity: str | None, batch: bytes) -> tuple[KafkaCode, int]:
        """Append a producer's batch; return what there is to say, and where it begins."""
        log = self.logs.get(tp)
        if log is None:
            return KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, -1
        header = batches.HEADER.unpack_from(batch)
        attributes = header[5]
        producer_id, epoch, sequence, count = header[9:13]
        limit = int(self.topics[tp.topic].configs.get("max.message.bytes", "1048588"))
        if len(batch) > limit:
            return KafkaCode.MESSAGE_TOO_LARGE, -1
        writer = self._writers[tp].get(producer_id) or _Writer(epoch, None)
        if epoch < writer.epoch:
            return KafkaCode.INVALID_PRODUCER_EPOCH, -1
        # Once a leader has seen the transaction it asks the coordinator no more.
        if attributes & TRANSACTIONAL and self.verifies and producer_id not in log.open:
            code = self._verified(identity, producer_id, epoch, tp)
            if code != KafkaCode.NONE:
                return code, -1
        if epoch > writer.epoch:
            writer.epoch, writer.next_sequence = epoch, 0
        if writer.next_sequence not in {sequence, None}:
            return KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self._writers[tp][producer_id] = writer
        writer.next_sequence = sequence + count
        if attributes & TRANSACTIONAL:
            log.open.setdefault(producer_id, log.end)
        return KafkaCode.NONE, log.append(batch)

    def _verified(self, identity: str | None, producer_id: int, epoch: int, tp: TopicPartition) -> KafkaCode:
        code = self.refuses(identity or "", producer_id, epoch)
        if code == KafkaCode.CONCURRENT_TRANSACTIONS:
            return KafkaCode.NOT_ENOUGH_REPLICAS  # which every producer knows as "not now"
        if code != KafkaCode.NONE:
            return code
        held = self.ids[identity or ""]
        return KafkaCode.NONE if held.state == OPEN and tp in held.partitions else KafkaCode.INVALID_TXN_STATE

    def mark(self, tp: TopicPartition, producer_id: int, epoch: int, *, commit: bool) -> KafkaCode:
        """End a producer's transaction in a partition."""
        log = self.logs.get(tp)
        if log is None:
            return KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
        writer = self._writers[tp].setdefault(producer_id, _Writer(epoch))
        if epoch < writer.epoch:
            return KafkaCode.INVALID_PRODUCER_EPOCH
        if epoch > writer.epoch:
            writer.epoch, writer.next_sequence = epoch, 0
        first = log.open.pop(producer_id, None)
        if first is not None and commit:
            before = self._former[tp].get(producer_id)
            if before is not None and before.epoch == writer.epoch and first < before.committed:
                self.written_on.add(tp)
            writer.committed = log.end
        end = log.append(batches.marker(0, producer_id, commit=commit))
        if first is not None and not commit:
            log.aborted.append((producer_id, first, end))
        return KafkaCode.NONE

    def known_in(self, tp: TopicPartition) -> list[tuple[int, int, int]]:
        """Return what producers a partition knows, their epochs, and where their transactions begin, or -1."""
        first = self.logs[tp].open
        return [(who, each.epoch, first.get(who, -1)) for who, each in self._writers[tp].items()]

    # ---------------------------------------------------------------- the coordinator

    def new_producer(self) -> int:
        """Return the id of a producer without transactions."""
        self._producers += 1
        return 10_000 + self._producers

    def init(self, identity: str, timeout_ms: int, who: object) -> tuple[KafkaCode, int, int]:
        """Answer InitProducerId: the code, producer id and epoch."""
        held = self.ids.get(identity)
        if held is None:
            held = self.ids[identity] = TransactionalId(self.new_producer(), timeout_ms=timeout_ms)
            return KafkaCode.NONE, held.producer_id, held.epoch
        if held.state == OPEN:
            # Not the id as well, however soon the abort is done: how it ended is to be told first.
            held.epoch += 1
            self._end(held, commit=False)
            return KafkaCode.CONCURRENT_TRANSACTIONS, -1, -1
        if held.state in ENDING:
            return KafkaCode.CONCURRENT_TRANSACTIONS, -1, -1
        if held.told_to.get(who) != held.ends:
            self._lose_ends(held)
        held.epoch += 1
        held.state, held.timeout_ms = "Empty", timeout_ms
        return KafkaCode.NONE, held.producer_id, held.epoch

    def _lose_ends(self, held: TransactionalId) -> None:
        """Have an operator end what nobody else can: it began and ended since whoever fences looked.

        That is one of the two waits of docs/guarantees.md. Who has ended it may do so before.
        """
        for tp, log in self.logs.items():
            first = log.open.get(held.producer_id)
            if first is not None and held.state in ENDED:
                self.lost_ends += 1
                asyncio.get_running_loop().call_later(
                    OPERATOR_S, self._end_by_hand, tp, held.producer_id, first, held.commits
                )

    def _look_at_a_stranger(
        self, held: TransactionalId, tp: TopicPartition, first: int, *, commit: bool
    ) -> None:
        """Have an operator end what a slot of another number of slots has left, some time: nobody fences it."""
        if tp not in self.logs or self.logs[tp].open.get(held.producer_id) != first:
            return
        if any(each is held and not name.endswith(f"-of-{self.slots}") for name, each in self.ids.items()):
            self._end_by_hand(tp, held.producer_id, first, commit)
            return
        again = partial(self._look_at_a_stranger, held, tp, first, commit=commit)
        asyncio.get_running_loop().call_later(OPERATOR_S, again)

    def _end_by_hand(self, tp: TopicPartition, producer_id: int, first: int, commit: bool) -> None:  # noqa: FBT001
        if tp in self.logs and self.logs[tp].open.get(producer_id) == first:
            self.mark(tp, producer_id, self._writers[tp][producer_id].epoch, commit=commit)

    def refuses(self, identity: str, producer_id: int, epoch: int) -> KafkaCode:
        """Say why a producer may not go on with a transaction; NONE: it may."""
        held = self.ids.get(identity)
        if held is None or held.producer_id != producer_id:
            return KafkaCode.INVALID_PRODUCER_ID_MAPPING
        if held.epoch != epoch:
            return KafkaCode.INVALID_PRODUCER_EPOCH
        return KafkaCode.CONCURRENT_TRANSACTIONS if held.state in ENDING else KafkaCode.NONE

    def join(self, identity: str, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions, or the group's offsets, part of an id's transaction; it may begin with that."""
        held = self.ids[identity]
        if held.state != OPEN:
            held.state, held.began_ms = OPEN, int(time.time() * 1000)
            held.partitions, held.offsets = set(), {}
            epoch = held.epoch
            asyncio.get_running_loop().call_later(
                held.timeout_ms / 1000, self._time_out, identity, epoch, held.began_ms
            )
        held.partitions.update(partitions)

    def end(self, identity: str, *, commit: bool) -> KafkaCode:
        """Answer EndTxn of whoever may."""
        held = self.ids[identity]
        if held.state == OPEN:
            self._end(held, commit=commit)
            return KafkaCode.NONE
        ended = "CompleteCommit" if commit else "CompleteAbort"
        return KafkaCode.NONE if held.state == ended else KafkaCode.INVALID_TXN_STATE

    def expire(self, identity: str) -> None:
        """Abort what an id has open, as a coordinator does after the time-out."""
        held = self.ids.get(identity)
        if held is not None and held.state == OPEN:
            held.epoch += 1
            self._end(held, commit=False)

    def forget(self, identity: str) -> None:
        """Forget an id that has been idle for long; whoever holds it is not known any more.

        Idle for days: by then whoever works has brought an end that was left out somewhere. Where nobody has
        worked for so long, nobody can, and that is an operator's (docs/guarantees.md).
        """
        held = self.ids.get(identity)
        if held is None or held.state in {OPEN, *ENDING}:
            return
        if not any(held.producer_id in log.open for log in self.logs.values()):
            del self.ids[identity]

    def _time_out(self, identity: str, epoch: int, began_ms: int) -> None:
        held = self.ids.get(identity)
        if held is not None and (held.epoch, held.began_ms) == (epoch, began_ms):
            self.expire(identity)

    def _end(self, held: TransactionalId, *, commit: bool) -> None:
        held.state, held.commits, held.ends = (
            "PrepareCommit" if commit else "PrepareAbort",
            commit,
            held.ends + 1,
        )
        held.unmarked = {tp for tp in held.partitions if tp in self.logs}
        waiting = sorted(held.unmarked)
        if commit:
            for tp, (offset, note) in held.offsets.items():
                self.offsets[tp], self.notes[tp] = offset, note
        for tp in waiting:
            after_s = self.luck.marker_s()
            if after_s:
                asyncio.get_running_loop().call_later(after_s, self._mark, held, held.epoch, tp, commit)
            else:
                self._mark(held, held.epoch, tp, commit)
        self._complete(held, commit=commit)
        self.ended()

    def _mark(self, held: TransactionalId, epoch: int, tp: TopicPartition, commit: bool) -> None:  # noqa: FBT001
        if tp in held.unmarked and not self.luck.leaves_out():
            self.mark(tp, held.producer_id, epoch, commit=commit)
        elif tp in held.unmarked and tp in self.logs and held.producer_id in self.logs[tp].open:
            self._look_at_a_stranger(held, tp, self.logs[tp].open[held.producer_id], commit=commit)
        held.unmarked.discard(tp)
        self._complete(held, commit=commit)

    @staticmethod
    def _complete(held: TransactionalId, *, commit: bool) -> None:
        if not held.unmarked and held.state in ENDING:
            held.state = "CompleteCommit" if commit else "CompleteAbort"
