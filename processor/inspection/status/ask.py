"""Asks brokers how an application stands. It joins no group, commits nothing and fences nobody.

Each look has connections of its own, so that it sees the leaders of now, and that no broker answers. What one
question does not answer is left unknown, with a note; the others are asked all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from processor.config.visible import visible
from processor.errors import RebuildError, SeqmarkError, StopError
from processor.inspection.status.facts import (
    ApplicationProgress,
    HopProgress,
    PartitionProgress,
    PipelineProgress,
    QuarantineExample,
    QuarantineLook,
    QuarantineTally,
    VerdictsProgress,
)
from processor.kafka.client import TopicPartition, open_client
from processor.kafka.group.description import GroupDescription, describe_group
from processor.kafka.group.names import materialize_group
from processor.kafka.offsets import Bounds, bounds, committed, newest_timestamps, offsets_at
from processor.kafka.options import client_options
from processor.kafka.plain.consumer import read_spans
from processor.kafka.topics.ensure import UnreachableError, ensure
from processor.kafka.topics.plan import changelog_topic, positions_topic, topics_of
from processor.kafka.topics.sizes import topic_bytes
from processor.kafka.transactions.listing import OpenTransaction, open_transactions
from processor.ops.metrics import WORKS
from processor.pipeline.hops import FirstHop, hops_of
from processor.state.home import sizes
from processor.worker.web.others import PATH, hear
from schemas.redriven import REDRIVEN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any

    from processor.kafka.client import Client
    from processor.kafka.offsets import Bounds
    from processor.kafka.plain.consumer import Seen
    from processor.kafka.topics.plan import ClusterPlan
    from processor.pipeline.hops import Hop
    from processor.worker.web.others import Heard
    from schemas.config import Pipeline, Settings

    SpanReader = Callable[
        [Mapping[str, Any], Mapping[TopicPartition, tuple[int, int]], int, float],
        Awaitable[list[tuple[TopicPartition, Seen]]],
    ]

# Records keep the timestamps that they came with, so the last hour is that of their own clocks. What is
# read is bounded, in records, in bytes and in time, and read from the end: where a bound is met, what is
# older is missing, and the look says so. The newest few of each partition are looked at, however old they
# are: what was quarantined just now may be of last year.

MOST_RECORDS = 4_000
"""Of a quarantine, over all its partitions."""
MOST_BYTES = 32 * 1024 * 1024
LATEST_RECORDS = 20
"""Per partition, looked at in any case."""
NEWEST_OFFSETS = 2
"""Per partition, read before all others: a record, and the end of its transaction."""
HOUR_MS = 3_600_000
DEADLINE_S = 10.0
ERROR, DETAIL, SOURCE = "seqmark.error", "seqmark.detail", "seqmark.source"
"""As `processor.wire.quarantine.OURS`; a test holds them equal."""


class QuarantineReader:
    """Looks at quarantines, and reads one again only where something has come into it.

    Args:
        options: Those of an aiokafka client.
        read: Reads spans of partitions, as `read_spans` does.
    """

    def __init__(self, options: Mapping[str, Any], read: SpanReader = read_spans) -> None:
        self._options = options
        self._read = read
        self._seen: dict[str, tuple[object, QuarantineLook]] = {}

    async def look(
        self, client: Client, limits: Mapping[TopicPartition, Bounds], now_ms: int
    ) -> QuarantineLook:
        """Return what stands at the end of a quarantine, of which these are the partitions, with their bounds.

        Raises:
            RebuildError, StopError: It cannot be read.
        """
        topic = next(iter(limits)).topic
        # With the minute: what was of the last hour is older some time.
        state = {tp: each.stable for tp, each in limits.items()}, now_ms // 60_000
        if topic in self._seen and self._seen[topic][0] == state:
            return self._seen[topic][1]
        since_ms = now_ms - HOUR_MS
        first = await offsets_at(client, limits, since_ms, DEADLINE_S)
        most = max(1, MOST_RECORDS // len(limits))
        begins, cut = {}, False
        for tp, limit in limits.items():
            begin = first[tp]
            fewest = max(limit.start, limit.stable - most)
            cut |= begin is not None and begin < fewest
            latest = limit.stable - LATEST_RECORDS
            begins[tp] = max(fewest, latest if begin is None else min(begin, latest))
        records, whole = await self._from_the_end(
            {tp: (begins[tp], limit.stable) for tp, limit in limits.items()}
        )
        cut |= not whole and any(begin is not None for begin in first.values())
        look = QuarantineLook(tallied(records, since_ms), cut)
        self._seen[topic] = state, look
        return look

    async def _from_the_end(
        self, spans: Mapping[TopicPartition, tuple[int, int]]
    ) -> tuple[list[tuple[TopicPartition, Seen]], bool]:
        """Return the records of some spans, the newest surely, and whether those are all."""
        found: list[tuple[TopicPartition, Seen]] = []
        left_bytes, deadline_s = MOST_BYTES, time.monotonic() + DEADLINE_S
        ends, whole = {tp: stop for tp, (_, stop) in spans.items()}, True
        for offsets in (NEWEST_OFFSETS, LATEST_RECORDS, MOST_RECORDS):
            parts = {tp: (max(start, stop - offsets), ends[tp]) for tp, (start, stop) in spans.items()}
            if not whole or all(start >= stop for start, stop in parts.values()):
                break
            records = await self._read(self._options, parts, left_bytes, deadline_s - time.monotonic())
            found += records
            left_bytes -= sum(len(key or b"") + len(value or b"") for _, (key, value, *_) in records)
            ends = {tp: start for tp, (start, _) in parts.items()}
            whole = left_bytes > 0 and time.monotonic() < deadline_s
        return sorted(found, key=lambda each: (each[0], each[1][-1])), whole


def tallied(records: Iterable[tuple[TopicPartition, Seen]], since_ms: int) -> list[QuarantineTally]:
    """Count records by code and source, the most frequent of those from ``since_ms`` on first."""
    recent: dict[tuple[str, str], int] = defaultdict(int)
    older: dict[tuple[str, str], int] = defaultdict(int)
    newest: dict[tuple[str, str], QuarantineExample] = {}
    for tp, (_, _, headers, timestamp_ms, offset) in records:
        said = {name: (value or b"").decode(errors="replace") for name, value in headers}
        if REDRIVEN.decode() in said and ERROR not in said:
            continue  # a note, and no record
        source = said.get(SOURCE, "")
        kind = said.get(ERROR, "not written by a worker"), source.rsplit(":", 2)[0]
        (recent if timestamp_ms >= since_ms else older)[kind] += 1
        if kind not in newest or newest[kind].timestamp_ms <= timestamp_ms:
            newest[kind] = QuarantineExample(
                tp.topic, tp.partition, offset, timestamp_ms, source, said.get(DETAIL, "")
            )
    counted = [
        QuarantineTally(code, recent[code, topic], older[code, topic], example, topic)
        for (code, topic), example in newest.items()
    ]
    return sorted(counted, key=lambda tally: (-tally.recent, -tally.older, tally.code, tally.source_topic))


CLIENT_ID = "seqmark-status"
ASK_S = 5.0
"""For each question; a partition that does not answer with the others is asked once more, by itself."""
ALONE_S = 1.0
CHECK_S = 5.0
"""For all of the settings; one broker that says nothing must not hold up what the others say."""
CHECK_EVERY_S = 30.0
"""Settings of topics are compared no more often than that, while they are watched."""
MOST_CHARACTERS = 300
"""Of why a worker does not work."""
MOST_SENTENCES = 2
"""Of one pipeline and worker about what has escaped: one per reason."""

_BY_POSITIONS = "since the look before"


@dataclass(slots=True)
class WorkerWords:
    """What the live workers say, which only they know."""

    states: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By pipeline, of those that do not work on it, what they do instead."""
    escaped: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By pipeline, what has escaped since their start."""
    rates: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By hop, records per second."""
    where: list[str] = field(default_factory=list)
    """Addresses of those that say it."""

    def add(self, heard: Heard) -> None:
        """Add what one worker says; nothing where it is of a form that is not ours."""
        said: dict[str, Any] = heard.said or {}
        try:
            who, why = f"worker {heard.member.short}", str(said["worker"]["reason"])[:MOST_CHARACTERS]
            words = [
                (
                    str(each["pipeline"]),
                    [] if each["state"] in WORKS else [visible(f"{who}: {each['state']}: {why}".rstrip(": "))],
                    [
                        visible(f"{who}: {sentence}")
                        for sentence in (each["escaped"] or {"says": ()})["says"][:MOST_SENTENCES]
                    ],
                    str(each["name"]),
                    float(each["records_per_s"]),
                )
                for each in said["pipelines"]
            ]
        except (ValueError, KeyError, TypeError):
            return
        self.where.append(heard.where)
        for pipeline, states, escaped, hop, rate in words:
            self.states[pipeline] += states
            self.escaped[pipeline] += escaped
            self.rates[hop] += rate

    def measured_by(self, members: int) -> str:
        """Say whose rates these are; ``members``: how many workers there are."""
        whose = f"the worker at {self.where[0]}" if len(self.where) == 1 else f"{len(self.where)} workers"
        return whose + (f", not {others:,} others" if (others := members - len(self.where)) else "")


@dataclass(slots=True)
class _Answers:
    """What brokers have said in one look; what they did not say is missing."""

    at_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    group: GroupDescription | None = None
    partitions: list[TopicPartition] = field(default_factory=list)
    """Of the sources."""
    bounds: dict[TopicPartition, Bounds] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    newest: dict[TopicPartition, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    open: list[OpenTransaction] = field(default_factory=list)
    quarantines: dict[str, QuarantineLook] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    words: WorkerWords = field(default_factory=WorkerWords)
    verdicts: dict[str, VerdictsProgress] = field(default_factory=dict)
    """By pipeline."""


class StatusInspector:
    """Looks at some pipelines of a config, once or again and again."""

    def __init__(self, settings: Settings, pipelines: Sequence[Pipeline]) -> None:
        self._settings = settings
        self._pipelines = list(pipelines)
        self._hops = {each.name: hops_of(settings, each) for each in pipelines}
        self._options = client_options(settings.kafka)
        self._quarantines = QuarantineReader(self._options)
        self._plan: ClusterPlan | None = None
        self._planned_at_s: float | None = None
        self._refusal = ""
        self._before: tuple[float, Mapping[TopicPartition, int]] | None = None

    async def look(self) -> ApplicationProgress:
        """Return how the application stands now.

        Raises:
            ConfigError: Files of certificates or keys are wrong.
        """
        checking = asyncio.create_task(self._check_topics(), name="topics")
        answers, failure = _Answers(), ""
        try:
            async with open_client(self._settings.kafka, CLIENT_ID, self._topics()) as client:
                answers = await self._ask(client)
        except StopError as error:
            failure = str(error)
        except asyncio.CancelledError:
            checking.cancel()
            raise
        try:
            await checking
        except UnreachableError as error:
            failure = str(error)
        if failure:
            self._planned_at_s = None
            return self._progress(_Answers(), unreachable=self._refusal or failure)
        rates, measured_by = self._rates(answers)
        return self._progress(answers, rates, measured_by)

    # ------------------------------------------------------------------ what is asked

    async def _check_topics(self) -> None:
        """Compare the topics' settings with what they should be.

        Raises:
            UnreachableError: No broker answers.
        """
        now_s = time.monotonic()
        if self._planned_at_s is not None and now_s - self._planned_at_s < CHECK_EVERY_S:
            return
        self._plan, self._refusal = None, ""
        try:
            async with asyncio.timeout(CHECK_S):
                self._plan = await ensure(self._settings, create=False)
        except UnreachableError:
            raise
        except TimeoutError:
            servers = self._settings.kafka.bootstrap_servers
            self._refusal = (
                f"{servers} did not answer in {CHECK_S:.0f} s: is the cluster well, or is there a firewall "
                "that drops packets on the way?"
            )
        except StopError as error:
            self._refusal = str(error)
        self._planned_at_s = now_s

    async def _ask(self, client: Client) -> _Answers:
        answers = _Answers()
        answers.partitions = self._partitions(client, {hop.source for hop in self._all_hops()})
        # Beside each other: a broker that says nothing is waited for once.
        await asyncio.gather(
            self._ask_group(client, answers),
            self._ask_states(client, answers),
            *(self._ask_bounds(client, topic, answers) for topic in self._topics()),
        )
        held = [tp for tp, limit in answers.bounds.items() if limit.stable < limit.end]
        if held:
            answers.open, problems = await open_transactions(client, held)
            answers.notes += dict.fromkeys(problems)
        for topic in {each.quarantine for each in self._pipelines} - {None}:
            await self._ask_quarantine(client, str(topic), answers)
        for pipeline in self._pipelines:
            await self._ask_verdicts(client, pipeline, answers)
        return answers

    async def _ask_group(self, client: Client, answers: _Answers) -> None:
        application = self._settings.worker.application_id
        try:
            answers.group = await describe_group(client, application, ASK_S)
            for each in await hear(answers.group.members, PATH, application):
                answers.words.add(each)
            if answers.partitions:
                answers.committed = await committed(client, application, answers.partitions, ASK_S)
        except (StopError, RebuildError) as error:
            answers.notes.append(str(error))

    async def _ask_states(self, client: Client, answers: _Answers) -> None:
        states = self._partitions(client, set(map(self._changelog, self._all_hops())))
        if states:
            newest, answers.sizes = await asyncio.gather(
                newest_timestamps(client, states), topic_bytes(client, states)
            )
            answers.newest = {tp: at_ms for tp, at_ms in newest.items() if at_ms >= 0}

    async def _ask_bounds(self, client: Client, topic: str, answers: _Answers) -> None:
        """Ask the leaders of a topic's partitions for their bounds, all at once or else one by one."""
        wanted = self._partitions(client, {topic})
        led = [tp for tp in wanted if client.leader(tp) is not None]
        if len(led) < len(wanted):
            missing = sorted(tp.partition for tp in set(wanted) - set(led))
            answers.notes.append(f"{topic}: {_numbers(missing)} without a leader")
        try:
            answers.bounds |= await bounds(client, led, ASK_S) if led else {}
        except RebuildError:
            alone = (bounds(client, [tp], ALONE_S) for tp in led)
            for found in await asyncio.gather(*alone, return_exceptions=True):
                if isinstance(found, RebuildError):
                    answers.notes.append(str(found))
                elif isinstance(found, BaseException):
                    raise found from None
                else:
                    answers.bounds |= found

    async def _ask_quarantine(self, client: Client, topic: str, answers: _Answers) -> None:
        limits = {tp: limit for tp, limit in answers.bounds.items() if tp.topic == topic}
        try:
            if limits:
                answers.quarantines[topic] = await self._quarantines.look(client, limits, answers.at_ms)
        except SeqmarkError as error:
            answers.notes.append(f"quarantine {topic}: {error}")

    async def _ask_verdicts(self, client: Client, pipeline: Pipeline, answers: _Answers) -> None:
        try:
            found = await self._verdicts(client, pipeline, answers.bounds)
        except RebuildError as error:
            answers.notes.append(f"verdicts of {pipeline.name}: {error}")
        else:
            if found is not None:
                answers.verdicts[pipeline.name] = found

    async def _verdicts(
        self, client: Client, pipeline: Pipeline, limits: Mapping[TopicPartition, Bounds]
    ) -> VerdictsProgress | None:
        """Return what a pipeline's topic of verdicts holds; None: its output has none.

        Raises:
            RebuildError: The group of `materialize` could not be asked within `ASK_S`.
        """
        topic = pipeline.verdicts
        if topic is None:
            return None
        partitions = [TopicPartition(topic, number) for number in client.partitions(topic)]
        if not partitions:
            return VerdictsProgress(topic)
        sizes = await topic_bytes(client, partitions)
        done = await committed(client, materialize_group(self._settings, pipeline), partitions, ASK_S)
        known = [limits[tp] for tp in partitions if tp in limits]
        # The last offset is a transaction's marker: nothing is to be read there.
        behind = [max(0, limits[tp].stable - 1 - offset) for tp, offset in done.items() if tp in limits]
        return VerdictsProgress(
            topic,
            sizes.get(topic),
            sum(limit.stable - limit.start for limit in known) if len(known) == len(partitions) else None,
            len(behind),
            sum(behind) if behind else None,
        )

    def _rates(self, answers: _Answers) -> tuple[Mapping[str, float], str]:
        """Return the records per second of hops, by the positions of the look before or by what workers say."""
        now_s, before = time.monotonic(), self._before
        self._before = now_s, answers.committed
        if before is not None:
            then_s, positions = before
            return _moved(self._all_hops(), positions, answers.committed, now_s - then_s), _BY_POSITIONS
        if not answers.words.where or answers.group is None:
            return {}, ""
        return answers.words.rates, answers.words.measured_by(len(answers.group.members))

    # ------------------------------------------------------------------ what comes of it

    def _progress(
        self,
        answers: _Answers,
        rates: Mapping[str, float] | None = None,
        measured_by: str = "",
        unreachable: str = "",
    ) -> ApplicationProgress:
        refused = [f"the settings of topics were not compared: {self._refusal}"] if self._refusal else []
        return ApplicationProgress(
            self._settings.worker.application_id,
            answers.at_ms,
            [self._pipeline(each, answers, rates or {}, measured_by) for each in self._pipelines],
            answers.group,
            [] if unreachable else [*refused, *answers.notes],
            unreachable,
        )

    def _pipeline(
        self, pipeline: Pipeline, answers: _Answers, rates: Mapping[str, float], measured_by: str
    ) -> PipelineProgress:
        hops = [
            replace(
                self._hop(hop, answers),
                records_per_s=rates.get(hop.name),
                measured_by=measured_by if hop.name in rates else "",
            )
            for hop in self._hops[pipeline.name]
        ]
        topics = {pipeline.source, *(topic for _, topic in topics_of(self._settings, pipeline))}
        found = PipelineProgress(
            pipeline,
            hops,
            [each for each in answers.open if each.partition.topic in topics],
            answers.quarantines.get(pipeline.quarantine or "", QuarantineLook()).of(pipeline.source),
            answers.verdicts.get(pipeline.name),
            escaped=answers.words.escaped.get(pipeline.name, ()),
            states=answers.words.states.get(pipeline.name, ()),
        )
        if self._plan is None:
            return found
        return replace(
            found,
            missing=[plan.topic for plan in self._plan.missing if plan.topic in topics],
            problems=[each for each in self._plan.problems if each.key in topics],
            warnings=[each for each in self._plan.warnings if each.key in topics],
        )

    def _hop(self, hop: Hop, answers: _Answers) -> HopProgress:
        changelog = self._changelog(hop)
        partitions = sorted(tp for tp in answers.partitions if tp.topic == hop.source)
        return HopProgress(
            hop.name,
            hop.source,
            [self._partition(tp, changelog, answers) for tp in partitions],
            changelog,
            answers.sizes.get(changelog),
            self._local_bytes(hop.name),
        )

    def _local_bytes(self, hop: str) -> list[int]:
        """Return the bytes of a hop's state in each worker's folder on this machine that has some."""
        worker = self._settings.worker
        try:
            return [size for size in sizes(worker.state_dir, worker.application_id, [hop]) if size]
        except OSError:  # a worker deletes files meanwhile, or others may not look
            return []

    @staticmethod
    def _partition(tp: TopicPartition, changelog: str, answers: _Answers) -> PartitionProgress:
        limit = answers.bounds.get(tp)
        member = None if answers.group is None else answers.group.assignee(tp)
        return PartitionProgress(
            tp.partition,
            None if member is None else member.name,
            answers.committed.get(tp),
            None if limit is None else limit.start,
            None if limit is None else limit.stable,
            None if limit is None else limit.end,
            answers.newest.get(TopicPartition(changelog, tp.partition)),
        )

    def _changelog(self, hop: Hop) -> str:
        if isinstance(hop, FirstHop):
            return positions_topic(self._settings, hop.pipeline.name)
        return changelog_topic(self._settings, hop.pipeline)

    def _all_hops(self) -> list[Hop]:
        return [hop for hops in self._hops.values() for hop in hops]

    def _topics(self) -> list[str]:
        """Return all topics of the pipelines, each once."""
        found = dict.fromkeys(each.source for each in self._pipelines)
        for each in self._pipelines:
            found |= dict.fromkeys(topic for _, topic in topics_of(self._settings, each))
        return list(found)

    @staticmethod
    def _partitions(client: Client, topics: Collection[str]) -> list[TopicPartition]:
        return [
            TopicPartition(topic, number) for topic in sorted(topics) for number in client.partitions(topic)
        ]


def _moved(
    hops: Iterable[Hop],
    then: Mapping[TopicPartition, int],
    now: Mapping[TopicPartition, int],
    seconds: float,
) -> dict[str, float]:
    """Return how many offsets per second each hop's positions have moved."""
    rates = {}
    for hop in hops:
        both = [tp for tp in now if tp.topic == hop.source and tp in then]
        if both:
            rates[hop.name] = sum(max(0, now[tp] - then[tp]) for tp in both) / max(seconds, 1e-9)
    return rates


def _numbers(partitions: Sequence[int]) -> str:
    return f"partition{'' if len(partitions) == 1 else 's'} {', '.join(map(str, partitions))}"
