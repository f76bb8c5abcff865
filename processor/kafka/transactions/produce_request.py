"""Writes whole batches into the bytes of a produce request, and names the reaction to a batch that is refused.

aiokafka puts a request together level by level: a batch is copied into its partition, with that into the list
of partitions, into its topic, the list of topics, the request; six times before the first byte is sent. Here
all levels are written at once, in the form that versions 3 to 8 have in common::

    transactional id str | acks i16 | timeout i32 ms | topics: count i32
        topic str | partitions: count i32
            partition i32 | size i32 | record batch

A str is its length as i16 and UTF-8; none has length -1.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from processor.errors import FencedError, RebuildError, StopError
from processor.kafka.protocol.codes import Reaction, Request, error_name, hint, reaction
from processor.kafka.protocol.connections import PartedRequest
from processor.kafka.protocol.internals import IncompatibleBrokerVersion

if TYPE_CHECKING:
    from processor.kafka.client import TopicPartition
    from processor.wire.encode import EncodedBatch

_FIRST_VERSION = 3
"""The first that has a transactional id and takes batches of version 2."""


class BatchesRequest(PartedRequest):
    """A produce request that copies batches once.

    Its arguments are those of aiokafka's, but a batch is a sequence of its parts (bytes-like).
    """

    @override
    def build(self, request_struct_class: type[Any]) -> Any:
        if request_struct_class.API_VERSION < _FIRST_VERSION:
            raise IncompatibleBrokerVersion(f"brokers need ProduceRequest v{_FIRST_VERSION} or later")
        # Its own content is not looked at but by logs.
        built = request_struct_class(self._transactional_id, self._required_acks, self._timeout, [])
        vars(built)["encode"] = lambda: b"".join(self.parts())
        return built

    @override
    def parts(self) -> list[bytes | memoryview]:
        head = struct.pack(">hii", self._required_acks, self._timeout, len(self._topics))
        pieces: list[bytes | memoryview] = [_text(self._transactional_id), head]
        for topic, partitions in self._topics:
            pieces += [_text(topic), struct.pack(">i", len(partitions))]
            for number, parts in partitions:
                pieces += [struct.pack(">ii", number, sum(map(len, parts))), *parts]
        return pieces


def _text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


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
    match reaction(Request.PRODUCE, code):
        case Reaction.FENCED:
            return FencedError(where)
        case Reaction.TOO_LARGE:
            return RebuildError("too_large", where)
        case Reaction.STOP:
            return StopError(f"{where}: {hint(Request.PRODUCE, code)}")
        case _:
            return RebuildError("produce", where)
