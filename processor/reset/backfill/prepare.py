"""Folds the rows of a history into what a worker would remember of them, and stages that.

Rows come in any order and any number, with the hash of their id, their partition and their time. They are dealt
out to files, by partition and by some bits of the hash, and then judged a file at a time: the first of an id
inside a window is remembered, its copies are not. Memory goes by a partition's ids and by the rows of one file.

A history has times and no offsets, so its rows are judged in the order of their times: each is what its
partition's clock read then. A time further ahead than ``latest_ms`` counts as that, as in the stream.

Invariant: the order of rows, and how they are cut into calls, change nothing of what is staged.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from processor.engine.ids.clock import NEVER
from processor.engine.ids.page import NO_FINGERPRINTS
from processor.engine.rest import RestRows, Verdict, judge_rows
from processor.reset.backfill.staging import remembered_rows, stage_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from processor.engine.ids.block import IdRows
    from processor.reset.backfill.staging import StagedPartition, Staging

GROUP_BITS = 4
"""16 files per partition: of 100 million rows in 4 partitions each has 1.6 million, 50 MB."""
_ROW = np.dtype([("hash", "<u8", 2), ("fingerprint", "<u8"), ("time", "<i8")])


class HistoryRows(NamedTuple):
    """Some rows of a history.

    Attributes:
        partition: int64[n], of the source; with ``route`` that which the id is sent to.
        hash: uint64[n, 2], of the ids, by the backfill's key.
        time_ms: int64[n].
        fingerprint: uint64[n]; uint64[0] where only ids count.
    """

    partition: NDArray[np.int64]
    hash: NDArray[np.uint64]
    time_ms: NDArray[np.int64]
    fingerprint: NDArray[np.uint64] = NO_FINGERPRINTS


class Preparation:
    """Takes a history in, and stages it.

    Args:
        staging: What it is of, with no partitions yet; its folder is there and empty.
        cuts: By partition, where the stream goes on; with ``route`` 0, by partition that ids are sent to.
        window_ms: How long an id is remembered.
        latest_ms: No time counts for more.
        keep_collisions: Whether what collides is in the sink, and so remembered.
        renewed: Whether copies renew an id: its last one says how long it is remembered.

    Attributes:
        taken: By partition, how many rows were taken in.
        expired: Of them those that were remembered once, and are not any more.
    """

    def __init__(
        self,
        staging: Staging,
        cuts: Mapping[int, int],
        window_ms: int,
        latest_ms: int,
        *,
        keep_collisions: bool = True,
        renewed: bool = False,
    ) -> None:
        self._staging = staging
        self._cuts = cuts
        self._window_ms, self._latest_ms = window_ms, latest_ms
        self._keep_collisions = keep_collisions
        self._renewed = renewed
        self._clock_ms = dict.fromkeys(cuts, NEVER)
        self.taken, self.expired = dict.fromkeys(cuts, 0), dict.fromkeys(cuts, 0)

    def take(self, rows: HistoryRows) -> None:
        """Take some rows in.

        Raises:
            ValueError: One is of a partition that there is not.
            OSError: They cannot be written.
        """
        made = np.empty(rows.partition.size, _ROW)
        made["hash"], made["time"] = rows.hash, np.minimum(rows.time_ms, self._latest_ms)
        made["fingerprint"] = rows.fingerprint if self._staging.fingerprints else 0
        group = (rows.hash[:, 0] >> np.uint64(64 - GROUP_BITS)).astype(np.int64)
        place = rows.partition << GROUP_BITS | group
        order = np.argsort(place, kind="stable")
        made, place = made[order], place[order]
        starts = np.unique(place, return_index=True)[1].tolist()
        for start, stop in pairwise([*starts, place.size]):
            number, which = divmod(int(place[start]), 1 << GROUP_BITS)
            if number not in self._clock_ms:
                raise ValueError(f"there is no partition {number}")
            some = made[start:stop]
            self.taken[number] += some.size
            self._clock_ms[number] = max(self._clock_ms[number], int(some["time"].max()))
            path = self._path(number, which)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:  # noqa: PTH123 - a mode
                file.write(some.tobytes())

    def stage(self) -> Staging:
        """Fold what was taken in, and declare it staged.

        Raises:
            OSError: It cannot be written.
        """
        parts = {number: self._stage(number) for number in sorted(self._cuts)}
        return replace(self._staging, partitions=parts).write()

    def _stage(self, number: int) -> StagedPartition:
        clock_ms = self._clock_ms[number]
        rows = self._remembered(number, clock_ms)
        staged = stage_partition(self._staging.folder, number, self._cuts[number], clock_ms, rows)
        for which in range(1 << GROUP_BITS):
            self._path(number, which).unlink(missing_ok=True)
        return staged

    def _remembered(self, number: int, clock_ms: int) -> IdRows:
        # Column by column, and let go of as soon as it is copied: 25 million ids are 800 MB.
        hashes: list[NDArray[Any]] = [np.zeros((0, 2), np.uint64)]
        times: list[NDArray[Any]] = [np.zeros(0, np.int64)]
        prints: list[NDArray[Any]] = [NO_FINGERPRINTS]
        for rows in self._kept(number, clock_ms):
            hashes.append(rows["hash"].copy())
            times.append(rows["time"].copy())
            if self._staging.fingerprints:
                prints.append(rows["fingerprint"].copy())
        joined = np.concatenate(hashes)
        del hashes
        return remembered_rows(joined, np.concatenate(times), clock_ms, self._window_ms, np.concatenate(prints))

    def _kept(self, number: int, clock_ms: int) -> Iterator[NDArray[np.void]]:
        """Yield of each file the rows that are remembered, and not expired."""
        for which in range(1 << GROUP_BITS):
            path = self._path(number, which)
            if not path.exists():
                continue
            rows = np.fromfile(path, _ROW)
            prints = rows["fingerprint"].copy() if self._staging.fingerprints else NO_FINGERPRINTS
            # Of one id and time the order goes by the fingerprint: whoever has the same one is the same row.
            place = rows["fingerprint"].view(np.int64)
            # Backwards the last one is the first, and what it renews its copies.
            times = -rows["time"] if self._renewed else rows["time"].copy()
            new = RestRows(rows["hash"].copy(), prints, times, place)
            verdict = judge_rows(
                new, RestRows.none(), self._window_ms, keep_collisions=self._keep_collisions
            ).verdict
            kept = verdict == Verdict.PASS
            if self._keep_collisions:
                kept |= verdict == Verdict.COLLISION
            alive = rows["time"] > clock_ms - self._window_ms
            self.expired[number] += int((kept & ~alive).sum())
            yield rows[kept & alive]

    def _path(self, number: int, which: int) -> Path:
        return self._staging.folder / f".rows-{number}-{which:x}"
