"""Sizes one Bloom filter, puts ids into it and finds them.

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

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

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


@dataclass(slots=True)
class Filter:
    """One filter of a bucket.

    Attributes:
        bucket: Which one: readings from ``bucket * bucket_ms`` on.
        order: 0 the bucket's first, 1 the one after it and so on.
        capacity: The ids that it is sized for.
        bits: Its size.
        each: Bits of an id.
        ids: How many it has.
        set: How many bits are set.
        words: uint64[ceil(bits / 64)].
    """

    bucket: int
    order: int
    capacity: int
    bits: int
    each: int
    ids: int = 0
    set: int = 0
    words: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64), repr=False)

    @classmethod
    def sized(cls, bucket: int, order: int, capacity: int, rate: float) -> Filter:
        """Size one, without its words; one that would be larger than `MOST_BITS` is made for fewer ids."""
        each = max(FIRST, round(-math.log2(rate)))
        # For just as many bits of an id: a share of rate^(1/k) of all bits is set when it is full.
        per_id = -each / math.log1p(-(rate ** (1 / each)))
        capacity = min(capacity, int(MOST_BITS / per_id) - 1)
        bits = max(64, math.ceil(capacity * per_id))
        return cls(bucket, order, capacity, bits, each)

    @property
    def rate(self) -> float:
        """The rate at which it takes a new id for one of its own, by the bits that are set."""
        return float((self.set / self.bits) ** self.each)

    def put(self, hashes: NDArray[np.uint64], start: int, stop: int) -> None:
        """Put ids of rows of uint64[n, 2] into it; those that are there already only count once more."""
        self.set += int(_add(self.words, self.bits, self.each, hashes, start, stop))
        self.ids += stop - start

    def find(
        self,
        hashes: NDArray[np.uint64],
        mixed: NDArray[np.uint64],
        skip: NDArray[np.bool_],
        stop: int,
        hit: NDArray[np.int64],
    ) -> None:
        """Note in ``hit``, int64[n], which rows below ``stop`` are in it, by its bucket.

        Not looked up is what ``skip`` says, and what is in a later one already; ``mixed`` is of `mixed_bits`.
        """
        _find(self.words, self.bits, self.each, hashes, mixed, skip, stop, self.bucket, hit)


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
def mixed_bits(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix ids' first bits, which any filter places by its own size: uint64[n, 2] to uint64[`FIRST`, n]."""
    mixed = np.empty((FIRST, hashes.shape[0]), np.uint64)
    for index in range(FIRST):
        for row in range(hashes.shape[0]):
            mixed[index, row] = _mixed(hashes[row, 0], hashes[row, 1], index)
    return mixed


@kernel
def _find(
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
def _add(
    words: NDArray[np.uint64], bits: Int, count: Int, hashes: NDArray[np.uint64], start: Int, stop: Int
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
