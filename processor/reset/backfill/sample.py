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

from processor.engine.extract.routing import ROUTE_KEY, partition_and_word
from processor.engine.ids.block import decode
from processor.engine.ids.clock import NEVER
from processor.engine.rest import LowProbe
from processor.engine.verdict import Verdict
from processor.judges.factory import mode_of
from processor.judges.ids import make_id_extractor
from processor.kafka.reader import PartitionReader, StepOver

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.kafka.offsets import Bounds
    from processor.reset.backfill.staging import StagedPartition, Staging
    from processor.reset.context import ResetContext
    from schemas.config import InsertIdDedup

SAMPLED_OFFSETS = 1_000
"""Of each side of a cut."""
_PLACE, _LOW = 0, 1
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


async def sample_ids(
    context: ResetContext, staging: Staging, limits: Mapping[int, Bounds], dedup: InsertIdDedup
) -> dict[int, CutSample]:
    """Return what the history has of the records next to the cuts, by source partition.

    With ``route`` it has an id in the partition that the worker sends it to.

    Args:
        context: Of the hop that reads the source.
        staging: The history.
        limits: Of the source's partitions that are looked at.
        dedup: The definition.

    Raises:
        StopError: A file is not whole, or retention has taken what was to be read.
        RebuildError: The broker does not answer.
    """
    parts = [staging.partitions[number] for number in sorted(staging.partitions)]
    since_ms = np.array([_remembered_since(part, dedup.window) for part in parts], np.int64)
    ids, beside = _SourceIds(context, staging, dedup), {}
    for number, each in limits.items():
        left, right = _spans_beside(staging.cut(number), each)
        before = await ids.within(number, left, since_ms)
        beside[number] = before, await ids.within(number, right, np.full_like(since_ms, NEVER))
    every = np.concatenate(
        [np.zeros((0, 2), np.uint64), *(side for sides in beside.values() for side in sides)]
    )
    known = {
        place: _known_lows(staging, place, np.unique(_kept_in(every, place)))
        for place in np.unique(every[:, _PLACE]).tolist()
    }

    def count(some: NDArray[np.uint64]) -> int:
        return sum(int(np.isin(_kept_in(some, place), lows).sum()) for place, lows in known.items())

    return {
        number: CutSample(len(before), count(before), len(after), count(after))
        for number, (before, after) in beside.items()
    }


class _SourceIds:
    """Reads ids of the source, hashed by the history's key, and where each is remembered.

    An array of them has each once: uint64[n, 2], the partition and the low word of its hash.
    """

    def __init__(self, context: ResetContext, staging: Staging, dedup: InsertIdDedup) -> None:
        self._context = context
        self._partitions = len(staging.partitions)
        self._extractor = make_id_extractor(dedup, staging.secret)
        self._router = make_id_extractor(dedup, ROUTE_KEY) if staging.cuts else None

    async def within(
        self, number: int, span: tuple[int, int], since_ms: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """Return the ids in a span.

        Args:
            number: The source partition.
            span: Of its offsets.
            since_ms: int64[partitions], by where ids are remembered: what is not later is left out.
        """
        found = [np.zeros((0, 2), np.uint64)]
        async with aclosing(_records_in(self._context, number, span)) as pieces:
            async for some in pieces:
                ids = self._extractor.extract(some)
                place = np.full(len(some), number, np.int64)
                if self._router is not None:
                    place = partition_and_word(self._router.extract(some).hash, self._partitions)[0]
                good = (ids.fault == 0) & ~ids.unjudged & (some.timestamp > since_ms[place])
                found.append(np.stack((place[good].astype(np.uint64), ids.hash[good, 0]), axis=1))
        return np.unique(np.concatenate(found), axis=0)


def _kept_in(ids: NDArray[np.uint64], place: int) -> NDArray[np.uint64]:
    """Return the low words of those that are remembered in a partition."""
    lows: NDArray[np.uint64] = ids[ids[:, _PLACE] == place, _LOW]
    return lows


def _spans_beside(cut: int, limits: Bounds) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the spans of offsets that are looked at, right before a cut and from it on."""
    cut = min(max(cut, limits.start), limits.stable)
    first, last = max(limits.start, cut - SAMPLED_OFFSETS), min(limits.stable, cut + SAMPLED_OFFSETS)
    return (first, cut), (cut, last)


def _remembered_since(part: StagedPartition, window_ms: int) -> int:
    """Return the timestamp (ms) after which the history's ids are remembered still."""
    return part.clock_ms - window_ms if part.clock_ms != NEVER else NEVER


async def sample_sequences(context: ResetContext, staging: Staging, number: int, limits: Bounds) -> CutSample:
    """Return what the history has of the records next to a partition's cut, in mode watermark.

    What a worker would drop that begins at the cut, the history has: it counts records, not numbers.

    Raises:
        StopError: A file is not whole, or retention has taken what was to be read.
        RebuildError: The broker does not answer.
    """
    left, right = _spans_beside(staging.cut(number), limits)
    before = await _judged(context, staging, number, left)
    return CutSample(*before, *await _judged(context, staging, number, right))


async def _judged(
    context: ResetContext, staging: Staging, number: int, span: tuple[int, int]
) -> tuple[int, int]:
    """Return how many records of a span of the source can be judged, and how many the history has."""
    judge = mode_of(context.pipeline).judge()
    judge.begin_with(staging.blocks(number))
    records = known = 0
    async with aclosing(_records_in(context, number, span)) as pieces:
        async for some in pieces:
            verdict = judge.judge(judge.extract(some)).verdict
            judge.absorb()
            records += int(np.count_nonzero(verdict != Verdict.QUARANTINE))
            known += int(np.count_nonzero((verdict == Verdict.DUPLICATE) | (verdict == Verdict.LATE)))
    return records, known


async def _records_in(context: ResetContext, number: int, span: tuple[int, int]) -> AsyncGenerator[Columns]:
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


def _known_lows(staging: Staging, number: int, lows: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return which low words a partition's staged blocks have."""
    probe, found = LowProbe(lows), [np.zeros(0, np.uint64)]
    for key, block in staging.blocks(number):
        rows, _, _ = decode(block, key)
        words = np.ascontiguousarray(rows.hash[:, 0])
        found.append(words[probe.matches(words)])
    return np.unique(np.concatenate(found))
