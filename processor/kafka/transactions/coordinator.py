"""Asks the transaction coordinator of a slot's producer.

Every question has one deadline. An answer is "done", or an error named for its reaction: rebuild
(`RebuildError`), ask the group who owns the slot (`FencedError`), stop. No outcome is guessed (trap 5).
"""

from __future__ import annotations

import asyncio
import logging
import time
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.errors import FencedError, RebuildError, StopError
from processor.kafka.client import Client, KafkaCode, KafkaError, TopicPartition, by_topic, error_name
from processor.kafka.protocol.codes import Reaction, Request, hint, reaction
from processor.kafka.protocol.internals import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    IncompatibleBrokerVersion,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from processor.kafka.protocol.requests import DescribeTransactionsRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.001
RETRY_LAST_S = 0.05
LATE_S = 2.0
"""A coordinator that has not answered for so long may have moved: another broker is asked."""

_UNKNOWN = {KafkaCode.TRANSACTIONAL_ID_NOT_FOUND, KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
TOO_OLD = (
    # Tried with 3.0.2, 3.5.2 and 4.3.0.
    'worker.guarantee = "exactly_once" needs Kafka 3.0 or newer: an older broker does not tell how a '
    "transaction stands (DescribeTransactions, KIP-664). Upgrade it"
)


class TransactionOutcome(IntEnum):
    """How a transaction has ended whose end is still to be brought to some of its partitions.

    A new owner keeps it where the coordinator keeps the time-out of transactions, in milliseconds: it opens
    none before all is brought, so it needs no time-out, and none that is set is below 1,000 (see `markers`).
    """

    ABORTED = 1
    COMMITTED = 2


_NO_COORDINATOR = (
    ": brokers make the topic __transaction_state at first use, and cannot where "
    "transaction.state.log.replication.factor is above their number; or its leaders are down. Their logs tell"
)
SAY_S = 5.0
"""A question that waits for longer is said: a coordinator that loads or moves takes less."""


class TransactionDescription(NamedTuple):
    """How a transactional id stands with its coordinator."""

    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    began_ms: int

    @property
    def open(self) -> bool:
        """Whether a transaction is open."""
        return self.state == "Ongoing"

    @property
    def ending(self) -> bool:
        """Whether the coordinator is writing markers."""
        return self.state in {"PrepareCommit", "PrepareAbort"}

    @property
    def outcome(self) -> TransactionOutcome | None:
        """How the last transaction ended; None where one is open, or where nobody has kept it."""
        if self.state == "Empty":
            return {int(outcome): outcome for outcome in TransactionOutcome}.get(self.timeout_ms)
        return {
            "CompleteCommit": TransactionOutcome.COMMITTED,
            "CompleteAbort": TransactionOutcome.ABORTED,
        }.get(self.state)


class TransactionTimeoutError(StopError):
    """The broker allows transactions to stay open for less long."""


class Coordinator:
    """The coordinator of one transactional id, or of none: then only `init` is of use.

    Each question has the deadline. After the time-out the coordinator aborts a transaction by itself.
    """

    def __init__(
        self, client: Client, transactional_id: str | None, transaction_timeout_ms: int, deadline_s: float
    ) -> None:
        self._client = client
        self._id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._deadline_s = deadline_s
        self._nodes: dict[str | None, int] = {}
        """By group; None: of the transactional id."""
        self._closed = False
        self.producer_id = -1
        self.epoch = -1
        self.name = transactional_id or "a producer without transactions"

    def close(self) -> None:
        """Ask nothing again: who waits for a coordinator that is busy gives up."""
        self._closed = True

    async def init(self, keep: TransactionOutcome | None = None) -> bool:
        """Raise the epoch: whoever held the id has no right to write any more.

        Args:
            keep: What is to be known of the last transaction by whoever takes the id next.

        Returns:
            Whether the id is ours. Not where a transaction was open, which is being aborted under a raised
            epoch, or where one is about to end.

        Raises:
            RebuildError: Not done within the deadline.
            TransactionTimeoutError: The time-out is above the broker's.
        """
        timeout_ms = keep or (self._timeout_ms if self._id else 0)
        request = InitProducerIdRequest(self._id, timeout_ms)
        answer = await self._ask(request, "init", taken_for_answer={KafkaCode.CONCURRENT_TRANSACTIONS})
        if answer.error_code != KafkaCode.NONE:
            return False
        self.producer_id = answer.producer_id
        self.epoch = answer.producer_epoch
        return True

    async def describe(self) -> TransactionDescription | None:
        """Return how the id stands; None where it is new, or forgotten.

        Raises:
            RebuildError: No answer within the deadline.
            StopError: The broker is too old to tell.
        """
        if self._id is None:
            return None
        request = DescribeTransactionsRequest([self._id])
        try:
            answer = await self._ask(request, "describe", taken_for_answer=_UNKNOWN)
        except RebuildError as error:
            if isinstance(error.__cause__, IncompatibleBrokerVersion):
                raise StopError(TOO_OLD) from error
            raise
        for code, _, state, timeout_ms, began_ms, producer_id, epoch, *_ in answer.states:
            if code == KafkaCode.NONE:
                return TransactionDescription(state, producer_id, epoch, timeout_ms, began_ms)
        return None

    async def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction; the first ones open it.

        Raises:
            RebuildError, FencedError: They are not, or that is not known.
        """
        topics = by_topic((tp, tp.partition) for tp in partitions)
        request = AddPartitionsToTxnRequest(self._id, self.producer_id, self.epoch, topics)
        await self._ask(request, "add_partitions")

    async def add_group(self, group_id: str) -> None:
        """Announce that the group's offsets will be part of the transaction, which has been opened.

        Raises:
            RebuildError, FencedError: It is not, or that is not known.
        """
        request = AddOffsetsToTxnRequest(self._id, self.producer_id, self.epoch, group_id)
        await self._ask(request, "add_offsets")

    async def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], note: str = ""
    ) -> None:
        """Make offsets of an announced group part of the transaction, each with ``note`` as its metadata.

        aiokafka speaks version 0, which knows no group generation (trap 1): what keeps a zombie from
        committing is the transactional id, fenced at each assignment.

        Raises:
            RebuildError, FencedError: They are not, or that is not known.
        """
        topics = by_topic((tp, (tp.partition, offset, note)) for tp, offset in offsets.items())
        request = TxnOffsetCommitRequest(self._id, group_id, self.producer_id, self.epoch, topics)
        await self._ask(request, "commit_offsets", group_id=group_id)

    async def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction.

        Raises:
            RebuildError: The outcome may be unknown: it must be found out by fencing and restoring.
            FencedError: It was aborted: somebody else holds the id.
        """
        await self._ask(EndTxnRequest(self._id, self.producer_id, self.epoch, commit), "end")

    async def _ask(
        self, request: Any, step: str, *, group_id: str | None = None, taken_for_answer: Collection[int] = ()
    ) -> Any:
        """Send a request to the coordinator until it is done or surely not.

        A coordinator that is loading, has moved, or is still writing the markers of the transaction
        before (KAFKA-5477) has not begun: asking again is safe. A broken connection is not, except for
        what may be done twice: the fence, what belongs to it, and a question.
        """
        deadline = time.monotonic() + self._deadline_s
        pause = RETRY_FIRST_S
        said = False
        while True:
            try:
                answer = await self._answer(await self._find(group_id), request, group_id)
                wrong = [code for code in _codes(answer) if code not in {KafkaCode.NONE, *taken_for_answer}]
                if not wrong:
                    return answer
                problem = error_name(wrong[0])
                # What is not allowed first: others are not attempted then, and say only that.
                fatal = [code for code in wrong if reaction(Request.TRANSACTION, code) is not Reaction.WAIT]
                for code in sorted(fatal, key=_not_allowed, reverse=True):
                    raise self._error(step, code, _topics_with(answer, code))
                if KafkaCode.CONCURRENT_TRANSACTIONS not in wrong:
                    self._nodes.clear()
            except (KafkaError, TimeoutError) as error:
                self._nodes.clear()
                problem = repr(error)
                if _not_allowed(code := getattr(error, "errno", 0)):
                    raise self._error(step, code) from error
                if step not in {"init", "describe"} or isinstance(error, IncompatibleBrokerVersion):
                    raise RebuildError(step, f"{step} of {self._id}: {problem}") from error
                await self._client.refresh()
            if self._closed or time.monotonic() > deadline:
                why = "and it is closed" if self._closed else f"for {self._deadline_s} s"
                raise RebuildError(step, f"{step} of {self._id}: {problem} {why}")
            if not said and time.monotonic() > deadline - self._deadline_s + SAY_S:
                said = True
                hint = _NO_COORDINATOR if "CoordinatorNotAvailable" in problem else ""
                log.warning("%s of %s waits: %s%s", step, self._id, problem, hint)
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_LAST_S)

    async def _answer(self, node: int, request: Any, group_id: str | None) -> Any:
        """Send a request and return the answer, as long as it is the coordinator who owes it."""
        sent = asyncio.create_task(self._client.request(node, request, coordination=True))
        try:
            while not (await asyncio.wait({sent}, timeout=LATE_S))[0]:
                now = await self._moved_to(node, group_id)
                if now is not None:
                    raise KafkaError(f"broker {node} does not answer, and broker {now} coordinates by now")
            return sent.result()
        finally:
            sent.cancel()

    async def _moved_to(self, node: int, group_id: str | None) -> int | None:
        """Return who coordinates in place of ``node``; None where nobody does, or nobody tells."""
        self._nodes.clear()
        try:
            found = await self._find(group_id)
        except (KafkaError, TimeoutError):
            return None
        return None if found == node else found

    async def _find(self, group_id: str | None) -> int:
        if group_id in self._nodes:
            return self._nodes[group_id]
        if group_id is not None:
            self._nodes[group_id] = await self._client.group_coordinator(group_id)
        elif self._id is not None:
            self._nodes[group_id] = await self._client.transaction_coordinator(self._id)
        else:
            return await self._client.any_node()
        return self._nodes[group_id]

    def _error(self, step: str, code: int, topics: str = "") -> Exception:
        text = f"{step} of {self._id}: {error_name(code)}{topics}"
        match reaction(Request.TRANSACTION, code):
            case Reaction.FENCED:
                return FencedError(
                    f"{step}: {self._id} is not held by this producer any more ({error_name(code)})"
                )
            case Reaction.TIMEOUT:
                return TransactionTimeoutError(
                    f"the broker's transaction.max.timeout.ms is below {self._timeout_ms} ms: raise it, or "
                    "lower worker.transaction_timeout_ms"
                )
            case Reaction.STOP:
                return StopError(f"{text}: {hint(Request.TRANSACTION, code)}")
            case _:
                return RebuildError(step, text)


def _not_allowed(code: int) -> bool:
    return reaction(Request.TRANSACTION, code) is Reaction.STOP


def _codes(answer: Any) -> list[int]:
    """Return the codes of an answer: of partitions, of how ids stand, or of the whole."""
    if hasattr(answer, "errors"):
        return [code for _, partitions in answer.errors for _, code in partitions]
    return [state[0] for state in answer.states] if hasattr(answer, "states") else [answer.error_code]


def _topics_with(answer: Any, code: int) -> str:
    """Name the topics of an answer that have this code; nothing where it does not speak of topics."""
    found = [
        topic for topic, partitions in getattr(answer, "errors", ()) if code in {each[1] for each in partitions}
    ]
    return f" for {', '.join(found)}" if found else ""
