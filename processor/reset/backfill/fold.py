"""Folds the rows of a history of sequences into what a worker would remember of them, and stages that.

Of each scope a worker remembers the highest epoch, the highest sequence of that, and which of the
``reorder_window`` numbers below it have come. None of them depends on the order in which the records came: a
number that is inside the window at the end was inside it, or above it, when it came. So the worker's kernel
judges the rows in the order in which they come here. Memory goes by the scopes, as a worker's does.

Invariant: the order of rows, and how they are cut into calls, change no verdict that rests on what is staged.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.judges.watermark import scope_table
from processor.reset.backfill.staging import STAGED_BLOCK_BYTES, stage_watermarks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from processor.engine.watermark.scope_table import ScopeTable
    from processor.reset.backfill.staging import Staging
    from schemas.config import WatermarkDedup

ROWS = 65_536
"""Rows that are judged at a time: what the kernels hold per row stays below 3 MiB."""
NO_BYTES = np.zeros(0, np.uint8)
NO_NUMBERS = np.zeros(0, np.int64)


class SequenceRows(NamedTuple):
    """Some rows of a history.

    Attributes:
        partition: int64[n], of the source.
        sequence: int64[n].
        epoch: int64[n]; int64[0] where the definition has none.
        data: uint8[m], the bytes of the scopes (a key, or a header's value), one behind the other or not.
        at: int64[n], where each row's scope begins in ``data``; int64[0] with scope = "partition".
        size: int64[n], how many bytes it has; int64[0] likewise.
    """

    partition: NDArray[np.int64]
    sequence: NDArray[np.int64]
    epoch: NDArray[np.int64] = NO_NUMBERS
    data: NDArray[np.uint8] = NO_BYTES
    at: NDArray[np.int64] = NO_NUMBERS
    size: NDArray[np.int64] = NO_NUMBERS


def fold_watermarks(tables: Mapping[int, ScopeTable], rows: SequenceRows) -> None:
    """Fold rows into the scopes of their partitions.

    Raises:
        ValueError: One is of a partition that there is not.
    """
    whole = np.zeros(rows.sequence.size, np.int64)
    at, size = (rows.at, rows.size) if rows.size.size or not whole.size else (whole, whole)
    epoch = rows.epoch if rows.epoch.size else whole
    order = np.argsort(rows.partition, kind="stable")
    numbers, starts = np.unique(rows.partition[order], return_index=True)
    if unknown := sorted(set(numbers.tolist()) - tables.keys()):
        raise ValueError(f"there is no partition {unknown[0]}")
    # Kernels are compiled for writable bytes, which those of Arrow are not.
    data = np.require(rows.data, requirements=["C", "W"])
    for number, (start, stop) in zip(numbers.tolist(), pairwise([*starts.tolist(), order.size]), strict=True):
        table = tables[number]
        for begin in range(start, stop, ROWS):
            some = order[begin : min(begin + ROWS, stop)]
            fault = np.zeros(some.size, np.uint8)
            table.judge(data, at[some], size[some], rows.sequence[some], epoch[some], fault)
            table.committed()
            table.saved()


class WatermarkPreparation:
    """Takes a history of sequences in, and stages it.

    Args:
        staging: What it is of, with no partitions yet; its folder is there and empty.
        cuts: By partition, where the stream goes on.
        dedup: The definition.

    Attributes:
        taken: By partition, how many rows were taken in.
        expired: By partition, of them those that are not remembered any more: none, sequences do not expire.
    """

    def __init__(self, staging: Staging, cuts: Mapping[int, int], dedup: WatermarkDedup) -> None:
        self._staging = staging
        self._cuts = cuts
        self._tables = {number: scope_table(dedup) for number in cuts}
        self.taken, self.expired = dict.fromkeys(cuts, 0), dict.fromkeys(cuts, 0)

    def take(self, rows: SequenceRows) -> None:
        """Take some rows in.

        Raises:
            ValueError: One is of a partition that there is not.
        """
        fold_watermarks(self._tables, rows)
        for number, count in zip(*np.unique(rows.partition, return_counts=True), strict=True):
            self.taken[int(number)] += int(count)

    def stage(self, block_bytes: int = STAGED_BLOCK_BYTES) -> Staging:
        """Declare staged what was taken in.

        Raises:
            OSError: It cannot be written.
            ValueError: A scope does not go into a block.
        """
        folder = self._staging.folder
        parts = {
            number: stage_watermarks(folder, number, self._cuts[number], table, block_bytes)
            for number, table in sorted(self._tables.items())
        }
        return replace(self._staging, partitions=parts, sequences=True).write()
