"""Judges a partition by the rules of mode ``insert-id``, and puts copies at a window's very end.

`judge` is the contract, sentence by sentence, in plain Python: the partition's clock, and for each name the
record that passed with it and the reading it is remembered with. It shares no code with the engine, which is
compared with it. Names are the numbers of originals, so that what is remembered lies in two arrays: 16 bytes
per original, and nothing is ever thrown away.

Invariant: pure; no record is judged by what comes after it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from schemas.config import InsertIdDedup

NEVER = -(2**63)
"""What the clock reads before the first record."""
NOBODY = -1

_AT_ONCE = 20_000  # records that are Python objects at a time


class WindowRows(NamedTuple):
    """The records of a partition in offset order, as far as they are judged.

    Attributes:
        name: int32[n], from 0 on: equal where the ids are.
        timestamp_ms: int64[n].
        bad: bool[n], cannot be judged: it leaves no trace.
        unjudged: bool[n], passes without an id (``on_missing = "pass"``), and moves the clock.
    """

    name: NDArray[np.int32]
    timestamp_ms: NDArray[np.int64]
    bad: NDArray[np.bool_]
    unjudged: NDArray[np.bool_]

    def take(self, rows: NDArray[np.int32]) -> WindowRows:
        """Return those of some rows, which may occur again."""
        return WindowRows(self.name[rows], self.timestamp_ms[rows], self.bad[rows], self.unjudged[rows])


@dataclass(frozen=True, slots=True)
class Judged:
    """What the rules say of them; columns with a row per record.

    Attributes:
        passes: bool[n].
        owner: int64[n], of a duplicate the row of the record that passed, `NOBODY` elsewhere.
        expires_ms: int64[n], of a duplicate when its id expires, after a refresh; 0 elsewhere.
    """

    passes: NDArray[np.bool_]
    owner: NDArray[np.int64]
    expires_ms: NDArray[np.int64]


def judge(dedup: InsertIdDedup, rows: WindowRows, now_ms: int) -> Judged:
    """Judge one partition from its first record on.

    The worker's clock is taken to stand still at ``now_ms``. Where the rules go by the records' timestamps, and
    none is further ahead of it than they allow, any later clock gives the same.
    """
    count, arrival = rows.name.size, dedup.time == "arrival"
    names = int(rows.name.max(initial=-1)) + 1
    owner, reading = array("q", [NOBODY]) * names, array("q", [NEVER]) * names
    judged = Judged(np.zeros(count, np.bool_), np.full(count, NOBODY, np.int64), np.zeros(count, np.int64))
    clock = NEVER
    for start in range(0, count, _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        records = zip(*(column[some].tolist() for column in rows), strict=True)
        for row, (name, timestamp_ms, bad, unjudged) in enumerate(records, start):
            if bad:
                continue
            clock = max(clock, now_ms if arrival else min(timestamp_ms, now_ms + dedup.max_ahead))
            if unjudged:
                judged.passes[row] = True
            elif owner[name] == NOBODY or clock >= reading[name] + dedup.window:
                owner[name], reading[name] = row, clock
                judged.passes[row] = True
            else:
                if dedup.refresh:
                    reading[name] = clock
                judged.owner[row] = owner[name]
                judged.expires_ms[row] = reading[name] + dedup.window
    return judged


def plant_edges(rng: np.random.Generator, rows: WindowRows, window_ms: int, most: int) -> NDArray[np.int64]:
    """Let some originals come at the very end of another's window, so that a copy of that one can be put there.

    Args:
        rng: Drawn from.
        rows: The originals alone. Timestamps change: those originals become a little earlier, none goes back
            behind the clock before it.
        window_ms: How long an id is remembered.
        most: How many copies there is room for.

    Returns:
        int64[2, e], e <= ``most``, for `make_layout`: the original that each copy comes after, and the one it
        repeats. There the clock is by turns at the end of that one's window, and a millisecond before it.
    """
    clock = _clock(rows)
    within = clock + window_ms <= clock[-1:]
    candidates = np.flatnonzero(within & ~rows.bad & ~rows.unjudged)
    planted: list[tuple[int, int]] = []
    last = NOBODY
    for row in np.sort(rng.permutation(candidates)[:most]).tolist():
        clock = _clock(rows)
        edge = int(clock[row]) + window_ms - len(planted) % 2
        # The first at which the clock is there or past it: just there if it comes at that moment.
        at = int(np.searchsorted(clock, edge))
        # Behind the places of before, so that what was planted there stays.
        if last < at < clock.size:
            rows.timestamp_ms[at] = edge
            planted.append((at, row))
            last = at
    return np.array(planted, np.int64).reshape(-1, 2).T


def _clock(rows: WindowRows) -> NDArray[np.int64]:
    """Return int64[n], what the clock reads at each record."""
    clock: NDArray[np.int64] = np.maximum.accumulate(np.where(rows.bad, NEVER, rows.timestamp_ms))
    return clock
