"""Asks the cluster for topics, creates what is missing, alters nothing.

Every call has a deadline of ours: aiokafka has open hangs (trap 7 of the design). What the broker says is
translated here; the cause is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest
from typing_extensions import override

from processor.errors import Problem, RebuildError, SeqmarkError, StopError
from processor.kafka.addresses import cannot_resolve, host_of, nobody_at, unresolved
from processor.kafka.options import client_options
from processor.kafka.protocol.refusal import why_refused
from processor.kafka.protocol.requests import DescribeTransactionsRequest
from processor.kafka.protocol.requests import MetadataRequest as OperationsRequest
from processor.kafka.rights import unwritable
from processor.kafka.topics.index import WITHOUT
from processor.kafka.topics.plan import (
    READ_CONFIGS,
    ClusterPlan,
    ClusterView,
    TopicPlan,
    TopicView,
    marked,
    names,
    plan,
)
from processor.kafka.transactions.coordinator import TOO_OLD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from schemas.config import Kafka, Settings

_NOT_ALLOWED = (TopicAuthorizationFailedError, ClusterAuthorizationFailedError)
# A broker that is well answers in milliseconds; one that has just started may take seconds to elect leaders.
_CALL_S = 30
_CONNECT_S = 10
_APPEAR_S = 30
_CLOSE_S = 2
# A source may have been made by the step before ours, as in docker-compose.yml; brokers learn of it in
# about 10 ms. A person who waits for the message that there is none should not notice.
_SETTLE_S = 1
_CREATE_MS = 20_000
_POLL_S = 0.05
_HEARD_CHARACTERS = 300


class UnreachableError(StopError):
    """Nothing answers at any of the addresses."""


class UnresolvedError(StopError):
    """None of the addresses has a host that anybody here knows."""


class _Heard(logging.Handler):
    """Keeps what aiokafka logs: its errors do not say why a broker was given up."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


async def ensure(settings: Settings, *, create: bool) -> ClusterPlan:
    """Compare the topics of all pipelines with the cluster's, and create what is missing if ``create``.

    Several workers may do so at once: one of them creates, all look again.

    Raises:
        UnreachableError: No broker answers.
        UnresolvedError: No host has an address.
        StopError: The broker refused the connection, a look or a creation, or is too old.
        ConfigError: Files of certificates or keys are wrong.
    """
    async with connected(settings.kafka) as admin:
        if settings.worker.guarantee == "exactly_once":
            await _require_transactions(admin)
        wanted = names(settings)
        # A source that is another pipeline's sink need not be there yet.
        sources = {each.source for each in settings.pipelines}
        sources -= {each.sink for each in settings.pipelines}
        index = marked(settings)
        view = await _described(admin, wanted, index, sources, _SETTLE_S)
        others = [] if sources <= view.keys() else await topic_names(admin)
        made = plan(settings, view, others)
        absent = {topic.topic: topic for topic in made.topics if not topic.exists}
        if create and absent:
            needed = [name for name in absent if name not in index]
            created = await _create(admin, [absent[name] for name in needed])
            refused: list[Problem] = []
            for name in absent.keys() - needed:
                try:
                    created |= await _create(admin, [absent[name]])
                except StopError as error:
                    refused.append(Problem(name, f"{error} {WITHOUT}"))
            # What this call has made is there, however long it takes until it is seen.
            await _described(admin, wanted, index, {*needed, *created}, _APPEAR_S)
            made = plan(settings, await _described(admin, wanted, index, absent.keys(), _SETTLE_S))
            made.created = created
            made.warnings += refused
        denied = await _unwritable(admin, [name for name in index if name in view])
        made.warnings += [Problem(name, f"grant this principal WRITE on it. {WITHOUT}") for name in denied]
    return made


@asynccontextmanager
async def connected(kafka: Kafka) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connect an admin client and close it at the end; errors of the broker come out translated."""
    admin = AIOKafkaAdminClient(
        **client_options(kafka), client_id="seqmark-topics", request_timeout_ms=_CONNECT_S * 1000
    )
    heard = _Heard()
    try:
        try:
            # Each address may take the whole time to connect.
            limit_s = _CONNECT_S * len(kafka.bootstrap_servers.split(",")) + 5
            with _listening(heard):
                async with asyncio.timeout(limit_s):
                    await admin.start()
        except (KafkaError, TimeoutError) as error:
            raise await _refused(kafka, heard.texts) from error
        try:
            yield admin
        except (KafkaError, TimeoutError) as error:
            raise _translated(error, kafka) from error
    finally:
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_S):
                await admin.close()


@contextmanager
def _listening(heard: _Heard) -> Iterator[None]:
    logger = logging.getLogger("aiokafka")
    logger.addHandler(heard)
    try:
        yield
    finally:
        logger.removeHandler(heard)


async def describe(
    admin: AIOKafkaAdminClient,
    topics: Iterable[str],
    optional: Collection[str] = (),
    denied: set[str] | None = None,
) -> ClusterView:
    """Look at topics by name; those that do not exist are left out, and are not created by asking.

    Of ``optional`` ones those are left out, too, that may not be looked at; ``denied`` is told their names.

    Raises:
        KafkaError: Also where another topic may not be looked at.
    """
    denied = set() if denied is None else denied
    async with asyncio.timeout(_CALL_S):
        # Not admin.describe_topics: it lets the broker create what it is asked for.
        request = MetadataRequest([*topics, *optional], allow_auto_topic_creation=False)
        metadata = await _answered(admin, request)
        found = {}
        for topic in metadata.to_object()["topics"]:
            error = for_code(topic["error_code"])
            if error is UnknownTopicOrPartitionError:
                continue
            # LEADER_NOT_AVAILABLE and the like say nothing against the topic's being there.
            if issubclass(error, _NOT_ALLOWED):
                if topic["topic"] in optional:
                    denied.add(topic["topic"])
                    continue
                raise TopicAuthorizationFailedError(topic["topic"])
            if topic["partitions"]:
                found[topic["topic"]] = topic["partitions"]
        configs = await _configs(admin, found, optional, denied)
    return {
        topic: TopicView(len(partitions), max(len(p["replicas"]) for p in partitions), configs[topic])
        for topic, partitions in found.items()
        if topic in configs
    }


async def topic_names(admin: AIOKafkaAdminClient) -> list[str]:
    """Return the names of all topics that this principal may look at.

    Raises:
        KafkaError: The broker does not say.
    """
    async with asyncio.timeout(_CALL_S):
        return [str(name) for name in await admin.list_topics()]


async def _answered(admin: AIOKafkaAdminClient, request: Any) -> Any:
    """Send to any broker; one that is just starting or leaving is asked again within our deadline."""
    while True:
        try:
            return await admin._send_request(request)  # noqa: SLF001 - the only way without auto-creation
        except KafkaError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(_POLL_S)


async def _require_transactions(admin: AIOKafkaAdminClient) -> None:
    """Refuse a broker that does not tell how transactions stand: what the fence rests on."""
    try:
        async with asyncio.timeout(_CALL_S):
            await _answered(admin, DescribeTransactionsRequest([]))
    except (IncompatibleBrokerVersion, NotImplementedError) as error:
        raise StopError(TOO_OLD) from error


async def _unwritable(admin: AIOKafkaAdminClient, topics: Sequence[str]) -> set[str]:
    if not topics:  # which would mean all
        return set()
    async with asyncio.timeout(_CALL_S):
        return unwritable(await _answered(admin, OperationsRequest(topics, operations=True)))


async def _configs(
    admin: AIOKafkaAdminClient, topics: Iterable[str], optional: Collection[str], denied: set[str]
) -> dict[str, dict[str, str]]:
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(READ_CONFIGS)) for topic in topics
    ]
    if not resources:
        return {}
    found: dict[str, dict[str, str]] = {}
    for response in await admin.describe_configs(resources):
        for code, message, _, topic, entries in response.resources:
            error = for_code(code)
            if error is UnknownTopicOrPartitionError:
                continue  # deleted a moment ago
            if issubclass(error, _NOT_ALLOWED) and topic in optional:
                denied.add(topic)
                continue
            if code:
                raise error(f"settings of topic {topic}: {message or error.description}")
            found[topic] = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
    return found


async def refused_creations(kafka: Kafka, wanted: Iterable[TopicPlan]) -> list[tuple[str, str]]:
    """Ask the broker whether it would create topics, and create none; returns what it refuses, and why.

    Raises:
        StopError: It does not answer.
    """
    async with connected(kafka) as admin, asyncio.timeout(_CALL_S):
        return list(refusals(await admin.create_topics(_new(wanted), _CREATE_MS, validate_only=True)))


def _new(wanted: Iterable[TopicPlan]) -> list[NewTopic]:
    return [
        NewTopic(t.topic, t.partitions, t.replication_factor, topic_configs=dict(t.configs)) for t in wanted
    ]


async def _create(admin: AIOKafkaAdminClient, wanted: Iterable[TopicPlan]) -> set[str]:
    """Create topics; returns those that this call made and not another worker's.

    Raises:
        StopError: With every topic that the broker refused, and why.
    """
    async with asyncio.timeout(_CALL_S):
        response = await admin.create_topics(_new(wanted), timeout_ms=_CREATE_MS)
    created = {topic for topic, code, *_ in response.topic_errors if code == 0}
    if refused := [f"{topic}: {why}" for topic, why in refusals(response)]:
        made = f" Created before: {', '.join(sorted(created))}." if created else ""
        text = "the broker refused to create topics:\n" + "\n".join(refused)
        raise StopError(f"{text}\nCreate them by hand, or grant this principal CREATE on them.{made}")
    return created


def refusals(response: Any) -> Iterator[tuple[str, str]]:
    """Yield the topics that the broker refused to create, and why; those that are there already are none."""
    for topic, code, *message in response.topic_errors:
        error = for_code(code)
        if code and error is not TopicAlreadyExistsError:
            yield topic, f"{error.message}: {(message[0] if message else None) or error.description}"


async def _described(
    admin: AIOKafkaAdminClient,
    topics: Iterable[str],
    optional: Collection[str],
    expected: AbstractSet[str],
    patience_s: float,
) -> ClusterView:
    """Look until what is expected is seen: a broker learns of a new topic a moment after its maker."""
    end = time.monotonic() + patience_s
    while True:
        cluster = await describe(admin, topics, optional, denied := set[str]())
        if expected <= cluster.keys() | denied or time.monotonic() >= end:
            return cluster
        await asyncio.sleep(_POLL_S)


async def _refused(kafka: Kafka, heard: list[str]) -> StopError:
    """Say which it is: an unknown host, an address where nothing listens, or a broker that refuses.

    aiokafka says the same of all; ``heard`` is what it has logged.
    """
    servers = kafka.bootstrap_servers
    addresses = servers.split(",")
    unknown = await unresolved(servers)
    if unknown and {host_of(address) for address in addresses} <= set(unknown):
        return UnresolvedError(cannot_resolve(unknown, servers))
    if nobody := await nobody_at(servers):
        return UnreachableError(nobody)
    if (refused := await why_refused(kafka)) is not None:
        return StopError(f"cannot use Kafka at {servers}: {refused}")
    why = f" ({heard[-1][:_HEARD_CHARACTERS]})" if heard else ""
    return StopError(
        f"{servers} listens, but speaks no Kafka with security_protocol "
        f"{kafka.security_protocol} or refuses the credentials{why}: compare kafka.security_protocol, "
        "kafka.sasl_* and kafka.ssl_* with the listener's settings"
    )


def _translated(error: Exception, kafka: Kafka) -> SeqmarkError:
    if isinstance(error, _NOT_ALLOWED):
        return StopError(
            f"the broker does not let this principal look at or create topics ({error}): grant this principal "
            "DESCRIBE and DESCRIBE_CONFIGS on all topics of the config, CREATE for those to be made"
        )
    if isinstance(error, TimeoutError):
        return StopError(f"{kafka.bootstrap_servers} did not answer in time: is the cluster well?")
    return StopError(f"{kafka.bootstrap_servers}: {error}")


async def look(settings: Settings) -> ClusterView:
    """Look at the topics of all pipelines; those of marks are left out where nothing can be written to them.

    Raises:
        StopError: A topic is not as it must be.
        RebuildError: One is not there, or the broker does not say.
    """
    try:
        async with connected(settings.kafka) as admin:
            view = dict(await describe(admin, names(settings), marked(settings)))
            index = [name for name in marked(settings) if name in view]
            for name in await _unwritable(admin, index):
                del view[name]
    except StopError as error:
        # The worker has started: what does not answer now did then, and may again.
        is_away = isinstance(error, UnreachableError | UnresolvedError)
        raise RebuildError("connection" if is_away else "topics", str(error)) from error
    missing = [name for name in names(settings) if name not in view]
    if missing:
        # Also what a broker says that has not heard of a topic yet: waiting loses nothing.
        raise RebuildError("topics", f"not there: {', '.join(missing)}; waiting for them")
    made = plan(settings, view)
    # What is narrower than its source is waited for by the partitions that it lacks.
    problems = [problem for problem in made.problems if problem not in made.narrow]
    if problems:
        raise StopError("the topics are not right any more:\n" + "\n".join(map(str, problems)))
    return view


def is_compacted(view: ClusterView, topic: str) -> bool:
    """Whether a topic is compacted."""
    return "compact" in view[topic].configs.get("cleanup.policy", "")
