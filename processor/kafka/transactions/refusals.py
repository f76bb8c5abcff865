"""Names the reaction to a batch that a broker refused, or put where it should not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import FencedError, RebuildError, StopError
from processor.kafka.client import KafkaCode, error_name
from processor.kafka.transactions.coordinator import FENCED

if TYPE_CHECKING:
    from processor.kafka.client import TopicPartition
    from processor.wire.encode import EncodedBatch

_TOO_LARGE = {KafkaCode.MESSAGE_TOO_LARGE, KafkaCode.RECORD_LIST_TOO_LARGE}
_REFUSED = {
    KafkaCode.INVALID_RECORD: "the topic does not take such records (a compacted topic wants keys)",
    KafkaCode.INVALID_TIMESTAMP: "set the topic's message.timestamp.before.max.ms and after.max.ms "
    "as `seqmark topics` does",
    KafkaCode.CORRUPT_MESSAGE: "the broker finds the batch corrupt",
    KafkaCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic's message format is too old",
    KafkaCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not know the codec",
    KafkaCode.TOPIC_AUTHORIZATION_FAILED: "grant this principal WRITE on it",
}


def went_back(tp: TopicPartition, offset: int, known: int) -> str:
    """Say that a partition took a batch below what it had."""
    return (
        f"{tp.topic}:{tp.partition} has taken a batch at offset {offset}, but it was written up to {known} "
        "before: the topic was deleted and made anew, or lost records. What is in this transaction does not "
        "count; see 'A source made anew' in docs/operations.md."
    )


def refusal(tp: TopicPartition, batch: EncodedBatch, code: int) -> Exception:
    """Name the reaction to a refused batch."""
    where = (
        f"{tp.topic}:{tp.partition} refused a batch of {batch.count} records, {batch.size:,} bytes "
        f"(source offsets {batch.first_offset} to {batch.last_offset}): {error_name(code)}"
    )
    if code in FENCED:
        return FencedError(where)
    if code in _TOO_LARGE:
        return RebuildError("too_large", where)
    if code in _REFUSED:
        return StopError(f"{where}: {_REFUSED[KafkaCode(code)]}")
    return RebuildError("produce", where)
