"""Holds a worker's place in the consumer group.

Runs aiokafka's group coordinator without its consumer: it joins, sends heartbeats and calls back; it
never fetches. Rebalances are eager there (trap 8): everything is given up, then assigned again.

In the callbacks heartbeats go on only while revoking; exceptions there are only logged by aiokafka, and
assigning blocks the next heartbeat (trap 2). So `revoked` must finish in bounded time, `assigned` must
only start things, and both must report failures themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from processor.errors import FencedError, RebuildError, StopError
from processor.kafka.client import Client, KafkaCode, KafkaError, TopicPartition, by_topic, error_name
from processor.kafka.group.assignor import SlotAssignor
from processor.kafka.group.description import describe_group
from processor.kafka.protocol.codes import Reaction, Request, reaction
from processor.kafka.protocol.internals import (
    ConsumerRebalanceListener,
    GroupAuthorizationFailedError,
    GroupCoordinator,
    GroupCoordinatorNotAvailableError,
    HeartbeatRequest,
    OffsetCommitRequest,
    SubscriptionState,
)
from processor.ops.metrics import Contact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from processor.kafka.group.assignor import WebAddress
    from processor.kafka.group.description import GroupDescription

log = logging.getLogger(__name__)

HEARTBEATS_PER_SESSION = 15
"""Three may be lost in a fifth of the session; Kafka's own ratio is 45 s to 3 s."""
NEVER_MS = 2**31 - 1
COORDINATOR = "the group's coordinator"
"""Who owes the answers to heartbeats."""
ANSWER_S = 5.0
"""For a heartbeat, which takes a millisecond; without an answer the group is joined again, at no harm."""


def _words(error: Exception) -> str:
    """Say what a group's coordinator refuses, and what to do about it."""
    if isinstance(error, GroupAuthorizationFailedError):
        return f"{error!r}: grant this principal READ on the group"
    if isinstance(error, GroupCoordinatorNotAvailableError):
        return (
            f"{type(error).__name__}: brokers make the topic __consumer_offsets at first use, and cannot where "
            "offsets.topic.replication.factor is above their number; or its leaders are down. Their logs tell"
        )
    return repr(error)


class Owner(Protocol):
    """Who is told of assignments."""

    async def revoked(self) -> None:
        """Give everything up; returns once nothing of it can be written any more."""

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Start working on these; returns at once."""


class _Coordinator(GroupCoordinator):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's coordinator, which sees when another worker takes this one's static membership.

    Its heartbeats carry no instance id, so the broker cannot tell us that we were fenced, only that it does
    not know our member id; aiokafka would join again and fence the other, for ever in turns. A member that
    is forgotten sooner than its session can have ended was replaced; it joins no more.
    """

    replaced: Callable[[], None] | None = None
    contact: Contact
    _known_at = -math.inf
    _is_replaced = False

    async def _on_join_complete(self, *joined: Any) -> None:
        self._known_at = time.monotonic()
        await super()._on_join_complete(*joined)

    async def _do_heartbeat(self) -> bool:
        sent, member = time.monotonic(), self.member_id
        self.contact.asked([COORDINATOR])
        going_on: bool = await super()._do_heartbeat()
        if going_on:
            self._known_at = sent
        elif self.replaced is not None and self.member_id != member and self._is_young():
            self._is_replaced = True
            self.replaced()
        return going_on

    async def _send_req(self, request: Any) -> Any:
        answer = await super()._send_req(request)
        self.contact.answered(COORDINATOR)
        return answer

    async def _do_rejoin_group(self, subscription: Any) -> bool:
        if self._is_replaced:
            # Until `close`, for slots take a moment to give up: joining meanwhile would end the other as well.
            await asyncio.wait([self._closing])
            return False
        return bool(await super()._do_rejoin_group(subscription))

    def _is_young(self) -> bool:
        return bool(time.monotonic() - self._known_at < self._session_timeout_ms / 1000)


class Membership(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """One worker's place in the consumer group; it closes the client at the end.

    It subscribes the keys of ``slots``. With a ``group_instance_id`` membership is static. The other members
    are told where its web server listens (``web``). ``contact`` hears of the coordinator's answers.
    """

    def __init__(
        self,
        client: Client,
        group_id: str,
        slots: Mapping[str, int],
        session_timeout_ms: int,
        group_instance_id: str | None = None,
        web: WebAddress | None = None,
        contact: Contact | None = None,
    ) -> None:
        self._client = client
        self._contact = contact or Contact()
        self._group_id = group_id
        self._session_timeout_ms = session_timeout_ms
        self._instance_id = group_instance_id
        self.assignor = SlotAssignor(slots, web)
        self._topics = set(slots)
        self._owner: Owner
        self._coordinator: Any = None
        self._subscription: Any = None
        self._busy = contextlib.ExitStack()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def join(self, owner: Owner) -> None:
        """Enter the group; from now on ``owner`` is called."""
        self._owner = owner
        self._subscription = SubscriptionState()
        # Nobody fetches through this subscription: without this the member would look idle and leave.
        self._busy.enter_context(self._subscription.fetch_context())
        self._subscription.subscribe(self._topics, listener=self)
        waiters: set[asyncio.Future[Any]] = {self._failed}
        self._subscription.register_fetch_waiters(waiters)
        self._coordinator = _Coordinator(
            self._client.inner,
            self._subscription,
            group_id=self._group_id,
            group_instance_id=self._instance_id,
            session_timeout_ms=self._session_timeout_ms,
            heartbeat_interval_ms=max(self._session_timeout_ms // HEARTBEATS_PER_SESSION, 100),
            enable_auto_commit=False,
            assignors=(self.assignor,),
            max_poll_interval_ms=NEVER_MS,
            rebalance_timeout_ms=max(self._session_timeout_ms, 10_000),
        )
        self._coordinator.contact = self._contact
        if self._instance_id is not None:
            self._coordinator.replaced = self._replaced

    @override
    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        del revoked  # eager: always everything
        try:
            await self._owner.revoked()
        except Exception as error:
            log.exception("giving up partitions failed")
            self.fail(StopError(f"giving up partitions failed: {error!r}"))

    @override
    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        if self.assignor.refused is not None:
            self.fail(StopError(self.assignor.refused))
            return
        try:
            self._owner.assigned(frozenset(assigned))
        except Exception as error:
            log.exception("starting on partitions failed")
            self.fail(StopError(f"starting on partitions failed: {error!r}"))

    @property
    def name(self) -> str:
        """What the group knows it by: its instance id or the one it was given; empty before that."""
        return str(self._instance_id or getattr(self._coordinator, "member_id", ""))

    async def describe(self, deadline_s: float) -> GroupDescription:
        """Ask the coordinator who is in the group.

        Raises:
            StopError: This principal may not look at the group.
            RebuildError: No answer within the deadline.
        """
        return await describe_group(self._client, self._group_id, deadline_s)

    def unseen(self) -> list[str]:
        """Return the topics of which the group's leader has dealt out nothing: nobody works on them."""
        dealt = self.assignor.dealt
        return [] if dealt is None else [topic for topic in sorted(self._topics) if not dealt.get(topic)]

    def undealt(self) -> list[str]:
        """Return the topics of which this member sees more partitions than the leader has dealt out."""
        dealt = self.assignor.dealt
        if dealt is None:
            return []
        seen = {topic: max(1, len(self._client.partitions(topic))) for topic in sorted(self._topics)}
        return [topic for topic, count in seen.items() if dealt.get(topic, 0) < count]

    async def cause(self) -> str:
        """Say why the group may have assigned nothing, by what its coordinator answers."""
        try:
            await self._client.group_coordinator(self._group_id)
        except (KafkaError, TimeoutError) as error:
            return f"the consumer group {self._group_id} has no coordinator: {_words(error)}"
        return (
            f"the consumer group {self._group_id} has assigned nothing yet: it waits for members to give up "
            "what they have, and for those that are gone until their session is over"
        )

    async def failed(self) -> None:
        """Wait until the group cannot be kept; raises the reaction.

        Raises:
            StopError: Such as a second worker with the same ``group_instance_id``.
        """
        try:
            await asyncio.shield(self._failed)
        except KafkaError as error:
            text = f"the consumer group {self._group_id} cannot be kept: {_words(error)}"
            if self._instance_id is not None:
                text += f"; {self._other()}"
            raise StopError(text) from error

    def _other(self) -> str:
        return f"is another worker running with group_instance_id {self._instance_id}?"

    def _replaced(self) -> None:
        self.fail(StopError(f"the consumer group {self._group_id} gave our place away: {self._other()}"))

    def fail(self, error: Exception) -> None:
        """Make `failed` raise."""
        if not self._failed.done():
            self._failed.set_exception(error)

    def rejoin(self) -> None:
        """Ask the group again who owns what: after a slot was fenced."""
        if self._coordinator is not None:
            self._coordinator.request_rejoin()

    async def current(self) -> bool:
        """Whether the group still has our generation, so that what we were assigned is still ours.

        Not where it is rebalancing, and not where it cannot be asked.
        """
        if self._coordinator is None:
            return False
        request = HeartbeatRequest(self._group_id, self._coordinator.generation, self._coordinator.member_id)
        try:
            node = await self._client.group_coordinator(self._group_id)
            answer = await self._client.request(node, request, coordination=True, timeout_s=ANSWER_S)
        except (KafkaError, TimeoutError) as error:
            log.info("the group %s cannot be asked: %r", self._group_id, error)
            return False
        return bool(answer.error_code == KafkaCode.NONE)

    async def leave(self) -> None:
        """Leave the group, so that others need not wait for the session to end; never hangs.

        A static member stays: it is expected back.
        """
        if self._coordinator is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(5):
                    await self._coordinator.close()
        self._busy.close()
        await self._client.close()
        if self._failed.done():
            self._failed.exception()
        else:
            self._failed.cancel()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the group's offsets outside a transaction.

        The member's generation goes with them: a zombie's commit is refused.

        Raises:
            FencedError: We are not a member of this generation any more.
            RebuildError: The outcome is unknown.
        """
        member = self._group_id, self._coordinator.generation, self._coordinator.member_id
        topics = by_topic((tp, (tp.partition, offset, "")) for tp, offset in offsets.items())
        request = OffsetCommitRequest(*member, OffsetCommitRequest.DEFAULT_RETENTION_TIME, topics)
        try:
            node = await self._client.group_coordinator(self._group_id)
            response = await self._client.request(node, request, coordination=True)
        except (KafkaError, TimeoutError) as error:
            raise RebuildError("commit_offsets", f"offset commit: {error!r}") from error
        for _, partitions in response.topics:
            for _, code in partitions:
                if code == KafkaCode.NONE:
                    continue
                match reaction(Request.GROUP_OFFSETS, code):
                    case Reaction.FENCED:
                        raise FencedError(f"offset commit: {error_name(code)}")
                    case Reaction.REBUILD:
                        raise RebuildError("commit_offsets", f"offset commit: {error_name(code)}")
                    case _:
                        pass
