"""Keeps the sample of one pipeline's ids, thins it, and counts what escapes in it.

All that passes of the ids in the sample is known from some reading of each partition's clock on, by
level: ``since``. A pair of passes is seen at a level if both were taken in since then, so the least such
level says for how many a pair stands, whatever the sample was thinned to before or between. The level
rises where the sample outgrows its memory, or its rows the processor; it falls again, with a fresh
``since``, where both have much room.

Invariants: nothing here is judged by, and nothing here raises: the first thing that goes wrong switches
the gauge off, and says so once. Passes count when their transaction has committed. Memory is bounded,
20 MB for all pipelines of a worker together, growing included (`MOST_SLOTS`, `WAITING_ROWS`).
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

import numpy as np

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
from processor.judges.escapes.estimate import EscapeEstimate
from processor.judges.escapes.statements import Statements
from processor.judges.escapes.unseen import UnseenBounds
from processor.ops.escaped import HORIZON_WINDOWS, EscapeReason, EscapeReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from processor.judges.escapes.drawing import JudgedCommit
    from processor.judges.escapes.statements import Covered

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
"""Of passes that nobody has taken in yet, 1.6 MB, and as many that others have not been told.

What would be more is left out, and known to be. Shared out over pipelines as slots are."""
ESCAPES = 4_096
MOST_LEVEL = 40
"""No stream is so large: what says it is deeper is made up."""
SLOW_S = 0.05
"""Of the processor, for what is heard at once; a thousand rows take 0.2 ms, making room 10 ms."""
SLOW_TIMES = 5
"""Loading the kernels is slow, too: once each."""
_HASH = np.uint64(2**58 - 1)
NEVER = 2**62
"""In place of a reading: not known since any."""


class EscapeGauge:
    """The gauge of one pipeline.

    Args:
        name: Of the pipeline.
        window_ms: How long an id is remembered.
        most_slots: A power of two.
        most_waiting: Rows; as many again may be unsaid.
        clock: Monotonic seconds.
        scattered: Whether an id can be in several partitions, as without ``route``.

    Attributes:
        key: uint64[2], of the hash of ids in the sample.
        level: The sample has 2^-level of all ids.
        most_waiting: So many rows may wait.
        off: Whether it has failed.
    """

    def __init__(
        self,
        name: str,
        window_ms: int,
        key: NDArray[np.uint64],
        most_slots: int = MOST_SLOTS,
        most_waiting: int = WAITING_ROWS,
        clock: Callable[[], float] = time.monotonic,
        *,
        scattered: bool = True,
    ) -> None:
        self.name = name
        self.level = 0
        self.off = False
        self.shared = False
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
        self._unseen = UnseenBounds(window_ms, scattered=scattered)
        self._slow = 0
        # Odd, so that it can be undone: different keys stay different.
        self._secret = np.frombuffer(os.urandom(24), np.uint64) | np.uint64(1)
        self._added: set[int] = set()
        self._telling = False
        self.begin(key)

    def begin(self, key: NDArray[np.uint64]) -> None:
        """Forget the sample, and hash ids with a key from now on; what was counted stays."""
        self.key = key
        self._table = PassTable.empty(min(FIRST_SLOTS, self._most_slots))
        self._count = 0
        self._since: dict[int, NDArray[np.int64]] = {}
        self._clocks: dict[int, int] = {}
        self._undrawn = Undrawn(self.most_waiting // 4)
        self._waiting = Statements(self.most_waiting)
        self._unsaid = Statements(self.most_waiting)
        # What was committed by now is in no sample.
        for partition in self._added:
            self.lose(partition)

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
            self.begin(self.key)

    # ------------------------------------------------- what has been judged or heard

    def judged(self, judged: JudgedCommit) -> None:
        """Draw from what this worker has committed; a little later, together with what else it commits."""
        if not self.off:
            self._undrawn.add(judged)
            if self._undrawn.full:
                self._draw()

    def _draw(self) -> None:
        for covered in self._undrawn.draw(self.level, self.key):
            self.add(covered)

    def add(self, covered: Covered) -> None:
        """Take in what is covered of this worker's commits; a little later, see `keep_up`."""
        if self.off:
            return
        self._added.add(covered.partition)
        self._waiting.add(covered)
        if self._telling:
            self._unsaid.add(covered)
        else:
            self._unsaid.skip(covered.partition)

    def hear(self, covered: Covered) -> None:
        """Take in at once what another worker says, or what one has said before this one was started.

        The latter before the first `keep_up`: what was covered first is taken in first.
        """
        if self.off:
            return
        began_s = time.thread_time()
        try:
            self._take([covered])
        except Exception as error:  # noqa: BLE001 - a statistic must never end a worker
            self.fail(error)
        self._slow += time.thread_time() - began_s > SLOW_S
        if self._slow == SLOW_TIMES:
            self.fail(RuntimeError("what other workers say takes too long"))

    def resume(self, level: int) -> None:
        """Go on with a sample that was thinned already."""
        self.level = max(self.level, min(level, MOST_LEVEL))

    def lose(self, partition: int) -> None:
        """Note that something of a partition was left out: what is known of it begins anew."""
        # What committed before it is behind it else.
        self._draw()
        self._waiting.skip(partition)
        self._unsaid.skip(partition)

    def tell(self, *, tells: bool) -> None:
        """Keep what others are to be told from now on, or no longer."""
        self._telling = tells
        if not tells:
            self._unsaid.take()
            # Nobody knows which message has arrived.
            for partition in self._added:
                self._unsaid.skip(partition)

    def unsaid(self) -> list[Covered]:
        """Return what others have not been told, once."""
        self._draw()
        return self._unsaid.take()

    def keep_up(self) -> None:
        """Take in what waits: now and then, between other work."""
        if self.off:
            return
        try:
            self._draw()
            waiting = self._waiting.take()
            self._take(waiting)
            self._unseen.cover(waiting, self._since)
            self._densify()
        except Exception as error:  # noqa: BLE001 - a statistic must never end a worker
            self.fail(error)

    def _take(self, waiting: list[Covered]) -> None:
        """Take in what was covered at about the same time.

        The clocks move when all of it is in: a partition that comes first must not have the ids of the others
        forgotten, which may be a horizon behind it where much is judged again.
        """
        for covered in waiting:
            self._cover(covered)
        if some := [covered.passes for covered in waiting if covered.passes.key.size]:
            self._sample(Passes.joined(some))
        for covered in waiting:
            self._move_clock(covered.partition, covered.to_ms)

    def _sample(self, passes: Passes) -> None:
        depth = depth_of(passes.key)
        wanted = np.flatnonzero((depth >= self.level) & (depth <= MOST_LEVEL))
        if wanted.size < passes.key.size:
            passes = Passes._make(each[wanted] for each in passes)
        passes = passes._replace(key=self._scattered(passes.key))
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

    def _scattered(self, key: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return keys as the table has them: whoever writes keys cannot tell which slots they begin at."""
        first, factor, again = self._secret
        mixed = (key ^ first) * factor & _HASH
        mixed = (mixed ^ mixed >> np.uint64(29)) * again & _HASH
        mixed ^= mixed >> np.uint64(29)
        scattered: NDArray[np.uint64] = key & ~_HASH | np.maximum(mixed, np.uint64(1))
        return scattered

    def _move_clock(self, partition: int, to_ms: int) -> None:
        self._clocks[partition] = max(self._clocks.get(partition, to_ms), to_ms)

    def _cover(self, covered: Covered) -> None:
        """Note since when all of a partition is known."""
        partition, level = covered.partition, max(covered.level, self.level)
        if covered.anew:
            self._since.pop(partition, None)
        since = self._since.setdefault(partition, np.full(LEVELS, NEVER, np.int64))
        since[:level] = NEVER
        np.minimum(since[level:], covered.from_ms, out=since[level:])
        self._move_clock(partition, covered.from_ms)
        # What is heard may be what a copy is compared with that was taken in before.
        self._unseen.rise(level)

    def _escaped(self, escapes: NDArray[np.int64]) -> None:
        if not len(escapes):
            return
        seen_at = self._least_level(escapes[:, BEFORE_PARTITION], escapes[:, BEFORE_AT])
        # The copy, too, where its partition was not watched all the time.
        seen_at = np.maximum(seen_at, self._least_level(escapes[:, COPY_PARTITION], escapes[:, COPY_AT]))
        known = (seen_at < LEVELS) & (escapes[:, DEPTH] >= seen_at)
        escapes, weight = escapes[known], np.exp2(seen_at[known].astype(np.float64))
        gap = (escapes[:, COPY_AT] - escapes[:, BEFORE_AT]) / self._window_ms
        elsewhere = escapes[:, COPY_PARTITION] != escapes[:, BEFORE_PARTITION]
        for reason, rows in (EscapeReason.WINDOW, ~elsewhere), (EscapeReason.PARTITION, elsewhere):
            self._estimates[reason].add(weight[rows], escapes[rows, ESCAPED_BEFORE], gap[rows])

    def _least_level(self, partition: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the least level whose sample was whole in these partitions at these readings."""
        numbers, which = np.unique(partition, return_inverse=True)
        unknown = np.full(LEVELS, NEVER, np.int64)
        since = np.stack([self._since.get(number, unknown) for number in numbers.tolist()])
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
                self._raise_level()
                left = int(remaining(table, floor, self.level))
            leave_out(table, floor, self.level)
        self._count = left

    def _raise_level(self) -> None:
        self.level += 1
        self._unseen.rise(self.level)
        for since in self._since.values():
            since[: self.level] = NEVER

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
        counts = {reason: each.count(self._unseen.most(reason)) for reason, each in self._estimates.items()}
        return EscapeReport(
            self._window_ms / 1000,
            counts,
            2.0**-self.level,
            self._table.key.size * SLOT_BYTES
            + self._undrawn.nbytes
            + self._waiting.nbytes
            + self._unsaid.nbytes,
            self.shared,
            self.failures,
            self.off,
        )
