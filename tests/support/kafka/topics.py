"""What goes into a topic and what comes out, by clients that share no code with the worker.

Records go in as exactly chosen batches (aiokafka's batch builder) or transactions (librdkafka); they come out
by librdkafka's consumer, read_committed. Open transactions are asked for by a hand-written request.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import socket
import struct
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import AIOKafkaProducer
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Header = tuple[str, bytes | None]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CALL_S = 60.0
"""For any answer: far above what it takes, also where other work takes both cores."""
_numbers = itertools.count()
_LOWEST_PORT, _PORTS = 20_000, 12_000
_ports = (_LOWEST_PORT + (os.getpid() * 97 + number) % _PORTS for number in itertools.count())


class New(NamedTuple):
    """A record to be produced."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int
    """ms."""


class Record(NamedTuple):
    """A record as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int
    """ms."""
    create_time: bool

    @property
    def content(self) -> tuple[int, bytes | None, bytes | None, tuple[Header, ...], int]:
        """What must come through unchanged: all but the offset and the kind of time."""
        return self.partition, self.key, self.value, self.headers, self.timestamp

    @property
    def sequence(self) -> int:
        """The last header ``seq``, int64."""
        value = [value for name, value in self.headers if name == "seq"][-1]
        return int.from_bytes(value or b"", "big", signed=True)


def int64(number: int) -> bytes:
    """Return ``number`` as it stands in a header of format int64."""
    return number.to_bytes(8, "big", signed=True)


def new(
    sequence: int,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    *,
    headers: Sequence[Header] = (),
    timestamp: int = 1_700_000_000_000,
) -> New:
    """Return a record with its sequence in the header ``seq``, after other headers."""
    return New(key, value, (*headers, ("seq", int64(sequence))), timestamp)


def contents(records: Iterable[Record]) -> list[tuple[Any, ...]]:
    """Return what must come through unchanged, in order."""
    return [record.content for record in records]


def sequences(records: Iterable[Record], partition: int = 0) -> list[int]:
    """Return the sequences of one partition, in order."""
    return [record.sequence for record in records if record.partition == partition]


def deduplicated(records: Iterable[Record]) -> list[Record]:
    """Say what should pass of a source: the naive model, a partition at a time."""
    highest: dict[int, int] = {}
    passed = []
    for record in records:
        if record.partition not in highest or record.sequence > highest[record.partition]:
            highest[record.partition] = record.sequence
            passed.append(record)
    return passed


def unique(name: str) -> str:
    """Return a name that no other test has."""
    return f"{name}-{next(_numbers)}-{uuid.uuid4().hex[:6]}"


def dice(seed: int) -> random.Random:
    """Return a source of random values, the same for the same seed."""
    return random.Random(seed)


PATIENCE_S = float(os.environ.get("SEQMARK_TEST_PATIENCE_S", "300"))
"""For whatever a test waits for. Less is set where a test is to fail: a planted mistake is caught no later."""


def until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Wait for a condition and return what it gave; fail naming it.

    How long it may take is no claim of a test: the default is far above what a busy machine needs, where what
    is waited for may begin with an interpreter of its own, and with kernels that nobody has compiled yet.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {timeout_s} s: {what}")
        time.sleep(0.03)
    return found


# ------------------------------------------------------------------ topics


def admin(bootstrap: str) -> AdminClient:
    """Return librdkafka's admin client."""
    return AdminClient({"bootstrap.servers": bootstrap})


def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic and wait until its partitions have leaders.

    Retention goes by the records' timestamps, and those of tests are old: it is off unless asked for.
    """
    client = admin(bootstrap)
    # With as many replicas as the brokers give by themselves.
    new_topic = NewTopic(topic, partitions, -1, config={"retention.ms": "-1", **(configs or {})})
    client.create_topics([new_topic])[topic].result(CALL_S)
    until(lambda: _led(client, topic) == partitions, f"leaders of {topic}")


def _led(client: AdminClient, topic: str) -> int:
    """Return how many partitions have a leader that knows it is one: metadata may say so before."""
    found = client.list_topics(topic, timeout=CALL_S).topics[topic].partitions
    wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in found}
    try:
        return sum(future.result(CALL_S).offset >= 0 for future in client.list_offsets(wanted).values())
    except KafkaException:
        return 0


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    client = admin(bootstrap)
    client.delete_topics([topic])[topic].result(CALL_S)
    until(lambda: topic not in client.list_topics(timeout=CALL_S).topics, f"{topic} gone")


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    """Grow a topic to ``total`` partitions and wait until they have leaders."""
    client = admin(bootstrap)  # held: its futures die with it
    client.create_partitions([NewPartitions(topic, total)])[topic].result(CALL_S)
    until(lambda: _led(client, topic) == total, f"leaders of {topic}")


def alter_topic(bootstrap: str, topic: str, **configs: str) -> None:
    """Change settings; write ``_`` for the dots of their names."""
    _alter(bootstrap, ResourceType.TOPIC, topic, configs)


def alter_brokers(bootstrap: str, **configs: str) -> None:
    """Change settings of all brokers while they run; write ``_`` for the dots of their names."""
    for number in admin(bootstrap).list_topics(timeout=CALL_S).brokers:
        _alter(bootstrap, ResourceType.BROKER, str(number), configs)


def _alter(bootstrap: str, kind: ResourceType, name: str, configs: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    client = admin(bootstrap)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(CALL_S)


def delete_records(bootstrap: str, topic: str, before: int, partition: int = 0) -> None:
    """Do what retention does: remove the records below offset ``before``."""
    wanted = [TopicPartition(topic, partition, before)]
    client = admin(bootstrap)
    for future in client.delete_records(wanted).values():
        future.result(CALL_S)


def bounds(bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """Return a partition's first retained offset and its high watermark."""
    client = admin(bootstrap)
    tp = TopicPartition(topic, partition)
    start = client.list_offsets({tp: OffsetSpec.earliest()})[tp].result(CALL_S).offset
    return start, client.list_offsets({tp: OffsetSpec.latest()})[tp].result(CALL_S).offset


# ------------------------------------------------------------------ in


def produce(
    bootstrap: str,
    topic: str,
    *batches: Sequence[New],
    partition: int = 0,
    codec: str = "none",
    batch_bytes: int = 2**20,
) -> None:
    """Write each of ``batches`` as one record batch, in order."""
    asyncio.run(_produce(bootstrap, topic, partition, batches, codec, batch_bytes))


async def _produce(
    bootstrap: str,
    topic: str,
    partition: int,
    batches: Sequence[Sequence[New]],
    codec: str,
    batch_bytes: int,
) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        max_batch_size=batch_bytes,
        max_request_size=2 * batch_bytes,
    ) as producer:
        for records in batches:
            builder = producer.create_batch()
            for record in records:
                added = builder.append(
                    timestamp=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                )
                assert added is not None, "the batch is larger than batch_bytes"
            builder.close()
            await (await producer.send_batch(builder, topic, partition=partition))


def produce_transaction(
    bootstrap: str, topic: str, records: Sequence[New], *, partition: int = 0, commit: bool = True
) -> None:
    """Write ``records`` in a transaction and commit or abort it; a control record follows them."""
    producer = open_transaction(bootstrap, topic, records, partition=partition)
    if commit:
        producer.commit_transaction(CALL_S)
    else:
        producer.abort_transaction(CALL_S)


def open_transaction(bootstrap: str, topic: str, records: Sequence[New], *, partition: int = 0) -> Producer:
    """Write ``records`` in a transaction that stays open; returns its producer."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": unique("test"),
            "linger.ms": 0,
        }
    )
    producer.init_transactions(CALL_S)
    producer.begin_transaction()
    for record in records:
        producer.produce(
            topic,
            partition=partition,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp,
        )
    assert producer.flush(CALL_S) == 0
    return producer


# ------------------------------------------------------------------ out


def read_topic(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Record]:
    """Return all that is committed now, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("reader"),
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "check.crcs": True,
        }
    )
    try:
        found = consumer.list_topics(topic, timeout=CALL_S).topics[topic]
        assert found.partitions, f"{topic} does not exist"
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in found.partitions])
        return sorted(_read(consumer, set(found.partitions)))
    finally:
        consumer.close()


def _read(consumer: Consumer, left: set[int]) -> list[Record]:
    records: list[Record] = []
    deadline = time.monotonic() + CALL_S
    while left:
        assert time.monotonic() < deadline, f"partitions {left} do not end"
        some = consumer.consume(10_000, 0.1)
        if some:
            deadline = time.monotonic() + CALL_S
        for message in some:
            error = message.error()
            if error is None:
                records.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise AssertionError(error)
    return records


def _record(message: Any) -> Record:
    kind, timestamp = message.timestamp()
    return Record(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple((name, value) for name, value in message.headers() or ()),
        timestamp,
        kind == TIMESTAMP_CREATE_TIME,
    )


def group_offsets(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """Return what a consumer group has committed, by topic and partition."""
    from confluent_kafka import ConsumerGroupTopicPartitions  # noqa: PLC0415 - used here only

    request = ConsumerGroupTopicPartitions(group)
    client = admin(bootstrap)
    answer = client.list_consumer_group_offsets([request])[group].result(CALL_S)
    return {(tp.topic, tp.partition): tp.offset for tp in answer.topic_partitions if tp.offset >= 0}


def set_group_offset(bootstrap: str, group: str, topic: str, offset: int, partition: int = 0) -> None:
    """Commit an offset for a consumer group that has no members."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
    finally:
        consumer.close()


# ------------------------------------------------------------------ transactions

_LIST_TRANSACTIONS = 66
_OPEN = {"Ongoing", "PrepareCommit", "PrepareAbort"}


def group_members(bootstrap: str, group: str) -> set[str]:
    """Return the members of a consumer group."""
    client = admin(bootstrap)  # its answers come only as long as it is held
    found = client.describe_consumer_groups([group])[group].result(30)
    return {member.member_id for member in found.members}


def open_transactions(bootstrap: str, prefix: str = "") -> list[str]:
    """Return the transactional ids (those beginning with ``prefix``) that have a transaction open now.

    ListTransactions, version 0 (KIP-664), asked of every broker that is named; no client here speaks it.
    """
    return sorted({name for broker in bootstrap.split(",") for name in _open_on(broker, prefix)})


def _open_on(broker: str, prefix: str) -> Iterable[str]:
    host, _, port = broker.rpartition(":")
    with socket.create_connection((host, int(port)), CALL_S) as connection:
        client = b"test"
        # Header version 2: key, version, correlation, client, tags; body: two empty filters, tags.
        head = struct.pack(">hhih", _LIST_TRANSACTIONS, 0, 1, len(client)) + client + b"\x00"
        body = head + b"\x01\x01\x00"
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        answer = _receive(connection, size)
    return (name for name, state in _transactions(answer) if state in _OPEN and name.startswith(prefix))


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the broker closed the connection"
        data += more
    return data


def _transactions(answer: bytes) -> Iterable[tuple[str, str]]:
    """Read the response: correlation, tags, throttle, error, unknown filters, then the transactions."""
    (error,) = struct.unpack_from(">h", answer, 9)
    assert error == 0, f"ListTransactions: error {error}"
    assert answer[11] in {0, 1}, "unknown filters"
    count, at = _uvarint(answer, 12)
    for _ in range(count - 1):
        size, at = _uvarint(answer, at)
        name = answer[at : at + size - 1].decode()
        size, at = _uvarint(answer, at + size - 1 + 8)
        yield name, answer[at : at + size - 1].decode()
        at += size - 1 + 1  # no tags


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
        shift += 7


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now, and that this process has not given out before.

    Below the ports that systems give to outgoing connections (from 32768 on Linux, 49152 elsewhere): one of
    those could be taken by any client between now and the moment that somebody listens on it.
    """
    while True:
        port = next(_ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without what configures Seqmark, and ``extra``."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SEQMARK_") or name.startswith("SEQMARK_TEST_")
    }
    return {**kept, **extra}
