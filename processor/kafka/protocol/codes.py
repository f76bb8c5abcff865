"""Names the error codes of Kafka's protocol, and says in one table which reaction each leads to.

What is asked decides, too: a topic that may not be read is waited for, one that may not be written to stops the
worker. A code that has no row is asked again by a fetch, and rebuilds a slot that writes.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, NamedTuple

from processor.kafka.protocol.internals import for_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class KafkaCode(IntEnum):
    """The error codes of Kafka's protocol that we tell apart."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    FENCED_INSTANCE_ID = 82
    INVALID_RECORD = 87
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105


class Operation(IntEnum):
    """What a principal may do with something: numbers of bits in ``authorized_operations`` (KIP-430)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    IDEMPOTENT_WRITE = 12


NOT_TOLD = -(2**31)
"""The bits where a broker does not say what is allowed."""


def lacking(bits: int, wanted: Iterable[Operation]) -> list[Operation]:
    """Return what is not allowed of what is wanted; nothing where the broker does not say."""
    return [] if bits == NOT_TOLD else [each for each in wanted if not bits >> each & 1]


def error_name(code: int) -> str:
    """Return Kafka's name of an error code; aiokafka knows no name for some (trap 14)."""
    try:
        return KafkaCode(code).name
    except ValueError:
        return f"{for_code(code).__name__} ({code})"


class Reaction(Enum):
    """What follows from a code."""

    GO_ON = "it changes nothing"
    WAIT = "nothing was begun: ask again in a moment"
    RETRY = "ask again, maybe another broker, and say it"
    OUT_OF_RANGE = "the offset is not there: who reads decides"
    REOPEN = "the topic may be another one by now: the slot is opened again, which looks"
    REBUILD = "abort, restore, go on: the outcome is unknown, or some right may come back"
    TOO_LARGE = "abort and go on with smaller batches"
    TIMEOUT = "the time-out of transactions does not fit the broker's limit"
    FENCED = "another owner has the slot: leave all to it"
    STOP = "stop the worker, and say what to do"


class Request(Enum):
    """What a broker was asked."""

    FETCH = "fetch"
    PRODUCE = "produce"
    TRANSACTION = "transaction"
    GROUP_OFFSETS = "group offsets"


class _Row(NamedTuple):
    reaction: Reaction
    hint: str = ""
    """What to do, for operators."""


_FENCED: Mapping[int, _Row] = dict.fromkeys(
    (KafkaCode.INVALID_PRODUCER_EPOCH, KafkaCode.PRODUCER_FENCED, KafkaCode.INVALID_PRODUCER_ID_MAPPING),
    _Row(Reaction.FENCED),
)
_TABLE: Mapping[Request, Mapping[int, _Row]] = {
    Request.FETCH: {
        KafkaCode.OFFSET_NOT_AVAILABLE: _Row(Reaction.WAIT),
        KafkaCode.REPLICA_NOT_AVAILABLE: _Row(Reaction.WAIT),
        KafkaCode.OFFSET_OUT_OF_RANGE: _Row(Reaction.OUT_OF_RANGE),
        KafkaCode.UNKNOWN_TOPIC_OR_PARTITION: _Row(Reaction.REOPEN),
        KafkaCode.UNKNOWN_TOPIC_ID: _Row(Reaction.REOPEN),
        KafkaCode.INCONSISTENT_TOPIC_ID: _Row(Reaction.REOPEN),
        KafkaCode.TOPIC_AUTHORIZATION_FAILED: _Row(Reaction.REBUILD, "grant this principal READ on it"),
    },
    Request.PRODUCE: {
        **_FENCED,
        KafkaCode.MESSAGE_TOO_LARGE: _Row(Reaction.TOO_LARGE),
        KafkaCode.RECORD_LIST_TOO_LARGE: _Row(Reaction.TOO_LARGE),
        KafkaCode.INVALID_RECORD: _Row(
            Reaction.STOP, "the topic does not take such records (a compacted topic wants keys)"
        ),
        KafkaCode.INVALID_TIMESTAMP: _Row(
            Reaction.STOP,
            "set the topic's message.timestamp.before.max.ms and after.max.ms as `seqmark topics` does "
            "(before Kafka 3.6 both are message.timestamp.difference.max.ms)",
        ),
        KafkaCode.CORRUPT_MESSAGE: _Row(Reaction.STOP, "the broker finds the batch corrupt"),
        KafkaCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: _Row(Reaction.STOP, "the topic's message format is too old"),
        KafkaCode.UNSUPPORTED_COMPRESSION_TYPE: _Row(Reaction.STOP, "the broker does not know the codec"),
        KafkaCode.TOPIC_AUTHORIZATION_FAILED: _Row(Reaction.STOP, "grant this principal WRITE on it"),
    },
    Request.TRANSACTION: {
        **_FENCED,
        KafkaCode.COORDINATOR_LOAD_IN_PROGRESS: _Row(Reaction.WAIT),
        KafkaCode.COORDINATOR_NOT_AVAILABLE: _Row(Reaction.WAIT),
        KafkaCode.NOT_COORDINATOR: _Row(Reaction.WAIT),
        KafkaCode.CONCURRENT_TRANSACTIONS: _Row(Reaction.WAIT),
        KafkaCode.INVALID_TRANSACTION_TIMEOUT: _Row(Reaction.TIMEOUT),
        KafkaCode.TOPIC_AUTHORIZATION_FAILED: _Row(
            Reaction.STOP, "grant this principal READ on the source, and WRITE on what is written to"
        ),
        KafkaCode.GROUP_AUTHORIZATION_FAILED: _Row(
            Reaction.STOP, "grant this principal READ on the group, which is worker.application_id"
        ),
        KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _Row(
            Reaction.STOP,
            "grant this principal WRITE and DESCRIBE on transactional ids with the prefix "
            "worker.application_id",
        ),
        KafkaCode.CLUSTER_AUTHORIZATION_FAILED: _Row(
            Reaction.STOP, "grant this principal IDEMPOTENT_WRITE on the cluster"
        ),
    },
    Request.GROUP_OFFSETS: {
        KafkaCode.ILLEGAL_GENERATION: _Row(Reaction.FENCED),
        KafkaCode.UNKNOWN_MEMBER_ID: _Row(Reaction.FENCED),
        # In the last phase of a rebalance a broker takes no commits. The group's offset then lags what the
        # changelog says, and the changelog is the authority.
        KafkaCode.REBALANCE_IN_PROGRESS: _Row(Reaction.GO_ON),
    },
}


def reaction(asked: Request, code: int) -> Reaction:
    """Return what follows from a code other than `KafkaCode.NONE`."""
    return _row(asked, code).reaction


def hint(asked: Request, code: int) -> str:
    """Return what an operator has to do about a code; nothing where the table does not say."""
    return _row(asked, code).hint


def _row(asked: Request, code: int) -> _Row:
    return _TABLE[asked].get(code) or _Row(Reaction.RETRY if asked is Request.FETCH else Reaction.REBUILD)
