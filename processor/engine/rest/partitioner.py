"""Says to which partition a producer has sent a key: murmur2, as Kafka's own producers do.

What Java's clients do by default, and others do where they are told to (``partitioner=murmur2_random`` of
librdkafka): the positive 31 bits of MurmurHash2, 32 bits, of the key's bytes, modulo the number of partitions
(`org.apache.kafka.common.utils.Utils.murmur2`, `toPositive`). A record without a key goes anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.rest.columns import IdColumn

ANYWHERE = -1
"""Of a row without a key."""
_SEED, _FACTOR = 0x9747B28C, 0x5BD1E995
_WORD = 0xFFFFFFFF


def partitions_of(keys: IdColumn, partitions: int) -> NDArray[np.int64]:
    """Return int64[n], the partition of each key among so many; `ANYWHERE` where it is null."""
    found = np.full(keys.valid.size, ANYWHERE, np.int64)
    _partition(keys.valid, keys.offsets, keys.data, np.int64(partitions), found)
    return found


@kernel
def _partition(
    valid: NDArray[np.bool_],
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    partitions: Int,
    found: NDArray[np.int64],
) -> None:
    for row in range(valid.size):
        if not valid[row]:
            continue
        at, size = offsets[row], offsets[row + 1] - offsets[row]
        # In 64 bits, cut to 32 after each step: products stay below 2^63.
        hashed = np.int64(_SEED ^ (size & _WORD))
        for k in range(size >> 2):
            word = np.int64(0)
            for j in range(4):
                word |= np.int64(data[at + 4 * k + j]) << (8 * j)
            word = (word * _FACTOR) & _WORD
            word ^= word >> 24
            word = (word * _FACTOR) & _WORD
            hashed = ((hashed * _FACTOR) & _WORD) ^ word
        left = size & 3
        if left:
            for j in range(left):
                hashed ^= np.int64(data[at + size - left + j]) << (8 * j)
            hashed = (hashed * _FACTOR) & _WORD
        hashed ^= hashed >> 13
        hashed = (hashed * _FACTOR) & _WORD
        hashed ^= hashed >> 15
        found[row] = (hashed & 0x7FFFFFFF) % partitions
