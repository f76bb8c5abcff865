"""Says which partition an id is sent to with ``route``: its keyed hash, modulo the number of partitions.

The key is `ROUTE_KEY`, the same for all partitions of the source, at all times: equal ids must go to one
partition whoever routes them, the worker (`processor.engine.repartition`) or who loads a history
(`processor.engine.rest`). It is no secret and need not be one: who chooses ids can fill one partition, as with
any partitioner, and no more, for ids are told apart by another hash, whose key is secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUTE_KEY = b"seqmark by-id v1"
"""16 bytes. Another key would send the ids of yesterday elsewhere than those of today."""


def partition_and_word(
    hashes: NDArray[np.uint64], partitions: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return int64[n], the partition of each id, and uint64[n], what is left of its hash's first word.

    Args:
        hashes: uint64[n, 2], of the ids, by `ROUTE_KEY`.
        partitions: How many there are.
    """
    word, rest = np.divmod(hashes[:, 0], np.uint64(partitions))
    return rest.astype(np.int64), word
