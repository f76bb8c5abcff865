"""Writes the requests that aiokafka does not have, of the types that it builds its own of.

All are of flexible versions (KIP-482): every structure ends with tags, of which we send none::

    Metadata v10           2.8  says the ids of topics (KIP-516)
    Fetch v13              3.1  reads topics by id; one that was made again has another id, and is refused
    DescribeTransactions   3.0  how a transactional id stands, from its coordinator (KIP-664)
    DescribeProducers      3.0  who has a transaction open in a partition, from its leader; needs READ on it
    WriteTxnMarkers        3.0  ends a transaction in a partition, by its leader; needs ALTER on the cluster
    ListTransactions       3.0  the transactional ids that a broker coordinates (KIP-664)
    ListOffsets v7         3.0  offsets by time, and where the newest timestamp of a partition is (KIP-734)
    ListOffsets v8         3.6  from which offset on a partition is on the leader's own disk (KIP-405)
    DescribeGroups v5      2.4  members of a group, by their instance ids too
    DescribeClientQuotas   2.8  quotas of users and client ids (KIP-546); needs DESCRIBE_CONFIGS on the cluster
    DescribeLogDirs v2     2.6  bytes of partitions on a broker; needs DESCRIBE on the cluster

Reads say by ``current_leader_epoch`` who leads as far as this process has heard (KIP-320): a leader that was
deposed and has not heard of it refuses, in place of answering with what was true before.

The number is the first broker that knows the request. Metadata is asked for with
``allow_auto_topic_creation = false`` in all versions: a topic that somebody has deleted must not come back
because a worker asks where it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from aiokafka.protocol import types
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v4, MetadataRequest_v5, MetadataResponse_v5
from typing_extensions import override

from processor.kafka.protocol.codes import KafkaCode
from processor.kafka.protocol.frames import Answer
from schemas.changelog.topic_ids import UNKNOWN_ID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from io import BytesIO

NO_TAGS: Final[dict[int, bytes]] = {}
_UUID_BYTES = 16


class Uuid(types.AbstractType):  # type: ignore[misc]  # aiokafka is not typed
    """16 bytes as they are."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        """Return them."""
        assert len(value) == _UUID_BYTES  # noqa: S101 - ids come from brokers
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        """Read them."""
        return data.read(_UUID_BYTES)


class Records(types.CompactBytes):  # type: ignore[misc]  # aiokafka is not typed
    """Record batches, which stay where they are in an `Answer`."""

    @classmethod
    def decode(cls, data: BytesIO | Answer) -> bytes | memoryview | None:
        """Read them."""
        if not isinstance(data, Answer):
            found: bytes | None = super().decode(data)
            return found
        size = types.UnsignedVarInt32.decode(data) - 1
        if size < 0:
            return None
        records = data.view(size)
        if len(records) != size:
            raise ValueError(f"{size} bytes of records leave the answer")
        return records


_TYPES = {
    "bool": types.Boolean,
    "int8": types.Int8,
    "int16": types.Int16,
    "int32": types.Int32,
    "int32s": types.CompactArray(types.Int32),
    "int64": types.Int64,
    "int64s": types.CompactArray(types.Int64),
    "float64": types.Float64,
    "uuid": Uuid,
    "text": types.CompactString("utf-8"),
    "texts": types.CompactArray(types.CompactString("utf-8")),
    "bytes": types.CompactBytes,
    "records": Records,
}
_FIELD = re.compile(r"(?P<name>\w+):(?P<type>\w+)|(?P<rows>\w+)\[|\]")


def _fields(drawn: Iterator[re.Match[str]]) -> list[tuple[str, Any]]:
    """Read ``name:type`` and ``rows[...]``, up to the bracket that ends the rows they are in."""
    found: list[tuple[str, Any]] = []
    for field in drawn:
        if field["rows"]:
            found.append((field["rows"], types.CompactArray(*_fields(drawn))))
        elif field["name"]:
            found.append((field["name"], _TYPES[field["type"]]))
        else:
            break
    return [*found, ("tags", types.TaggedFields)]


class FlexibleRequest(Request[RequestStruct]):  # type: ignore[misc]  # aiokafka is not typed
    """A request of one flexible version; its arguments are the values of its fields, without the last tags.

    A class says key and version of the API, draws the fields of question and answer as `_fields` reads them,
    and names aiokafka's structures of older versions, which then need a `build` of their own.
    """

    API_KEY: ClassVar[int] = -1
    VERSION: ClassVar[int]
    ASKS: ClassVar[str]
    ANSWER: ClassVar[str]
    OLDER: ClassVar[tuple[type, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        sent, answered = (types.Schema(*_fields(_FIELD.finditer(drawn))) for drawn in (cls.ASKS, cls.ANSWER))
        api = {"API_KEY": cls.API_KEY, "API_VERSION": cls.VERSION, "__module__": cls.__module__}
        response = type(f"{cls.__name__}Response", (Response,), {**api, "SCHEMA": answered})
        own = {"FLEXIBLE_VERSION": True, "RESPONSE_TYPE": response, "SCHEMA": sent}
        cls._CLASSES = (*cls.OLDER, type(f"{cls.__name__}Struct", (RequestStruct,), {**api, **own}))

    def __init__(self, *fields: object) -> None:
        self._fields = fields

    def build(self, request_struct_class: type[Any]) -> Any:
        """Return what is sent."""
        return request_struct_class(*self._fields, NO_TAGS)


class MetadataRequest(FlexibleRequest):
    """Asks where the topics of these names are, and which they are; None: all there are.

    With ``operations`` also what this principal may do with them, and with the cluster.
    """

    API_KEY, VERSION = 3, 10
    ASKS = """
        topics[topic_id:uuid topic:text] allow_auto_topic_creation:bool
        include_cluster_authorized_operations:bool include_topic_authorized_operations:bool
    """
    ANSWER = """
        throttle_time_ms:int32 brokers[node_id:int32 host:text port:int32 rack:text]
        cluster_id:text controller_id:int32
        topics[error_code:int16 topic:text topic_id:uuid is_internal:bool
            partitions[error_code:int16 partition:int32 leader:int32 leader_epoch:int32
                replicas:int32s isr:int32s offline_replicas:int32s]
            authorized_operations:int32]
        authorized_operations:int32
    """
    OLDER = (MetadataRequest_v4, MetadataRequest_v5)

    def __init__(self, topics: Sequence[str] | None, *, operations: bool = False) -> None:
        wanted = None if topics is None else [(UNKNOWN_ID, topic, NO_TAGS) for topic in topics]
        super().__init__(wanted, False, operations, operations)
        self._topics = topics

    @override
    def build(self, request_struct_class: type[Any]) -> Any:
        if request_struct_class.API_VERSION < self.VERSION:
            return request_struct_class(self._topics, False)
        return super().build(request_struct_class)


class TopicsSeen(NamedTuple):
    """What a broker's metadata says of topics."""

    ids: dict[str, bytes]
    """By name; `UNKNOWN_ID` where brokers have none."""
    absent: set[str]
    """Those that were asked for and do not exist."""
    leaders: dict[tuple[str, int], tuple[int, int]]
    """By topic and partition: the leader, and its epoch; -1: before brokers told it."""


def plain(metadata: Any) -> tuple[Any, TopicsSeen]:
    """Return an answer in the form that aiokafka reads, and what it says of topics."""
    absent = {topic[1] for topic in metadata.topics if topic[0] == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION}
    leaders: dict[tuple[str, int], tuple[int, int]] = {}
    if metadata.API_VERSION < MetadataRequest.VERSION:
        for _, name, _, partitions in metadata.topics:
            leaders |= {(name, number): (leader, -1) for _, number, leader, *_ in partitions}
        ids = {topic[1]: UNKNOWN_ID for topic in metadata.topics if topic[0] == 0}
        return metadata, TopicsSeen(ids, absent, leaders)
    brokers = [broker[:-1] for broker in metadata.brokers]
    ids = {}
    topics: list[tuple[Any, ...]] = []
    for code, name, topic_id, internal, partitions, *_ in metadata.topics:
        if code == 0:
            ids[name] = topic_id
        leaders |= {(name, number): (leader, epoch) for _, number, leader, epoch, *_ in partitions}
        led = [(error, number, leader, *rest[:3]) for error, number, leader, _, *rest in partitions]
        topics.append((code, name, internal, led))
    said = metadata.throttle_time_ms, brokers, metadata.cluster_id, metadata.controller_id, topics
    return MetadataResponse_v5(*said), TopicsSeen(ids, absent, leaders)


class FetchByIdRequest(FlexibleRequest):
    """Asks what has arrived in the topics of these ids; first arguments as of aiokafka's FetchRequest.

    ``topics`` has by name number, leader epoch, offset and most bytes of each partition, ``ids`` the ids of
    these topics.
    """

    API_KEY, VERSION = 1, 13
    ASKS = """
        replica_id:int32 max_wait_time:int32 min_bytes:int32 max_bytes:int32 isolation_level:int8
        session_id:int32 session_epoch:int32
        topics[topic_id:uuid
            partitions[partition:int32 current_leader_epoch:int32 fetch_offset:int64 last_fetched_epoch:int32
                log_start_offset:int64 max_bytes:int32]]
        forgotten[topic_id:uuid partitions:int32s] rack_id:text
    """
    ANSWER = """
        throttle_time_ms:int32 error_code:int16 session_id:int32
        topics[topic_id:uuid
            partitions[partition:int32 error_code:int16 high_watermark:int64 last_stable_offset:int64
                log_start_offset:int64 aborted[producer_id:int64 first_offset:int64]
                preferred_read_replica:int32 records:records]]
    """

    def __init__(
        self,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        topics: Sequence[tuple[str, Sequence[tuple[int, int, int, int]]]],
        ids: Mapping[str, bytes],
    ) -> None:
        wanted = []
        for topic, partitions in topics:
            rows = [(number, epoch, at, -1, -1, most, NO_TAGS) for number, epoch, at, most in partitions]
            wanted.append((ids[topic], rows, NO_TAGS))
        super().__init__(-1, max_wait_ms, min_bytes, max_bytes, isolation_level, 0, -1, wanted, [], "")
        self._names = {ids[topic]: topic for topic, _ in topics}

    def by_name(self, response: Any) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """Return an answer's topics in the form of version 11, by their names."""
        found = []
        for topic_id, partitions, _ in response.topics:
            rows = [
                (*head, [each[:2] for each in aborted or ()], replica, records)
                for *head, aborted, replica, records, _ in partitions
            ]
            found.append((self._names[topic_id], rows))
        return found


class DescribeTransactionsRequest(FlexibleRequest):
    """Asks how the transactional ids of a list stand."""

    API_KEY, VERSION = 65, 0
    ASKS = "transactional_ids:texts"
    ANSWER = """
        throttle_time_ms:int32
        states[error_code:int16 transactional_id:text state:text timeout_ms:int32 start_time_ms:int64
            producer_id:int64 producer_epoch:int16 topics[topic:text partitions:int32s]]
    """


class ListTransactionsRequest(FlexibleRequest):
    """Asks a broker which transactional ids it coordinates, of those with one of these producer ids."""

    API_KEY, VERSION = 66, 0
    ASKS = "state_filters:texts producer_id_filters:int64s"
    ANSWER = """
        throttle_time_ms:int32 error_code:int16 unknown_state_filters:texts
        states[transactional_id:text producer_id:int64 state:text]
    """

    def __init__(self, producer_ids: Sequence[int]) -> None:
        super().__init__([], list(producer_ids))


class DescribeGroupRequest(FlexibleRequest):
    """Asks the coordinator who is in a group, and what this principal may do with it."""

    API_KEY, VERSION = 15, 5
    ASKS = "groups:texts include_authorized_operations:bool"
    ANSWER = """
        throttle_time_ms:int32
        groups[error_code:int16 group_id:text state:text protocol_type:text protocol:text
            members[member_id:text group_instance_id:text client_id:text client_host:text metadata:bytes
                assignment:bytes]
            authorized_operations:int32]
    """

    def __init__(self, group_id: str) -> None:
        super().__init__([group_id], True)


class ListOffsetsRequest(FlexibleRequest):
    """Asks the leader of partitions for an offset in each.

    ``topics`` has by name number, leader epoch and what stands for the offset: a time (ms), or what is below 0.
    """

    API_KEY, VERSION = 2, 7
    ASKS = """
        replica_id:int32 isolation_level:int8
        topics[topic:text partitions[partition:int32 current_leader_epoch:int32 timestamp:int64]]
    """
    ANSWER = """
        throttle_time_ms:int32
        topics[topic:text
            partitions[partition:int32 error_code:int16 timestamp:int64 offset:int64 leader_epoch:int32]]
    """
    EARLIEST: ClassVar[int] = -2
    LATEST: ClassVar[int] = -1
    NEWEST_TIMESTAMP: ClassVar[int] = -3

    def __init__(
        self, isolation_level: int, topics: Sequence[tuple[str, Sequence[tuple[int, int, int]]]]
    ) -> None:
        wanted = [(topic, [(*row, NO_TAGS) for row in rows], NO_TAGS) for topic, rows in topics]
        super().__init__(-1, isolation_level, wanted)


class LocalStartRequest(ListOffsetsRequest):
    """Asks the leader of partitions from which offset on it has them itself, and not in remote storage."""

    VERSION = 8

    def __init__(self, topics: Sequence[tuple[str, Sequence[tuple[int, int]]]]) -> None:
        super().__init__(0, [(topic, [(*row, -4) for row in rows]) for topic, rows in topics])


class DescribeLogDirsRequest(FlexibleRequest):
    """Asks a broker how large its copies of partitions are."""

    API_KEY, VERSION = 35, 2
    ASKS = "topics[topic:text partitions:int32s]"
    ANSWER = """
        throttle_time_ms:int32
        folders[error_code:int16 path:text
            topics[topic:text partitions[partition:int32 size:int64 offset_lag:int64 is_future:bool]]]
    """

    def __init__(self, topics: Sequence[tuple[str, Sequence[int]]]) -> None:
        super().__init__([(topic, list(numbers), NO_TAGS) for topic, numbers in topics])


class DescribeProducersRequest(FlexibleRequest):
    """Asks who writes to partitions, and who has a transaction open there."""

    API_KEY, VERSION = 61, 0
    ASKS = "topics[topic:text partitions:int32s]"
    ANSWER = """
        throttle_time_ms:int32
        topics[topic:text
            partitions[partition:int32 error_code:int16 error_message:text
                producers[producer_id:int64 producer_epoch:int32 last_sequence:int32 last_timestamp:int64
                    coordinator_epoch:int32 transaction_start:int64]]]
    """

    def __init__(self, topics: dict[str, list[int]]) -> None:
        super().__init__([(*topic, NO_TAGS) for topic in topics.items()])


class WriteTxnMarkersRequest(FlexibleRequest):
    """Ends a producer's transaction in one partition.

    The producer's epoch is that of whoever writes the marker; a partition refuses epochs lower than it knows.
    """

    API_KEY, VERSION = 27, 1
    ASKS = """
        markers[producer_id:int64 producer_epoch:int16 commit:bool topics[topic:text partitions:int32s]
            coordinator_epoch:int32]
    """
    ANSWER = "markers[producer_id:int64 topics[topic:text partitions[partition:int32 error_code:int16]]]"

    def __init__(
        self, producer_id: int, epoch: int, partition: tuple[str, int], coordinator_epoch: int, *, commit: bool
    ) -> None:
        topic, number = partition
        where = [(topic, [number], NO_TAGS)]
        super().__init__([(producer_id, epoch, commit, where, coordinator_epoch, NO_TAGS)])
