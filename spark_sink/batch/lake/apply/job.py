"""Applies verdicts to a table: some verdict records at a time, in these steps.

1. *looked*: how far the table has come, and which of its rows the verdicts skip.
2. *deleted*: those rows, in one commit of the table.
3. *noted*: the position behind the records that are applied for good, in the table's log.

A record is applied for good when the table has all rows of its range that it will ever have: no record of the
source between the table's highest offset and the end of the range is missing. Until then its rows are
deleted as far as they are there, and it comes again in the next run.

Where a reset has made verdicts of the same offsets again, the newest ones count: of those before it nothing is
applied from the offset on at which they begin.

Invariant: a position is noted behind the delete. A run that dies between the two looks for the same rows again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from processor.errors import StopError
from spark_sink.batch.lake.apply.progress import ApplyProgress, is_same
from spark_sink.batch.lake.jvm import LakeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from spark_sink.batch.lake.apply.rows import FoundRows, PositionRows
    from spark_sink.batch.lake.apply.tables import PositionedTable

MOST_SKIPPED = 2_000_000
"""Positions of one delete, about: 24 MB in this process, and a join that Spark does in memory."""
RANGE_COST = 20
"""What a verdict record counts for in these, beside what it skips: it takes as much memory, 300 bytes."""


class ApplyStep(StrEnum):
    """The steps, see the module."""

    LOOKED = "looked"
    DELETED = "deleted"
    NOTED = "noted"


class SkippedRange(NamedTuple):
    """One verdict record, without what newer ones have overruled.

    Attributes:
        partition: Of the source.
        after: The offset behind it in the topic of verdicts.
        base: The first source offset of its range.
        end: The one after the last; ``base``: nothing is left of it.
        skipped: int64[n], the offsets in it that are not in the clean stream.
    """

    partition: int
    after: int
    base: int
    end: int
    skipped: NDArray[np.int64]


class VerdictTopicState(NamedTuple):
    """The topic of verdicts as it is.

    Attributes:
        name: Its name.
        progress: Its id and the source's; and by partition the offset of the first record.
        ends: By partition, the offset up to which it is read.
    """

    name: str
    progress: ApplyProgress
    ends: dict[int, int]


class VerdictTopic(Protocol):
    """Reads verdicts and their source; the command gives one."""

    source: str

    def look(self) -> VerdictTopicState:
        """Return the topic of verdicts as it is now."""

    def ranges(self, at: Mapping[int, int], ends: Mapping[int, int], most: int) -> list[SkippedRange]:
        """Return the next records, by partition and in order, until they skip ``most`` offsets; none: no more.

        Raises:
            StopError: One is not right.
        """

    def first_records(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return by partition the offset of the first record of the source in a span; none: where it ends."""


@dataclass
class AppliedPartition:
    """What was done to the rows of one partition.

    Attributes:
        start: The offset in the topic of verdicts from which on it was done.
        stop: The one after the last that is applied for good.
        read: The one after the last that was looked at.
        skipped: Offsets that the verdicts skip.
        deleted: Rows.
        applied_to: The source offset up to which the table is as the verdicts say, for good; None: no further
            than before.
    """

    partition: int
    start: int
    stop: int
    read: int
    skipped: int = 0
    deleted: int = 0
    applied_to: int | None = None

    @property
    def waits(self) -> bool:
        """Whether the table's loader has not come as far as the verdicts."""
        return self.stop < self.read


class ApplyOptions(NamedTuple):
    """What a user asks for.

    Attributes:
        again: Begin with the first verdict that is retained, whatever was applied before.
        skip_expired: Go on behind verdicts that have expired unread.
        dry: Only look.
    """

    again: bool = False
    skip_expired: bool = False
    dry: bool = False


class ApplyAudience(Protocol):
    """Is told how far a run is."""

    def say(self, text: str) -> None:
        """Tell of what a user should know."""

    def done(self, step: StrEnum) -> None:
        """Note that a step is done."""


@dataclass(frozen=True)
class ApplyJob:
    """One run.

    Attributes:
        pipeline: Whose verdicts.
        topic: They.
        table: What they are applied to.
        rows: Its rows.
        options: How.
        audience: Is told.
    """

    pipeline: str
    topic: VerdictTopic
    table: PositionedTable
    rows: PositionRows
    options: ApplyOptions
    audience: ApplyAudience

    def run(self, most: int = MOST_SKIPPED) -> list[AppliedPartition]:
        """Apply all verdicts that there are now.

        Raises:
            StopError: Verdicts are missing or not right, or the table refuses.
        """
        state = self.topic.look()
        done = {number: AppliedPartition(number, at, at, at) for number, at in self._starts(state).items()}
        while some := self.topic.ranges({n: each.read for n, each in done.items()}, state.ends, most):
            self._apply(some, done, state)
        return [done[number] for number in sorted(done)]

    def _starts(self, state: VerdictTopicState) -> dict[int, int]:
        """Return by partition where to go on.

        Raises:
            StopError: What was applied before and what there is now do not fit each other.
        """
        try:
            known = None if self.options.again else self.table.progress(self.pipeline)
        except LakeError as error:
            raise StopError(f"table {self.table.given} cannot be read: {error}") from error
        now, at = state.progress, dict(state.progress.at)
        if known is None:
            return at
        if not is_same(known.source_id, now.source_id):
            raise StopError(
                f"{self.topic.source} was deleted and made anew since verdicts were applied to "
                f"{self.table.given}: positions do not tell rows of the two topics apart. Load the new one "
                "into another table"
            )
        gone = [n for n, each in known.at.items() if each > state.ends.get(n, each)]
        if not is_same(known.verdicts_id, now.verdicts_id) or gone:
            raise StopError(
                f"{state.name} was deleted and made anew since it was applied to {self.table.given}: what it "
                "said after that is lost. With --again all that it says now is applied"
            )
        for number, first in now.at.items():
            before = known.at.get(number, 0)  # a partition that was added since
            if before < first and not self.options.skip_expired:
                raise StopError(
                    f"{state.name}:{number} begins at offset {first}, and {before} would be next: verdicts "
                    f"have expired unread, and {self.table.given} keeps the rows that they skip. With "
                    "--skip-expired it goes on behind them"
                )
            at[number] = max(before, first)
        return at

    def _apply(
        self, some: Sequence[SkippedRange], done: Mapping[int, AppliedPartition], state: VerdictTopicState
    ) -> None:
        lists = [each.skipped for each in some]
        sizes = [each.size for each in lists]
        offsets = np.concatenate(lists)
        partitions = np.repeat(np.array([each.partition for each in some], np.int32), sizes)
        lows, highs = dict[int, int](), dict[int, int]()
        for each in some:
            lows[each.partition] = min(lows.get(each.partition, each.base), each.base)
            highs[each.partition] = max(highs.get(each.partition, each.end), each.end)
            done[each.partition].skipped += each.skipped.size
        found = self.rows.look(partitions, offsets, lows)
        come = self._come(found, lows, highs)
        self.audience.done(ApplyStep.LOOKED)
        for number, there in found.items():
            done[number].deleted += there.skipped
        if any(there.skipped for there in found.values()) and not self.options.dry:
            self.rows.delete(partitions, offsets)
        self.audience.done(ApplyStep.DELETED)
        moved = self._move(some, done, come)
        if moved and not self.options.dry:
            ids = state.progress
            try:
                self.table.note(self.pipeline, ApplyProgress(ids.verdicts_id, ids.source_id, self._noted(done)))
            except LakeError as error:
                raise StopError(
                    f"table {self.table.given} does not take the position ({error}): run the same command again"
                ) from error
        self.audience.done(ApplyStep.NOTED)

    def _come(
        self, found: Mapping[int, FoundRows], lows: Mapping[int, int], highs: Mapping[int, int]
    ) -> dict[int, int]:
        """Return by partition the source offset up to which the table has all rows."""
        nexts = {n: found[n].highest + 1 if n in found else low for n, low in lows.items()}
        open_spans = {n: (at, highs[n]) for n, at in nexts.items() if at < highs[n]}
        return nexts | self.topic.first_records(open_spans)

    @staticmethod
    def _move(
        some: Sequence[SkippedRange], done: Mapping[int, AppliedPartition], come: Mapping[int, int]
    ) -> bool:
        """Move positions behind what is applied for good; returns whether one has moved."""
        moved = False
        for each in some:
            mine = done[each.partition]
            waits = mine.waits or (each.end > each.base and each.end > come[each.partition])
            mine.read = each.after
            if not waits:
                mine.stop, moved = each.after, True
                mine.applied_to = each.end
        return moved

    @staticmethod
    def _noted(done: Mapping[int, AppliedPartition]) -> dict[int, int]:
        return {number: each.stop for number, each in done.items()}
