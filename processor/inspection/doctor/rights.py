"""Tries what the brokers allow: topics, group, cluster, settings, creation, deletion, quotas.

Nothing is changed by asking. What can be asked for harmlessly is asked for; of the rest brokers say themselves
whether it is allowed. A quota (KIP-546) is set for a user, for a client id, or for both, by name or for all
that have none of their own; brokers take the most specific one, and say nothing of it before it bites.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from processor.errors import RebuildError, SeqmarkError, StopError
from processor.inspection.findings import Level
from processor.kafka.client import KafkaCode, KafkaError, TopicPartition, error_name
from processor.kafka.group.description import describe_group
from processor.kafka.offsets import bounds
from processor.kafka.protocol.codes import Operation, lacking
from processor.kafka.protocol.quota_requests import DescribeClientQuotasRequest, QuotaMatch
from processor.kafka.rights import TopicRights, rights
from processor.kafka.topics.ensure import ensure, refused_creations
from processor.kafka.topics.plan import MARKED, Purpose, changelog_topic, marked, topics_of
from processor.kafka.transactions.coordinator import Coordinator
from processor.kafka.transactions.fencing import SlotId
from processor.kafka.trim import delete_before
from processor.pipeline.hops import hops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from processor.inspection.findings import Findings
    from processor.kafka.client import Client
    from processor.kafka.rights import Rights
    from schemas.config import Settings

PART, TOPICS = "rights", "topics"
ASK_S = 10.0
MOST_IDS = 64
"""Asked for, one by one: rights are given by prefix."""
_SETTINGS = "settings of all topics (DESCRIBE_CONFIGS)"
_MISSING = {KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaCode.LEADER_NOT_AVAILABLE}


QUOTAS = "quotas of this user and the workers' client ids (DescribeClientQuotas)"
USER, CLIENT = "user", "client-id"
MOST_BATCH_BYTES = 1_048_588
"""Kafka's default for ``max.message.bytes``."""
WINDOW_S = 10
"""What brokers look at, by default. They cut a batch for nobody, and send none that is more than the quota
allows in that time (`KafkaApis.handleFetchRequest`): it is asked for again for ever."""
_SHOWN = 5


def wanted_operations(settings: Settings) -> dict[str, tuple[str, list[Operation]]]:
    """Return by topic what it is for, and what a worker has to be allowed to do with it."""
    look = [Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.READ]
    found: dict[str, tuple[str, list[Operation]]] = {}
    for pipeline in settings.pipelines:
        found.setdefault(pipeline.source, (f"source of {pipeline.name}", list(look)))
        for purpose, topic in topics_of(settings, pipeline):
            what, operations = found.setdefault(topic, (f"{purpose} of {pipeline.name}", list(look)))
            trims = purpose is Purpose.REPARTITION or (
                purpose is Purpose.CHANGELOG and pipeline.dedup.trims_changelog
            )
            more = [Operation.WRITE, *([Operation.DELETE] if trims else [])]
            # The source of one may be the sink of another.
            found[topic] = what, [*operations, *(each for each in more if each not in operations)]
    return found


async def try_rights(client: Client, settings: Settings, trials: Findings) -> None:
    """Note what is allowed and what is not."""
    wanted = wanted_operations(settings)
    try:
        allowed = await rights(client, list(wanted))
    except (KafkaError, TimeoutError) as error:
        trials.problem(PART, "what is allowed (Metadata)", repr(error), "see the brokers' logs")
        return
    optional = set(marked(settings))
    for topic, (what, operations) in wanted.items():
        note = trials.warning if topic in optional else trials.problem
        _try_topic(topic, what, operations, allowed.topics.get(topic), trials, note)
    _try_cluster(allowed, trials)
    await _try_group(client, settings, trials)
    await _try_deletion(client, settings, allowed.topics, trials)


def _try_topic(
    topic: str,
    what: str,
    operations: Sequence[Operation],
    allowed: TopicRights | None,
    trials: Findings,
    note: Callable[[str, str, str, str], None],
) -> None:
    names = ", ".join(each.name for each in operations)
    tried = f"{names} on {topic}, {what}"
    if allowed is None or allowed.code in _MISSING:
        trials.not_tried(PART, tried, "there is no such topic")
    elif allowed.code == KafkaCode.TOPIC_AUTHORIZATION_FAILED:
        note(PART, tried, "may not even be described", f"grant this principal {names} on {topic}")
    elif allowed.code != KafkaCode.NONE:
        note(PART, tried, error_name(allowed.code), "see the brokers' logs")
    elif missing := lacking(allowed.operations, operations):
        said = ", ".join(each.name for each in missing)
        note(PART, tried, f"not allowed: {said}", f"grant this principal {said} on {topic}")
    else:
        trials.ok(PART, tried, "allowed")


def _try_cluster(allowed: Rights, trials: Findings) -> None:
    for operation, use in (
        (Operation.ALTER, 'a transaction whose end is missing cannot be ended; see "A transaction that hangs"'),
        (Operation.DESCRIBE, "`seqmark status` shows no sizes of changelogs"),
    ):
        tried = f"{operation.name} on the cluster"
        if lacking(allowed.cluster, [operation]):
            trials.warning(
                PART, tried, f"not allowed: {use}", f"grant this principal {operation.name} on the cluster"
            )
        else:
            trials.ok(PART, tried, "allowed")


async def _try_group(client: Client, settings: Settings, trials: Findings) -> None:
    group_id = settings.worker.application_id
    tried = f"READ on the group {group_id}"
    advice = f"grant this principal READ on the group {group_id}, which is worker.application_id"
    try:
        group = await describe_group(client, group_id, ASK_S)
    except StopError:
        trials.problem(PART, tried, "may not even be described", advice)
    except RebuildError as error:
        hint = "see the brokers' logs: __consumer_offsets may be without leaders, or cannot be made"
        trials.problem(PART, tried, str(error), hint)
    else:
        if lacking(group.operations, [Operation.READ]):
            trials.problem(PART, tried, "not allowed: READ", advice)
        else:
            trials.ok(PART, tried, f"allowed; it is {group.state}")


async def try_ids(client: Client, settings: Settings, trials: Findings) -> None:
    """Note whether the workers' transactional ids may be described, or a producer without one may write.

    To take an id would fence its worker: whether that is allowed, only an id of the doctor's own can tell.
    """
    worker = settings.worker
    if worker.guarantee != "exactly_once":
        await _try_idempotent(client, trials)
        return
    ids = [
        SlotId(worker.application_id, hop.name, slot, worker.slots).transactional_id
        for hop in hops(settings)
        for slot in range(worker.slots)
    ]
    tried = f"DESCRIBE on transactional ids, {ids[0]} and {len(ids) - 1:,} more"
    refused = [each for each in ids[:MOST_IDS] if not await _is_described(client, each)]
    if refused:
        advice = "grant this principal WRITE and DESCRIBE on transactional ids with the prefix "
        trials.problem(PART, tried, f"not allowed: {refused[0]}", advice + worker.application_id)
    else:
        trials.ok(PART, tried, "allowed")


async def _is_described(client: Client, transactional_id: str) -> bool:
    """Whether it may be asked who coordinates an id; also where nobody does."""
    try:
        await client.transaction_coordinator(transactional_id)
    except (KafkaError, TimeoutError) as error:
        return getattr(error, "errno", None) != KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return True


async def _try_idempotent(client: Client, trials: Findings) -> None:
    tried = "IDEMPOTENT_WRITE: InitProducerId without a transactional id"
    try:
        await Coordinator(client, None, 0, ASK_S).init()
    except SeqmarkError as error:
        trials.problem(PART, tried, str(error), "grant this principal IDEMPOTENT_WRITE on the cluster")
    else:
        trials.ok(PART, tried, "allowed")


async def _try_deletion(
    client: Client, settings: Settings, allowed: Mapping[str, TopicRights], trials: Findings
) -> None:
    """Delete what lies before the first record of a changelog: nothing."""
    for pipeline in settings.pipelines:
        topic = changelog_topic(settings, pipeline)
        if not pipeline.dedup.trims_changelog:
            continue
        tried = f"DeleteRecords on {topic}, before its first record"
        if topic not in allowed or allowed[topic].code != KafkaCode.NONE:
            trials.not_tried(PART, tried, "there is no such topic")
            continue
        tp = TopicPartition(topic, 0)
        try:
            start = (await bounds(client, [tp], ASK_S))[tp].start
            await delete_before(client, tp, start)
        except (SeqmarkError, KafkaError, TimeoutError) as error:
            trials.warning(PART, tried, str(error), "without it the changelog grows; the worker goes on")
        else:
            trials.ok(PART, tried, "allowed, and nothing is deleted")


async def try_topics(settings: Settings, trials: Findings) -> None:
    """Note whether the settings of topics can be read and are right, and whether missing ones can be made."""
    try:
        plan = await ensure(settings, create=False)
    except StopError as error:
        trials.problem(TOPICS, _SETTINGS, str(error), "grant what it names, or upgrade the broker")
        return
    trials.ok(TOPICS, _SETTINGS, f"{len(plan.topics)} topics")
    for problem in plan.problems:
        trials.problem(TOPICS, f"settings of {problem.key}", problem.message, _advice(problem.message))
    for warning in plan.warnings:
        trials.warning(TOPICS, f"settings of {warning.key}", warning.message, "alter the topic, if you can")
    if not plan.missing:
        return
    if not settings.worker.create_topics:
        trials.add(TOPICS, Level.PROBLEM, plan.absent)
        trials.add(TOPICS, Level.WARNING, plan.unmarked)
        return
    try:
        refused = dict(await refused_creations(settings.kafka, plan.missing))
    except StopError as error:
        refused = {topic.topic: str(error) for topic in plan.missing}
    for topic in plan.missing:
        tried = f"CREATE {topic.topic}, {topic.purpose} of {topic.pipeline} (asked only)"
        if topic.topic in refused:
            advice = f"grant this principal CREATE on {topic.topic}, or create it by hand"
            note = trials.warning if topic.purpose in MARKED else trials.problem
            note(TOPICS, tried, refused[topic.topic], advice)
        else:
            trials.ok(TOPICS, tried, "not there yet, a worker or `seqmark topics` can create it")


def _advice(message: str) -> str:
    if "does not exist" in message:
        return "create it with the partitions that its producers want: kafka-topics.sh --create"
    return "alter the topic: kafka-configs.sh --alter --entity-type topics"


def not_tried(settings: Settings, trials: Findings, why: str) -> None:
    """Note that none of it could be tried."""
    for topic, (what, operations) in wanted_operations(settings).items():
        trials.not_tried(PART, f"{_names(operations)} on {topic}, {what}", why)
    trials.not_tried(PART, f"READ on the group {settings.worker.application_id}", why)
    trials.not_tried(TOPICS, _SETTINGS, why)


def _names(operations: Iterable[Operation]) -> str:
    return ", ".join(each.name for each in operations)


# -------------------------------------------------------------------- quotas


class _Quota(NamedTuple):
    """A quota: Kafka's key, its value, and by type whom it is for; None: all without one of their own."""

    key: str
    value: float
    whom: dict[str, str | None]

    def __str__(self) -> str:
        names = ", ".join(
            f"all {kind}s" if name is None else f"{kind} {name}" for kind, name in self.whom.items()
        )
        return f"{self.key} {self.value:,.0f} for {names}"


async def try_quotas(client: Client, settings: Settings, trials: Findings) -> None:
    """Note which there are."""
    try:
        found = [quota for quota in await _quotas(client, _user(settings)) if _is_ours(quota, settings)]
    except (KafkaError, TimeoutError) as error:
        trials.not_tried(PART, QUOTAS, f"not told: {str(error) or repr(error)}")
        return
    said = "; ".join(map(str, found[:_SHOWN])) + (f" and {len(found) - _SHOWN} more" if found[_SHOWN:] else "")
    low = [
        each for each in found if each.key == "consumer_byte_rate" and each.value * WINDOW_S < MOST_BATCH_BYTES
    ]
    if low:
        least = -(-MOST_BATCH_BYTES // WINDOW_S)
        advice = f"raise consumer_byte_rate to {least:,} or more: brokers never send a batch larger than "
        trials.warning(PART, QUOTAS, said, f"{advice}{WINDOW_S} s of it, and those of 1 MiB are common")
    else:
        trials.ok(PART, QUOTAS, said or "none")


def _user(settings: Settings) -> str | None:
    """Return who a worker is to brokers; None: only they know, by its certificate."""
    kafka = settings.kafka
    if kafka.security_protocol.startswith("SASL"):
        return kafka.sasl_plain_username
    return None if kafka.ssl_certfile else "ANONYMOUS"


def _is_ours(quota: _Quota, settings: Settings) -> bool:
    name = quota.whom.get(CLIENT)
    return name is None or name.startswith(f"{settings.worker.application_id}-")


async def _quotas(client: Client, user: str | None) -> list[_Quota]:
    """Return what is set for a user, for all users, and for client ids of whatever user.

    Raises:
        KafkaError: Brokers do not say.
    """
    users = [(QuotaMatch.ANY, None)] if user is None else [(QuotaMatch.NAME, user), (QuotaMatch.DEFAULT, None)]
    found: list[_Quota] = []
    for kind, (match, name) in [*((USER, each) for each in users), (CLIENT, (QuotaMatch.ANY, None))]:
        request = DescribeClientQuotasRequest(kind, match, name, strict=kind == CLIENT)
        answer = await client.request(await client.any_node(), request)
        if answer.error_code == KafkaCode.CLUSTER_AUTHORIZATION_FAILED:
            raise KafkaError("grant this principal DESCRIBE_CONFIGS on the cluster")
        if answer.error_code:
            raise KafkaError(error_name(answer.error_code))
        found += _read(answer.entries or ())
    return found


def _read(entries: Sequence[tuple[Sequence[tuple[str, str | None, object]], ...]]) -> Iterator[_Quota]:
    for entity, values, *_ in entries:
        whom = {kind: name for kind, name, _ in entity}
        for key, value, _ in values:
            yield _Quota(key, float(value), whom)  # type: ignore[arg-type]  # untyped protocol
