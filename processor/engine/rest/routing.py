"""Says to which partition the ids of rows are sent with ``route``: where the worker sends their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.siphash import words_of_key
from processor.engine.extract.ids import hash_ids
from processor.engine.extract.routing import ROUTE_KEY, partition_and_word

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.rest.columns import RowIds


def routed_partitions(rows: RowIds, partitions: int) -> NDArray[np.int64]:
    """Return int64[n], the partition that each row's id is sent to; of a row with a fault it says nothing.

    Args:
        rows: Hashed by any key; none of their parts is content.
        partitions: How many there are.
    """
    routed = rows.ids._replace(hash=np.zeros_like(rows.ids.hash), lot=np.zeros_like(rows.ids.lot))
    hash_ids(routed, words_of_key(ROUTE_KEY))
    return partition_and_word(routed.hash, partitions)[0]
