"""Sizes one Bloom filter, puts ids into it and finds them (its kernels: `processor.engine.ids.bloom.bits`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.bloom import bits as bloom_bits

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
        each = max(bloom_bits.FIRST, round(-math.log2(rate)))
        # For just as many bits of an id: a share of rate^(1/k) of all bits is set when it is full.
        per_id = -each / math.log1p(-(rate ** (1 / each)))
        capacity = min(capacity, int(bloom_bits.MOST_BITS / per_id) - 1)
        bits = max(64, math.ceil(capacity * per_id))
        return cls(bucket, order, capacity, bits, each)

    @property
    def rate(self) -> float:
        """The rate at which it takes a new id for one of its own, by the bits that are set."""
        return float((self.set / self.bits) ** self.each)

    def put(self, hashes: NDArray[np.uint64], start: int, stop: int) -> None:
        """Put ids of rows of uint64[n, 2] into it; those that are there already only count once more."""
        with np.errstate(over="ignore"):
            self.set += int(bloom_bits.add(self.words, self.bits, self.each, hashes, start, stop))
        self.ids += stop - start

    def find(
        self,
        hashes: NDArray[np.uint64],
        mixed: NDArray[np.uint64],
        skip: NDArray[np.bool_],
        stop: int,
        hit: NDArray[np.int64],
    ) -> None:
        """Note in ``hit`` which rows are in it, see `bloom_bits.find`; ``mixed`` is of `mixed_bits`."""
        with np.errstate(over="ignore"):
            bloom_bits.find(self.words, self.bits, self.each, hashes, mixed, skip, stop, self.bucket, hit)


def mixed_bits(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return what all filters look at first, uint64[`bloom_bits.FIRST`, n], of hashes, uint64[n, 2]."""
    mixed = np.empty((bloom_bits.FIRST, len(hashes)), np.uint64)
    with np.errstate(over="ignore"):
        bloom_bits.mix(hashes, mixed)
    return mixed
