"""Bounds what one id outside of the sample can have let escape: no draw shows how much that is.

An id passes at most once per window and partition. So what it can add to an estimate is known from how
far the partitions' clocks have moved, and from how thin the sample was meanwhile, whatever was seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.ops.escaped import HORIZON_WINDOWS, EscapeReason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from processor.judges.escapes.statements import Covered


class UnseenBound:
    """Of what escaped for one reason.

    Args:
        spacing_ms: So far apart in one partition are two that escape of one id, at least.
        scattered: Whether an id can be in several partitions.
    """

    def __init__(self, spacing_ms: int, *, scattered: bool = True) -> None:
        self._spacing_ms = spacing_ms
        self._scattered = scattered
        self._weight = 0.0
        self._most: dict[int, float] = {}
        self._to_ms: dict[int, int] = {}

    @property
    def most(self) -> float:
        """Return what one more id could add to the estimate, at most; 0: all ids are in the sample."""
        of_partitions = self._most.values()
        return sum(of_partitions) if self._scattered else max(of_partitions, default=0.0)

    def weigh(self, level: int) -> None:
        """Have what escapes from now on stand for 2^level, at most.

        Where that is more than before, one of each partition that came just before may stand for as much.
        """
        weight = 2.0**level if level else 0.0
        if weight > self._weight:
            for partition in self._most:
                self._most[partition] += weight - self._weight
        self._weight = weight

    def cover(self, partition: int, from_ms: int, to_ms: int) -> None:
        """Note how far the clock of a partition went; of what is covered twice, the first time counts."""
        # The first one may be compared with what passed before anything was covered here.
        most = self._most.get(partition, self._weight)
        before_ms = self._to_ms.get(partition, from_ms)
        self._most[partition] = most + max(0, to_ms - before_ms) / self._spacing_ms * self._weight
        self._to_ms[partition] = max(before_ms, to_ms)


class UnseenBounds:
    """Of all that escaped, by reason.

    Args:
        window_ms: How long an id is remembered.
        scattered: Whether an id can be in several partitions.
    """

    def __init__(self, window_ms: int, *, scattered: bool) -> None:
        self._horizon_ms = HORIZON_WINDOWS * window_ms
        self._bounds = {
            EscapeReason.WINDOW: UnseenBound(window_ms, scattered=scattered),
            # Where an id has passed within the horizon, it escapes for the other reason.
            EscapeReason.PARTITION: UnseenBound(self._horizon_ms, scattered=scattered),
        }
        self._level = 0
        self._partitions = 0

    def most(self, reason: EscapeReason) -> float:
        """Return what one more id could add to the estimate, at most; 0: all ids are in the sample."""
        alone = reason is EscapeReason.PARTITION and self._partitions < 2
        return 0.0 if alone else self._bounds[reason].most

    def rise(self, level: int) -> None:
        """Note that the sample of some partition has 2^-level of all ids, and maybe less than before."""
        if level > self._level:
            self._weigh(level)

    def cover(self, taken: Sequence[Covered], since: Mapping[int, NDArray[np.int64]]) -> None:
        """Note what this worker has judged.

        Args:
            taken: It, taken in.
            since: By partition, heard of or judged: int64[levels], since when its sample of a level is whole.
        """
        self._partitions = max(self._partitions, len(since))
        if not taken:
            return
        # The least level that was whole a horizon ago, or for as long as anything is known: that of the
        # oldest pairs, where the sample is denser now.
        whole = np.stack(list(since.values()))
        oldest = min(covered.from_ms for covered in taken) - self._horizon_ms
        level = int(np.count_nonzero(whole > np.maximum(whole[:, -1:], oldest), axis=1).max())
        self.rise(level)
        for covered in taken:
            for bound in self._bounds.values():
                bound.cover(covered.partition, covered.from_ms, covered.to_ms)
        self._weigh(level)

    def _weigh(self, level: int) -> None:
        self._level = level
        for bound in self._bounds.values():
            bound.weigh(level)
