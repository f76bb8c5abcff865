"""Looks on both sides of a cut for ids of the history: whether it comes up to there, and how far beyond.

Where the topic still has records from before the cut, the history should have them: where it lacks many, there
is a gap between the two, and what was delivered in it passes again. Records behind the cut that the history has
are an overlap, which does no harm: they are duplicates.

It is a sample, and says so: of each side the records next to the cut. Those older than a window are left out,
because a history's ids are forgotten by then. A few others are forgotten too, as copies of what came still
earlier: so not one that is missing tells of a gap, but many.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.ids.block import decode
from processor.engine.ids.clock import NEVER
from processor.engine.rest import LowProbe
from processor.engine.verdict import Verdict
from processor.judges.factory import mode_of
from processor.kafka.reader import PartitionReader, StepOver

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.ids import IdExtractor
    from processor.kafka.offsets import Bounds
    from processor.reset.backfill.staging import StagedPartition, Staging
    from processor.reset.context import ResetContext

SAMPLED_OFFSETS = 1_000
"""Of each side of a cut."""
_DAMAGE = StepOver(
    damage="", loss=": retention has removed it meanwhile. Load the same backfill again", to_the_end=True
)


class CutSample(NamedTuple):
    """What was found next to a cut.

    Attributes:
        before: Ids of records right before it that are inside the window; in mode watermark records.
        before_known: How many of them the history has.
        after: Ids of records from it on, or records.
        after_known: How many of them the history has.
    """

    before: int = 0
    before_known: int = 0
    after: int = 0
    after_known: int = 0

    @property
    def gap(self) -> bool:
        """Whether the history seems to end earlier: it lacks more than half of what came right before."""
        return 2 * self.before_known < self.before


async def sample_cut(
    context: ResetContext, staging: Staging, number: int, limits: Bounds, extractor: IdExtractor, window_ms: int
) -> CutSample:
    """Return what the history has of the records next to a partition's cut.

    Args:
        context: Of the pipeline.
        staging: The history.
        number: Of the partition.
        limits: Of the source.
        extractor: Hashes ids by the history's key.
        window_ms: How long ids are remembered.

    Raises:
        StopError: A file is not whole, or retention has taken what was to be read.
        RebuildError: The broker does not answer.
    """
    part = staging.partitions[number]
    left, right = spans_beside(part.cut, limits)
    before = await _ids(context, number, left, extractor, remembered_since(part, window_ms))
    after = await _ids(context, number, right, extractor, NEVER)
    both = np.unique(np.concatenate((before, after)))
    known = known_lows(staging, number, both)
    return CutSample(
        before.size, int(np.isin(before, known).sum()), after.size, int(np.isin(after, known).sum())
    )


def spans_beside(cut: int, limits: Bounds) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the spans of offsets that are looked at, right before a cut and from it on."""
    cut = min(max(cut, limits.start), limits.stable)
    first, last = max(limits.start, cut - SAMPLED_OFFSETS), min(limits.stable, cut + SAMPLED_OFFSETS)
    return (first, cut), (cut, last)


def remembered_since(part: StagedPartition, window_ms: int) -> int:
    """Return the timestamp (ms) after which the history's ids are remembered still."""
    return part.clock_ms - window_ms if part.clock_ms != NEVER else NEVER


async def sample_sequences(context: ResetContext, staging: Staging, number: int, limits: Bounds) -> CutSample:
    """Return what the history has of the records next to a partition's cut, in mode watermark.

    What a worker would drop that begins at the cut, the history has: it counts records, not numbers.

    Raises:
        StopError: A file is not whole, or retention has taken what was to be read.
        RebuildError: The broker does not answer.
    """
    left, right = spans_beside(staging.partitions[number].cut, limits)
    before = await _judged(context, staging, number, left)
    return CutSample(*before, *await _judged(context, staging, number, right))


async def _judged(
    context: ResetContext, staging: Staging, number: int, span: tuple[int, int]
) -> tuple[int, int]:
    """Return how many records of a span of the source can be judged, and how many the history has."""
    judge = mode_of(context.pipeline).judge()
    judge.begin_with(staging.blocks(number))
    records = known = 0
    async with aclosing(records_in(context, number, span)) as pieces:
        async for some in pieces:
            verdict = judge.judge(judge.extract(some)).verdict
            judge.absorb()
            records += int(np.count_nonzero(verdict != Verdict.QUARANTINE))
            known += int(np.count_nonzero((verdict == Verdict.DUPLICATE) | (verdict == Verdict.LATE)))
    return records, known


async def _ids(
    context: ResetContext, number: int, span: tuple[int, int], extractor: IdExtractor, since_ms: int
) -> NDArray[np.uint64]:
    """Return the low words of the ids in a span of the source, each once."""
    found = [np.zeros(0, np.uint64)]
    async with aclosing(records_in(context, number, span)) as pieces:
        async for some in pieces:
            ids = extractor.extract(some)
            good = (ids.fault == 0) & ~ids.unjudged & (some.timestamp > since_ms)
            found.append(ids.hash[good, 0])
    return np.unique(np.concatenate(found))


async def records_in(context: ResetContext, number: int, span: tuple[int, int]) -> AsyncGenerator[Columns]:
    """Yield the records in a span of the source.

    Raises:
        StopError: Retention has taken what was to be read.
        RebuildError: The broker does not answer.
    """
    start, stop = span
    reader = PartitionReader(context.client, context.decoder, context.source(number), _DAMAGE)
    async with aclosing(reader.columns(start, stop)) as pieces:
        async for columns, _ in pieces:
            yield columns.rows(0, int(columns.offset.searchsorted(stop)))


def known_lows(staging: Staging, number: int, lows: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return which low words a partition's staged blocks have."""
    probe, found = LowProbe(lows), [np.zeros(0, np.uint64)]
    for key, block in staging.blocks(number):
        rows, _, _ = decode(block, key)
        words = np.ascontiguousarray(rows.hash[:, 0])
        found.append(words[probe.matches(words)])
    return np.unique(np.concatenate(found))
