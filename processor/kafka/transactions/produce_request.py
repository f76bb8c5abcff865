"""Writes whole batches into the bytes of a produce request.

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

from processor.kafka.protocol.internals import IncompatibleBrokerVersion, ProduceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Parts = Sequence[bytes | bytearray | memoryview]

_FIRST_VERSION = 3
"""The first that has a transactional id and takes batches of version 2."""


class BatchesRequest(ProduceRequest):  # type: ignore[misc]  # aiokafka is not typed
    """A produce request that copies batches once: by topic, partitions with a batch each, maybe in parts."""

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        topics: Sequence[tuple[str, Sequence[tuple[int, Parts]]]],
    ) -> None:
        super().__init__(transactional_id, acks, timeout_ms, topics)

    @override
    def build(self, request_struct_class: type[Any]) -> Any:
        if request_struct_class.API_VERSION < _FIRST_VERSION:
            raise IncompatibleBrokerVersion(f"brokers need ProduceRequest v{_FIRST_VERSION} or later")
        # Its own content is not looked at but by logs.
        built = request_struct_class(self._transactional_id, self._required_acks, self._timeout, [])
        vars(built)["encode"] = self._encoded
        return built

    def _encoded(self) -> bytes:
        return b"".join(self._pieces())

    def _pieces(self) -> Iterator[bytes | bytearray | memoryview]:
        yield _text(self._transactional_id)
        yield struct.pack(">hii", self._required_acks, self._timeout, len(self._topics))
        for topic, partitions in self._topics:
            yield _text(topic)
            yield struct.pack(">i", len(partitions))
            for number, parts in partitions:
                yield struct.pack(">ii", number, sum(map(len, parts)))
                yield from parts


def _text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded
