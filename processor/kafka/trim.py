"""Trims expired records from the head of a partition (DeleteRecords).

The partition's leader does so, and only moves the log's start: whoever reads from before it is told so, and
everything behind it stays as it is. It needs DELETE on the topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from processor.errors import RebuildError
from processor.kafka.client import KafkaCode, KafkaError, error_name
from processor.kafka.protocol.internals import DeleteRecordsRequest

if TYPE_CHECKING:
    from processor.kafka.client import Client, TopicPartition

log = logging.getLogger(__name__)

EVERY_S = 1.0
"""Between two rounds: what has become free meanwhile is deleted with one request per partition."""
TIMEOUT_MS = 10_000
"""How long the leader waits for its followers; deleting is a matter of a file's head and takes it no time."""


async def delete_before(client: Client, tp: TopicPartition, offset: int) -> None:
    """Delete the records of a partition below ``offset``; doing so again does no harm.

    Raises:
        RebuildError: It was refused, or there is no leader; says why. Nothing is lost by trying later.
        KafkaError: No answer: whether it was done is not known.
    """
    leader = client.leader(tp)
    if leader is None:
        raise RebuildError("trim", f"{tp.topic}:{tp.partition} has no leader")
    request = DeleteRecordsRequest([(tp.topic, [(tp.partition, offset)])], TIMEOUT_MS)
    response = await client.request(leader, request)
    codes = [answer[2] for topic in response.topics for answer in topic[1]]
    # What lies below the log's start is deleted already.
    for code in set(codes) - {0, KafkaCode.OFFSET_OUT_OF_RANGE}:
        hint = "; grant this principal DELETE on it" if code == KafkaCode.TOPIC_AUTHORIZATION_FAILED else ""
        message = f"{tp.topic}:{tp.partition}: DeleteRecords was refused: {error_name(code)}{hint}"
        raise RebuildError("trim", message)


class Trimmer:
    """Trims partitions in a task of its own: nothing waits for it.

    What fails is said and left: the next round, or the next worker, deletes more.
    """

    def __init__(self) -> None:
        self._wanted: dict[TopicPartition, int] = {}
        self._task: asyncio.Task[None] | None = None

    def want(self, client: Client, tp: TopicPartition, offset: int) -> None:
        """Have the records below ``offset`` deleted soon."""
        self._wanted[tp] = offset
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(client), name=f"trim {tp.topic}")

    async def _run(self, client: Client) -> None:
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            for tp, offset in wanted.items():
                try:
                    await delete_before(client, tp, offset)
                except (RebuildError, KafkaError, OSError) as error:
                    log.warning("what is expired stays in %s:%s for now: %s", tp.topic, tp.partition, error)
            await asyncio.sleep(EVERY_S)

    async def close(self) -> None:
        """Delete nothing more."""
        self._wanted = {}
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task
            self._task = None
