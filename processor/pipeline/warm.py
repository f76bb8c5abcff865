"""Are all kernels compiled? ``python -m processor.pipeline.warm`` makes it so.

Run when an image is built and at the worker's start, before anything is assigned: nothing may be compiled
inside a commit. The kernels of ids are in `processor.pipeline.warm_ids`: a worker that has no pipeline of that
mode does not compile or load them, but an image has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine import quarantine, receipts
from processor.engine.batch import columns as batch_columns
from processor.engine.batch import encode as batch_encode
from processor.engine.batch import fingerprints, small
from processor.engine.batch import scan as batch_scan
from processor.engine.extract import sequence as extract_sequence
from processor.engine.watermark import partition
from processor.engine.watermark.scope_table import ScopeTable

if TYPE_CHECKING:
    from numpy.typing import NDArray


def warm() -> None:
    """Call every kernel once with the argument types that the worker uses."""
    data = np.zeros(batch_columns.HEADER_BYTES, np.uint8)
    data.flags.writeable = False  # fetched bytes are read-only, which is a type of its own to numba
    table = np.zeros((1, batch_columns.BATCH_COLUMNS), np.int64)
    batch_scan.walk(data, table)
    table[0, batch_columns.SIZE] = data.size  # a batch of no records
    scratch = np.zeros(64, np.uint8)
    columns = batch_columns.Columns.empty(1, scratch)
    batch_scan.scan(scratch, 0, 0, table[0], 0, columns.table)
    none = columns.rows(0, 0)
    spans, intact = np.zeros((1, 3), np.int64), np.zeros(1, np.uint8)
    small.check_small(data, table, batch_columns.HEADER_BYTES, intact)
    small.open_small(data, table, intact, 0, scratch, 0, 0, 0, spans, 0)
    batch_scan.cut_records(scratch, 0, 0, 0, 1, spans[0])
    batch_scan.scan_spans(scratch, spans[:0], table, 0, columns.table, *np.zeros((3, 1), np.int64))
    sequence, fault = extract_sequence.HeaderSequence(b"seq", extract_sequence.SequenceFormat.INT64).extract(
        none
    )
    extract_sequence.ValueSequence("/seq", text=False).extract(none)
    judged = partition.judge(partition.WatermarkState(), sequence, fault)
    rows = np.zeros(0, np.int64)
    batch_encode.encode(scratch, none.table, rows, 0, np.zeros(1, np.uint8))
    grounds = receipts.Grounds(judged.verdict, sequence, judged.watermark)
    receipts.encode(receipts.ReceiptText(b"{}"), none, rows, grounds, 0, np.zeros(1, np.uint8))
    quarantine.encode(quarantine.QuarantineText({}, b""), none, rows, fault, 0, np.zeros(1, np.uint8))
    batch_encode.summarise(
        judged.verdict, none.timestamp, np.zeros(2, np.int64), rows[:0].copy(), rows[:0].copy()
    )
    fingerprints.equal_run(none, rows, none, 0)
    fingerprints.fingerprints(none, 0, 0, np.zeros((2, 2), np.uint64))
    at = size = np.zeros(0, np.int64)
    for scope in (
        extract_sequence.PartitionScope(),
        extract_sequence.KeyScope(),
        extract_sequence.HeaderScope(b"scope"),
    ):
        at, size, _ = scope.extract(none)
    for epoch, window in ((False, 0), (True, 1)):
        _warm_scopes(ScopeTable(bytes(16), epoch=epoch, window=window), at, size)


def _warm_scopes(table: ScopeTable, at: NDArray[np.int64], size: NDArray[np.int64]) -> None:
    """Call the kernels of scopes by what calls them."""
    data, none = np.zeros(64, np.uint8), np.zeros(0, np.int64)
    table.judge(data, at, size, none, none, np.zeros(0, np.uint8))
    table.warm()
    table.apply(batch_columns.Columns.empty(0, data), track=True)
    table.committed()
    table.saved()
    table.sweep(0, 0, 1)


if __name__ == "__main__":
    from processor.pipeline.warm_ids import warm_ids

    warm()
    warm_ids()
