"""Judges rows at rest, in the order of their event time, by the rules of the contract.

Rows are those of one group: all that are new and may have an id in common, and all that earlier runs have kept
of these ids. In whatever order they come, they are judged in the order of event time, then of their place (file
and row). A row at time ``t`` looks at what is kept of its id with a time above ``t - window`` and below
``t + window``; above ``t`` there can only be rows of earlier runs::

    no fingerprints   any                          duplicate of the earliest of them
    fingerprints      one with its fingerprint     duplicate of the earliest of those
                      others only                  collision with the earliest of them
    otherwise                                      passes, and is kept

A collision is kept if it is in the output: by the actions pass, tag and rename, not by quarantine and drop.

Invariants: every new row gets one verdict, the same one in whatever order the rows come. Rows are sorted once,
those of one id are gone over once: a million rows of one id, or a million fingerprints, cost no more per row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.jit import Int, inlined, kernel
from processor.engine.verdict import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOBODY = -1
"""The owner of a row that passes."""


class RestRows(NamedTuple):
    """Rows of one group.

    Attributes:
        hash: uint64[n, 2], of their ids.
        fingerprint: uint64[n]; uint64[0] where only ids count.
        time_us: int64[n], event times.
        place: int64[n], a number per file and row, in whose order rows of one time are judged. No two new rows
            of one id and time have the same; of rows of earlier runs it says which one owns an id.
    """

    hash: NDArray[np.uint64]
    fingerprint: NDArray[np.uint64]
    time_us: NDArray[np.int64]
    place: NDArray[np.int64]

    @classmethod
    def none(cls) -> RestRows:
        """Return no rows."""
        nothing = np.zeros(0, np.int64)
        return cls(np.zeros((0, 2), np.uint64), np.zeros(0, np.uint64), nothing, nothing)


class RestVerdicts(NamedTuple):
    """What becomes of n new rows.

    Attributes:
        verdict: uint8[n], `Verdict`: pass, duplicate or collision.
        owner: int64[n], the row it is a duplicate of or collides with: its index among the new ones, or n and
            its index among the remembered ones; -1 where it passes.
        collided: bool[n], rows that pass, and that a later new row collides with.
    """

    verdict: NDArray[np.uint8]
    owner: NDArray[np.int64]
    collided: NDArray[np.bool_]


def judge_rows(new: RestRows, old: RestRows, window_us: int, *, keep_collisions: bool = True) -> RestVerdicts:
    """Judge new rows by each other and by those of earlier runs.

    What gets a new id: collisions where they are renamed; with ``rename_first`` those that ``collided`` too.

    Args:
        new: In any order.
        old: Rows that are kept, in any order; those of other ids do no harm.
        window_us: How far around its event time a row looks.
        keep_collisions: Whether rows that collide are in the output.

    Raises:
        ValueError: Some rows have fingerprints and others have not, or arrays are of different lengths.
    """
    count = new.time_us.size
    merged = RestRows(*(np.concatenate(pair) for pair in zip(new, old, strict=True)))
    prints = merged.fingerprint.size > 0
    lengths = {len(merged.hash), merged.time_us.size, merged.place.size}
    if len(lengths) > 1 or (
        prints and (new.fingerprint.size, old.fingerprint.size) != (count, old.time_us.size)
    ):
        raise ValueError("rows have hash, time and place each, and all have a fingerprint or none has")
    said = RestVerdicts(
        np.full(count, Verdict.PASS, np.uint8), np.full(count, NOBODY), np.zeros(count, np.bool_)
    )
    shared = _sharing_rows(merged, count)
    if not shared.size:
        return said
    hashes = merged.hash[shared]
    begins = np.ones(shared.size, np.bool_)
    begins[1:] = (hashes[1:] != hashes[:-1]).any(axis=1)
    if prints:
        ids = np.cumsum(begins)
        marks = merged.fingerprint[shared]
        members = np.lexsort((marks, ids))
        starts = np.ones(shared.size, np.bool_)
        starts[1:] = (np.diff(ids[members]) != 0) | (marks[members][1:] != marks[members][:-1])
    else:
        # All rows of an id count as one fingerprint's.
        members, starts = np.arange(shared.size), begins
    _judge(
        shared, merged.time_us[shared], begins, members, starts, count, window_us, prints, keep_collisions, said
    )
    return said


def _sharing_rows(rows: RestRows, new: int) -> NDArray[np.int64]:
    """Return the rows that share their low word with others, in the order in which they are judged.

    Most rows are the only ones of their id: these are sorted by one word, and cost nothing more.
    """
    lows = rows.hash[:, 0]
    # The row's number in the lowest bits: words are sorted in a third of the time that their order takes.
    # Rows that share only the rest of their words are judged apart, as rows of other ids are.
    number = np.arange(lows.size, dtype=np.uint64)
    mask = np.uint64((1 << lows.size.bit_length()) - 1)
    words = np.sort((lows & ~mask) | number)
    order = (words & mask).astype(np.int64)
    found = words & ~mask
    same = found[1:] == found[:-1]
    shares = np.zeros(lows.size, np.bool_)
    shares[1:] |= same
    shares[:-1] |= same
    some = order[shares]
    # Remembered rows before new ones of the same time: they were there first.
    keys = rows.place[some], some < new, rows.time_us[some], rows.hash[some, 1], lows[some]
    return some[np.lexsort(keys)]


@inlined
def _apart(later, earlier):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return how far apart two times are, as uint64: exact, whatever the times."""
    return np.uint64(later) - np.uint64(earlier)


@kernel
def _judge(
    row: NDArray[np.int64],
    time: NDArray[np.int64],
    begins: NDArray[np.bool_],
    members: NDArray[np.int64],
    starts: NDArray[np.bool_],
    new: Int,
    window_us: Int,
    prints: bool,
    keep_collisions: bool,
    said: RestVerdicts,
) -> None:
    """Judge rows in the order of `row`, by id.

    Two chains are followed: all rows of an id, and its rows of one fingerprint. What a chain's head has passed
    is not kept, or lies a whole window before the row at hand, and so before all later ones.

    Args:
        row: int64[m], each row's number; those from ``new`` on are remembered.
        time: int64[m].
        begins: bool[m], where an id begins.
        members: int64[m], positions in ``row``, by id and fingerprint, in the order of ``row``.
        starts: bool[m], where in ``members`` a fingerprint begins.
        new: How many rows are new.
        window_us: See `judge_rows`.
        prints: Whether fingerprints tell rows of one id apart.
        keep_collisions: See `judge_rows`.
        said: Written.
    """
    verdict, owner, collided = said
    most, window, nowhere = row.size, np.uint64(window_us), np.int64(-1)
    kept = np.zeros(most, np.bool_)
    # By position: the number of its fingerprint's chain; the next remembered row in each of the two chains.
    chain, old_alike, old_after = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    heads = np.empty(most, np.int64)
    chains = 0
    for k in range(most):
        if starts[k]:
            heads[chains] = k
            chains += 1
        chain[members[k]] = chains - 1
    alike, after = nowhere, nowhere
    for k in range(most - 1, -1, -1):
        old_alike[members[k]], old_after[k] = alike, after
        alike = members[k] if row[members[k]] >= new else alike
        after = np.int64(k) if row[k] >= new else after
        alike = nowhere if starts[k] else alike
        after = nowhere if begins[k] else after
    head = np.int64(0)
    for k in range(most):
        head = np.int64(k) if begins[k] else head
        if row[k] >= new:
            kept[k] = True
            continue
        at = heads[chain[k]]
        while members[at] != k and not (kept[members[at]] and _apart(time[k], time[members[at]]) < window):
            at += 1
        heads[chain[k]] = at
        first = members[at] if members[at] != k else old_alike[k]
        if first > k and _apart(time[first], time[k]) >= window:
            first = nowhere
        if first >= 0:
            verdict[row[k]], owner[row[k]] = 1, row[first]
            continue
        if prints:
            while head != k and not (kept[head] and _apart(time[k], time[head]) < window):
                head += 1
            first = head if head != k else old_after[k]
            if first > k and _apart(time[first], time[k]) >= window:
                first = nowhere
        if first < 0:
            kept[k] = True
            continue
        verdict[row[k]], owner[row[k]], kept[k] = 4, row[first], keep_collisions
        if row[first] < new:
            collided[row[first]] = verdict[row[first]] == 0
