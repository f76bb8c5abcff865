"""Serves one partition's log from memory, as a leader answers over a `Client`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from processor.kafka.client import KafkaCode, TopicPartition
from processor.kafka.offsets import EARLIEST
from processor.kafka.protocol.internals import FetchRequest
from processor.kafka.protocol.requests import ListOffsetsRequest, LocalStartRequest
from tests.support.wire.batches import HEADER

if TYPE_CHECKING:
    from collections.abc import Sequence

LEADER = 1
FETCH_BATCHES = 2
"""So many batches an answer, so that there is more than one."""


class LogClient:
    """Connections to the leader of every partition; all hold the same batches.

    Args:
        batches: With rising offsets.
        start: The first offset that retention has left.
        end: The last stable offset and the end; None: behind the last batch.
        remote: The offset before which all is in remote storage.
        late: How many answers of what is there come before the storage's own, and say nothing.
    """

    def __init__(
        self,
        batches: Sequence[bytes],
        *,
        start: int = 0,
        end: int | None = None,
        remote: int = 0,
        late: int = 0,
    ) -> None:
        self._remote, self._late = remote, late
        self.ids: dict[str, bytes] = {}
        self.start = start
        self._batches = [(_after(batch), batch) for batch in batches]
        self._end = self._batches[-1][0] if end is None else end
        self.fetched: list[int] = []
        self.trimmed_to: int | None = None
        """Where retention comes to after the first look at the log's bounds."""

    def leader(self, tp: TopicPartition) -> int:
        """Return the one leader."""
        del tp
        return LEADER

    def epoch(self, tp: TopicPartition) -> int:
        """Return that none is known."""
        del tp
        return -1

    async def request(self, node: int, request: Any, *, timeout_s: float, coordination: bool = False) -> Any:
        """Answer a fetch, or where the log begins and ends."""
        del node, timeout_s, coordination
        answer: Any
        if isinstance(request, ListOffsetsRequest):
            topics: Any = request._fields[2]
            ((topic, ((partition, _, when, _),), _),) = topics
            offset = self.start if when == EARLIEST else self._end
            offset = self._remote if isinstance(request, LocalStartRequest) else offset
            return SimpleNamespace(topics=[(topic, [(partition, KafkaCode.NONE, -1, offset, -1, {})], {})])
        assert isinstance(request, FetchRequest)
        ((topic, ((partition, asked, *_),)),) = request._topics
        self.fetched.append(asked)
        start = self.start if self.trimmed_to is None else self.trimmed_to
        outside = not start <= asked <= self._end
        code = KafkaCode.OFFSET_OUT_OF_RANGE if outside else KafkaCode.NONE
        left = [batch for after, batch in self._batches if after > asked]
        if asked < self._remote and self._late:
            self._late, left = self._late - 1, []
        answer = partition, code, self._end, self._end, self.start, [], b"".join(left[:FETCH_BATCHES])
        return SimpleNamespace(topics=[(topic, [answer])], API_VERSION=5)


def _after(batch: bytes) -> int:
    fields = HEADER.unpack_from(batch)
    return int(fields[0]) + int(fields[6]) + 1
