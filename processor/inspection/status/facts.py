"""Holds what is known of an application at one moment; what is not known is None.

Pure: `processor.inspection.status.ask` fills it, tables and JSON are made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from processor.inspection.findings import Level
from processor.ops.status_text import count, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from processor.errors import Problem
    from processor.kafka.group.description import GroupDescription
    from processor.kafka.transactions.listing import OpenTransaction
    from schemas.config import Pipeline

HANGS_S = 900.0
"""The longest that brokers let a transaction be open by default (transaction.max.timeout.ms)."""
MOST_NUMBERS = 12
"""Of partitions, in a sentence."""


class Statement(NamedTuple):
    """What is to be said, whole or as a part of a sentence."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far one partition of a source has come.

    Attributes:
        number: Of the partition.
        worker: The group's member that has it; None: nobody, or nobody knows.
        position: Committed by the group: the first offset that is not taken in.
        start: The first offset that is still retained.
        stable: The last stable offset: nobody reads beyond it.
        end: The high watermark.
        committed_ms: When it was committed last, by the newest record of the changelog.
    """

    number: int
    worker: str | None = None
    position: int | None = None
    start: int | None = None
    stable: int | None = None
    end: int | None = None
    committed_ms: int | None = None

    @property
    def lag(self) -> int | None:
        """Offsets from the position to the last stable offset."""
        return self._to(self.stable)

    @property
    def lag_to_end(self) -> int | None:
        """Offsets from the position to the high watermark."""
        return self._to(self.end)

    @property
    def held(self) -> int:
        """Offsets that an open transaction holds back from every reader."""
        return 0 if self.end is None or self.stable is None else max(0, self.end - self.stable)

    @property
    def expired(self) -> int:
        """Offsets that retention has removed before they were taken in."""
        return 0 if self.start is None or self.position is None else max(0, self.start - self.position)

    def _to(self, end: int | None) -> int | None:
        return None if self.position is None or end is None else max(0, end - self.position)


@dataclass(frozen=True, slots=True)
class HopProgress:
    """How far a hop has come; a pipeline is one, with route two.

    Attributes:
        name: The hop's, which is the pipeline's but for the first of two.
        source: The topic that it reads.
        partitions: Of the source; empty where there is no such topic.
        changelog: The topic that holds its state.
        changelog_bytes: On the brokers, one copy.
        local_bytes: Its state in each worker's folder on this machine.
        records_per_s: Taken in, as far as it could be measured.
        measured_by: What that was measured by, in words.
    """

    name: str
    source: str
    partitions: Sequence[PartitionProgress] = ()
    changelog: str = ""
    changelog_bytes: int | None = None
    local_bytes: Sequence[int] = ()
    records_per_s: float | None = None
    measured_by: str = ""

    @property
    def unowned(self) -> list[int]:
        """Partitions that nobody works on."""
        return [each.number for each in self.partitions if each.worker is None]

    @property
    def lag(self) -> int | None:
        """Offsets behind the last stable offsets, of all partitions that have a position; None: none has."""
        known = [each.lag for each in self.partitions if each.lag is not None]
        return sum(known) if known else None

    @property
    def unbegun(self) -> int:
        """Offsets in partitions that nothing was ever committed of."""
        return sum(
            each.stable - each.start
            for each in self.partitions
            if each.position is None and each.stable is not None and each.start is not None
        )


@dataclass(frozen=True, slots=True)
class QuarantineExample:
    """The newest quarantined record of a code."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    source: str
    """``topic:partition:offset``."""
    detail: str


@dataclass(frozen=True, slots=True)
class QuarantineTally:
    """What stands at the end of a quarantine with one code.

    Attributes:
        recent: Records of the last hour, by their own timestamps.
        older: Those before, of the newest few of each partition.
        source_topic: Where they came from, as they say it; empty: they do not.
    """

    code: str
    recent: int
    older: int
    example: QuarantineExample
    source_topic: str = ""


@dataclass(frozen=True, slots=True)
class QuarantineLook:
    """What was seen of a quarantine; ``cut`` where there is more in the last hour than was read."""

    tallies: Sequence[QuarantineTally] = ()
    cut: bool = False

    @property
    def recent(self) -> int:
        """Records of the last hour."""
        return sum(each.recent for each in self.tallies)

    def of(self, source: str) -> QuarantineLook:
        """Return what is of a source, and what does not say whose it is: pipelines may share a quarantine."""
        return replace(self, tallies=[each for each in self.tallies if each.source_topic in {source, ""}])


@dataclass(frozen=True, slots=True)
class VerdictsProgress:
    """What stands in a topic of verdicts, and how far `seqmark materialize` has come in it.

    Attributes:
        topic: The topic of verdicts.
        topic_bytes: On the brokers, one copy.
        retained: Offsets from the first that is retained to the last stable one.
        materialized: Partitions that a run of materialize has committed a position of.
        unmaterialized: Offsets behind those positions; None: none has one.
    """

    topic: str
    topic_bytes: int | None = None
    retained: int | None = None
    materialized: int = 0
    unmaterialized: int | None = None


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """All that is known of a pipeline.

    Attributes:
        verdicts: None where its output has none.
        missing: Topics that do not exist yet, and which the worker or `seqmark topics` would create.
        problems: Of its topics, as `seqmark topics` says them.
        notes: What could not be asked, and why.
        escaped: What its live workers say has escaped.
        states: What those do that are not ready for it, by their own words.
    """

    pipeline: Pipeline
    hops: Sequence[HopProgress]
    open: Sequence[OpenTransaction] = ()
    quarantine: QuarantineLook = field(default_factory=QuarantineLook)
    verdicts: VerdictsProgress | None = None
    missing: Sequence[str] = ()
    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()
    notes: Sequence[str] = ()
    escaped: Sequence[str] = ()
    states: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ApplicationProgress:
    """All that is known of an application at one moment.

    Attributes:
        group: None: it could not be asked; a note says why.
        unreachable: Why no broker answers; empty where one does.
    """

    application_id: str
    at_ms: int
    pipelines: Sequence[PipelineProgress]
    group: GroupDescription | None = None
    notes: Sequence[str] = ()
    unreachable: str = ""


def sentence(pipeline: PipelineProgress, application: ApplicationProgress) -> Statement:
    """Return the sentence about a pipeline: what is most important about it."""
    standing = list(_standing(pipeline, application))
    known = not application.unreachable and bool(pipeline.hops[0].partitions)
    wrong = list(_wrong(pipeline, application)) if known else []
    order = list(Level)
    level = min((each.level for each in (*standing, *wrong)), key=order.index)
    said = [", ".join(each.text for each in standing), *(each.text for each in wrong)]
    text = f"{pipeline.pipeline.name}: {'; '.join(said)}"
    return Statement(level, f"{text}; ok" if level is Level.OK else text)


def _standing(pipeline: PipelineProgress, application: ApplicationProgress) -> Iterator[Statement]:
    if application.unreachable:
        yield Statement(Level.PROBLEM, "nothing is known, no broker answers")
        return
    source = pipeline.hops[0]
    if not source.partitions:
        gone = any(each.key == source.source for each in pipeline.problems)
        why = "does not exist" if gone else "is not seen: it does not exist, or may not be described"
        yield Statement(Level.PROBLEM, f"its source {source.source} {why}")
        return
    yield _owners(pipeline, application)
    yield from _lag(pipeline.hops)
    if pipeline.pipeline.observe:
        yield Statement(Level.OK, "observing (every record passes)")


def _owners(pipeline: PipelineProgress, application: ApplicationProgress) -> Statement:
    group = application.group
    if group is None:
        return Statement(Level.WARNING, "who works on it is not known")
    total = sum(len(hop.partitions) for hop in pipeline.hops)
    if not group.members:
        waits = any(hop.lag or hop.unbegun for hop in pipeline.hops)
        return Statement(Level.PROBLEM if waits else Level.WARNING, "no worker runs")
    unowned = [(hop.source, hop.unowned) for hop in pipeline.hops if hop.unowned]
    if not unowned:
        have = "has" if total == 1 else "have"
        return Statement(Level.OK, f"{total:,} of {count(total, 'partition')} {have} an owner")
    if not group.stable:
        return Statement(Level.WARNING, f"the group is rebalancing ({group.state})")
    missing = sum(len(numbers) for _, numbers in unowned)
    where = "; ".join(f"{topic}: {_numbers(numbers)}" for topic, numbers in unowned)
    return Statement(Level.PROBLEM, f"nobody works on {missing:,} of {count(total, 'partition')} ({where})")


def _lag(hops: Sequence[HopProgress]) -> Iterator[Statement]:
    known = [hop.lag for hop in hops if hop.lag is not None]
    if known:
        yield Statement(Level.OK, f"lag {count(sum(known), 'record')}" if sum(known) else "no lag")
    unbegun = sum(hop.unbegun for hop in hops)
    if unbegun or not known:
        begun = "nothing is committed yet" if not known else "nothing is committed yet of some partitions"
        # Offsets: a transaction's marker has one too, and so has what was aborted.
        waiting = f", up to {count(unbegun, 'record')} there" if unbegun else ""
        yield Statement(Level.OK, f"{begun}{waiting}")


def _wrong(pipeline: PipelineProgress, application: ApplicationProgress) -> Iterator[Statement]:
    expired = sum(partition.expired for hop in pipeline.hops for partition in hop.partitions)
    if expired:
        said = f"retention has removed {count(expired, 'record')} before they were read"
        yield Statement(Level.PROBLEM, said)
    source = pipeline.hops[0].source
    held = {each.number: each.held for each in pipeline.hops[0].partitions}
    for transaction in pipeline.open:
        topic, number = transaction.partition
        if topic == source and held.get(number):
            age = age_s(transaction, application.at_ms)
            level = Level.PROBLEM if age is not None and age > HANGS_S else Level.WARNING
            since = "" if age is None else f" for {duration(age)}"
            text = f"a transaction open{since} holds back {count(held[number], 'record')} of {topic}:{number}"
            yield Statement(level, text)
    if pipeline.quarantine.recent:
        most = "more than " if pipeline.quarantine.cut else ""
        done = "would have been quarantined" if pipeline.pipeline.observe else "quarantined"
        text = f"{most}{count(pipeline.quarantine.recent, 'record')} {done} in the last hour"
        yield Statement(Level.WARNING, text)
    if pipeline.states:  # each of which has a line of its own
        are = "is" if len(pipeline.states) == 1 else "are"
        yield Statement(Level.WARNING, f"{count(len(pipeline.states), 'worker')} {are} not ready for it")
    if pipeline.problems:
        yield Statement(Level.PROBLEM, f"{count(len(pipeline.problems), 'problem')} with its topics")


def age_s(transaction: OpenTransaction, now_ms: int) -> float | None:
    """Return for how long a transaction has been open, by its coordinator; None where that does not say."""
    return None if transaction.began_ms is None else max(0.0, (now_ms - transaction.began_ms) / 1000)


def _numbers(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:MOST_NUMBERS]))
    left = len(partitions) - MOST_NUMBERS
    return f"{shown} and {left:,} more" if left > 0 else shown
