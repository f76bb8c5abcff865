"""What a slot's pipeline works with: an output, the hop's topics, and the source partitions that are open."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from typing_extensions import override

from processor.engine.verdict import Fault, Verdict
from processor.errors import RebuildError
from schemas.changelog.position import NO_BATCH, Position
from schemas.changelog.topic_ids import UNKNOWN_ID, TopicId, TopicIds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from processor.judges.judge import Judge
    from processor.ops.metrics import Metrics
    from processor.pipeline.verdicts import VerdictDraft
    from processor.state.table import Table
    from processor.wire.encode import EncodedBatch
    from schemas.changelog.position import Origin


class TransactionOutput(Protocol):
    """Where batches go; `processor.kafka.transactions.output` has them.

    Attributes:
        marker: How many offsets the end of a transaction takes in each partition; 0: there are none, and
            nobody is fenced.
    """

    marker: int

    def begin(self) -> None:
        """Begin a transaction."""

    def expect(self, topic: str, partition: int) -> None:
        """Announce that the transaction will write there: it goes along with the first write."""

    async def send(self, topic: str, partition: int, batches: Iterable[EncodedBatch]) -> None:
        """Queue batches."""

    async def flush(self) -> None:
        """Wait until all are acknowledged."""

    def next_offset(self, topic: str, partition: int) -> int:
        """Return the offset after the last acknowledged batch."""

    async def commit(self, offsets: Mapping[int, int], between: Callable[[], None]) -> None:
        """Make source offsets part of the transaction, call ``between``, end the transaction."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Where a hop reads and writes, and what those topics take.

    Attributes:
        width: Source partitions below this number have a place in each topic that needs one.
        sink: Where what passes is written; None: nowhere.
        verdicts: Where is written which offsets do not pass; None: nowhere.
        index: Where marks are written; None: nowhere.
        index_partitions: Source partitions from this number on have no marks.
        quarantine_partitions: What is refused lies in the number of its source partition modulo this one.
    """

    source: str
    sink: str | None
    quarantine: str | None
    changelog: str
    sink_limit_bytes: int
    quarantine_limit_bytes: int
    changelog_limit_bytes: int = 1_048_588
    duplicates: str | None = None
    duplicates_limit_bytes: int = 0
    width: int = 2**31 - 1
    quarantine_partitions: int = 2**31 - 1
    index: str | None = None
    index_partitions: int = 0
    verdicts: str | None = None
    verdicts_limit_bytes: int = 0

    @property
    def needed(self) -> list[str]:
        """The topics that there is no work without, beside the source."""
        return [topic for topic in self.written if topic != self.index]

    @property
    def written(self) -> list[str]:
        """The topics that the hop's transactional ids write to."""
        outputs = self.sink, self.verdicts, self.duplicates, self.quarantine, self.changelog, self.index
        return [topic for topic in outputs if topic is not None]

    def named(self, kind: str) -> str | None:
        """Return the topic that a field of `TopicIds` speaks of, or ``verdicts``; None: the hop has none."""
        return {
            "source": self.source,
            "changelog": self.changelog,
            "sink": self.passes_to,
            "duplicates": self.duplicates,
            "quarantine": self.quarantine,
            "verdicts": self.verdicts,
        }[kind]

    @property
    def passes_to(self) -> str | None:
        """The topic that what passes is written to; None: it is not written."""
        return self.sink

    def ends_in(self, number: int) -> dict[str, tuple[str, int]]:
        """Return the partitions that `OutputEnds` of a source partition speaks of, by its fields."""
        where = (
            ("sink", self.sink, number),
            ("duplicates", self.duplicates, number),
            ("quarantine", self.quarantine, self.quarantined_to(number)),
        )
        return {kind: (topic, to) for kind, topic, to in where if topic is not None}

    @property
    def shares_quarantine(self) -> bool:
        """Whether the quarantine partition of a source partition can become another one."""
        return self.quarantine_partitions < 2**31 - 1

    def quarantined_to(self, number: int) -> int:
        """Return the partition of quarantine for the records of a source partition."""
        return number % self.quarantine_partitions

    def identified(self, ids: Mapping[str, bytes]) -> TopicIds:
        """Return which topics these are; ``ids`` has topic ids by name."""
        names = map(self.named, TopicIds._fields)
        return TopicIds(*(TopicId.of(name, ids.get(name or "", UNKNOWN_ID)) for name in names))

    def verdicts_of(self, ids: Mapping[str, bytes]) -> TopicId:
        """Return which topic that of verdicts is; ``ids`` as for `identified`."""
        return TopicId.of(self.verdicts, ids.get(self.verdicts or "", UNKNOWN_ID))

    def written_from(self, numbers: Iterable[int]) -> list[tuple[str, int]]:
        """Return the partitions that the work on the source partitions ``numbers`` writes to."""
        some = list(numbers)
        apart = {self.quarantine, self.index}
        found = [(topic, number) for topic in self.written if topic not in apart for number in some]
        return found + self._refused_from(some) + self._marked_from(some)

    def _marked_from(self, numbers: Iterable[int]) -> list[tuple[str, int]]:
        if self.index is None:
            return []
        return [(self.index, number) for number in numbers if number < self.index_partitions]

    def _refused_from(self, numbers: Iterable[int]) -> list[tuple[str, int]]:
        if self.quarantine is None:
            return []
        return [(self.quarantine, each) for each in sorted({self.quarantined_to(n) for n in numbers})]


@dataclass(frozen=True, slots=True)
class RouteTopics(Topics):
    """Those of a first hop; ``sink`` and its limit are of the pipeline's sink, which it does not write to."""

    internal: str = ""
    internal_limit_bytes: int = 0
    internal_partitions: int = 1

    @property
    @override
    def passes_to(self) -> str | None:
        return self.internal

    @property
    @override
    def written(self) -> list[str]:
        outputs = self.internal, self.quarantine, self.changelog, self.index
        return [topic for topic in outputs if topic is not None]

    @override
    def written_from(self, numbers: Iterable[int]) -> list[tuple[str, int]]:
        # Each source partition writes to all of the internal topic.
        some = list(numbers)
        found = [(self.internal, number) for number in range(self.internal_partitions)]
        found += self._refused_from(some) + [(self.changelog, number) for number in some]
        return found + self._marked_from(some)

    @override
    def ends_in(self, number: int) -> dict[str, tuple[str, int]]:
        # What passes is dealt out over many partitions.
        if self.quarantine is None:
            return {}
        return {"quarantine": (self.quarantine, self.quarantined_to(number))}


@dataclass(slots=True)
class OpenPartition:
    """One source partition at work: its committed table, its judge, and how far it has been taken in.

    Attributes:
        table: The committed state.
        judge: The staged state.
        position: As the next commit writes it.
        counts: Records by verdict since the last commit.
        faults: Those in quarantine, by fault code.
        moved: Whether the position differs from the committed one.
        stable: The source's last stable offset, as of the last fetch.
        origin: Where this state begins; None once that is committed.
        changelog_end: Where the changelog ends: what is written next lands there, for it has one writer.
        verdicts: What the next verdict record says; None: the pipeline writes none.
        written: The outputs, by their fields of `OutputEnds`, that were written to since the last commit.
    """

    number: int
    table: Table
    judge: Judge
    position: Position
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(Verdict), np.int64))
    faults: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(Fault), np.int64))
    moved: bool = False
    stable: int = -1
    origin: Origin | None = None
    changelog_end: int = 0
    written: set[str] = field(default_factory=set)
    verdicts: VerdictDraft | None = None

    def require_landed(self, changelog: str, landed: int, *, alone: bool) -> None:
        """Check that a commit's part of the changelog landed where that was known to end.

        All others that could write there are fenced (``alone``). So if it goes on elsewhere, what was restored
        is not the changelog as it is: a deposed leader has answered, or the topic was cut or recreated.

        Raises:
            RebuildError: It did not: nothing of the commit counts, and the restore says what is there.
        """
        if landed < self.changelog_end or (alone and landed > self.changelog_end):
            raise RebuildError(
                "changelog",
                f"{changelog}:{self.number} took this commit at offset {landed}, but was known to end at "
                f"{self.changelog_end}: it is not the changelog that the state was restored from, or a broker "
                "that no longer leads it has answered",
            )

    def count_in(self, metrics: Metrics, pipeline: str) -> None:
        """Show what has been committed, under the name of its hop."""
        for verdict in Verdict:
            if self.counts[verdict]:
                metrics.records.labels(pipeline, verdict.label).inc(int(self.counts[verdict]))
        self.counts[:] = 0
        for code in np.flatnonzero(self.faults[1:]) + 1:
            metrics.quarantined.labels(pipeline, Fault(int(code)).code).inc(int(self.faults[code]))
        self.faults[:] = 0
        labels = (pipeline, str(self.number))
        metrics.last_commit.labels(*labels).set(time.time())
        position = self.position.next_offset
        metrics.position.labels(*labels).set(position)
        metrics.lag.labels(*labels).set(max(0, self.stable - position))
        for watermark in self.judge.watermarks():
            metrics.watermark.labels(*labels).set(watermark)
        count, size = self.judge.size()
        clock = self.judge.take_clock_stats()
        if clock is None:
            metrics.scopes.labels(*labels).set(count)
        else:
            metrics.ids.labels(*labels).set(count)
            metrics.records_behind.labels(pipeline).inc(clock.behind)
            metrics.records_ahead.labels(pipeline).inc(clock.ahead)
            if clock.clock_ms is not None:
                metrics.clock.labels(*labels).set(clock.clock_ms / 1000)
            if clock.false_positive_rate is not None:
                metrics.false_positive_rate.labels(*labels).set(clock.false_positive_rate)
            if clock.variants is not None:
                metrics.variants.labels(*labels).set(clock.variants)
        metrics.state_bytes.labels(*labels).set(size)


def new_position(
    next_offset: int, definition: bytes, state_id: bytes, slots: int, since_ms: int = 0
) -> Position:
    """Return the position of a partition without state, which is made at ``since_ms``."""
    return Position(next_offset, NO_BATCH, 0, definition, state_id, slots, since_ms=since_ms)
