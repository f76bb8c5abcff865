"""Places the bits of ids in a Bloom filter, and judges by what the filters say.

A Bloom filter (Bloom, 1970) of m bits, as words of 64: an id sets k of them, and is said to be in it if all k
are set. The classic form: for one in 10^10 it takes 48 bits per id, one whose bits of an id lie in one cache
line 100, for some lines get many ids. The k positions are independent of each other: each comes from 64 bits
that are mixed again from the id's 128 (the finaliser of SplitMix64, Steele and others, 2014). Two hashes and
their multiples, as is often done, would not do: two ids of which both collide modulo m are one to the filter,
which is so for n / m^2 of all new ids, and about as often for those that nearly do: at 20 million ids and 10^9
bits a fifth of the rate that one filter of 1e-9 is allowed, and for small filters a thousand times all of it.

Invariant: who does not know the hash's secret cannot choose ids that set the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.bloom.memtable import find_slot
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOWHERE = -(2**63)
MOST_BITS = 2**32
"""Positions are 32 bits: 512 MiB a filter, 87 million ids at 1e-9."""
FIRST = 2
"""Bits of an id that are mixed once for all filters, and looked at in all rows without branching: in a full one
half of all bits are set, so three in four new ids are told by them, and loads wait for memory together."""
AHEAD = 4
"""So many bits, the first `FIRST` among them, are looked at without branching, in rows that those leave: of new
ids one in sixteen goes on bit by bit."""
ROWS = 256
"""Rows whose bits are looked at together."""


@inlined
def _mixed(first, second, index):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the 64 bits that an id's bit of that index is placed by."""
    mix = first + np.uint64(index) * second
    mix = (mix ^ (mix >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mix = (mix ^ (mix >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mix ^ (mix >> np.uint64(31))


@inlined
def _placed(mixed, bits):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return mixed * bits / 2^64, of two halves: no division, and evenly spread."""
    high = (mixed >> np.uint64(32)) * bits
    low = ((mixed & np.uint64(0xFFFFFFFF)) * bits) >> np.uint64(32)
    return (high + low) >> np.uint64(32)


@inlined
def position(first, second, index, bits):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the position of an id's bit of that index, from 0 to ``bits`` - 1, both at most `MOST_BITS`."""
    return _placed(_mixed(first, second, index), bits)


@inlined
def is_set(words, at):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return a bit, 0 or 1."""
    return (words[at >> np.uint64(6)] >> (at & np.uint64(63))) & np.uint64(1)


@kernel
def mix(hashes: NDArray[np.uint64], mixed: NDArray[np.uint64]) -> None:
    """Mix ids' first bits, which any filter places by its own size: uint64[n, 2] to uint64[`FIRST`, n]."""
    for index in range(FIRST):
        for row in range(hashes.shape[0]):
            mixed[index, row] = _mixed(hashes[row, 0], hashes[row, 1], index)


@kernel
def find(
    words: NDArray[np.uint64],
    bits: Int,
    count: Int,
    hashes: NDArray[np.uint64],
    mixed: NDArray[np.uint64],
    skip: NDArray[np.bool_],
    stop: Int,
    bucket: Int,
    hit: NDArray[np.int64],
) -> None:
    """Note which rows below ``stop`` are in a filter.

    Args:
        words: uint64[m], the filter.
        bits: Its size.
        count: Bits of an id, at least `FIRST`.
        hashes: uint64[n, 2].
        mixed: uint64[`FIRST`, n], what `mix` makes of them.
        skip: bool[n], rows that are not looked up.
        stop: Row after the last one.
        bucket: The filter's.
        hit: int64[n], set to the bucket where the row is in it; rows that are in a later one are passed over.
    """
    size = np.uint64(bits)
    ahead = min(AHEAD, count)
    maybe = np.empty(ROWS, np.uint64)
    left = np.empty(ROWS, np.int64)
    for start in range(0, stop, ROWS):
        rows = min(ROWS, stop - start)
        for k in range(rows):
            maybe[k] = is_set(words, _placed(mixed[0, start + k], size))
        for index in range(1, FIRST):
            for k in range(rows):
                maybe[k] &= is_set(words, _placed(mixed[index, start + k], size))
        more: Int = 0
        for k in range(rows):
            left[more] = start + k
            more += np.int64(maybe[k])
        for index in range(FIRST, ahead):
            some, more = more, 0
            for k in range(some):
                row = left[k]
                left[more] = row
                more += np.int64(is_set(words, position(hashes[row, 0], hashes[row, 1], index, size)))
        for k in range(more):
            row = left[k]
            if skip[row] or hit[row] >= bucket:
                continue
            all_set = True
            for index in range(ahead, count):
                if is_set(words, position(hashes[row, 0], hashes[row, 1], index, size)) == np.uint64(0):
                    all_set = False
                    break
            if all_set:
                hit[row] = bucket


@kernel
def add(
    words: NDArray[np.uint64],
    bits: Int,
    count: Int,
    hashes: NDArray[np.uint64],
    start: Int,
    stop: Int,
) -> Int:
    """Put the ids of rows ``start`` to ``stop`` into a filter. Returns how many bits were not set before."""
    size = np.uint64(bits)
    new = np.int64(0)
    # All positions of an id first: that has no branch and no memory to wait for, and LLVM does several at once.
    places = np.empty(count, np.uint64)
    for row in range(start, stop):
        first, second = hashes[row, 0], hashes[row, 1]
        for index in range(count):
            places[index] = position(first, second, index, size)
        for index in range(count):
            at = places[index]
            word = words[at >> np.uint64(6)]
            bit = np.uint64(1) << (at & np.uint64(63))
            new += np.int64(word & bit == np.uint64(0))
            words[at >> np.uint64(6)] = word | bit
    return new


@kernel
def finish(
    hashes: NDArray[np.uint64],
    skip: NDArray[np.bool_],
    offset: NDArray[np.int64],
    reading: NDArray[np.int64],
    window: Int,
    bucket: Int,
    refresh: bool,
    confirm: bool,
    hit: NDArray[np.int64],
    found: NDArray[np.bool_],
    owners: NDArray[np.int64],
    readings: NDArray[np.int64],
    slots: NDArray[np.int64],
    staged: NDArray[np.uint64],
    info: NDArray[np.int64],
    count: Int,
    verdict: NDArray[np.uint8],
    owner: NDArray[np.int64],
    expires: NDArray[np.int64],
) -> Int:
    """Judge rows in order, and stage what is remembered.

    Args:
        hashes: uint64[n, 2].
        skip: bool[n], rows that are not judged: nothing is written for them.
        offset: int64[n].
        reading: int64[n], the partition's clock at each record.
        window: ms.
        bucket: ms.
        refresh: Whether a duplicate renews its id.
        confirm: Whether hits were looked up; if not, a hit is a duplicate.
        hit: int64[n], the latest bucket of whose filters the row is in one, or `NOWHERE`.
        found: bool[n], with ``confirm``: whether the id is remembered.
        owners: int64[n], with ``confirm``: the offset of the record that passed, where found.
        readings: int64[n], with ``confirm``: the clock when it was last remembered, where found.
        slots: Of the staged ids, see `processor.engine.ids.bloom.memtable.HashedIds`.
        staged: uint64[m, 2], their hashes, written.
        info: int64[m, 2], written: owner, reading, and 1 where the reading's bucket lacks it.
        count: How many are staged already.
        verdict: uint8[n], written.
        owner: int64[n], written: of a duplicate with ``confirm``, the offset of the record that passed.
        expires: int64[n], written: likewise, when its id expires.

    Returns:
        How many are staged now.
    """
    for row in range(hashes.shape[0]):
        if skip[row]:
            continue
        first, second = hashes[row, 0], hashes[row, 1]
        now = reading[row]
        at, place = find_slot(slots, staged, first, second)
        known = False
        whose = np.int64(-1)
        when = np.int64(0)
        there = hit[row]
        if place >= 0:
            whose, when = info[place, 0], info[place, 1]
            there = when // bucket
            # Without confirmation an id lives as long as its bucket, committed or not.
            known = when + window > now if confirm else (there + 1) * bucket - 1 + window > now
        elif there != NOWHERE:
            if not confirm:
                known = True
            elif found[row]:
                whose, when = owners[row], readings[row]
                known = when + window > now
        lacking = there != now // bucket
        if not known or (refresh and (now > when if confirm else lacking)):
            if not known:
                whose = offset[row]
            if place < 0:
                place = np.int64(count)
                count += 1
                slots[at] = place + 1
                staged[place, 0], staged[place, 1] = first, second
                info[place, 2] = 0
            if lacking:
                info[place, 2] = 1
            info[place, 0], info[place, 1] = whose, now
            when = now
        verdict[row] = 1 if known else 0
        if known and confirm:
            owner[row], expires[row] = whose, when + window
    return count
