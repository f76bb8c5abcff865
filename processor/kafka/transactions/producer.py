"""Brings whole batches, offsets and a transaction to the broker, or says that they did not get there.

A `Producer` serves one slot. It knows one answer to every error inside a transaction: it is broken from
then on, every later call raises, and its owner drops it, makes a new one, fences and restores. Nothing is
retried inside a transaction but what has not been tried (traps 4 and 5), so no outcome is ever guessed.

Batches of one partition are sent in order, several requests in flight on one connection; a refused batch
makes the broker refuse those behind it (their sequence has a gap), so order survives errors too.

After a commit its markers are looked for in all partitions before anything else is written (`markers`).
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections import defaultdict, deque
from itertools import chain
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from processor.errors import FencedError, RebuildError, StopError
from processor.kafka.client import Client, KafkaCode, KafkaError, TopicPartition, by_topic
from processor.kafka.protocol.codes import Reaction, Request, error_name, hint, reaction
from processor.kafka.protocol.connections import PartedRequest
from processor.kafka.protocol.internals import IncompatibleBrokerVersion
from processor.kafka.transactions.broker_time import Beginning
from processor.kafka.transactions.coordinator import Coordinator, TransactionOutcome
from processor.kafka.transactions.markers import End, settle, take

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from processor.wire.encode import EncodedBatch

# aiokafka puts a request together level by level: a batch is copied into its partition, with that into the
# list of partitions, into its topic, the list of topics, the request; six times before the first byte is
# sent. Here all levels are written at once, in the form that versions 3 to 8 have in common::
#
#     transactional id str | acks i16 | timeout i32 ms | topics: count i32
#         topic str | partitions: count i32
#             partition i32 | size i32 | record batch
#
# A str is its length as i16 and UTF-8; none has length -1.

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


log = logging.getLogger(__name__)

IN_FLIGHT = 4
"""Requests on the way to one broker; an idempotent producer may have 5 (KIP-98)."""
PENDING_BYTES = 8 * 1024 * 1024
"""`send` waits while more than this is queued: bounds memory, keeps chunks flowing."""
REQUEST_BYTES = 4 * 1024 * 1024
"""A request is closed once it holds this much (the broker's socket.request.max.bytes is 100 MiB)."""
ACKS_ALL = -1
SEQUENCES = 2**31
LATE_S = 2.0
"""Without an answer for so long, whoever was asked may not lead any more. A healthy leader answers within
milliseconds, or waits for a follower that is not healthy."""
CLOSE_S = 1.0
"""How long closing waits to see the last commit in all partitions; if it is cut off, the next owner looks."""


class Producer:
    """Sends batches of one slot, with a transactional id or, for at_least_once, without.

    It closes its client. The deadline is for each step, and below the transaction's time-out, after which the
    coordinator aborts by itself. ``failed`` is called when the end of a transaction that is committed cannot be
    seen: nobody may be waiting.
    """

    def __init__(
        self,
        client: Client,
        transactional_id: str | None,
        transaction_timeout_ms: int = 60_000,
        deadline_s: float = 30.0,
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._failed = failed
        self._id = transactional_id
        self.transactional = transactional_id is not None
        self._deadline_s = deadline_s
        self._coordinator = Coordinator(client, transactional_id, transaction_timeout_ms, deadline_s)
        self._sequence: dict[TopicPartition, int] = defaultdict(int)
        self._queue: dict[TopicPartition, deque[EncodedBatch]] = {}
        self._added: set[TopicPartition] = set()
        self._expected: set[TopicPartition] = set()
        self._group: str | None = None
        self._group_added = False
        self._first: dict[TopicPartition, int] = {}
        self._acknowledged: dict[TopicPartition, int] = {}
        self._landed: dict[TopicPartition, int] = {}
        self._known: dict[TopicPartition, int] = {}
        self._pending_bytes = 0
        self._unsent = 0
        self._in_flight: dict[int, list[list[TopicPartition]]] = defaultdict(list)
        self._failure: Exception | None = None
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pump_task: asyncio.Task[None] | None = None
        self._in_transaction = False
        self._begun_between: tuple[float, float] | None = None
        self._unanswered = False
        self._ending: asyncio.Task[None] | None = None

    async def fence(self, written: Iterable[TopicPartition] = ()) -> None:
        """Take the transactional id: ends the previous owner's open transaction and its right to write.

        Args:
            written: All partitions that its owners write to; nothing of theirs is left open there.

        Raises:
            RebuildError: Not done within the deadline.
            TransactionTimeoutError: The time-out is above the broker's.
        """
        await take(self._client, self._coordinator, list(written), self._deadline_s)
        self._pump_task = asyncio.create_task(self._pump(), name=f"produce {self._id}")

    def begin(self, group_id: str | None = None) -> None:
        """Begin a transaction; the broker hears of it with the first batch.

        Args:
            group_id: Whose offsets will be part of it: announced early, beside the work, so that the commit
                does not wait for that as well. None: announced with the offsets.
        """
        self._check()
        self._added.clear()
        self._expected.clear()
        self._group, self._group_added = group_id, False
        self._in_transaction, self._begun_between = True, None

    async def send(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        """Queue batches; waits while too much is on its way.

        Raises:
            RebuildError, FencedError, StopError: Something sent before has failed.
        """
        self._check()
        tp = TopicPartition(topic, partition)
        queue = self._queue.setdefault(tp, deque())
        for batch in batches:
            queue.append(batch)
            self._pending_bytes += batch.size
            self._unsent += 1
        self._wake.set()
        await self._until(lambda: self._pending_bytes <= PENDING_BYTES, "send")

    def expect(self, partition: TopicPartition) -> None:
        """Say that this transaction will write to a partition: announced along with the next new one."""
        self._expected.add(partition)

    async def flush(self) -> None:
        """Wait until the broker has acknowledged everything.

        Raises:
            RebuildError, FencedError, StopError: Something has not been acknowledged.
        """
        await self._until(lambda: self._unsent == 0, "flush")
        landed, self._landed = self._landed, {}
        for tp, offset in landed.items():
            if offset < self._known.get(tp, 0):
                error = StopError(went_back(tp, offset, self._known[tp]))
                self._fail(error)
                raise error
            self._known[tp] = self._acknowledged[tp]

    def next_offset(self, topic: str, partition: int) -> int:
        """Return the offset after the last acknowledged batch of a partition."""
        return self._acknowledged[TopicPartition(topic, partition)]

    async def add_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int], note: str = "") -> None:
        """Make the group's offsets part of the transaction, each with ``note`` as its metadata.

        Raises:
            RebuildError, FencedError: They are not, or that is not known.
        """
        self._check()
        await self._ended_everywhere()
        if self._group is None or not self._added:
            await self._coordinator.add_group(group_id)
        else:
            await self._until(lambda: self._group_added, "add_offsets")
        await self._coordinator.commit_offsets(group_id, offsets, note)

    async def beginning(self) -> Beginning | None:
        """Return when this transaction began, by the coordinator's clock; None where nobody knows.

        Raises:
            RebuildError: No answer within the deadline.
        """
        if self._begun_between is None:
            return None
        last = await self._coordinator.describe()
        return None if last is None or not last.open else Beginning(last.began_ms, *self._begun_between)

    async def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction.

        Raises:
            RebuildError: The outcome may be unknown: it must be found out by fencing and restoring.
            FencedError: It was aborted: somebody else holds the id.
        """
        if commit:
            self._check()
            if self._unsent:
                # aiokafka's own producer would commit over a failed produce (trap 4).
                raise RebuildError("unflushed", "a transaction must not end before its batches")
        await self._coordinator.end(commit=commit)
        self._in_transaction = False
        first, self._first = self._first, {}
        if commit and first:
            # Beside the work that goes on; the next transaction waits for it.
            self._ending = asyncio.create_task(self._see_end(first), name=f"end {self._id}")

    async def settled(self) -> None:
        """Wait until what was committed last can be read everywhere, or `failed` was told that it cannot."""
        if self._ending is not None:
            await asyncio.wait([self._ending])

    async def close(self) -> None:
        """Stop sending and close the connections; an open transaction is left to be fenced."""
        if self._failure is None and self._ending is not None:
            await asyncio.wait([self._ending], timeout=CLOSE_S)
        self._fail(RebuildError("closed", "the producer is closed"))
        self._coordinator.close()
        tasks = [task for task in (self._pump_task, self._ending, *self._tasks) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def abort(self) -> None:
        """Abort the open transaction, if there is one, so that nobody waits for its time-out.

        Best effort: the next owner's fence does the same. It alone does where a request was not answered: what
        arrives at the broker after this end would belong to no transaction, or to the next one (see `markers`).
        """
        if self._id is None or not self._in_transaction or not self._added:
            return
        # Whoever is at a commit of it still must not go on with that: what it tells would be of no transaction.
        self._fail(RebuildError("aborted", "the transaction is aborted"))
        if self._pump_task is not None:
            # What is announced after the end would open another transaction.
            self._pump_task.cancel()
        try:
            async with asyncio.timeout(5):
                await self._until(lambda: not any(self._in_flight.values()), "abort", check=False)
                if not self._unanswered:
                    await self.end(commit=False)
        except (RebuildError, FencedError, StopError, TimeoutError) as error:
            log.info("transaction of %s is left to be fenced: %s", self._id, error)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        self._wake.set()
        self._moved.set()

    async def _until(self, reached: Any, what: str, *, check: bool = True) -> None:
        deadline = time.monotonic() + self._deadline_s
        while True:
            if check:
                self._check()
            if reached():
                return
            self._moved.clear()
            left = deadline - time.monotonic()
            try:
                async with asyncio.timeout(max(min(left, LATE_S), 0)):
                    await self._moved.wait()
            except TimeoutError:
                if left > LATE_S:
                    await self._look()
                    continue
                failure = RebuildError("timeout", f"{what}: not done in {self._deadline_s} s")
                self._fail(failure)
                raise failure from None

    async def _look(self) -> None:
        """Give up what was sent to a broker that says nothing, if another one leads by now."""
        await self._client.refresh()
        for node, requests in self._in_flight.items():
            for tp in chain.from_iterable(requests):
                leader = self._client.leader(tp)
                if leader is not None and leader != node:
                    where = f"{tp.topic}:{tp.partition} has moved to broker {leader}"
                    self._fail(RebuildError("leader", f"{where}; broker {node} has not answered"))

    async def _pump(self) -> None:
        """Send what is queued: one batch per partition and request, several requests in flight."""
        try:
            while self._failure is None:
                self._wake.clear()
                if any(self._queue.values()):
                    await self._add_partitions()
                    self._dispatch()
                    await self._add_group()
                await self._wake.wait()
        except (RebuildError, FencedError, StopError) as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - a pump that dies silently would hang its owner
            self._fail(RebuildError("produce", f"sending failed: {error!r}"))

    def _dispatch(self) -> None:
        while True:
            request: dict[int, dict[TopicPartition, EncodedBatch]] = defaultdict(dict)
            size: dict[int, int] = defaultdict(int)
            for tp in [tp for tp, queue in self._queue.items() if queue and self._may_send(tp)]:
                node = self._client.leader(tp)
                if node is None:
                    raise RebuildError("leader", f"{tp.topic}:{tp.partition} has no leader")
                if len(self._in_flight[node]) < IN_FLIGHT and size[node] < REQUEST_BYTES:
                    batch = self._queue[tp].popleft()
                    request[node][tp] = batch
                    size[node] += batch.size
            if not request:
                return
            for node, batches in request.items():
                self._in_flight[node].append(list(batches))
                self._spawn(self._produce(node, batches))

    def _may_send(self, tp: TopicPartition) -> bool:
        """Whether the coordinator knows of ``tp``: more may be queued while it is being told of others."""
        return self._id is None or tp in self._added

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _produce(self, node: int, batches: dict[TopicPartition, EncodedBatch]) -> None:
        pieces = []
        for tp, batch in batches.items():
            sequence = self._sequence[tp]
            # Kafka wraps to 0 after 2^31 - 1, aiokafka to a negative number (trap 14).
            self._sequence[tp] = (sequence + batch.count) % SEQUENCES
            identity = (self._coordinator.producer_id, self._coordinator.epoch)
            parts = batch.parts(*identity, sequence, transactional=self.transactional)
            pieces.append((tp, (tp.partition, parts)))
        request = BatchesRequest(self._id, ACKS_ALL, int(self._deadline_s * 1000), by_topic(pieces))
        try:
            response = await self._client.request(node, request, timeout_s=self._deadline_s)
            for topic, parts in response.topics:
                for partition, code, base_offset, *_ in parts:
                    tp = TopicPartition(topic, partition)
                    if code != KafkaCode.NONE:
                        self._fail(refusal(tp, batches[tp], code))
                    elif self.transactional:
                        self._first[tp] = min(base_offset, self._first.get(tp, base_offset))
                    self._landed[tp] = min(base_offset, self._landed.get(tp, base_offset))
                    self._acknowledged[tp] = base_offset + batches[tp].count
        except KafkaError as error:
            self._unanswered = True
            self._fail(RebuildError("produce", f"produce to broker {node}: {error!r}"))
        finally:
            self._in_flight[node].remove(list(batches))
        if self._failure is None:
            self._unsent -= len(batches)
            self._pending_bytes -= sum(batch.size for batch in batches.values())
        self._wake.set()
        self._moved.set()

    async def _add_partitions(self) -> None:
        """Tell the coordinator which partitions the transaction writes to, before anything is sent."""
        if self._id is None:
            return
        new = [tp for tp, queue in self._queue.items() if queue and tp not in self._added]
        if not new:
            return
        new += self._expected.difference(self._added, new)
        await self._ended_everywhere()
        begins, asked_s = not self._added, time.monotonic()
        # Counted as added even if the answer fails: an abort is owed from here on.
        self._added.update(new)
        await self._coordinator.add_partitions(new)
        if begins:
            self._begun_between = asked_s, time.monotonic()

    async def _add_group(self) -> None:
        """Tell the coordinator whose offsets will follow, while the first batches are on their way."""
        if self._id is not None and self._group is not None and not self._group_added:
            await self._coordinator.add_group(self._group)
            self._group_added = True
            self._moved.set()

    async def _see_end(self, first: Mapping[TopicPartition, int]) -> None:
        """See the commit in all partitions, or bring it there: the next end must not decide about it."""
        try:
            end = End(self._coordinator.producer_id, self._coordinator.epoch, TransactionOutcome.COMMITTED)
            await settle(self._client, self._coordinator, first, end, self._deadline_s)
        except Exception as error:  # noqa: BLE001 - as in the pump
            failure = RebuildError("markers", f"the end of a transaction is not seen: {error!r}")
            self._fail(error if isinstance(error, (RebuildError, FencedError, StopError)) else failure)
            self._failed(failure)

    async def _ended_everywhere(self) -> None:
        """Wait until the commit before is seen in all partitions."""
        if self._ending is not None:
            await asyncio.wait([self._ending])
            self._ending = None
            self._check()
