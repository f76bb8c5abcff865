"""Writes receipts of dropped records as batches.

One receipt per dropped record, in the duplicates topic's partition of the same number and in the transaction
that drops it. The kernel writes the records; here they are cut into batches. They are compressed with LZ4
whatever the source's codec is: a receipt repeats most of the one before it, and takes a tenth of its size then.

What was dropped must not stop its pipeline: a receipt that the topic does not take even alone is made smaller,
without the record's key (a header says so), then with all but the shortest parts of its id cut to digests.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import orjson

from processor.engine.extract.ids import MOST_PART_BYTES
from processor.engine.receipts import Receipts
from processor.engine.repartition import PARTITION_BITS
from processor.wire.codec import Codec
from processor.wire.encode import RunBuffer, cut, fit, packed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.receipts import ReceiptGrounds, ReceiptText
    from processor.wire.encode import EncodedBatch


LEAST_CUT_BYTES = 64
"""What a part of an id has left in the last resort: a digest is no shorter."""
OBSERVED = "observed"
"""The member of a receipt, true, of a record that would have been dropped and has passed, observed."""
ANYWHERE = -1
"""In place of a partition's number: offsets are places (`processor.engine.repartition`), which say it."""


def receipt_text(
    grounds: type[ReceiptGrounds], pipeline: str, topic: str, partition: int, *, observed: bool = False
) -> ReceiptText:
    """Return the constant parts of the receipts of a source partition; see `ANYWHERE`.

    ``observed``: the records have passed all the same, and their receipts say so.
    """
    named: dict[str, str | int] = {"topic": topic}
    bits = PARTITION_BITS
    if partition != ANYWHERE:
        named, bits = {"topic": topic, "partition": partition}, 0
    place = {"pipeline": pipeline, **named, **({OBSERVED: True} if observed else {})}
    return grounds.text(orjson.dumps(place), orjson.dumps(named), bits)


def receipt_prefix(pipeline: str, topic: str) -> bytes:
    """Return what the value of every receipt of a pipeline begins with, whatever the partition."""
    return orjson.dumps({"pipeline": pipeline, "topic": topic})[:-1] + b","


def receipts_of(
    text: ReceiptText, columns: Columns, rows: NDArray[np.int64], grounds: ReceiptGrounds
) -> Receipts:
    """Return the receipts of ``rows``, still to be written; ``text`` is of the mode that ``grounds`` are of."""
    numbers = grounds.numbers(columns, rows, text.partition_bits)
    lists = grounds.lists(rows, MOST_PART_BYTES)
    return Receipts(text, columns, rows, grounds.kinds(rows), numbers, lists)


class ReceiptEncoder:
    """Writes the receipts of one pipeline, from its source ``topic``; owns the buffer that they go into.

    ``observed``: see `receipt_text`.
    """

    def __init__(self, pipeline: str, topic: str, *, observed: bool = False) -> None:
        self._pipeline = pipeline
        self._topic = topic
        self._observed = observed
        self._texts: dict[tuple[type, int], ReceiptText] = {}
        self._out = RunBuffer()

    def encode(
        self,
        partition: int,
        columns: Columns,
        rows: NDArray[np.int64],
        grounds: ReceiptGrounds,
        limit_bytes: int,
    ) -> list[EncodedBatch]:
        """Return batches with the receipts of ``rows``, in order.

        Args:
            partition: Number of the source partition; `ANYWHERE`: offsets and owners are places.
            columns: The records.
            rows: int64[k], dropped records.
            grounds: Of all records of ``columns``.
            limit_bytes: The duplicates topic's ``max.message.bytes``.

        Raises:
            TooLargeError: A receipt exceeds the limit even alone, made as small as it can be.
        """
        receipts = receipts_of(self._text(type(grounds), partition), columns, rows, grounds)
        out: list[EncodedBatch] = []
        for start, stop in cut(receipts.most_bytes(), limit_bytes):
            some = receipts.part(start, stop)
            smaller = partial(self._smaller, some, grounds)
            out += fit(some.rows, limit_bytes, partial(self._batch, some), smaller)
        return out

    def _text(self, mode: type[ReceiptGrounds], partition: int) -> ReceiptText:
        if (mode, partition) not in self._texts:
            named = mode, self._pipeline, self._topic, partition
            self._texts[mode, partition] = receipt_text(*named, observed=self._observed)
        return self._texts[mode, partition]

    def _smaller(self, receipts: Receipts, grounds: ReceiptGrounds, index: int) -> Iterator[EncodedBatch]:
        """Yield ever smaller batches of one receipt: without its key, then with a shorter id."""
        receipt = receipts.part(index, index + 1)
        columns, rows = receipt.columns, receipt.rows
        if columns.key_length[rows[0]] >= 0:
            receipt = receipt._replace(keyed=False)
            yield self._batch(receipt, 0, 1)
        yield self._batch(receipt._replace(lists=grounds.lists(rows, LEAST_CUT_BYTES)), 0, 1)

    def _batch(self, receipts: Receipts, start: int, stop: int) -> EncodedBatch:
        some = receipts.part(start, stop)
        columns, rows = some.columns, some.rows
        out = self._out.of(int(some.most_bytes().sum()))
        used = some.encode(int(columns.timestamp[rows[0]]), out)
        payload = self._out.deflated(Codec.LZ4, used, rows.size)
        return packed(columns, rows, Codec.LZ4, payload, offset_bits=some.text.partition_bits)
