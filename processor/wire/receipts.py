"""Which batches tell what was dropped?

One receipt a dropped record, in the duplicates topic's partition of the same number and in the transaction
that drops it. The kernel writes the records; here they are cut into batches. They are compressed with LZ4
whatever the source's codec is: a receipt repeats most of the one before it, and takes a tenth of its size then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import orjson

from processor.engine.receipts import ReceiptText, encode, most_bytes
from processor.wire.codec import Codec, deflate
from processor.wire.encode import RUN_BYTES, EncodedBatch, TooLargeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.receipts import Grounds
    from processor.engine.records import Columns


def receipt_text(pipeline: str, topic: str, partition: int) -> ReceiptText:
    """Return the constant parts of the receipts of a source partition."""
    return ReceiptText(orjson.dumps({"pipeline": pipeline, "topic": topic, "partition": partition}))


def receipt_prefix(pipeline: str, topic: str) -> bytes:
    """Return what the value of every receipt of a pipeline begins with, whatever the partition."""
    return orjson.dumps({"pipeline": pipeline, "topic": topic})[:-1] + b","


class ReceiptEncoder:
    """Writes the receipts of one pipeline; owns the buffer that they are written into.

    Args:
        pipeline: Its name.
        topic: The source.
    """

    def __init__(self, pipeline: str, topic: str) -> None:
        self._pipeline = pipeline
        self._topic = topic
        self._texts: dict[int, ReceiptText] = {}
        self._out = np.empty(RUN_BYTES, np.uint8)

    def encode(
        self,
        partition: int,
        columns: Columns,
        rows: NDArray[np.int64],
        grounds: Grounds,
        limit_bytes: int,
    ) -> list[EncodedBatch]:
        """Return batches with the receipts of ``rows``, in order.

        Args:
            partition: Number of the source partition.
            columns: The records.
            rows: int64[k], dropped records.
            grounds: Of all records of ``columns``.
            limit_bytes: The duplicates topic's ``max.message.bytes``.

        Raises:
            TooLargeError: A receipt exceeds the limit even alone: its record's key is that large.
        """
        text = self._texts.get(partition)
        if text is None:
            text = self._texts[partition] = receipt_text(self._pipeline, self._topic, partition)
        out: list[EncodedBatch] = []
        after = np.cumsum(most_bytes(text, columns, rows))
        start = 0
        while start < rows.size:
            before = int(after[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(after, before + RUN_BYTES, side="right")))
            self._write(
                text, columns, rows[start:stop], grounds, int(after[stop - 1]) - before, limit_bytes, out
            )
            start = stop
        return out

    def _write(
        self,
        text: ReceiptText,
        columns: Columns,
        rows: NDArray[np.int64],
        grounds: Grounds,
        most: int,
        limit_bytes: int,
        out: list[EncodedBatch],
    ) -> None:
        if self._out.size < most:
            self._out = np.empty(most, np.uint8)
        times = columns.timestamp[rows]
        base = int(times[0])
        used = encode(text, columns, rows, grounds, base, self._out)
        batch = EncodedBatch(
            Codec.LZ4,
            base,
            int(times.max()),
            int(rows.size),
            deflate(Codec.LZ4, self._out[:used]),
            int(columns.offset[rows[0]]),
            int(columns.offset[rows[-1]]),
        )
        if batch.size <= limit_bytes:
            out.append(batch)
            return
        if rows.size == 1:
            raise TooLargeError(int(rows[0]), batch.size)
        half = rows.size // 2
        self._write(text, columns, rows[:half], grounds, most, limit_bytes, out)
        self._write(text, columns, rows[half:], grounds, most, limit_bytes, out)
