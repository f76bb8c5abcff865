"""Answers requests as the brokers do, in the shapes that the product unpacks."""

from __future__ import annotations

import struct
from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aiokafka.protocol.metadata import MetadataRequest as PlainMetadataRequest

from processor.kafka.client import KafkaCode, TopicPartition
from processor.kafka.protocol.requests import NO_TAGS, ListOffsetsRequest, MetadataRequest
from processor.wire.decode import Chunk
from schemas.changelog.topic_ids import UNKNOWN_ID
from tests.support.wire import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from seqmark.in_memory.cluster import MemoryLog
    from tests.simulation.brokers.kafka.cluster import Brokers

LATEST_VERSION = 99
ALL_OPERATIONS = 2**31 - 1
LOCAL_START = -4
PRODUCE, FETCH = 0, 1
TAKEN = KafkaCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, KafkaCode.REQUEST_TIMED_OUT
"""With these a leader refuses a batch that is in its log."""


class Asked:
    """A request that has arrived at a broker.

    Attributes:
        api: Its number in Kafka's protocol.
        fields: What is asked, in the newest version that both sides know.
        brings: Of a fetch: whether its answer says anything.
        spared: Partitions that are not refused where the others are.
    """

    def __init__(self, brokers: Brokers, node: int, request: Any, who: object) -> None:
        self._brokers, self._node, self._request, self._who = brokers, node, request, who
        self.spared: set[TopicPartition] = set()
        self.api: int = request.API_KEY
        self.fields: Any = request.prepare({self.api: (0, LATEST_VERSION)})
        self.brings = False
        self._produced = list(_produced(self.fields.encode())) if self.api == PRODUCE else []

    @property
    def written(self) -> list[TopicPartition]:
        """The partitions of a produce request."""
        return [tp for tp, _ in self._produced]

    def answer(self, wrong: KafkaCode | None = None) -> Any:
        """Have it take effect, and return the answer; with ``wrong`` it is refused with this code."""
        return _ANSWERS[self.api](self, wrong)

    # ---------------------------------------------------------------- data

    def produce(self, wrong: KafkaCode | None) -> Any:
        found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for tp, batch in self._produced:
            refused = wrong if tp not in self.spared else None
            code, base = self._misled(tp) or refused, -1
            if code is None or code in TAKEN:
                appended, base = self._brokers.append(tp, self.fields.transactional_id, batch)
                code = code if code is not None and appended == KafkaCode.NONE else appended
            found[tp.topic].append((tp.partition, code, base))
        return SimpleNamespace(topics=list(found.items()))

    def fetch(self, wrong: KafkaCode | None) -> Any:
        by_id = self.fields.API_VERSION >= 13
        topics = []
        for named, partitions, *_ in self.fields.topics:
            name = self._brokers.name_of(named) if by_id else named
            rows = []
            for number, *rest in partitions:
                at, most_bytes = (rest[1], rest[4]) if by_id else (rest[-3], rest[-1])
                rows.append(self._fetched(name, number, at, most_bytes, wrong, tagged=by_id))
            topics.append((named, rows, NO_TAGS) if by_id else (named, rows))
        return SimpleNamespace(topics=topics, error_code=0, API_VERSION=13 if by_id else 11)

    def _fetched(
        self, name: str | None, number: int, at: int, most_bytes: int, wrong: KafkaCode | None, *, tagged: bool
    ) -> tuple[Any, ...]:
        tp = TopicPartition(name or "", number)
        log = self._brokers.logs.get(tp)
        code = wrong or (self._misled(tp) if log is not None else None)
        if log is None:
            code = KafkaCode.UNKNOWN_TOPIC_ID if tagged else KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
        elif code is None and not log.start <= at <= log.end:
            code = KafkaCode.OFFSET_OUT_OF_RANGE
        if code is not None or log is None:
            self.brings = True
            return (number, code, -1, -1, -1, [], -1, b"", *([NO_TAGS] if tagged else []))
        data, aborted = log.fetch(at, min(most_bytes, self._brokers.luck.fetch_bytes()))
        self.brings = self.brings or bool(data)
        return (number, 0, log.end, log.stable, log.start, aborted, -1, data, *([NO_TAGS] if tagged else []))

    def list_offsets(self, wrong: KafkaCode | None) -> Any:
        topics = []
        for topic, partitions, _ in self.fields.topics:
            rows = []
            for number, _, when, _ in partitions:
                tp = TopicPartition(topic, number)
                code, stamp, offset = wrong or self._misled(tp) or KafkaCode.NONE, -1, -1
                if code == KafkaCode.NONE:
                    stamp, offset = _offset(self._brokers.logs[tp], when, self.fields.isolation_level)
                rows.append((number, code, stamp, offset, 0, NO_TAGS))
            topics.append((topic, rows, NO_TAGS))
        return SimpleNamespace(topics=topics)

    def delete_records(self, wrong: KafkaCode | None) -> Any:
        topics = []
        for topic, partitions, *_ in self.fields.topics:
            rows = []
            for number, offset, *_more in partitions:
                tp = TopicPartition(topic, number)
                code = wrong or self._misled(tp) or KafkaCode.NONE
                if code == KafkaCode.NONE:
                    self._brokers.logs[tp].delete_before(offset)
                rows.append((number, offset, code))
            topics.append((topic, rows))
        return SimpleNamespace(topics=topics)

    def _misled(self, tp: TopicPartition) -> KafkaCode | None:
        """Say why this broker has nothing to say of a partition."""
        if tp not in self._brokers.logs:
            return KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
        return None if self._brokers.leader(tp) == self._node else KafkaCode.NOT_LEADER_OR_FOLLOWER

    # ---------------------------------------------------------------- topics and group

    def metadata(self, _: KafkaCode | None) -> Any:
        wanted = (
            self._brokers.topics if self.fields.topics is None else [each[1] for each in self.fields.topics]
        )
        topics: list[tuple[Any, ...]] = []
        for name in wanted:
            topic = self._brokers.known_to(self._node, name)
            if topic is None and self.fields.allow_auto_topic_creation:
                self._brokers.create(name, 1, {})  # as brokers do by default; it is there with the next answer
            if topic is None:
                topics.append((KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, name, UNKNOWN_ID, False, [], 0, NO_TAGS))
                continue
            led = [(n, self._brokers.leader(TopicPartition(name, n))) for n in range(topic.partitions)]
            rows: list[tuple[Any, ...]]
            rows = [(0, n, leader, 0, [leader], [leader], [], NO_TAGS) for n, leader in led]
            topics.append((0, name, topic.topic_id, False, rows, ALL_OPERATIONS, NO_TAGS))
        return SimpleNamespace(
            API_VERSION=MetadataRequest.VERSION,
            throttle_time_ms=0,
            brokers=[(node, "nowhere", 9092, None, NO_TAGS) for node in self._brokers.nodes],
            cluster_id="simulated",
            controller_id=0,
            topics=topics,
            authorized_operations=ALL_OPERATIONS,
        )

    def find_coordinator(self, wrong: KafkaCode | None) -> Any:
        return SimpleNamespace(error_code=wrong or 0, coordinator_id=self._brokers.nodes[0])

    def offset_fetch(self, wrong: KafkaCode | None) -> Any:
        topics = []
        for topic, numbers in self.fields.topics:
            tps = [TopicPartition(topic, number) for number in numbers]
            known = self._brokers.offsets
            rows = [
                (tp.partition, known.get(tp, -1), self._brokers.notes.get(tp, ""), wrong or 0) for tp in tps
            ]
            topics.append((topic, rows))
        return SimpleNamespace(topics=topics)

    def describe_groups(self, wrong: KafkaCode | None) -> Any:
        # Whoever asks is no member, and finds it at rest, or waits.
        return SimpleNamespace(groups=[(wrong or 0, "", "Empty", "", "", [], 0)])

    # ---------------------------------------------------------------- transactions

    def init_producer_id(self, wrong: KafkaCode | None) -> Any:
        identity = self.fields.transactional_id
        if wrong is not None:
            code, producer_id, epoch = wrong, -1, -1
        elif identity is None:
            code, producer_id, epoch = KafkaCode.NONE, self._brokers.new_producer(), 0
        else:
            code, producer_id, epoch = self._brokers.init(
                identity, self.fields.transaction_timeout_ms, self._who
            )
        return SimpleNamespace(error_code=code, producer_id=producer_id, producer_epoch=epoch)

    def _refusal(self, wrong: KafkaCode | None) -> KafkaCode:
        asked = self.fields
        if wrong is not None:
            return wrong
        return self._brokers.refuses(asked.transactional_id, asked.producer_id, asked.producer_epoch)

    def add_partitions(self, wrong: KafkaCode | None) -> Any:
        code = self._refusal(wrong)
        tps = [TopicPartition(topic, number) for topic, numbers in self.fields.topics for number in numbers]
        if code == KafkaCode.NONE and all(tp in self._brokers.logs for tp in tps):
            self._brokers.join(self.fields.transactional_id, tps)
        elif code == KafkaCode.NONE:
            code = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
        return SimpleNamespace(
            errors=[(topic, [(n, code) for n in numbers]) for topic, numbers in self.fields.topics]
        )

    def add_offsets(self, wrong: KafkaCode | None) -> Any:
        code = self._refusal(wrong)
        if code == KafkaCode.NONE:
            self._brokers.join(self.fields.transactional_id, [])
        return SimpleNamespace(error_code=code)

    def commit_offsets(self, wrong: KafkaCode | None) -> Any:
        code = self._refusal(wrong)
        if code == KafkaCode.NONE:
            held = self._brokers.ids[self.fields.transactional_id]
            for topic, rows in self.fields.topics:
                held.offsets.update({TopicPartition(topic, n): (offset, note) for n, offset, note in rows})
        return SimpleNamespace(
            errors=[(topic, [(row[0], code) for row in rows]) for topic, rows in self.fields.topics]
        )

    def end_transaction(self, wrong: KafkaCode | None) -> Any:
        code = self._refusal(wrong)
        if code == KafkaCode.NONE:
            code = self._brokers.end(self.fields.transactional_id, commit=self.fields.transaction_result)
        return SimpleNamespace(error_code=code)

    def describe_transactions(self, wrong: KafkaCode | None) -> Any:
        states: list[tuple[Any, ...]] = []
        for identity in self.fields.transactional_ids:
            held = self._brokers.ids.get(identity)
            if wrong is not None or held is None:
                states.append(
                    (wrong or KafkaCode.TRANSACTIONAL_ID_NOT_FOUND, identity, "", 0, -1, -1, -1, [], NO_TAGS)
                )
                continue
            held.told_to[self._who] = held.ends
            stands = held.state, held.timeout_ms, held.began_ms, held.producer_id, held.epoch
            states.append((0, identity, *stands, [], NO_TAGS))
        return SimpleNamespace(states=states)

    def describe_producers(self, wrong: KafkaCode | None) -> Any:
        topics = []
        for topic, numbers, _ in self.fields.topics:
            rows = []
            for number in numbers:
                tp = TopicPartition(topic, number)
                code = wrong or self._misled(tp) or KafkaCode.NONE
                known = self._brokers.known_in(tp) if code == KafkaCode.NONE else []
                who = [(producer_id, epoch, 0, 0, 0, first, NO_TAGS) for producer_id, epoch, first in known]
                rows.append((number, code, "", who, NO_TAGS))
            topics.append((topic, rows, NO_TAGS))
        return SimpleNamespace(topics=topics)

    def write_markers(self, wrong: KafkaCode | None) -> Any:
        markers = []
        for producer_id, epoch, commit, where, *_ in self.fields.markers:
            topics = []
            for topic, numbers, _ in where:
                rows = []
                for number in numbers:
                    tp = TopicPartition(topic, number)
                    code = (
                        wrong or self._misled(tp) or self._brokers.mark(tp, producer_id, epoch, commit=commit)
                    )
                    rows.append((number, code, NO_TAGS))
                topics.append((topic, rows, NO_TAGS))
            markers.append((producer_id, topics, NO_TAGS))
        return SimpleNamespace(markers=markers)


_ANSWERS: dict[int, Callable[[Asked, KafkaCode | None], Any]] = {
    PRODUCE: Asked.produce,
    FETCH: Asked.fetch,
    ListOffsetsRequest.API_KEY: Asked.list_offsets,
    PlainMetadataRequest.API_KEY: Asked.metadata,
    9: Asked.offset_fetch,
    10: Asked.find_coordinator,
    15: Asked.describe_groups,
    21: Asked.delete_records,
    22: Asked.init_producer_id,
    24: Asked.add_partitions,
    25: Asked.add_offsets,
    26: Asked.end_transaction,
    27: Asked.write_markers,
    28: Asked.commit_offsets,
    61: Asked.describe_producers,
    65: Asked.describe_transactions,
}


def _offset(log: MemoryLog, when: int, isolation: int) -> tuple[int, int]:
    """Return time and offset that a question of ListOffsets means."""
    if when in {ListOffsetsRequest.EARLIEST, LOCAL_START}:
        return -1, log.start
    if when == ListOffsetsRequest.LATEST:
        return -1, log.stable if isolation else log.end
    data, aborted = log.fetch(log.start, 2**62)
    found = [
        (each.timestamp, each.offset)
        for piece in batches.DECODER.pieces(Chunk("", 0, log.start, data, aborted))
        for each in batches.rows(piece.columns)
    ]
    if when == ListOffsetsRequest.NEWEST_TIMESTAMP:
        return max(found, default=(-1, -1))
    return next((each for each in found if each[0] >= when), (-1, -1))


def _produced(content: bytes) -> Iterator[tuple[TopicPartition, bytes]]:
    """Read the batches of a produce request, as `processor.kafka.transactions.producer` draws it."""
    at = 2 + max(struct.unpack_from(">h", content)[0], 0) + 6
    (topics,) = struct.unpack_from(">i", content, at)
    at += 4
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", content, at)
        topic = content[at + 2 : at + 2 + size].decode()
        (partitions,) = struct.unpack_from(">i", content, at + 2 + size)
        at += 6 + size
        for _ in range(partitions):
            number, size = struct.unpack_from(">ii", content, at)
            yield TopicPartition(topic, number), content[at + 8 : at + 8 + size]
            at += 8 + size
