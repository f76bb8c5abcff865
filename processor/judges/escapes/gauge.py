"""Keeps the sample of one pipeline's ids, thins it, and counts what escapes in it.

All that this worker has let pass of the ids in the sample is known from some reading of each partition's clock
on, by level: ``since``. A pair of passes is seen at a level if both were taken in since then, so the least such
level says for how many a pair stands, whatever the sample was thinned to before or between. The level
rises where the sample outgrows its memory, or its rows the processor; it falls again, with a fresh
``since``, where both have much room.

Invariants: nothing here is judged by, and nothing here raises: the first thing that goes wrong switches
the gauge off, and says so once. Passes count when their transaction has committed. Memory is bounded,
18 MB for all pipelines of a worker together, growing included (`MOST_SLOTS`, `WAITING_ROWS`).
"""

from __future__ import annotations

import logging
import math
import os
import time
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.siphash import words_of_key
from processor.engine.ids.passes import (
    BEFORE_AT,
    BEFORE_PARTITION,
    COPY_AT,
    COPY_PARTITION,
    DEPTH,
    ESCAPE_COLUMNS,
    ESCAPED_BEFORE,
    LEVELS,
    SLOT_BYTES,
    Passes,
    PassTable,
    depth_of,
    leave_out,
    move,
    remaining,
    take,
)
from processor.judges.escapes.drawing import Undrawn
from processor.ops.escaped import (
    BUCKETS,
    CAUGHT_SHARE,
    HORIZON_WINDOWS,
    EscapedCount,
    EscapeReason,
    EscapeReport,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from processor.judges.escapes.drawing import Drawn, JudgedCommit, Span

# An escaped duplicate that was seen in a sample of 2^-L of all ids stands for 2^L (Horvitz and Thompson,
# 1952). Ids are drawn, not duplicates: all that one id has let escape is seen, or nothing of it. So the
# variance is that of whole ids: the n-th of one id that is seen with weight w adds w (w - 1) (2 n - 1) to
# it, which sums up to the w (w - 1) n^2 of n seen.
#
# The least is a quantile of the gamma distribution with the mean and variance of the estimate (Fay and
# Feuer, 1997), which holds for few and unequal weights, too. There is no most: of ids that were not drawn,
# and of copies in partitions of other workers, nothing is known.

BIN_WINDOWS = 0.05
"""How exactly gaps are kept: a proposed window is at most a twentieth of the present one too long."""
_QUANTILE = 2.576
"""Of the normal distribution, for 99.5 %."""


def least(estimate: float, variance: float) -> float:
    """Return the lower end of an estimate (Wilson and Hilferty, 1931; within 1 % from shape 1 on)."""
    if not variance:
        return estimate
    ninth = variance / (9 * estimate * estimate)
    return estimate * float(max(0.0, 1 - ninth - _QUANTILE * math.sqrt(ninth))) ** 3


class EscapeEstimate:
    """What escaped for one reason."""

    def __init__(self) -> None:
        self._bins = np.zeros(round(HORIZON_WINDOWS / BIN_WINDOWS), np.float64)
        self._seen = 0
        self._estimate = self._variance = self._gap_sum = 0.0
        self._first, self._last = math.inf, 0.0

    def add(
        self, weight: NDArray[np.float64], before: NDArray[np.int64], gap_windows: NDArray[np.float64]
    ) -> None:
        """Count what was seen to escape.

        Args:
            weight: float64[n], for how many each stands.
            before: int64[n], how many its id had let escape before.
            gap_windows: float64[n], how many windows after the record before it came.
        """
        if not weight.size:
            return
        self._seen += weight.size
        self._estimate += float(weight.sum())
        self._variance += float((weight * (weight - 1) * (2 * before + 1)).sum())
        self._gap_sum += float((weight * gap_windows).sum())
        self._first = min(self._first, float(gap_windows.min()))
        self._last = max(self._last, float(gap_windows.max()))
        place = np.clip((gap_windows / BIN_WINDOWS).astype(np.int64), 0, self._bins.size - 1)
        np.add.at(self._bins, place, weight)

    def count(self) -> EscapedCount:
        """Return what there is to say."""
        if not self._seen:
            return EscapedCount()
        below = np.cumsum(self._bins)
        reached = [float(below[round(each / BIN_WINDOWS) - 1]) for each in BUCKETS]
        caught = int(np.searchsorted(below, CAUGHT_SHARE * self._estimate * (1 - 1e-12)))
        return EscapedCount(
            self._seen,
            self._estimate,
            max(least(self._estimate, self._variance), self._seen),
            tuple(zip(BUCKETS, reached, strict=True)),
            self._gap_sum,
            self._first,
            self._last,
            min(caught + 1, self._bins.size) * BIN_WINDOWS,
        )


log = logging.getLogger(__name__)

MOST_SLOTS = 2**19
"""12.6 MB; 15.7 MB while it grows to that. It is thinned in place."""
FIRST_SLOTS = 2**9
GROWTH = 4
"""The old table is a quarter of the new one or less: twice as large would take half as much again."""
FULL = 0.7
"""Beyond that share of slots, probing takes long."""
THINNED = 0.75
"""Where less than a quarter has expired, half of the ids are left out."""
ROWS_PER_S = 5_000
"""Of 0.15 us each, drawing and table: 0.08 % of a core."""
FIRST_ROWS = 2**15
"""So many are taken in whatever the rate: a short stream is counted exactly."""
NEXT_ROWS = 2**12
"""After each thinning, before its effect is seen."""
CALM_S = 60.0
ROOM = 1 / 8
"""With so much of memory and rate in use or less for `CALM_S` the sample takes in twice as many ids."""
WAITING_ROWS = 2**16
"""Of what was judged and is not taken in yet, 1.6 MB; shared out over pipelines as slots are."""
ESCAPES = 4_096
MOST_LEVEL = 40
"""No stream is so large: ids that are deeper are made up."""
NEVER = 2**62
"""In place of a reading: not known since any."""


class EscapeGauge:
    """The gauge of one pipeline.

    Args:
        name: Of the pipeline.
        window_ms: How long an id is remembered.
        most_slots: A power of two.
        most_waiting: Rows.
        clock: Monotonic seconds.

    Attributes:
        level: The sample has 2^-level of all ids.
        most_waiting: So many rows may wait.
        off: Whether it has failed.
    """

    def __init__(
        self,
        name: str,
        window_ms: int,
        most_slots: int = MOST_SLOTS,
        most_waiting: int = WAITING_ROWS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.level = 0
        self.off = False
        self.failures = 0
        self._window_ms = window_ms
        self._horizon_ms = HORIZON_WINDOWS * window_ms
        self._most_slots = most_slots
        self.most_waiting = most_waiting
        self._clock = clock
        self._rows_left: float = FIRST_ROWS
        self._rows_at_s = self._calm_at_s = clock()
        self._rows = 0.0
        self._estimates = {reason: EscapeEstimate() for reason in EscapeReason}
        # Nobody knows it, so whoever chooses ids cannot have them begin at one slot.
        self._key = words_of_key(os.urandom(16))
        self._forget()

    def _forget(self) -> None:
        """Begin without a sample; what was counted stays."""
        self._table = PassTable.empty(min(FIRST_SLOTS, self._most_slots))
        self._count = 0
        self._since: dict[int, NDArray[np.int64]] = {}
        self._clocks: dict[int, int] = {}
        self._undrawn = Undrawn(self.most_waiting // 4)

    # ------------------------------------------------- called while records are judged

    def spend(self, rows: float) -> None:
        """Note that rows are drawn; thins the sample where they are too many."""
        now_s = self._clock()
        self._rows_left = min(FIRST_ROWS, self._rows_left + (now_s - self._rows_at_s) * ROWS_PER_S) - rows
        self._rows_at_s = now_s
        self._rows += rows
        if self._rows_left < 0 and self.level < MOST_LEVEL:
            self.level += 1
            self._rows_left = NEXT_ROWS

    def fail(self, error: Exception) -> None:
        """Switch off; called with whatever goes wrong."""
        self.failures += 1
        if not self.off:
            self.off = True
            log.warning("%s: the escape gauge is off from here on, nothing else is: %r", self.name, error)
            self._forget()

    # ------------------------------------------------- what has been judged

    def judged(self, judged: JudgedCommit) -> None:
        """Take in what was committed; a little later, together with what else is."""
        if not self.off:
            self._undrawn.add(judged)
            if self._undrawn.full:
                self.keep_up()

    def keep_up(self) -> None:
        """Take in what was committed: now and then, between other work."""
        if self.off:
            return
        try:
            self.apply(self._undrawn.draw(self.level, self._key))
            self._densify()
        except Exception as error:  # noqa: BLE001 - a statistic must never end a worker
            self.fail(error)

    def apply(self, drawn: Drawn) -> None:
        """Take in what was committed at about the same time.

        The clocks move when all of it is in: a partition that comes first must not have the ids of the others
        forgotten, which may be a horizon behind it where much is judged again.
        """
        for partition, span in drawn.spans.items():
            self._cover(partition, span)
        self._sample(drawn.passes)
        for partition, span in drawn.spans.items():
            self._move_clock(partition, span.to_ms)

    def _sample(self, passes: Passes) -> None:
        wanted = depth_of(passes.key) <= MOST_LEVEL
        if not wanted.all():
            passes = Passes._make(each[wanted] for each in passes)
        at = 0
        while at < passes.key.size:
            room = int(self._table.key.size * FULL) - self._count
            if room <= 0:
                self._make_room()
                room = int(self._table.key.size * FULL) - self._count
                if room <= 0:
                    raise RuntimeError(f"no room for more ids in a sample of level {self.level}")
            escapes = np.empty((ESCAPES, ESCAPE_COLUMNS), np.int64)
            taken, came, escaped = take(
                self._table, passes.part(slice(at, None)), room, self._window_ms, self._horizon_ms, escapes
            )
            if not taken:
                raise RuntimeError("too many partitions let one id pass")
            at += int(taken)
            self._count += int(came)
            self._escaped(escapes[: int(escaped)])

    def _move_clock(self, partition: int, to_ms: int) -> None:
        self._clocks[partition] = max(self._clocks.get(partition, to_ms), to_ms)

    def _cover(self, partition: int, span: Span) -> None:
        """Note since when all of a partition is known."""
        level = max(span.level, self.level)
        since = self._since.setdefault(partition, np.full(LEVELS, NEVER, np.int64))
        since[:level] = NEVER
        np.minimum(since[level:], span.from_ms, out=since[level:])
        self._move_clock(partition, span.from_ms)

    def _escaped(self, escapes: NDArray[np.int64]) -> None:
        if not len(escapes):
            return
        seen_at = self._least_level(escapes[:, BEFORE_PARTITION], escapes[:, BEFORE_AT])
        # The copy, too: its partition's sample may be the thinner one.
        seen_at = np.maximum(seen_at, self._least_level(escapes[:, COPY_PARTITION], escapes[:, COPY_AT]))
        known = escapes[:, DEPTH] >= seen_at
        escapes, weight = escapes[known], np.exp2(seen_at[known].astype(np.float64))
        gap = (escapes[:, COPY_AT] - escapes[:, BEFORE_AT]) / self._window_ms
        elsewhere = escapes[:, COPY_PARTITION] != escapes[:, BEFORE_PARTITION]
        for reason, rows in (EscapeReason.WINDOW, ~elsewhere), (EscapeReason.PARTITION, elsewhere):
            self._estimates[reason].add(weight[rows], escapes[rows, ESCAPED_BEFORE], gap[rows])

    def _least_level(self, partition: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the least level whose sample was whole in these partitions at these readings."""
        numbers, which = np.unique(partition, return_inverse=True)
        since = np.stack([self._since[number] for number in numbers.tolist()])
        level: NDArray[np.int64] = np.count_nonzero(since[which] > at[:, None], axis=1)
        return level

    # ------------------------------------------------- memory

    def _floor_ms(self) -> int:
        """Return before which reading nothing is compared with any more.

        The slowest partition decides, but one that stands still does not keep the others' ids for ever.
        """
        if not self._clocks:
            return -NEVER
        slow, fast = min(self._clocks.values()), max(self._clocks.values())
        return max(-NEVER, slow - self._horizon_ms, fast - 2 * self._horizon_ms)

    def _make_room(self) -> None:
        """Forget what has expired, and where that is little grow, or thin the sample."""
        table, floor = self._table, self._floor_ms()
        slots = table.key.size
        left = int(remaining(table, floor, self.level))
        if left > THINNED * FULL * slots and slots < self._most_slots:
            larger = self._most_slots if GROWTH * 2 * slots >= self._most_slots else GROWTH * slots
            self._table = PassTable.empty(larger)
            move(table, floor, self.level, self._table)
        else:
            while left > THINNED * FULL * slots and self.level < MOST_LEVEL:
                self.level += 1
                for since in self._since.values():
                    since[: self.level] = NEVER
                left = int(remaining(table, floor, self.level))
            leave_out(table, floor, self.level)
        self._count = left

    def _densify(self) -> None:
        """Take in twice as many ids where there is much room."""
        now_s = self._clock()
        if now_s - self._calm_at_s < CALM_S:
            return
        seldom = self._rows <= ROOM * ROWS_PER_S * (now_s - self._calm_at_s)
        self._calm_at_s, self._rows = now_s, 0
        if not self.level or not seldom:
            return
        if remaining(self._table, self._floor_ms(), self.level) <= ROOM * FULL * self._most_slots:
            # From here on: `since` of that level begins with what is covered next.
            self.level -= 1

    # ------------------------------------------------- what it says

    def report(self) -> EscapeReport:
        """Return what there is to say now."""
        return EscapeReport(
            self._window_ms / 1000,
            {reason: each.count() for reason, each in self._estimates.items()},
            2.0**-self.level,
            self._table.key.size * SLOT_BYTES + self._undrawn.nbytes,
            self.failures,
            self.off,
        )
