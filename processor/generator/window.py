"""Judges a partition by the rules of mode ``insert-id``, and puts copies at a window's very end.

`judge` is the contract, sentence by sentence, in plain Python: the partition's clock, and for each name and
content the record that passed with it and the reading it is remembered with. It shares no code with the
engine, which is compared with it. Names and contents are the numbers of originals, so that what is remembered
lies in two arrays: 16 bytes per original, and nothing is ever thrown away.

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

NONE_WANTED = np.empty(0, np.int32)
_AT_ONCE = 20_000  # records that are Python objects at a time


class WindowRows(NamedTuple):
    """The records of a partition in offset order, as far as they are judged.

    Attributes:
        name: int32[n], from 0 on: equal where the ids are.
        content: int32[n], from 0 on: equal where ids and fingerprints are; without a fingerprint the name.
        timestamp_ms: int64[n].
        bad: bool[n], cannot be judged: it leaves no trace.
        unjudged: bool[n], passes without an id (``on_missing = "pass"``), and moves the clock.
    """

    name: NDArray[np.int32]
    content: NDArray[np.int32]
    timestamp_ms: NDArray[np.int64]
    bad: NDArray[np.bool_]
    unjudged: NDArray[np.bool_]

    def take(self, rows: NDArray[np.int32]) -> WindowRows:
        """Return those of some rows, which may occur again."""
        return WindowRows._make(column[rows] for column in self)


@dataclass(frozen=True, slots=True)
class Judged:
    """What the rules say of them; columns with a row per record.

    Attributes:
        passes: bool[n].
        owner: int64[n], of a duplicate the row of the record that passed, of a collision that of the earliest
            one of the id that is remembered, `NOBODY` elsewhere.
        expires_ms: int64[n], of a duplicate when its id expires, after a refresh; of a collision that is
            remembered when it expires itself; 0 elsewhere.
        collision: bool[n].
        quarantined: bool[n], which of these go to quarantine.
    """

    passes: NDArray[np.bool_]
    owner: NDArray[np.int64]
    expires_ms: NDArray[np.int64]
    collision: NDArray[np.bool_]
    quarantined: NDArray[np.bool_]


def judge(dedup: InsertIdDedup, rows: WindowRows, now_ms: int) -> Judged:
    """Judge one partition from its first record on.

    The worker's clock is taken to stand still at ``now_ms``. Where the rules go by the records' timestamps, and
    none is further ahead of it than they allow, any later clock gives the same.
    """
    count, arrival = rows.name.size, dedup.time == "arrival"
    contents = int(rows.content.max(initial=-1)) + 1
    owner, reading = array("q", [NOBODY]) * contents, array("q", [NEVER]) * contents
    several = _several(rows)
    kept = dedup.on_collision in {"pass", "tag", "rename"}
    passes, collision, quarantined = (np.zeros(count, np.bool_) for _ in range(3))
    judged = Judged(passes, np.full(count, NOBODY, np.int64), np.zeros(count, np.int64), collision, quarantined)
    clock = NEVER
    for start in range(0, count, _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        records = zip(*(column[some].tolist() for column in rows), strict=True)
        for row, (name, content, timestamp_ms, bad, unjudged) in enumerate(records, start):
            if bad:
                continue
            clock = max(clock, now_ms if arrival else min(timestamp_ms, now_ms + dedup.max_ahead))
            if unjudged:
                judged.passes[row] = True
                continue
            alive = [
                owner[each]
                for each in several.get(name, (content,))
                if owner[each] != NOBODY and clock < reading[each] + dedup.window
            ]
            if owner[content] in alive:
                if dedup.refresh:
                    reading[content] = clock
                judged.owner[row] = owner[content]
                judged.expires_ms[row] = reading[content] + dedup.window
                continue
            judged.passes[row] = not alive or kept
            if judged.passes[row]:
                owner[content], reading[content] = row, clock
            if alive:
                judged.collision[row] = True
                judged.quarantined[row] = dedup.on_collision == "quarantine"
                judged.owner[row] = min(alive)
                judged.expires_ms[row] = clock + dedup.window if kept else 0
    return judged


def _several(rows: WindowRows) -> dict[int, list[int]]:
    """Return the contents of each name that comes with another than its own."""
    found: dict[int, list[int]] = {
        name: [] for name in np.unique(rows.name[rows.name != rows.content]).tolist()
    }
    some = np.isin(rows.name, list(found)) if found else np.zeros(rows.name.size, np.bool_)
    for name, content in np.unique(np.stack([rows.name[some], rows.content[some]]), axis=1).T.tolist():
        found[name].append(content)
    return found


def plant_edges(
    rng: np.random.Generator,
    rows: WindowRows,
    window_ms: int,
    most: int,
    wanted: NDArray[np.int32] = NONE_WANTED,
) -> NDArray[np.int64]:
    """Let some originals come at the very end of another's window, so that a copy of that one can be put there.

    Args:
        rng: Drawn from.
        rows: The originals alone. Timestamps change: those originals become a little earlier, none goes back
            behind the clock before it.
        window_ms: How long an id is remembered.
        most: How many copies there is room for.
        wanted: Originals of which half of the copies are made, as far as they can be.

    Returns:
        int64[2, e], e <= ``most``: the original that each copy comes after, and the one it repeats. There
        the clock is by turns at the end of that one's window, and a millisecond before it.
    """
    clock = clock_of(rows)
    within = clock + window_ms <= clock[-1:]
    candidates = np.flatnonzero(within & ~rows.bad & ~rows.unjudged)
    drawn = rng.permutation(candidates)
    some = drawn[np.isin(drawn, wanted)][: most // 2]
    chosen = np.concatenate([some, drawn[~np.isin(drawn, some)]])[:most]
    planted: list[tuple[int, int]] = []
    last = NOBODY
    for row in np.sort(chosen).tolist():
        clock = clock_of(rows)
        edge = int(clock[row]) + window_ms - len(planted) % 2
        # The first at which the clock is there or past it: just there if it comes at that moment.
        at = int(np.searchsorted(clock, edge))
        # Behind the places of before, so that what was planted there stays.
        if last < at < clock.size:
            rows.timestamp_ms[at] = edge
            planted.append((at, row))
            last = at
    return np.array(planted, np.int64).reshape(-1, 2).T


def clock_of(rows: WindowRows) -> NDArray[np.int64]:
    """Return int64[n], what the clock reads at each record."""
    clock: NDArray[np.int64] = np.maximum.accumulate(np.where(rows.bad, NEVER, rows.timestamp_ms))
    return clock
