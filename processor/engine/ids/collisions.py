"""Remembers what came under ids that were there with other content.

The records of an id that collided are *variants*, told apart by their fingerprints. As soon as an id has a
second one both are remembered here, in memory, and from then on the id is judged by what is here alone, as long
as one of its variants is inside the window. An id that never collided costs one look into a small table. Which
variant a record is, and which of its id's is the earliest, is found in one step each, however many there are:
a bad generator may give one id to a million events.

In the changelog and the local state a variant is a row like that of an id, on pages of its own
(`processor.engine.ids.page`). A row of a variant that was renewed names the variant's first row as the one that
it takes the place of: that says which of an id's variants is the earliest, also when that row is gone.

Invariant: a variant that has expired says nothing any more. What is staged, renewals included, `drop` forgets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.ids.block import IdRows
from processor.engine.ids.page import NO_ROUTES, NONE
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.ids.judgement import IdJudgement

# Columns of a variant, int64: who owns it, when it was last remembered, the number of its first row, whether
# the open transaction has renewed it, the next variant of the same id; where an id begins, its last one; the
# id's route word, of what is staged.
OWNER, READING, BORN, RENEWED, AFTER, LAST, ROUTE = range(7)
INFO = 7
# What there is to know of the table.
COUNT, COMMITTED, RENEWALS = range(3)
FEW = 256
STAGED = np.int64(1) << np.int64(62)
"""Numbers of variants that have no row yet."""


class Variants(NamedTuple):
    """The variants of ids that collided; those of an id are a chain, the earliest first.

    Attributes:
        ids: int64[2^s], at most half full: the first variant of an id that may be alive, plus one, 0 empty.
        pairs: int64[2^s], likewise the last variant of an id with a fingerprint.
        hash: uint64[m, 2], the ids.
        fingerprint: uint64[m].
        info: int64[m, INFO].
        renewal: int64[m, 2], committed variants that the open transaction has renewed, and the reading before.
        meta: int64[3]: how many variants there are, how many of them are committed, how many renewals.
    """

    ids: NDArray[np.int64]
    pairs: NDArray[np.int64]
    hash: NDArray[np.uint64]
    fingerprint: NDArray[np.uint64]
    info: NDArray[np.int64]
    renewal: NDArray[np.int64]
    meta: NDArray[np.int64]

    @classmethod
    def room(cls, most: int) -> Variants:
        """Return an empty table for so many."""
        ids, pairs = np.zeros((2, 1 << (2 * most - 1).bit_length()), np.int64)
        hashes, prints = np.zeros((most, 2), np.uint64), np.zeros(most, np.uint64)
        info, renewal = np.zeros((most, INFO), np.int64), np.zeros((most, 2), np.int64)
        return cls(ids, pairs, hashes, prints, info, renewal, np.zeros(3, np.int64))


class Fingerprints(NamedTuple):
    """What tells records of one id apart.

    Attributes:
        own: uint64[n].
        kept: bool[n], which records are remembered if they collide: those that are in the sink then.
        owner: uint64[n], written: of a collision, that of the record that owns the id.
        variants: What is known of ids that collided; with room for all records.
        route: uint16[n], route words; uint16[0] where they are not known.
    """

    own: NDArray[np.uint64]
    kept: NDArray[np.bool_]
    owner: NDArray[np.uint64]
    variants: Variants
    route: NDArray[np.uint16] = NO_ROUTES


class Collisions:
    """The variants of one partition's ids.

    Args:
        window_ms: How long a variant is remembered.
    """

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self.clear()

    def __len__(self) -> int:
        return int(self._table.meta[COUNT])

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(each.nbytes for each in self._table)

    @property
    def staged_count(self) -> int:
        """How many rows the next commit writes."""
        meta = self._table.meta
        return int(meta[RENEWALS] + meta[COUNT] - meta[COMMITTED])

    def clear(self) -> None:
        """Forget everything."""
        self._table = Variants.room(FEW)
        self._kept = 0
        self._in_order = True

    def prints(
        self, own: NDArray[np.uint64], kept: NDArray[np.bool_], route: NDArray[np.uint16] = NO_ROUTES
    ) -> Fingerprints:
        """Return what a chunk's records are told apart by; good until the next call of anything here."""
        if not self._in_order:
            self._rebuild(np.argsort(self._table.info[: len(self), BORN], kind="stable"))
            self._in_order = True
        # An id's first record, and the one that collides with it.
        self._make_room(len(self) + 2 * own.size)
        return Fingerprints(own, kept, np.zeros(own.size, np.uint64), self._table, route)

    def behind(self, rows: IdRows, *, routed: bool) -> IdRows:
        """Return ids that the next commit remembers, and behind them its variants: renewals, then new ones.

        ``routed``: with route words.
        """
        first = rows.first + len(rows)
        _, _, hashes, prints, info, renewal, meta = self._table
        renewed = renewal[: meta[RENEWALS], 0]
        new = np.arange(meta[COMMITTED], meta[COUNT])
        info[new, BORN] = first + renewed.size + np.arange(new.size)
        which = np.concatenate((renewed, new))
        supersedes = np.where(np.arange(which.size) < renewed.size, info[which, BORN], NONE)
        return IdRows(
            rows.first,
            np.concatenate((rows.hash, hashes[which])),
            np.concatenate((rows.owner, info[which, OWNER])),
            np.concatenate((rows.reading_ms, info[which, READING])),
            np.concatenate((rows.supersedes, supersedes)),
            np.concatenate((rows.fingerprint, prints[which])),
            np.concatenate((rows.collision, np.ones(which.size, np.bool_))),
            np.concatenate((rows.route, info[which, ROUTE].astype(np.uint16))) if routed else NO_ROUTES,
        )

    def commit(self, clock_ms: int) -> None:
        """Take what is staged as committed, and give back what is expired, once that may be half of all."""
        info, renewal, meta = self._table[-3:]
        info[renewal[: meta[RENEWALS], 0], RENEWED] = 0
        meta[COMMITTED], meta[RENEWALS] = meta[COUNT], 0
        if len(self) > 2 * self._kept + FEW:
            alive = np.flatnonzero(info[: len(self), READING] + self._window_ms > clock_ms)
            self._rebuild(alive)
            self._kept = alive.size

    def drop(self) -> None:
        """Forget what is staged."""
        info, renewal, meta = self._table[-3:]
        renewed, before = renewal[: meta[RENEWALS]].T
        info[renewed, READING], info[renewed, RENEWED] = before, 0
        meta[RENEWALS] = 0
        # Also where nothing is staged: the clock goes back, and with it where an id begins to be alive.
        self._rebuild(np.arange(meta[COMMITTED]))

    def restore(self, rows: IdRows) -> None:
        """Take committed rows over; those that are known already say nothing new."""
        self._make_room(len(self) + len(rows))
        number = rows.first + np.arange(len(rows))
        born = np.where(rows.supersedes < 0, number, rows.supersedes)
        _restore(self._table, rows.hash, rows.fingerprint, rows.owner, rows.reading_ms, born)
        self._in_order = False

    def _make_room(self, most: int) -> None:
        if most > len(self._table.fingerprint):
            self._rebuild(np.arange(len(self)), 2 * most)

    def _rebuild(self, kept: NDArray[np.int64], most: int = 0) -> None:
        """Keep some of the variants, in this order; where some are renewed all keep their places."""
        before = self._table
        self._table = Variants.room(max(most, 2 * kept.size, FEW))
        _, _, hashes, prints, info, renewal, meta = self._table
        hashes[: kept.size], prints[: kept.size] = before.hash[kept], before.fingerprint[kept]
        info[: kept.size] = before.info[kept]
        meta[:] = kept.size, min(kept.size, int(before.meta[COMMITTED])), before.meta[RENEWALS]
        renewal[: meta[RENEWALS]] = before.renewal[: meta[RENEWALS]]
        _link_all(self._table)


@kernel
def _link_all(table: Variants) -> None:
    for row in range(table.meta[COUNT]):
        _link(table, row)


@kernel
def _slot_of_id(table: Variants, first: Int, second: Int) -> Int:
    """Return where an id stands, or would."""
    slots, hashes = table.ids, table.hash
    mask = slots.size - 1
    at = np.int64(first & np.uint64(mask))
    while slots[at] != 0:
        row = slots[at] - 1
        if hashes[row, 0] == first and hashes[row, 1] == second:
            break
        at = (at + 1) & mask
    return at


@kernel
def _slot_of_pair(table: Variants, first: Int, second: Int, fingerprint: Int) -> Int:
    """Return where an id with a fingerprint stands, or would."""
    slots, hashes, prints = table.pairs, table.hash, table.fingerprint
    mask = slots.size - 1
    at = np.int64((first ^ fingerprint) & np.uint64(mask))
    while slots[at] != 0:
        row = slots[at] - 1
        if prints[row] == fingerprint and hashes[row, 0] == first and hashes[row, 1] == second:
            break
        at = (at + 1) & mask
    return at


@kernel
def _link(table: Variants, row: Int) -> None:
    """Put a variant behind the others of its id."""
    info = table.info
    first, second = table.hash[row, 0], table.hash[row, 1]
    at = _slot_of_id(table, first, second)
    info[row, AFTER], info[row, LAST] = -1, row
    if table.ids[at] == 0:
        table.ids[at] = row + 1
    else:
        head = table.ids[at] - 1
        info[info[head, LAST], AFTER] = row
        info[head, LAST] = row
    table.pairs[_slot_of_pair(table, first, second, table.fingerprint[row])] = row + 1


@kernel
def _living(table: Variants, first: Int, second: Int, window: Int, now: Int) -> Int:
    """Return the earliest variant of an id that is alive; -1: none is."""
    info = table.info
    at = _slot_of_id(table, first, second)
    row = table.ids[at] - 1
    if row < 0:
        return np.int64(NONE)
    head = row
    while info[row, READING] + window <= now and info[row, AFTER] >= 0:
        row = info[row, AFTER]
    if row != head:
        # What is expired stays so: nobody goes over it again.
        info[row, LAST] = info[head, LAST]
        table.ids[at] = row + 1
    return row if info[row, READING] + window > now else np.int64(NONE)


@inlined
def may_have(table, first):  # type: ignore[no-untyped-def]  # inlined kernel
    """Whether an id may have variants: one look, which says no of most ids that have none."""
    return table.ids[first & np.uint64(table.ids.size - 1)] != 0


@kernel
def judge(
    prints: Fingerprints,
    row: Int,
    first: Int,
    second: Int,
    window: Int,
    now: Int,
    offset: Int,
    refresh: bool,
    judged: IdJudgement,
) -> bool:
    """Judge a record by the variants of its id; false: none is alive."""
    table, fingerprint = prints.variants, prints.own[row]
    earliest = _living(table, first, second, window, now)
    if earliest < 0:
        return False
    info = table.info
    same = table.pairs[_slot_of_pair(table, first, second, fingerprint)] - 1
    if same < 0 or info[same, READING] + window <= now:
        judged.verdict[row], judged.owner[row] = 4, info[earliest, OWNER]
        prints.owner[row] = table.fingerprint[earliest]
        if prints.kept[row]:
            _remember(table, first, second, fingerprint, offset, now, _word(prints, row))
            judged.expires_ms[row] = now + window
        return True
    if refresh and now > info[same, READING]:
        _renew(table, same, now)
        info[same, ROUTE] = _word(prints, row)
    judged.verdict[row], judged.owner[row] = 1, info[same, OWNER]
    judged.expires_ms[row] = info[same, READING] + window
    return True


@kernel
def collide(
    prints: Fingerprints,
    row: Int,
    first: Int,
    second: Int,
    window: Int,
    now: Int,
    offset: Int,
    owner: Int,
    when: Int,
    fingerprint: Int,
    judged: IdJudgement,
) -> None:
    """Judge a record to collide with its id's only one, which is alive: its owner, reading and fingerprint."""
    table = prints.variants
    judged.verdict[row], judged.owner[row] = 4, owner
    prints.owner[row] = fingerprint
    if prints.kept[row]:
        word = _word(prints, row)
        _remember(table, first, second, fingerprint, owner, when, word)
        _remember(table, first, second, prints.own[row], offset, now, word)
        judged.expires_ms[row] = now + window


@kernel
def _word(prints: Fingerprints, row: Int) -> Int:
    """Return a record's route word; 0 where it is not known."""
    return np.int64(prints.route[row]) if prints.route.size > 0 else np.int64(0)


@kernel
def _remember(
    table: Variants, first: Int, second: Int, fingerprint: Int, owner: Int, now: Int, word: Int
) -> None:
    """Remember a variant that is not alive; there is room."""
    hashes, info, meta = table.hash, table.info, table.meta
    row = meta[COUNT]
    hashes[row, 0], hashes[row, 1], table.fingerprint[row] = first, second, fingerprint
    info[row, OWNER], info[row, READING], info[row, BORN], info[row, RENEWED] = owner, now, STAGED + row, 0
    info[row, ROUTE] = word
    meta[COUNT] = row + 1
    _link(table, row)


@kernel
def _renew(table: Variants, row: Int, now: Int) -> None:
    """Let a variant be remembered as of now."""
    info, renewal, meta = table.info, table.renewal, table.meta
    if row < meta[COMMITTED] and info[row, RENEWED] == 0:
        renewal[meta[RENEWALS], 0], renewal[meta[RENEWALS], 1] = row, info[row, READING]
        info[row, RENEWED] = 1
        meta[RENEWALS] += 1
    info[row, READING] = now


@kernel
def _restore(
    table: Variants,
    new: NDArray[np.uint64],
    fingerprint: NDArray[np.uint64],
    owner: NDArray[np.int64],
    reading: NDArray[np.int64],
    born: NDArray[np.int64],
) -> None:
    pairs, info, meta = table.pairs, table.info, table.meta
    for k in range(owner.size):
        row = pairs[_slot_of_pair(table, new[k, 0], new[k, 1], fingerprint[k])] - 1
        if row >= 0 and info[row, BORN] == born[k]:
            info[row, READING] = max(info[row, READING], reading[k])
        elif row < 0 or info[row, BORN] < born[k]:
            # One with this fingerprint that was there before has expired.
            row = meta[COUNT]
            _remember(table, new[k, 0], new[k, 1], fingerprint[k], owner[k], reading[k], np.int64(0))
            info[row, BORN] = born[k]
    meta[COMMITTED] = meta[COUNT]
