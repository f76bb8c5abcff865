"""Plans which topics there should be, with which settings, and names what is wrong with those that are.

Pure: settings and a view of the cluster in, a plan out. Nothing that exists is ever planned to be altered.

A *problem* loses records or state, or makes the broker refuse them: nothing may run. A *warning* may
become one. Settings of a topic that is still to be made follow its source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from processor.errors import Problem, StopError
from processor.kafka.topics.feeding import feeders_first
from processor.kafka.topics.index import WITHOUT, index_topic, index_warnings, route_index_topic
from schemas.config import InternalTopic
from schemas.near import did_you_mean

if TYPE_CHECKING:
    from schemas.config import Pipeline, Settings

# 2^63 - 1 ms: no limit. Since 4.0 Kafka refuses timestamps more than 1 h ahead by default; a record that the
# source took must not be refused by the sink.
NO_LIMIT = "9223372036854775807"
BEFORE_MAX = "message.timestamp.before.max.ms"
AFTER_MAX = "message.timestamp.after.max.ms"
# The one name of both before Kafka 3.6; gone in 4.0.
DIFFERENCE_MAX = "message.timestamp.difference.max.ms"
LIMITS = (BEFORE_MAX, AFTER_MAX, DIFFERENCE_MAX)
COMPRESSION = "compression.type"
READ_CONFIGS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    COMPRESSION,
    "message.timestamp.type",
    "min.insync.replicas",
    *LIMITS,
)
# In quarantine three headers: two codes of about 20 bytes, a source of at most 249 + 30, and a detail. In
# duplicates a receipt beside the record's key, which may be most of the record: a few hundred bytes, and an id,
# of which no part takes more than 4 KiB of the record. One record per batch. With a longer id it loses its key.
MORE_BYTES = 64 * 1024
# As many as a record's place can tell apart (`processor.engine.repartition`).
MOST_ROUTED = 65_536
# Kafka's own default: 1 MiB and the 12 bytes before a batch. Changelog blocks are cut to fit.
CHANGELOG_BYTES = 1024 * 1024 + 12


_RETENTION = ("retention.ms", "retention.bytes")
_MODES = {"compact": "watermark", "delete": "insert-id"}
"""By the cleanup policy of a changelog, whose state it holds."""


class Purpose(StrEnum):
    """What a topic is for."""

    SOURCE = "source"
    SINK = "sink"
    VERDICTS = "verdicts"
    DUPLICATES = "duplicates"
    QUARANTINE = "quarantine"
    CHANGELOG = "changelog"
    REPARTITION = "repartition"
    POSITIONS = "positions"
    INDEX = "index"
    ROUTE_INDEX = "route-index"


MARKED = frozenset({Purpose.INDEX, Purpose.ROUTE_INDEX})
"""Topics of marks, by which records are looked up: the application works without."""
INTERNAL = frozenset({Purpose.CHANGELOG, Purpose.REPARTITION, Purpose.POSITIONS})
"""Topics that belong to the application and hold what it cannot do without."""
_LARGER = frozenset({Purpose.DUPLICATES, Purpose.QUARANTINE, Purpose.REPARTITION})
"""Their records have a receipt, a reason, or where they came from beside what the source's have."""
_LIKE_SINK = frozenset({Purpose.DUPLICATES, Purpose.CHANGELOG, Purpose.REPARTITION, Purpose.INDEX})
"""With route these have the sink's partition count."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as the cluster has it: effective settings, the broker's defaults included."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


ClusterView = Mapping[str, TopicView]
"""Topics by name; a name that is not there does not exist."""


@dataclass(frozen=True, slots=True)
class TopicPlan(TopicView):
    """A topic that should be there, as it is or will be."""

    topic: str
    purpose: Purpose
    pipeline: str
    exists: bool

    def problem(self, message: str) -> Problem:
        """Say what is wrong with it."""
        return Problem(self.topic, f"{self.purpose} of pipeline {self.pipeline}: {message}")


class TopicState(StrEnum):
    """What has become of a topic."""

    CREATED = "created"
    EXISTS = "exists"
    MISSING = "missing"
    WRONG = "wrong"


@dataclass(slots=True)
class ClusterPlan:
    """What should be there, and what is wrong with what is."""

    topics: list[TopicPlan] = field(default_factory=list)
    """Sources that exist included; where a source is missing, its pipeline's topics cannot be planned."""
    problems: list[Problem] = field(default_factory=list)
    narrow: list[Problem] = field(default_factory=list)
    """Those of the problems that a worker may wait for: a topic has fewer partitions than the source."""
    warnings: list[Problem] = field(default_factory=list)
    created: set[str] = field(default_factory=set)
    """Names of topics that were made since it was planned first."""

    def state(self, topic: TopicPlan) -> TopicState:
        """Return what has become of a topic."""
        if any(problem.key == topic.topic for problem in self.problems):
            return TopicState.WRONG
        if not topic.exists:
            return TopicState.MISSING
        return TopicState.CREATED if topic.topic in self.created else TopicState.EXISTS

    @property
    def missing(self) -> list[TopicPlan]:
        """What is still to be made, and nothing else is wrong with."""
        return [topic for topic in self.topics if self.state(topic) is TopicState.MISSING]

    @property
    def absent(self) -> list[Problem]:
        """What to say of topics that are missing and that the application cannot do without."""
        text = "does not exist: create it with `seqmark topics`, or set worker.create_topics"
        return [_said_of(topic, text) for topic in self.missing if topic.purpose not in MARKED]

    @property
    def unmarked(self) -> list[Problem]:
        """What to say of topics of marks that are missing: a worker goes on without them."""
        text = (
            "does not exist, or this principal may not DESCRIBE it or its settings (DESCRIBE_CONFIGS): create "
            f"it with `seqmark topics`, or grant that. {WITHOUT}"
        )
        said = {warning.key for warning in self.warnings}
        missing = [topic for topic in self.missing if topic.purpose in MARKED]
        return [topic.problem(text) for topic in missing if topic.topic not in said]

    def require(self, *, growing: bool = False) -> None:
        """Refuse to work on topics that are wrong or missing.

        Args:
            growing: Let pass what is narrower than its source, where the pipeline has worked before: partitions
                are being added then, and those that are everywhere go on.

        Raises:
            StopError: Names every one, and what to do.
        """
        new = {TopicState.CREATED, TopicState.MISSING}
        needed = [topic for topic in self.topics if topic.purpose not in MARKED]
        young = {topic.pipeline for topic in needed if self.state(topic) in new}
        grown = {topic.topic for topic in self.topics if growing and topic.pipeline not in young}
        patient = [problem for problem in self.narrow if problem.key in grown]
        wrong = [str(problem) for problem in self.problems if problem not in patient]
        wrong += map(str, self.absent)
        if wrong:
            raise StopError("the topics are not right:\n" + "\n".join(wrong))


def _said_of(topic: TopicPlan, text: str) -> Problem:
    return Problem(topic.topic, f"{topic.purpose} of pipeline {topic.pipeline} {text}")


def changelog_topic(settings: Settings, pipeline: Pipeline) -> str:
    """Return the name of the topic that holds a pipeline's state."""
    return InternalTopic.CHANGELOG.of(settings.worker.application_id, pipeline.name)


def repartition_topic(settings: Settings, pipeline: Pipeline) -> str:
    """Return the name of the internal topic that ``route = "by-id"`` re-keys through."""
    return InternalTopic.REPARTITION.of(settings.worker.application_id, pipeline.name)


def positions_topic(settings: Settings, pipeline: str) -> str:
    """Return the name of the topic that says how far a pipeline's source has been routed."""
    return InternalTopic.POSITIONS.of(settings.worker.application_id, pipeline)


def topics_of(settings: Settings, pipeline: Pipeline) -> Iterator[tuple[Purpose, str]]:
    """Yield the topics of a pipeline beside its source."""
    if pipeline.sink is not None:
        yield Purpose.SINK, pipeline.sink
    if pipeline.verdicts is not None:
        yield Purpose.VERDICTS, pipeline.verdicts
    if pipeline.duplicates is not None:
        yield Purpose.DUPLICATES, pipeline.duplicates
    if pipeline.quarantine is not None:
        yield Purpose.QUARANTINE, pipeline.quarantine
    yield Purpose.CHANGELOG, changelog_topic(settings, pipeline)
    if pipeline.routed:
        yield Purpose.REPARTITION, repartition_topic(settings, pipeline)
        yield Purpose.POSITIONS, positions_topic(settings, pipeline.name)
        yield Purpose.ROUTE_INDEX, route_index_topic(settings, pipeline)
    yield Purpose.INDEX, index_topic(settings, pipeline)


def limit_bytes(cluster: ClusterView, topic: str) -> int:
    """Return the largest batch that a topic takes; it must be there."""
    return int(cluster[topic].configs["max.message.bytes"])


def names(settings: Settings) -> list[str]:
    """Return all topics of all pipelines, each once, but for those of `MARKED`."""
    found = {pipeline.source: None for pipeline in settings.pipelines}
    for pipeline in settings.pipelines:
        needed = (topic for purpose, topic in topics_of(settings, pipeline) if purpose not in MARKED)
        found.update(dict.fromkeys(needed))
    return list(found)


def marked(settings: Settings) -> list[str]:
    """Return the topics of `MARKED` of all pipelines."""
    every = (each for pipeline in settings.pipelines for each in topics_of(settings, pipeline))
    return [topic for purpose, topic in every if purpose in MARKED]


def plan(settings: Settings, cluster: ClusterView, others: Collection[str] = ()) -> ClusterPlan:
    """Compare what the pipelines need with what the cluster has.

    Args:
        settings: The config.
        cluster: Its topics, as far as they are there.
        others: Names of all topics there: a source that is missing may be one of them, misspelt.
    """
    made = ClusterPlan()
    planned: dict[str, TopicView] = dict(cluster)
    for pipeline in feeders_first(settings.pipelines):
        source = planned.get(pipeline.source)
        if source is None:
            made.problems.append(Problem(pipeline.source, _no_source(settings, pipeline, others)))
            continue
        if pipeline.source in cluster:
            made.topics.append(_as_is(pipeline.source, Purpose.SOURCE, pipeline, source))
        clean = _clean_partitions(settings, pipeline, planned, source)
        for purpose, topic in topics_of(settings, pipeline):
            partitions = clean if purpose in _LIKE_SINK or purpose is Purpose.SINK else source.partitions
            configs = wanted_configs(purpose, pipeline, source)
            as_source = partitions, source.replication_factor, configs
            wanted = TopicPlan(*as_source, topic, purpose, pipeline.name, exists=topic in planned)
            there = planned.get(topic)
            if there is None:
                planned[topic] = wanted
                made.topics.append(wanted)
                continue
            if purpose in MARKED:
                made.warnings += map(
                    wanted.problem, index_warnings(there.configs, there.partitions, wanted.partitions)
                )
                if topic in cluster:
                    made.topics.append(_as_is(topic, purpose, pipeline, there))
                continue
            narrow = [wanted.problem(message) for message in _narrow(wanted, pipeline, there)]
            made.narrow += narrow
            made.problems += narrow
            made.problems += map(wanted.problem, _problems(wanted, pipeline, source, there))
            made.warnings += map(wanted.problem, _warnings(wanted, source, there))
            if topic in cluster:
                made.topics.append(_as_is(topic, purpose, pipeline, there))
    return made


def wanted_configs(purpose: Purpose, pipeline: Pipeline, source: TopicView) -> dict[str, str]:
    """Return the settings of a topic that is to be made."""
    # Whatever the broker's own is: batches that it compresses again may be too large then.
    configs = {"message.timestamp.type": "CreateTime", COMPRESSION: "producer"}
    configs |= {limit: NO_LIMIT for limit in LIMITS if limit in source.configs}
    configs |= _like(source, "min.insync.replicas")
    largest = _number(source, "max.message.bytes", CHANGELOG_BYTES)
    if purpose in _LARGER:
        largest += MORE_BYTES
    if purpose in MARKED:
        # A mark takes more bytes than the records that it speaks of may: only their time limits both.
        configs |= {"cleanup.policy": "delete"} | _like(source, "retention.ms") | {"retention.bytes": "-1"}
        largest = CHANGELOG_BYTES
    elif purpose in INTERNAL:
        blocks = purpose is Purpose.CHANGELOG and pipeline.dedup.trims_changelog
        compact = purpose is not Purpose.REPARTITION and not blocks
        # Never by time: retention goes by record timestamps, a replayed stream would lose live state.
        configs |= {"cleanup.policy": "compact" if compact else "delete"}
        configs |= {"retention.ms": "-1", "retention.bytes": "-1"}
        largest = max(largest, CHANGELOG_BYTES) if purpose is Purpose.REPARTITION else CHANGELOG_BYTES
    elif purpose is Purpose.VERDICTS:
        # As long as the records that they speak of, which take more bytes: only their time limits both.
        configs |= {"cleanup.policy": "delete"} | _like(source, "retention.ms") | {"retention.bytes": "-1"}
        largest = CHANGELOG_BYTES
    else:
        configs |= {"cleanup.policy": "delete"} | _like(source, "retention.ms", "retention.bytes")
    # The broker keeps it in an int32.
    return configs | {"max.message.bytes": str(min(largest, 2**31 - 1))}


def _narrow(wanted: TopicPlan, pipeline: Pipeline, there: TopicView) -> Iterator[str]:
    """Find a topic in which the last partitions of the source have none of the same number.

    A wider one is no fault: partitions are added to the source last.
    """
    if pipeline.routed and wanted.purpose is not Purpose.POSITIONS:
        return
    if there.partitions < wanted.partitions:
        yield (
            f"has {there.partitions} partitions, its source {pipeline.source} has {wanted.partitions}: "
            "add partitions to it, it must have as many"
        )


def _problems(wanted: TopicPlan, pipeline: Pipeline, source: TopicView, there: TopicView) -> Iterator[str]:
    if pipeline.routed and wanted.purpose in _LIKE_SINK and there.partitions != wanted.partitions:
        yield (
            f"has {there.partitions} partitions, its sink {pipeline.sink} has {wanted.partitions}: "
            "they must be equal"
        )
    if wanted.purpose is Purpose.POSITIONS and source.partitions > MOST_ROUTED:
        yield f"the source has {source.partitions} partitions: at most {MOST_ROUTED} can be routed"
    kind = there.configs.get("message.timestamp.type", "CreateTime")
    if kind != "CreateTime":
        yield f"message.timestamp.type is {kind}: must be CreateTime, or timestamps are lost"
    for limit in LIMITS:
        if _number(there, limit, int(NO_LIMIT)) < _number(source, limit, 0):
            yield (
                f"{limit} is {there.configs[limit]}, the source's {source.configs[limit]}: "
                "records that the source took would be refused"
            )
    if wanted.purpose in INTERNAL:
        changelog = wanted.purpose is Purpose.CHANGELOG
        right, mode = wanted.configs["cleanup.policy"], pipeline.dedup.mode
        yield from _state_at_risk(there.configs, right, mode, changelog=changelog)


def _warnings(wanted: TopicPlan, source: TopicView, there: TopicView) -> Iterator[str]:
    size = _number(there, "max.message.bytes", 2**31 - 1)
    if wanted.purpose in {Purpose.CHANGELOG, Purpose.POSITIONS, Purpose.VERDICTS}:
        if size < CHANGELOG_BYTES - 12:
            yield f"max.message.bytes is {size}: at least {CHANGELOG_BYTES} is better"
    elif size < (source_size := _number(source, "max.message.bytes", 0)):
        yield (
            f"max.message.bytes is {size}, the source's {source_size}: "
            "a larger record is quarantined, or stops the worker"
        )
    if (codec := there.configs.get(COMPRESSION, "producer")) != "producer":
        yield (
            f"{COMPRESSION} is {codec}: brokers compress each batch again, and one that is larger than "
            "max.message.bytes then stops the worker: set producer"
        )
    least = "min.insync.replicas"
    if _number(there, least, 1) < _number(source, least, 1):
        yield f"{least} is {there.configs.get(least, 1)}, the source's {source.configs[least]}"
    if there.replication_factor < source.replication_factor:
        yield f"has {there.replication_factor} replicas, the source {source.replication_factor}"
    policy = there.configs.get("cleanup.policy", "delete")
    # An internal topic of the wrong policy is a problem already.
    if "compact" in policy and wanted.purpose not in INTERNAL:
        yield f"cleanup.policy is {policy}: a record without a key is refused there"


def _as_is(topic: str, purpose: Purpose, pipeline: Pipeline, there: TopicView) -> TopicPlan:
    as_there = there.partitions, there.replication_factor, there.configs
    return TopicPlan(*as_there, topic, purpose, pipeline.name, exists=True)


def _clean_partitions(settings: Settings, pipeline: Pipeline, cluster: ClusterView, source: TopicView) -> int:
    """Return the partition count of the sink and of what goes with it: the source's, but with route its own."""
    if pipeline.routed:
        internal = repartition_topic(settings, pipeline), changelog_topic(settings, pipeline)
        for topic in (pipeline.clean_topic, *internal):
            if topic in cluster:
                return cluster[topic].partitions
    return source.partitions


def _like(source: TopicView, *keys: str) -> dict[str, str]:
    return {key: source.configs[key] for key in keys if key in source.configs}


def _number(topic: TopicView, key: str, otherwise: int) -> int:
    value = topic.configs.get(key)
    return int(value) if value is not None else otherwise


def _no_source(settings: Settings, pipeline: Pipeline, others: Collection[str]) -> str:
    """Say how a source that does not exist is made: its partition count is the producer's to decide.

    ``others`` are all topics there, of which one may be meant.
    """
    text = f"the source of pipeline {pipeline.name} does not exist: create it first"
    if meant := did_you_mean(pipeline.source, others):
        text += f", or {meant}"
    secured = "" if settings.kafka.security_protocol == "PLAINTEXT" else " --command-config client.properties"
    return (
        f"{text}; `kafka-topics.sh --bootstrap-server {settings.kafka.bootstrap_servers}{secured} --create "
        f"--topic {pipeline.source} --partitions 4` creates it, `seqmark generate -c FILE --pipeline "
        f"{pipeline.name} --records 100000` creates it with a test stream in it"
    )


def _state_at_risk(configs: Mapping[str, str], right: str, mode: str, *, changelog: bool) -> Iterator[str]:
    """Yield what is wrong with the settings of an internal topic.

    Args:
        configs: As they are.
        right: The cleanup policy that it must have.
        mode: Of the pipeline.
        changelog: Whether it is its changelog.
    """
    policy = configs.get("cleanup.policy", "delete")
    if policy != right and changelog and _made_for(configs, policy):
        was, now = _MODES[policy], mode
        yield (
            f"holds the state of mode {was} (cleanup.policy is {policy}), and the pipeline has mode {now} now: "
            f"where dedup.mode was changed from {was} to {now} over this state, set it back, or give the "
            "pipeline another name and begin with an empty state, for a state of one mode means nothing under "
            "another (see 'Changes' and 'Beginning anew' in docs/operations.md). Where it was not, "
            f"cleanup.policy must be {right}, or state is deleted"
        )
    elif policy != right:
        yield f"cleanup.policy is {policy}: must be {right}, or state is deleted"
    elif right == "delete":
        for key in _RETENTION:
            if configs.get(key, "-1") != "-1":
                yield f"{key} is {configs[key]}: must be -1, or state is deleted"


def _made_for(configs: Mapping[str, str], policy: str) -> bool:
    """Whether a changelog has a policy and a retention that Seqmark makes one with, of either mode."""
    kept = all(configs.get(key) == "-1" for key in _RETENTION)
    return kept and policy in {"compact", "delete"}
