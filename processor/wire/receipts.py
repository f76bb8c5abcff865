"""Writes receipts of dropped records as batches.

One receipt a dropped record, in the duplicates topic's partition of the same number and in the transaction
that drops it. The kernel writes the records; here they are cut into batches. They are compressed with LZ4
whatever the source's codec is: a receipt repeats most of the one before it, and takes a tenth of its size then.

What was dropped must not stop its pipeline: a receipt that the topic does not take even alone is made smaller,
without the record's key (a header says so), then with all but the shortest parts of its id cut to digests.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import orjson

from processor.engine import id_receipts
from processor.engine.id_receipts import IdGrounds, IdLists, IdReceiptText
from processor.engine.receipts import ReceiptText, encode, most_bytes
from processor.engine.repartition import PARTITION_BITS
from processor.wire.codec import Codec
from processor.wire.encode import packed
from processor.wire.fit import RunBuffer, cut, fit

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.receipts import Grounds
    from processor.wire.encode import EncodedBatch


LEAST_CUT_BYTES = 64
"""What a part of an id has left in the last resort: a digest is no shorter."""
ANYWHERE = -1
"""In place of a partition's number: offsets are places (`processor.engine.repartition`), which say it."""


def receipt_text(pipeline: str, topic: str, partition: int) -> ReceiptText:
    """Return the constant parts of the receipts of a source partition."""
    return ReceiptText(orjson.dumps({"pipeline": pipeline, "topic": topic, "partition": partition}))


def id_receipt_text(pipeline: str, topic: str, partition: int) -> IdReceiptText:
    """Return the constant parts of the receipts of a source partition, in mode insert-id; see `ANYWHERE`."""
    if partition == ANYWHERE:
        named = {"topic": topic}
        return IdReceiptText(orjson.dumps({"pipeline": pipeline, **named}), orjson.dumps(named), places=True)
    place = {"topic": topic, "partition": partition}
    return IdReceiptText(orjson.dumps({"pipeline": pipeline, **place}), orjson.dumps(place))


def receipt_prefix(pipeline: str, topic: str) -> bytes:
    """Return what the value of every receipt of a pipeline begins with, whatever the partition."""
    return orjson.dumps({"pipeline": pipeline, "topic": topic})[:-1] + b","


def _has_key(columns: Columns, rows: NDArray[np.int64]) -> bool:
    """Whether the one record in ``rows`` has a key that can be left out."""
    return bool(columns.key_length[rows[0]] >= 0)


class _OfSequences(NamedTuple):
    """Receipts of mode watermark that are still to be written."""

    text: ReceiptText
    columns: Columns
    rows: NDArray[np.int64]
    grounds: Grounds
    keyed: bool = True

    def part(self, start: int, stop: int) -> _OfSequences:
        """Return those from ``start`` to ``stop``."""
        return self._replace(rows=self.rows[start:stop])

    def smaller(self) -> _OfSequences | None:
        """Return what takes less room; None: nothing does."""
        return self._replace(keyed=False) if self.keyed and _has_key(self.columns, self.rows) else None

    def most_bytes(self) -> NDArray[np.int64]:
        """Return more than each takes."""
        return most_bytes(self.text, self.columns, self.rows)

    def encode(self, base_timestamp: int, out: NDArray[np.uint8]) -> int:
        """Write them; return the bytes."""
        return encode(self.text, self.columns, self.rows, self.grounds, base_timestamp, out, keyed=self.keyed)


class _OfIds(NamedTuple):
    """Receipts of mode insert-id that are still to be written."""

    text: IdReceiptText
    columns: Columns
    rows: NDArray[np.int64]
    grounds: IdGrounds
    lists: IdLists
    keyed: bool = True
    cut: bool = False

    def part(self, start: int, stop: int) -> _OfIds:
        """Return those from ``start`` to ``stop``."""
        return self._replace(rows=self.rows[start:stop], lists=self.lists.part(start, stop))

    def smaller(self) -> _OfIds | None:
        """Return what takes less room; None: nothing does."""
        if self.keyed and _has_key(self.columns, self.rows):
            return self._replace(keyed=False)
        if self.cut:
            return None
        data, ids = self.columns.data, self.grounds.ids
        return self._replace(lists=id_receipts.id_lists(data, ids, self.rows, LEAST_CUT_BYTES), cut=True)

    def most_bytes(self) -> NDArray[np.int64]:
        """Return more than each takes."""
        return id_receipts.most_bytes(self.text, self.columns, self.rows, self.lists)

    def encode(self, base_timestamp: int, out: NDArray[np.uint8]) -> int:
        """Write them; return the bytes."""
        return id_receipts.encode(*self[:5], base_timestamp, out, keyed=self.keyed)


Receipts = _OfSequences | _OfIds


def receipts_of(
    text: ReceiptText | IdReceiptText, columns: Columns, rows: NDArray[np.int64], grounds: Grounds | IdGrounds
) -> Receipts:
    """Return the receipts of ``rows``, still to be written; ``text`` is of the mode that ``grounds`` are of."""
    if isinstance(grounds, IdGrounds) and isinstance(text, IdReceiptText):
        return _OfIds(text, columns, rows, grounds, id_receipts.id_lists(columns.data, grounds.ids, rows))
    assert not isinstance(grounds, IdGrounds) and isinstance(text, ReceiptText)  # noqa: S101, PT018 - see above
    return _OfSequences(text, columns, rows, grounds)


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
        self._id_texts: dict[int, IdReceiptText] = {}
        self._out = RunBuffer()

    def encode(
        self,
        partition: int,
        columns: Columns,
        rows: NDArray[np.int64],
        grounds: Grounds | IdGrounds,
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
        of_ids = isinstance(grounds, IdGrounds)
        text = self._id_text(partition) if of_ids else self._text(partition)
        receipts = receipts_of(text, columns, rows, grounds)
        out: list[EncodedBatch] = []
        for start, stop in cut(receipts.most_bytes()):
            some = receipts.part(start, stop)
            out += fit(some.rows, limit_bytes, partial(self._batch, some), partial(self._smaller, some))
        return out

    def _text(self, partition: int) -> ReceiptText:
        if partition not in self._texts:
            self._texts[partition] = receipt_text(self._pipeline, self._topic, partition)
        return self._texts[partition]

    def _id_text(self, partition: int) -> IdReceiptText:
        if partition not in self._id_texts:
            self._id_texts[partition] = id_receipt_text(self._pipeline, self._topic, partition)
        return self._id_texts[partition]

    def _smaller(self, receipts: Receipts, index: int) -> Iterator[EncodedBatch]:
        """Yield ever smaller batches of one receipt."""
        left = receipts.part(index, index + 1).smaller()
        while left is not None:
            yield self._batch(left, 0, 1)
            left = left.smaller()

    def _batch(self, receipts: Receipts, start: int, stop: int) -> EncodedBatch:
        some = receipts.part(start, stop)
        columns, rows = some.columns, some.rows
        out = self._out.of(int(some.most_bytes().sum()))
        used = some.encode(int(columns.timestamp[rows[0]]), out)
        newest = int(columns.timestamp[rows].max())
        # For messages to people: of a place its offset.
        bits = PARTITION_BITS if isinstance(some, _OfIds) and some.text.places else 0
        return packed(columns, rows, Codec.LZ4, out[:used], newest, offset_bits=bits)
