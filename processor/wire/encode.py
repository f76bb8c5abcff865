"""Writes what passed as batches; those of which all passed go on as they are.

A batch of which all records pass goes on with its compressed bytes untouched; only its header is new.
The others are written again with their source's codec, neighbours together, so that a producer of tiny
batches does not make tiny batches of us; what exceeds the topic's limit is split. A batch with a record that is
edited on its way is always written again.

Invariant: records keep their order, keys, values, headers and timestamps, but for what is edited; offset deltas
are consecutive and ``last offset delta = count - 1``, or the broker refuses (trap 9).
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import cramjam
import google_crc32c
import numpy as np

from processor.engine.batch.columns import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CRC_FROM,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAX_OVERHEAD_BYTES,
    SIZE,
    START,
    TRANSACTIONAL,
)
from processor.engine.batch.edits import encode_edited
from processor.engine.batch.encode import encode, summarise
from processor.engine.bytes.lz4_records import block_bound, deflate_block
from processor.engine.bytes.varints import as_varint, sized
from processor.engine.bytes.vectors import SLACK
from processor.engine.jit import COMPILES
from processor.wire import lz4
from processor.wire.codec import Codec, deflate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.batch.edits import Edits
    from processor.engine.jit import Int
    from processor.wire.decode import Piece

# The kernel (`processor.engine.bytes.lz4_records`) takes a third of the library's time where records are of
# one form, and hardly compresses long ones whose texts differ. Of every 64th batch the first block is made
# by both. Until the next, the kernel is used if what it made was at most 1.15 times as large.
#
# Invariant: a batch of a few records is left to the library. Each record needs one before it, and a record
# that fits a topic by its producer's codec alone must not become too large here.

EVERY = 64
"""Batches from one whose first block is made by both to the next: 3 ns per record."""
MOST_LARGER = 1.15
"""How many times as large as the library's block the kernel's may be: bytes cost brokers and every reader."""
FEWEST_RECORDS = 64
"""The first one of a block is written as it is: of 64 it makes the block larger by a 60th."""

_WORD = struct.Struct("<I")


class Deflater:
    """Compresses the batches of one topic; not for use by several threads at once."""

    def __init__(self) -> None:
        self._until_both = 0
        self._by_kernel = False
        self._frame = np.empty(0, np.uint8)

    @property
    def by_kernel(self) -> bool:
        """Whether the kernel is in use."""
        return self._by_kernel

    def deflate(self, codec: int, space: NDArray[np.uint8], size: int, records: int) -> bytes:
        """Compress the records of a batch as a producer would with ``codec``.

        Args:
            codec: The lowest three bits of the batch's attributes.
            space: uint8[m], the records as the batch holds them, and `vectors.SLACK` bytes behind them.
            size: Bytes of the records.
            records: How many there are.
        """
        if codec != Codec.LZ4 or records < FEWEST_RECORDS or not COMPILES:
            return deflate(codec, space[:size])
        blocks = -(-size // lz4.BLOCK_BYTES)
        room = len(lz4.HEADER) + blocks * (_WORD.size + block_bound(lz4.BLOCK_BYTES)) + len(lz4.END)
        if self._frame.size < room:
            self._frame = np.empty(room, np.uint8)
        both = self._until_both == 0
        self._until_both = EVERY - 1 if both else self._until_both - 1
        record: Int = 0
        at = self._put(0, lz4.HEADER)
        for start in range(0, size, lz4.BLOCK_BYTES):
            block = space[start : min(start + lz4.BLOCK_BYTES, size)]
            begin = made = at + _WORD.size
            if both or self._by_kernel:
                wrote, record = deflate_block(space, start, start + block.size, record, self._frame, begin)
                made = int(wrote)
            if both or not self._by_kernel:
                packed = cramjam.lz4.compress_block(block, store_size=False)
                self._by_kernel = both and made - begin <= MOST_LARGER * len(packed)
                if not self._by_kernel:
                    made = self._put(begin, bytes(packed))
            both = False
            stored = made - begin >= block.size
            if stored:
                made = self._put(begin, block.tobytes())
            self._put(at, _WORD.pack(made - begin | (lz4.STORED if stored else 0)))
            at = made
        return self._frame[: self._put(at, lz4.END)].tobytes()

    def _put(self, at: int, content: bytes) -> int:
        """Write bytes of the frame; return where they end."""
        after = at + len(content)
        self._frame[at:after] = np.frombuffer(content, np.uint8)
        return after


_HEADER = struct.Struct(">qiibIhiqqqhii")

RUN_BYTES = 1024 * 1024
"""Inflated bytes that are written into one batch at most. A batch costs about 100 µs on its way whatever is in
it: with four times the 256 KiB of a well-set producer the worker takes 8 % less."""
ROOM_SHARE = 8
"""This part of a topic's limit is left free: what hardly compresses must not be written again in halves."""
FORWARD_BYTES = 16 * 1024
"""Whole batches from this size on are forwarded even between re-encoded ones. A batch costs about 100 µs
on its way (requests, acknowledgement, the broker's work), re-encoding about 0.4 µs per record: at 150 B per
record the two are equal near 250 records, 16 KiB compressed."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch ready to go but for what the producer adds: its id, epoch and sequence.

    Attributes:
        codec: Of the payload.
        base_timestamp: ms.
        max_timestamp: ms.
        count: Records.
        payload: What stands behind the 61 bytes of the header.
        first_offset: In the source; for messages to people.
        last_offset: In the source.
    """

    codec: int
    base_timestamp: int
    max_timestamp: int
    count: int
    payload: bytes | memoryview
    first_offset: int = -1
    last_offset: int = -1

    @property
    def size(self) -> int:
        """Bytes on the wire; what the broker compares with ``max.message.bytes``."""
        return HEADER_BYTES + len(self.payload)

    def build(self, producer_id: int, producer_epoch: int, base_sequence: int, *, transactional: bool) -> bytes:
        """Return the whole batch with a new CRC-32C; partition leader epoch is -1, base offset 0."""
        return b"".join(self.parts(producer_id, producer_epoch, base_sequence, transactional=transactional))

    def parts(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, transactional: bool
    ) -> tuple[bytes, bytes | memoryview]:
        """Return the same in two parts, header and payload, so that the payload is not copied."""
        header = bytearray(
            _HEADER.pack(
                0,
                self.size - LOG_OVERHEAD,
                -1,
                2,
                0,
                self.codec | (TRANSACTIONAL if transactional else 0),
                self.count - 1,
                self.base_timestamp,
                self.max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                self.count,
            )
        )
        crc = google_crc32c.value(bytes(header[CRC_FROM:]))
        crc = google_crc32c.extend(crc, np.frombuffer(self.payload, np.uint8))
        struct.pack_into(">I", header, 17, crc)
        return bytes(header), self.payload


class TooLargeError(Exception):
    """One record alone exceeds the topic's limit; ``row`` is its index in the columns."""

    def __init__(self, row: int, size_bytes: int) -> None:
        self.row = row
        self.size_bytes = size_bytes
        super().__init__(f"record {row} makes a batch of {size_bytes:,} bytes")


class RunBuffer:
    """The bytes that the records of one batch are written into, and what compresses them; one per topic."""

    def __init__(self) -> None:
        self._bytes = np.empty(RUN_BYTES + SLACK, np.uint8)
        self._deflater = Deflater()

    def of(self, most_bytes: int) -> NDArray[np.uint8]:
        """Return at least so many bytes; what the last call returned is overwritten."""
        if self._bytes.size < most_bytes + SLACK:
            self._bytes = np.empty(most_bytes + SLACK, np.uint8)
        return self._bytes

    def deflated(self, codec: int, size: int, records: int) -> bytes:
        """Return the first ``size`` bytes compressed: ``records`` records."""
        return self._deflater.deflate(codec, self._bytes, size, records)


class Encoder:
    """Writes what passed of a piece into one topic; owns the buffer that records are written into."""

    def __init__(self) -> None:
        self._out = RunBuffer()

    def encode(
        self, piece: Piece, verdict: NDArray[np.uint8], limit_bytes: int, edits: Edits | None = None
    ) -> list[EncodedBatch]:
        """Return the batches that carry the records with verdict 0, in order.

        Args:
            piece: As the decoder gave it; must still be the newest.
            verdict: uint8[n], 0 passes.
            limit_bytes: The topic's ``max.message.bytes``.
            edits: Of some of those records.

        Raises:
            TooLargeError: A passing record exceeds the limit even alone.
        """
        count = len(piece.batches)
        kept = np.empty(count, np.int64)
        newest = np.empty(count, np.int64)
        summarise(verdict, piece.columns.timestamp, piece.first_row, kept, newest)
        clean = piece.whole & (kept == np.diff(piece.first_row))
        clean &= piece.batches[:, SIZE] <= limit_bytes
        first = piece.columns.body[piece.first_row[:-1]]
        # But for what stands before the first record's key.
        inflated = piece.columns.end[piece.first_row[1:] - 1] - first
        if edits is not None:
            edited = batches_of(piece, edits.row)
            clean[edited] = False
            np.add.at(inflated, edited, edits.growth())
        out: list[EncodedBatch] = []
        for run in _runs(piece, kept, clean, inflated.tolist(), run_bytes(limit_bytes)):
            if len(run) == 1 and clean[run[0]]:
                out.append(_forward(piece, run[0], newest))
                continue
            start, stop = int(piece.first_row[run[0]]), int(piece.first_row[run[-1] + 1])
            rows = start + np.flatnonzero(verdict[start:stop] == 0)
            codec = int(piece.batches[run[0], ATTRIBUTES]) & CODEC_MASK
            out += fit(rows, limit_bytes, partial(self._batch, piece.columns, rows, codec, edits))
        return out

    def _batch(
        self,
        columns: Columns,
        rows: NDArray[np.int64],
        codec: int,
        edits: Edits | None,
        start: int,
        stop: int,
    ) -> EncodedBatch:
        some = rows[start:stop]
        first, last = int(some[0]), int(some[-1])
        # What lies between the first and the last of them holds all of them: rows and records rise together.
        most_bytes = int(columns.end[last] - columns.body[first]) + some.size * MAX_OVERHEAD_BYTES
        base = int(columns.timestamp[first])
        if edits is not None:
            edits = edits.between(first, last)
        if edits is None or not edits.row.size:
            out = self._out.of(most_bytes)
            used = encode(columns.data, columns.table, some, base, out)
        else:
            out = self._out.of(most_bytes + edits.text_bytes())
            used = encode_edited(columns.data, columns.table, some, edits, base, out)
        return packed(columns, some, codec, self._out.deflated(codec, int(used), some.size))

    def alone_bytes(self, columns: Columns, row: int, codec: int, edits: Edits | None = None) -> int:
        """Return the size of a batch of this record alone, edited, by its source's codec."""
        return self._batch(columns, np.array([row], np.int64), codec, edits, 0, 1).size


class Encoders:
    """An encoder for each topic: which way to compress is the better one is found out topic by topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str | None, Encoder] = {}

    def of(self, topic: str | None) -> Encoder:
        """Return the encoder of a topic, the same each time; None: of those that write to none."""
        if topic not in self._by_topic:
            self._by_topic[topic] = Encoder()
        return self._by_topic[topic]


def packed(
    columns: Columns,
    rows: NDArray[np.int64],
    codec: int,
    payload: bytes,
    *,
    offset_bits: int = 0,
) -> EncodedBatch:
    """Return a batch of ``rows``, whose records make ``payload``; its base timestamp is that of the first.

    Args:
        columns: The records.
        rows: int64[k], at least one.
        codec: What they are compressed with.
        payload: The records, compressed.
        offset_bits: How many low bits of an offset are not one's own, as in a place.
    """
    return EncodedBatch(
        codec,
        int(columns.timestamp[rows[0]]),
        int(columns.timestamp[rows].max()),
        int(rows.size),
        payload,
        int(columns.offset[rows[0]]) >> offset_bits,
        int(columns.offset[rows[-1]]) >> offset_bits,
    )


def equal_runs(values: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield start and stop of consecutive equal values."""
    if values.size:
        yield from itertools.pairwise([0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), values.size])


def run_bytes(limit_bytes: int) -> int:
    """Return how many inflated bytes are written into one batch at most, where a topic takes so large ones."""
    return min(RUN_BYTES, limit_bytes - limit_bytes // ROOM_SHARE)


def cut(size_bytes: NDArray[np.int64], limit_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield start and stop of consecutive records that take at most `run_bytes`, or are one record."""
    most_bytes = run_bytes(limit_bytes)
    after = np.cumsum(size_bytes)
    start = 0
    while start < size_bytes.size:
        before = int(after[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(after, before + most_bytes, side="right")))
        yield start, stop
        start = stop


def fit(
    rows: NDArray[np.int64],
    limit_bytes: int,
    write: Callable[[int, int], EncodedBatch],
    smaller: Callable[[int], Iterable[EncodedBatch]] = lambda _: (),
) -> Iterator[EncodedBatch]:
    """Yield batches with ``rows``, in order, each within the limit.

    Args:
        rows: int64[k], at least one.
        limit_bytes: The topic's ``max.message.bytes``.
        write: Returns a batch with the rows from one index to another.
        smaller: Yields ever smaller batches with the row at an index, for one that is too large alone.

    Raises:
        TooLargeError: One record alone exceeds the limit, made as small as it can be.
    """
    pending = [(0, int(rows.size))]
    while pending:
        start, stop = pending.pop()
        whole = write(start, stop)
        if whole.size > limit_bytes and stop - start > 1:
            half = start + (stop - start) // 2
            pending += [(half, stop), (start, half)]
            continue
        for batch in itertools.chain([whole], smaller(start) if whole.size > limit_bytes else ()):
            if batch.size <= limit_bytes:
                yield batch
                break
        else:
            raise TooLargeError(int(rows[start]), batch.size)


def batches_of(piece: Piece, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return int64[k]: the source batches that records stand in, as rows of ``piece.batches``."""
    return np.searchsorted(piece.first_row, rows, side="right") - 1


def _runs(
    piece: Piece, kept: NDArray[np.int64], clean: NDArray[np.bool_], inflated: list[int], most_bytes: int
) -> Iterator[list[int]]:
    """Yield the batches of which something passes: those that go on as they are, or neighbours of one codec."""
    forwarded = (clean & (piece.batches[:, SIZE] >= FORWARD_BYTES)).tolist()
    codec = (piece.batches[:, ATTRIBUTES] & CODEC_MASK).tolist()
    run: list[int] = []
    used = 0
    for index in np.flatnonzero(kept).tolist():
        full = used + inflated[index] > most_bytes
        if run and (forwarded[index] or full or codec[run[0]] != codec[index]):
            yield run
            run, used = [], 0
        if forwarded[index]:
            yield [index]
            continue
        run.append(index)
        used += inflated[index]
    if run:
        yield run


def _forward(piece: Piece, index: int, newest: NDArray[np.int64]) -> EncodedBatch:
    """Take a batch's compressed bytes as they are; of its attributes only the codec goes on."""
    batch = piece.batches[index]
    start, stop = int(batch[START]), int(batch[START] + batch[SIZE])
    first, after = int(piece.first_row[index]), int(piece.first_row[index + 1])
    return EncodedBatch(
        int(batch[ATTRIBUTES]) & CODEC_MASK,
        int(batch[BASE_TIMESTAMP]),
        int(newest[index]),
        after - first,
        piece.raw.data[start + HEADER_BYTES : stop],
        int(piece.columns.offset[first]),
        int(piece.columns.offset[after - 1]),
    )


def plain_batch(
    items: Sequence[tuple[bytes | None, bytes | None, int, Sequence[tuple[str | bytes, bytes | None]]]],
    codec: int = Codec.NONE,
    first_offset: int = -1,
    last_offset: int = -1,
) -> EncodedBatch:
    """Write (key, value, timestamp in ms, headers) tuples as one batch: the slow way, for few records."""
    base = items[0][2]
    parts = []
    for index, (key, value, timestamp, headers) in enumerate(items):
        fields = [b"\x00", as_varint(_wrapped(timestamp - base)), as_varint(index), sized(key), sized(value)]
        fields.append(as_varint(len(headers)))
        for name, content in headers:
            fields += [sized(name if isinstance(name, bytes) else name.encode()), sized(content)]
        record = b"".join(fields)
        parts += [as_varint(len(record)), record]
    payload = np.frombuffer(b"".join(parts), np.uint8)
    newest = max(item[2] for item in items)
    return EncodedBatch(codec, base, newest, len(items), deflate(codec, payload), first_offset, last_offset)


def _wrapped(delta: int) -> int:
    """Return ``delta`` as 64 bits hold it: readers add it to the base timestamp modulo 2^64."""
    return (delta + 2**63) % 2**64 - 2**63
