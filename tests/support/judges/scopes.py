"""Columns out of changelog batches and of keys and values, as a fetch would bring them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from processor.engine.batch.columns import BATCH_COLUMNS, COUNT, LAST_DELTA, Columns
from processor.engine.batch.scan import scan
from processor.wire.codec import inflate
from processor.wire.encode import EncodedBatch, plain_batch

Pairs = list[tuple[bytes, bytes]]
Entries = Sequence[tuple[bytes, bytes | None]]


def columns_of(source: EncodedBatch | Entries) -> tuple[Columns, Pairs]:
    """Return the records of a batch, or of keys and values written as one, as columns and as pairs."""
    if not isinstance(source, EncodedBatch) and not source:
        return Columns.empty(0, np.zeros(1, np.uint8)), []
    batch = source if isinstance(source, EncodedBatch) else plain_batch([(*pair, 0, ()) for pair in source])
    space = np.empty(4 * 1024 * 1024, np.uint8)
    size = inflate(batch.codec, np.frombuffer(batch.payload, np.uint8), space)
    columns = Columns.empty(batch.count, space)
    row = np.zeros(BATCH_COLUMNS, np.int64)
    row[COUNT], row[LAST_DELTA] = batch.count, batch.count - 1
    wrong, _ = scan(space, 0, size, row, 0, columns.table)
    assert not wrong
    pairs = [(key, value) for key, value in columns.items(np.arange(batch.count)) if value is not None]
    return columns, pairs
