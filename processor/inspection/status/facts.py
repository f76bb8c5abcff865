"""Holds what is known of an application at one moment; what is not known is None.

Pure: `processor.inspection.status.ask` fills it, tables and JSON are made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.errors import Problem
    from processor.kafka.group.description import GroupDescription
    from processor.kafka.transactions.listing import OpenTransaction
    from schemas.config import Pipeline


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
