"""Makes and reads record batches without Seqmark's own codec.

Two ways to make one: by aiokafka's builder, and by hand, which also makes what no client writes. Two ways to
read one: by aiokafka's parser, and from the decoder's columns, span by span.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import google_crc32c
from aiokafka import codec as aiokafka_codec
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from processor.wire.decode import Chunk, Decoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from processor.engine.batch.columns import Columns
    from tests.support.kafka.topics import Record as TopicRecord

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_AT, CRC_FROM = 17, 21
_COMPRESS = {
    NONE: bytes,
    GZIP: aiokafka_codec.gzip_encode,
    SNAPPY: aiokafka_codec.snappy_encode,
    LZ4: aiokafka_codec.lz4_encode,
    ZSTD: aiokafka_codec.zstd_encode,
}

Header = tuple[bytes, bytes | None]

DECODER = Decoder()
"""One for all tests: it holds 64 MiB of address space."""


class Record(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def on_wire(record: TopicRecord) -> Record:
    """Return a record of a topic as batches are made of."""
    headers = tuple((name.encode(), value) for name, value in record.headers)
    return Record(record.offset, record.timestamp, record.key, record.value, headers)


def simple(offset: int, value: bytes = b"v", timestamp: int = 1_000) -> Record:
    """Return a record of which only the offset matters."""
    return Record(offset, timestamp, None, value)


def run(start: int, stop: int) -> list[Record]:
    """Return records with the offsets from ``start`` to ``stop``, each with a value of its own."""
    return [simple(offset, b"value %d" % offset, 1_000 + offset) for offset in range(start, stop)]


def varint(value: int) -> bytes:
    """Write a zigzag varint of a signed 64-bit number."""
    left = value * 2 if value >= 0 else -value * 2 - 1
    out = b""
    while left > 127:
        out += bytes([left % 128 + 128])
        left //= 128
    return out + bytes([left])


def sized(content: bytes | None) -> bytes:
    """Write nullable bytes."""
    return varint(-1) if content is None else varint(len(content)) + content


def record_bytes(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Write one record."""
    body = b"\x00" + varint(record.timestamp - base_timestamp) + varint(record.offset - base_offset)
    body += sized(record.key) + sized(record.value) + varint(len(record.headers))
    for name, value in record.headers:
        body += sized(name) + sized(value)
    return varint(len(body)) + body


def by_hand(
    records: Sequence[Record],
    codec: int = NONE,
    *,
    base_offset: int | None = None,
    last_delta: int | None = None,
    attributes: int = 0,
    max_timestamp: int | None = None,
    producer_id: int = -1,
) -> bytes:
    """Write records as one batch; what is not given follows from them. Gaps in their offsets stay gaps."""
    base = base_offset if base_offset is not None else records[0].offset if records else 0
    time = records[0].timestamp if records else -1
    plain = b"".join(record_bytes(record, base, time) for record in records)
    return with_header(
        _COMPRESS[codec](plain),
        count=len(records),
        base_offset=base,
        last_delta=records[-1].offset - base if last_delta is None else last_delta,
        attributes=attributes | codec,
        base_timestamp=time,
        max_timestamp=max((r.timestamp for r in records), default=-1)
        if max_timestamp is None
        else max_timestamp,
        producer_id=producer_id,
    )


def with_header(
    payload: bytes,
    *,
    count: int,
    base_offset: int = 0,
    last_delta: int = 0,
    attributes: int = 0,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    producer_id: int = -1,
) -> bytes:
    """Put a header with a valid CRC before ``payload``."""
    length = HEADER.size - 12 + len(payload)
    fields = (base_offset, length, 5, 2, 0, attributes, last_delta, base_timestamp, max_timestamp)
    return sealed(HEADER.pack(*fields, producer_id, 0, 0, count) + payload)


def sealed(batch: bytes) -> bytes:
    """Return ``batch`` with the CRC that its bytes ask for."""
    crc = google_crc32c.value(batch[CRC_FROM:])
    return batch[:CRC_AT] + struct.pack(">I", crc) + batch[CRC_FROM:]


def by_aiokafka(records: Sequence[Record], codec: int, *, producer_id: int = -1) -> bytes:
    """Write records as one batch by aiokafka's builder (names of headers must be UTF-8)."""
    builder = DefaultRecordBatchBuilder(2, codec, int(producer_id >= 0), producer_id, 0, 0, 1 << 30)
    base = records[0].offset
    for record in records:
        headers = [(name.decode(), value) for name, value in record.headers]
        assert builder.append(record.offset - base, record.timestamp, record.key, record.value, headers)
    return struct.pack(">q", base) + bytes(builder.build())[8:]


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    """Write the control batch that ends a transaction."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    record = Record(offset, 1_000, key, value)
    return by_hand([record], attributes=CONTROL | TRANSACTIONAL, producer_id=producer_id)


def transaction(records: Sequence[Record], producer_id: int) -> bytes:
    """Write records as one transactional batch."""
    return by_hand(records, attributes=TRANSACTIONAL, producer_id=producer_id)


def chunk(*batches: bytes, position: int = 0, aborted: Sequence[tuple[int, int]] = ()) -> Chunk:
    """Return what a fetch from ``position`` would bring."""
    return Chunk("source", 0, position, b"".join(batches), aborted)


def decoded(what: Chunk) -> tuple[list[Record], int]:
    """Return all wanted records of a chunk and the position after it."""
    records: list[Record] = []
    position = what.position
    for piece in DECODER.pieces(what):
        records += rows(piece.columns)
        position = piece.next_offset
    return records, position


def rows(columns: Columns) -> list[Record]:
    """Read the decoder's columns, span by span."""
    return [
        Record(
            int(columns.offset[row]),
            int(columns.timestamp[row]),
            _span(columns, int(columns.key[row]), int(columns.key_length[row])),
            _span(columns, int(columns.value[row]), int(columns.value_length[row])),
            _headers(columns.data[columns.headers[row] : columns.end[row]].tobytes()),
        )
        for row in range(len(columns))
    ]


def _span(columns: Columns, start: int, length: int) -> bytes | None:
    assert length >= -1
    return None if length == -1 else columns.data[start : start + length].tobytes()


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint; returns it and the position after it."""
    number = shift = 0
    while True:
        number += (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return (number // 2 if number % 2 == 0 else -(number // 2) - 1), at


def _headers(data: bytes) -> tuple[Header, ...]:
    count, at = read_varint(data, 0)
    found: list[Header] = []
    for _ in range(count):
        size, at = read_varint(data, at)
        name = data[at : at + size]
        size, at = read_varint(data, at + size)
        found.append((name, None if size < 0 else data[at : at + size]))
        at += max(size, 0)
    assert at == len(data)
    return tuple(found)


class Parsed(NamedTuple):
    """One batch as aiokafka's parser reads it."""

    records: list[Record]
    batch: Any
    crc_is_valid: bool
    record_count: int
    raw: bytes


def parsed(batches: Iterable[bytes]) -> list[Parsed]:
    """Read batches by aiokafka's parser; offsets are those within each batch."""
    found = []
    for raw in batches:
        memory = MemoryRecords(raw)
        batch = memory.next_batch()
        assert batch is not None
        assert not memory.has_next()
        valid = batch.validate_crc()
        records = [
            Record(r.offset, r.timestamp, r.key, r.value, tuple((k.encode(), v) for k, v in r.headers))
            for r in batch
        ]
        found.append(Parsed(records, batch, valid, HEADER.unpack_from(raw)[12], raw))
    return found
