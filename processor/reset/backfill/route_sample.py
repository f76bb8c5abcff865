"""Looks on both sides of the cuts of a pipeline with ``route``, see `processor.reset.backfill.sample`.

The cuts are those of the source's partitions. What the history has of an id stands in the partition that the id
is sent to, by the hash that the worker sends records by.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.extract.routing import ROUTE_KEY, partition_and_word
from processor.engine.ids.clock import NEVER
from processor.judges.ids import make_id_extractor
from processor.reset.backfill.sample import CutSample, known_lows, records_in, remembered_since, spans_beside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from processor.kafka.offsets import Bounds
    from processor.reset.backfill.staging import Staging
    from processor.reset.context import ResetContext
    from schemas.config import InsertIdDedup

_TARGET, _LOW = 0, 1


class _Beside(NamedTuple):
    """Ids next to a cut, each once: uint64[n, 2], the partition it is sent to and the low word of its hash."""

    before: NDArray[np.uint64]
    after: NDArray[np.uint64]


async def sample_route(
    context: ResetContext, staging: Staging, limits: Mapping[int, Bounds], dedup: InsertIdDedup
) -> dict[int, CutSample]:
    """Return what the history has of the records next to the cuts, by source partition.

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
    since_ms = np.array([remembered_since(part, dedup.window) for part in parts], np.int64)
    ids = _RoutedIds(context, staging, dedup)
    found = {}
    for number, each in limits.items():
        left, right = spans_beside(staging.cuts[number], each)
        before = await ids.within(number, left, since_ms)
        found[number] = _Beside(before, await ids.within(number, right, np.full_like(since_ms, NEVER)))
    every = np.concatenate([np.zeros((0, 2), np.uint64), *(side for each in found.values() for side in each)])
    known = {
        part.partition: known_lows(staging, part.partition, np.unique(_sent_to(every, part.partition)))
        for part in parts
    }
    return {
        number: CutSample(
            len(each.before), _count(known, each.before), len(each.after), _count(known, each.after)
        )
        for number, each in found.items()
    }


class _RoutedIds:
    """Reads ids of the source, hashed by the history's key, and where each is sent to."""

    def __init__(self, context: ResetContext, staging: Staging, dedup: InsertIdDedup) -> None:
        self._context = context
        self._partitions = len(staging.partitions)
        self._extractor = make_id_extractor(dedup, staging.secret)
        self._router = make_id_extractor(dedup, ROUTE_KEY)

    async def within(
        self, number: int, span: tuple[int, int], since_ms: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """Return the ids in a span, as `_Beside` has them.

        Args:
            number: The source partition.
            span: Of its offsets.
            since_ms: int64[partitions], by where ids are sent: what is not later is left out.
        """
        found = [np.zeros((0, 2), np.uint64)]
        async with aclosing(records_in(self._context, number, span)) as pieces:
            async for some in pieces:
                ids = self._extractor.extract(some)
                target = partition_and_word(self._router.extract(some).hash, self._partitions)[0]
                good = (ids.fault == 0) & ~ids.unjudged & (some.timestamp > since_ms[target])
                found.append(np.stack((target[good].astype(np.uint64), ids.hash[good, 0]), axis=1))
        return np.unique(np.concatenate(found), axis=0)


def _sent_to(ids: NDArray[np.uint64], number: int) -> NDArray[np.uint64]:
    """Return the low words of those that are sent to a partition."""
    lows: NDArray[np.uint64] = ids[ids[:, _TARGET] == number, _LOW]
    return lows


def _count(known: Mapping[int, NDArray[np.uint64]], ids: NDArray[np.uint64]) -> int:
    """Return how many are known where they are sent to."""
    return sum(int(np.isin(_sent_to(ids, number), lows).sum()) for number, lows in known.items())
