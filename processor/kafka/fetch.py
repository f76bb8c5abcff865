"""Fetches what has arrived in partitions since positions.

One request at a time to each leader, read_committed; the answer's bytes are not looked into. Positions
are the caller's: nothing is fetched before it says from where, nothing is reset silently (trap 2).

Topics are asked for by the ids that the client knows them by, where brokers take that (3.1 and later): records
of a topic that was made again never come at a position of the one before it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from processor.errors import RebuildError
from processor.kafka.client import Client, KafkaCode, KafkaError, TopicPartition, by_topic, error_name
from processor.kafka.protocol.codes import Reaction, Request, hint, reaction
from processor.kafka.protocol.internals import FetchRequest, IncompatibleBrokerVersion
from processor.kafka.protocol.requests import FetchByIdRequest, LocalStartRequest
from processor.wire.decode import Chunk
from schemas.changelog.topic_ids import UNKNOWN_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger(__name__)

PARTITION_BYTES = 1024 * 1024
"""Per partition and request: about 7,000 records of 150 B uncompressed, 20,000 and more compressed. Kafka
sends a first batch that is larger all the same (KIP-74)."""
FETCH_BYTES = 8 * 1024 * 1024
WAIT_MS = 500
READ_COMMITTED = 1
DEADLINE_S = 10.0
"""What a leader waits for, 8 MiB at 1 MiB/s, and a second and a half for everything else."""
LATE_S = 2.0
"""Well beyond what a leader waits for: after it, another broker is asked whether it still leads."""
BACKOFF_FIRST_S = 0.1
BACKOFF_LAST_S = 1.0
CALM_S = 5.0
"""After so long without trouble the next one begins with a short pause again."""

_OTHER_ID = {KafkaCode.UNKNOWN_TOPIC_ID, KafkaCode.INCONSISTENT_TOPIC_ID}


class OutOfRangeError(Exception):
    """A position lies outside the log: retention has passed it, or the log was cut."""

    def __init__(self, partition: TopicPartition, position: int) -> None:
        self.partition = partition
        self.position = position
        super().__init__(f"offset {position} of {partition.topic}:{partition.partition} is gone")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a leader has said."""

    chunks: list[Chunk]
    astray: set[TopicPartition]
    """Partitions that it does not lead, or of which nothing is known."""
    error: OutOfRangeError | RebuildError | None = None
    """For the caller, in place of chunks."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that is on its way to a leader."""

    answer: asyncio.Task[_Answer]
    partitions: list[TopicPartition]
    since: float

    @property
    def late(self) -> bool:
        """Whether it takes longer than a healthy leader does."""
        return not self.answer.done() and time.monotonic() - self.since > LATE_S


class Fetcher:
    """Fetches over a `Client` of its own, because a waiting fetch blocks its connection.

    Each leader has a request of its own on its way, from one call to the next where need be: one that says
    nothing, or a partition that has no leader, holds up nobody else. Who leads is asked beside that.

    Args:
        client: Its own.
        seen: Told of partition, last stable offset and end of whatever is answered.
        owed: Told of the partitions whose leaders are asked, or looked for.
        heard: Told of those whose leaders have answered, if only that a quota holds them back.
    """

    def __init__(
        self,
        client: Client,
        seen: Callable[[TopicPartition, int, int], None] = lambda *_: None,
        owed: Callable[[Iterable[TopicPartition]], None] = lambda _: None,
        heard: Callable[[Iterable[TopicPartition]], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._seen, self._owed, self._heard = seen, owed, heard
        self._turn = 0
        self._by_name = False
        self._all_local = False
        self._asked: dict[int, _Asked] = {}
        self._astray: set[TopicPartition] = set()
        self._looking: asyncio.Task[None] | None = None
        self._pause = BACKOFF_FIRST_S
        self._looked_at = -CALM_S

    async def fetch(
        self, positions: Mapping[TopicPartition, int], most_bytes: int | None = None
    ) -> list[Chunk]:
        """Return one chunk per partition that has something; waits up to half a second for the first.

        A chunk has at most ``most_bytes`` (None: what the fetcher was made with), or one batch that is larger.

        A chunk may hold only control records or aborted batches. Where a leader had nothing for any
        partition, chunks without bytes tell so: between the position and the last stable offset there is
        nothing (compaction can leave a log like that). What lies in remote storage is answered likewise where
        that takes too long, and so it is asked for again. An empty list is a normal answer.

        Raises:
            OutOfRangeError: A position lies outside the log; what else its leader sent is fetched again later.
            RebuildError: The topic is not there.
        """
        self._ask_leaders(positions, most_bytes)
        waited: set[asyncio.Task[Any]] = {asked.answer for asked in self._asked.values()}
        if self._looking is not None:
            waited.add(self._looking)
        if not waited:  # nothing is wanted
            await asyncio.sleep(BACKOFF_FIRST_S)
            return []
        await asyncio.wait(waited, timeout=LATE_S, return_when=asyncio.FIRST_COMPLETED)
        chunks: dict[TopicPartition, Chunk] = {}
        for node in [node for node, asked in self._asked.items() if asked.answer.done()]:
            answer = self._asked.pop(node).answer.result()
            error = answer.error
            if isinstance(error, OutOfRangeError) and positions.get(error.partition) != error.position:
                continue  # another leader has answered meanwhile: it is old
            if error is not None:
                raise error
            self._astray |= answer.astray
            for chunk in answer.chunks:
                tp = TopicPartition(chunk.topic, chunk.partition)
                # Asked for at another position, or of two leaders: it is old.
                if positions.get(tp) == chunk.position and tp not in chunks:
                    chunks[tp] = chunk
        return list(chunks.values())

    def close(self) -> None:
        """Cancel what is on its way; without this it ends by itself, and logs how."""
        for asked in self._asked.values():
            asked.answer.cancel()
        self._asked.clear()
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _ask_leaders(self, positions: Mapping[TopicPartition, int], most_bytes: int | None) -> None:
        """Send a request to every leader that has none on its way, and look for leaders where need be."""
        if self._looking is not None and self._looking.done():
            self._looking = None
            self._astray.clear()
        for node, asked in list(self._asked.items()):
            if asked.late and any(self._client.leader(tp) != node for tp in asked.partitions):
                asked.answer.cancel()
                del self._asked[node]
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in positions:
            leader = self._client.leader(tp)
            if leader is None:
                self._astray.add(tp)
            elif tp not in self._astray and leader not in self._asked:
                by_node[leader].append(tp)
        self._turn += 1
        self._owed([*(tp for tp in positions if tp in self._astray), *chain.from_iterable(by_node.values())])
        for leader, partitions in by_node.items():
            # The order in the request is the order in which partitions fill the answer: take turns.
            shift = self._turn % len(partitions)
            wanted = {tp: positions[tp] for tp in partitions[shift:] + partitions[:shift]}
            ask = asyncio.create_task(self._ask(leader, wanted, most_bytes), name=f"fetch from {leader}")
            self._asked[leader] = _Asked(ask, partitions, time.monotonic())
        if self._looking is None and (self._astray or any(asked.late for asked in self._asked.values())):
            self._looking = asyncio.create_task(self._look(), name="look for leaders")

    async def _look(self) -> None:
        """Read the metadata again; waits longer each time in a row."""
        calm = time.monotonic() - self._looked_at > CALM_S
        self._pause = BACKOFF_FIRST_S if calm else min(self._pause * 2, BACKOFF_LAST_S)
        await self._client.refresh()
        await asyncio.sleep(self._pause)
        self._looked_at = time.monotonic()

    async def _ask(self, node: int, wanted: Mapping[TopicPartition, int], most_bytes: int | None) -> _Answer:
        """Ask one leader; never raises, so that it may be left alone."""
        most = most_bytes or PARTITION_BYTES
        topics = by_topic((tp, (tp.partition, position, most)) for tp, position in wanted.items())
        try:
            found, version = await self._answer(node, topics)
        except KafkaError as error:
            log.warning("fetch from broker %s failed: %r", node, error)
            return _Answer([], set(wanted))
        if not found:
            self._heard(wanted)  # a broker that holds the client back by a quota names no topic
        chunks, astray = [], set()
        for topic, parts in found:
            for partition, code, high, stable, *rest in parts:
                tp = TopicPartition(topic, partition)
                if code == KafkaCode.NONE:
                    self._heard([tp])
                    self._seen(tp, stable, high)
                    chunks.append(self._chunk(tp, wanted[tp], stable, rest, version))
                elif code in _OTHER_ID and topic not in self._client.lost:
                    astray.add(tp)  # that is looked at; it may be a broker that has not heard of a topic yet
                elif (failure := _failure(tp, code, wanted[tp])) is not None:
                    return _Answer([], set(), failure)
                else:
                    astray.add(tp)
        full = [chunk for chunk in chunks if chunk.data]
        # Next to others an empty answer only says that the request's limit was reached.
        return _Answer(full or await self._proved(node, chunks), astray)

    async def _proved(self, node: int, chunks: list[Chunk]) -> list[Chunk]:
        """Return the empty chunks behind which there is nothing, and not only nothing yet."""
        gaps = [chunk for chunk in chunks if chunk.position < chunk.last_stable_offset]
        if not gaps or self._all_local:
            return chunks
        unsure = (TopicPartition(chunk.topic, chunk.partition) for chunk in gaps)
        request = LocalStartRequest(by_topic((tp, (tp.partition, self._client.epoch(tp))) for tp in unsure))
        local: dict[tuple[str, int], int] = {}
        try:
            answer = await self._client.request(node, request, timeout_s=DEADLINE_S)
        except IncompatibleBrokerVersion:
            self._all_local = True  # a broker of before 3.6, which has no remote storage
            return chunks
        except KafkaError as error:
            log.warning("broker %s does not say where its own log begins: %r", node, error)
        else:
            local = {
                (topic, number): offset
                for topic, rows, _ in answer.topics
                for number, code, _, offset, *_ in rows
                if code == KafkaCode.NONE
            }
        unproved = [
            chunk for chunk in gaps if chunk.position < local.get((chunk.topic, chunk.partition), sys.maxsize)
        ]
        return [chunk for chunk in chunks if chunk not in unproved] if unproved else chunks

    async def _answer(
        self, node: int, topics: list[tuple[str, list[tuple[int, int, int]]]]
    ) -> tuple[list[tuple[str, list[Any]]], int]:
        """Ask one leader; returns its answer by topic, and the version whose form that has."""
        head = WAIT_MS, 1, FETCH_BYTES, READ_COMMITTED
        ids = {topic: self._client.ids.get(topic, UNKNOWN_ID) for topic, _ in topics}
        if not self._by_name and UNKNOWN_ID not in ids.values():
            request = FetchByIdRequest(*head, self._with_epochs(topics), ids)
            try:
                response = await self._client.request(node, request, timeout_s=DEADLINE_S)
            except IncompatibleBrokerVersion:
                self._by_name = True  # a broker of before 3.1
            else:
                if response.error_code:
                    raise KafkaError(f"fetch: {error_name(response.error_code)}")
                return request.by_name(response), 11
        response = await self._client.request(node, FetchRequest(*head, topics), timeout_s=DEADLINE_S)
        return response.topics, response.API_VERSION

    def _with_epochs(
        self, topics: list[tuple[str, list[tuple[int, int, int]]]]
    ) -> list[tuple[str, list[tuple[int, int, int, int]]]]:
        epoch = self._client.epoch
        return [
            (topic, [(number, epoch(TopicPartition(topic, number)), at, most) for number, at, most in rows])
            for topic, rows in topics
        ]

    @staticmethod
    def _chunk(tp: TopicPartition, position: int, stable: int, rest: list[object], version: int) -> Chunk:
        # After the last stable offset: v4 aborted, bytes; v5 log start, aborted, bytes; v11 log start,
        # aborted, preferred replica, bytes.
        aborted = rest[0] if version == 4 else rest[1]
        data = rest[-1] or b""
        return Chunk(tp.topic, tp.partition, position, data, aborted or (), stable)  # type: ignore[arg-type]  # untyped protocol


def _failure(tp: TopicPartition, code: int, position: int) -> OutOfRangeError | RebuildError | None:
    """Return the error that the caller has to handle; None: ask again, maybe another broker."""
    match reaction(Request.FETCH, code):
        case Reaction.OUT_OF_RANGE:
            return OutOfRangeError(tp, position)
        case Reaction.REOPEN:
            return RebuildError("source", f"{tp.topic}:{tp.partition}: {error_name(code)}")
        case Reaction.REBUILD:
            return RebuildError("topics", f"cannot read {tp.topic}: {hint(Request.FETCH, code)}")
        case Reaction.RETRY:
            log.warning("fetch of %s:%s at %s failed: %s", tp.topic, tp.partition, position, error_name(code))
        case _:
            pass  # it is there in a moment
    return None
