"""Reads a fetch byte by byte from Kafka's description of the format, as slowly as it likes.

The model that the decoder is compared with. It takes nothing from the code under test but the inflating of
compressed bytes, which is libraries' work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import google_crc32c
import numpy as np

from processor.wire.codec import CodecError, inflate
from tests.support.wire.batches import CONTROL, CRC_FROM, HEADER, LOG_APPEND_TIME, TRANSACTIONAL, Header, Record

if TYPE_CHECKING:
    from processor.wire.decode import Chunk

MOST_INFLATED = 64 * 1024 * 1024
_SPACE = np.empty(MOST_INFLATED + 1, np.uint8)


class WrongError(Exception):
    """The bytes break the format."""


class Answer(NamedTuple):
    """What there is to read: records, the position after them, and the offset of what cannot be read."""

    records: list[Record]
    position: int
    error: int | None


class Reader:
    """Takes bytes from the front of what is left."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self.left):
            raise WrongError
        taken, self.left = self.left[:size], self.left[size:]
        return taken

    def varint(self, bits: int = 32) -> int:
        number = 0
        for index in range(-(-bits // 7)):
            (byte,) = self.take(1)
            number |= (byte % 128) << (7 * index)
            if byte < 128:
                number %= 2**64  # of a tenth byte one bit counts
                return (number >> 1) ^ -(number & 1)
        raise WrongError

    def sized(self) -> bytes | None:
        size = self.varint()
        return None if size == -1 else self.take(size)


def signed(number: int) -> int:
    """Wrap to 64 bits."""
    return (number + 2**63) % 2**64 - 2**63


class Batch(NamedTuple):
    """A batch's header fields that matter here, and its bytes."""

    base: int
    crc: int
    attributes: int
    last_delta: int
    base_timestamp: int
    max_timestamp: int
    producer: int
    record_count: int
    raw: bytes


def read(chunk: Chunk) -> Answer:
    """Read a whole chunk as a read_committed consumer sees it."""
    records: list[Record] = []
    position, data = chunk.position, chunk.data
    last = -1
    aborted: set[int] = set()
    pending = list(chunk.aborted)
    first = True
    while len(data) >= 17:
        try:
            batch = _batch(data, last)
        except WrongError:
            return Answer(records, position, position)
        if batch is None:
            break
        first = False
        data = data[len(batch.raw) :]
        last = batch.base + batch.last_delta
        aborted |= {producer for producer, offset in pending if offset <= batch.base}
        try:
            records += _wanted(batch, chunk.position, aborted)
        except (WrongError, CodecError):
            return Answer(records, position, batch.base)
        if batch.attributes & CONTROL and _aborts(batch):
            aborted.discard(batch.producer)
            pending = [each for each in pending if each[0] != batch.producer or each[1] > batch.base]
        position = max(position, last + 1)
    return Answer(records, position, position if first and chunk.data else None)


def _batch(data: bytes, last: int) -> Batch | None:
    length = int.from_bytes(data[8:12], "big", signed=True)
    if length < HEADER.size - 12 or data[16] != 2:
        raise WrongError
    if length + 12 > len(data):
        return None
    raw = data[: length + 12]
    base, _, _, _, crc, attributes, delta, time, newest, producer, _, _, count = HEADER.unpack_from(raw)
    if delta < 0 or base <= last or base + delta + 1 > 2**63 - 1:
        raise WrongError
    return Batch(base, crc % 2**32, attributes, delta, time, newest, producer, count, raw)


def _wanted(batch: Batch, position: int, aborted: set[int]) -> list[Record]:
    if google_crc32c.value(batch.raw[CRC_FROM:]) != batch.crc:
        raise WrongError
    below = batch.base + batch.last_delta < position
    left_out = batch.attributes & TRANSACTIONAL and batch.producer in aborted
    if batch.attributes & CONTROL or below or left_out:
        return []
    if batch.record_count < 0:
        raise WrongError
    size = inflate(batch.attributes & 7, np.frombuffer(batch.raw[HEADER.size :], np.uint8), _SPACE)
    if size > MOST_INFLATED:
        raise WrongError
    return [record for record in _records(batch, _SPACE[:size].tobytes()) if record.offset >= position]


def _records(batch: Batch, plain: bytes) -> list[Record]:
    if batch.record_count * 7 > len(plain):
        raise WrongError
    reader = Reader(plain)
    found: list[Record] = []
    for _ in range(batch.record_count):
        inside = Reader(reader.take(reader.varint()))
        inside.take(1)
        time = signed(batch.base_timestamp + inside.varint(64))
        delta = inside.varint()
        if not (found[-1].offset - batch.base if found else -1) < delta <= batch.last_delta:
            raise WrongError
        key, value = inside.sized(), inside.sized()
        headers = tuple(_header(inside) for _ in range(_count(inside)))
        if inside.left:
            raise WrongError
        time = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME else time
        found.append(Record(batch.base + delta, time, key, value, headers))
    if reader.left:
        raise WrongError
    return found


def _count(reader: Reader) -> int:
    count = reader.varint()
    if not 0 <= count <= len(reader.left):
        raise WrongError
    return count


def _header(reader: Reader) -> Header:
    name = reader.sized()
    if name is None:
        raise WrongError
    return name, reader.sized()


def _aborts(batch: Batch) -> bool:
    try:
        (record,) = _records(batch, batch.raw[HEADER.size :])
    except (WrongError, ValueError):
        return False
    return record.key is not None and len(record.key) >= 4 and record.key[2:4] == b"\0\0"
