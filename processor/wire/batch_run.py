"""Looks at the batches of a chunk before they are opened: which are wanted, which are intact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
import numpy as np

from processor.engine.batch.columns import (
    ATTRIBUTES,
    BASE_OFFSET,
    CODEC_MASK,
    CONTROL,
    COUNT,
    CRC,
    CRC_FROM,
    HEADER_BYTES,
    LAST_DELTA,
    LOG_APPEND_TIME,
    PRODUCER_ID,
    SIZE,
    START,
    TRANSACTIONAL,
    Columns,
)
from processor.engine.batch.scan import scan
from processor.engine.batch.small import check_small
from processor.wire.codec import Codec, CodecError, inflate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SMALL_BYTES = 2048
SMALL_COUNT = 4096
"""Batches up to this size, and of so many records, are checked and opened by one call for many of them, as far
as kernels can."""


class LongBatchError(Exception):
    """A batch inflates to more than was allowed here, or is broken: it is opened apart, which tells."""


class BatchRun:
    """The batches of a chunk.

    Attributes:
        raw: uint8[n], the chunk's bytes.
        table: int64[b, BATCH_COLUMNS].
        wanted: bool[b], what counts.
        intact: uint8[b], 1 where the CRC is known to be right.
        small: uint8[b], 1 where a kernel opens it: wanted, intact, and not compressed or by LZ4.
        most: Bytes that one batch may inflate to.
    """

    def __init__(
        self,
        raw: NDArray[np.uint8],
        table: NDArray[np.int64],
        position: int,
        aborted: Sequence[tuple[int, int]],
        most: int,
    ) -> None:
        self.raw, self.table, self.most = raw, table, most
        self.wanted = _wanted(raw, table, position, aborted)
        self.intact = np.empty(len(table), np.uint8)
        check_small(raw, table, SMALL_BYTES, self.intact)
        codec = table[:, ATTRIBUTES] & CODEC_MASK
        small = self.wanted & ((codec == Codec.NONE) | (codec == Codec.LZ4))
        small &= (table[:, COUNT] >= 0) & (table[:, COUNT] <= SMALL_COUNT)
        self.small = small.astype(np.uint8) & self.intact

    def check_crc(self, at: int) -> None:
        """Raise `CodecError` where a batch that is not known to be intact is not."""
        if self.intact[at]:
            return
        batch = self.table[at]
        start, stop = int(batch[START]), int(batch[START] + batch[SIZE])
        if google_crc32c.value(self.raw[start + CRC_FROM : stop]) != int(batch[CRC]):
            raise CodecError("its CRC-32C does not match its bytes")

    def inflate(self, batch: list[int], space: NDArray[np.uint8], most_bytes: int) -> int:
        """Inflate a batch into ``space``, which has a byte more than ``most_bytes``; return the bytes.

        Raises:
            CodecError: It cannot be inflated, within what one batch may have.
            LongBatchError: Not within ``most_bytes``, which are less.
        """
        if batch[COUNT] < 0:
            raise CodecError("its record count is negative")
        start, stop = batch[START], batch[START] + batch[SIZE]
        try:
            size = inflate(batch[ATTRIBUTES] & CODEC_MASK, self.raw[start + HEADER_BYTES : stop], space)
        except CodecError as failure:
            if most_bytes < self.most:
                raise LongBatchError from failure
            raise
        if size <= most_bytes:
            return size
        if most_bytes < self.most:
            raise LongBatchError
        raise CodecError(f"it inflates to more than {most_bytes:,} bytes")


def is_gzip(batch: list[int]) -> bool:
    """Whether a batch is compressed with gzip."""
    return batch[ATTRIBUTES] & CODEC_MASK == Codec.GZIP


def forwardable(batches: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return bool[b]: whether the broker takes a batch's bytes as they are (trap 9).

    Gaps, as compaction leaves them, make it refuse; with LogAppendTime consumers would see the
    producer's times.
    """
    gapless: NDArray[np.bool_] = batches[:, COUNT] == batches[:, LAST_DELTA] + 1
    created: NDArray[np.bool_] = batches[:, ATTRIBUTES] & LOG_APPEND_TIME == 0
    return gapless & created


def _wanted(
    raw: NDArray[np.uint8], table: NDArray[np.int64], position: int, aborted: Sequence[tuple[int, int]]
) -> NDArray[np.bool_]:
    """Tell data that counts from control batches, aborted transactions and what lies below."""
    attributes = table[:, ATTRIBUTES]
    control = (attributes & CONTROL) != 0
    wanted: NDArray[np.bool_] = ~control & (table[:, BASE_OFFSET] + table[:, LAST_DELTA] >= position)
    if not aborted:
        return wanted
    # Aborted transactions apply per fetch response, by batch base offset: a producer's batches are
    # aborted from the listed first offset on until its abort marker.
    pending = sorted(aborted, key=lambda transaction: transaction[1])
    active: set[int] = set()
    for index in range(len(table)):
        batch = table[index]
        while pending and pending[0][1] <= batch[BASE_OFFSET]:
            active.add(pending.pop(0)[0])
        producer = int(batch[PRODUCER_ID])
        if control[index]:
            if is_abort_marker(raw, batch):
                active.discard(producer)
        elif attributes[index] & TRANSACTIONAL and producer in active:
            wanted[index] = False
    return wanted


def is_abort_marker(raw: NDArray[np.uint8], batch: NDArray[np.int64]) -> bool:
    """Whether a control batch ends a transaction by aborting it.

    A control record's key is version int16, type int16 (0 abort, 1 commit); the record before it is
    length, attributes and two deltas, all of one byte in a marker, then the key's length.
    """
    # A copy, because a kernel is compiled again for read-only bytes.
    body = raw[int(batch[START]) + HEADER_BYTES : int(batch[START] + batch[SIZE])].copy()
    columns = Columns.empty(1, body)
    if batch[COUNT] != 1 or scan(body, 0, int(body.size), batch, 0, columns.table)[0]:
        return False
    key = int(columns.key[0])
    return bool(columns.key_length[0] >= 4 and not body[key + 2] and not body[key + 3])
