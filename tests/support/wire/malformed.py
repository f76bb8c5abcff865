"""Real batches, damaged in every way that a seeded generator can think of.

``python -m tests.support.wire.malformed COUNT SEED`` runs the comparisons in a process of its own, which is how
they run with ``NUMBA_DISABLE_JIT=1``: kernels are plain Python there, and every single read is watched.
"""

from __future__ import annotations

import os
import random
import struct
import sys
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from processor.engine.batch.columns import BATCH_COLUMNS, COUNT, LAST_DELTA, MIN_RECORD_BYTES, RecordTable
from processor.engine.batch.scan import scan as scan_kernel
from processor.engine.batch.scan import walk
from processor.wire.decode import Chunk, UndecodableError
from tests.support.wire import batches, naive
from tests.support.wire.batches import CODECS, HEADER, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

NUMBERS = (
    -(2**63),
    -(2**31),
    -129,
    -2,
    -1,
    0,
    1,
    2,
    5,
    63,
    64,
    127,
    128,
    1_000,
    2**31 - 1,
    2**31,
    2**40,
    2**63 - 1,
)
FIELDS = ((0, 8), (8, 4), (16, 1), (17, 4), (21, 2), (22, 1), (23, 4), (27, 8), (35, 8), (43, 8), (57, 4))
"""Where the fields of a batch header stand, and how wide they are."""
GUARD = 64


def originals() -> list[list[bytes]]:
    """Return chunks of three batches, of every codec, with all that a record can have."""
    found = []
    for codec in CODECS:
        first = [
            Record(0, 1_000, b"key", b"value" * 6, ((b"seq", b"\0" * 8), (b"seq", None))),
            Record(1, 1_001, None, b""),
            Record(2, 999, b"", None, ((b"", b""),)),
        ]
        third = [Record(9, 2_000, b"k" * 70, b"{}"), Record(12, 2_001, None, b"x" * 130)]
        second = batches.run(5, 7)
        middle = batches.by_hand(second, codec, attributes=batches.TRANSACTIONAL, producer_id=4)
        found.append([batches.by_hand(first, codec), middle, batches.by_hand(third, codec, last_delta=5)])
        found.append([batches.by_hand(first, codec), middle, batches.marker(8, 4, commit=False)])
        found.append([batches.by_hand(first, codec), batches.marker(3, 4, commit=codec % 2 == 0), middle])
    return found


def damaged(chance: random.Random, batch: bytes) -> bytes:  # noqa: C901 - a case a kind of damage
    """Return the batch with one kind of damage; its length and CRC are made to fit half of the time each."""
    data = bytearray(batch)
    match chance.randrange(7):
        case 0:  # flipped bits
            for _ in range(chance.choice((1, 1, 2, 8))):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case 1:  # cut
            del data[chance.randrange(len(data)) :]
        case 2:  # a forged header field
            start, width = chance.choice(FIELDS)
            number = chance.choice(NUMBERS) + chance.choice((0, 0, len(data) - 12, len(data)))
            data[start : start + width] = (number % 2 ** (8 * width)).to_bytes(width, "big")
        case 3:  # a forged number among the records
            at = chance.randrange(HEADER.size, len(data))
            data[at : at + chance.choice((0, 1, 2))] = batches.varint(chance.choice(NUMBERS))
        case 4:  # a number that does not end
            at = chance.randrange(HEADER.size, len(data))
            ones = bytes(chance.choice((0x80, 0xFF)) for _ in range(chance.choice((4, 5, 6, 9, 10, 11, 30))))
            data[at : at + chance.choice((0, 1, len(ones)))] = ones + bytes([chance.randrange(128)])
        case 5:  # bytes come or go
            at = chance.randrange(HEADER.size, len(data))
            data[at : at + chance.randrange(4)] = chance.randbytes(chance.randrange(4))
        case _:  # noise
            at = chance.randrange(HEADER.size, len(data))
            size = chance.randrange(20)
            data[at : at + size] = chance.randbytes(size)
    if len(data) >= HEADER.size:
        if chance.random() < 0.5:
            data[8:12] = struct.pack(">i", len(data) - 12)
        if chance.random() < 0.6:
            data = bytearray(batches.sealed(bytes(data)))
    return bytes(data)


def chunks(seed: int, count: int) -> Iterator[Chunk]:
    """Yield chunks of which one batch is damaged."""
    chance = random.Random(seed)
    whole = originals()
    for _ in range(count):
        some = list(chance.choice(whole))
        at = chance.randrange(len(some))
        some[at] = damaged(chance, some[at])
        aborted = [(4, chance.choice((0, 5, 6)))] if chance.random() < 0.3 else []
        position = chance.choice((0, 0, 0, 1, 6))
        yield Chunk("source", 0, position, b"".join(some), aborted)


def answer(chunk: Chunk) -> naive.Answer:
    """Return what the decoder makes of a chunk; an error of another kind goes through."""
    records: list[Record] = []
    position = chunk.position
    try:
        for piece in batches.DECODER.pieces(chunk):
            records += batches.rows(piece.columns)
            position = piece.next_offset
    except UndecodableError as error:
        return naive.Answer(records, -1, error.offset)
    return naive.Answer(records, position, None)


class Counts(NamedTuple):
    """How many cases could be read, and how many could not."""

    read: int
    refused: int


def compare_chunks(seed: int, count: int) -> Counts:
    """Compare the decoder with the naive reader: the same records, or both refuse at the same offset."""
    refused = 0
    for number, chunk in enumerate(chunks(seed, count)):
        expected, found = naive.read(chunk), answer(chunk)
        same = found[::2] == expected[::2] and (found.error is not None or found.position == expected.position)
        assert same, (seed, number, chunk, found, expected)
        refused += found.error is not None
    return Counts(count - refused, refused)


def payloads(seed: int, count: int) -> Iterator[tuple[bytes, NDArray[np.int64]]]:
    """Yield record sections of damaged batches, with the batch's row as `walk` would fill it."""
    chance = random.Random(seed)
    whole = [batch for some in originals()[:2] for batch in some]
    row = np.zeros(BATCH_COLUMNS, np.int64)
    for _ in range(count):
        batch = chance.choice(whole)
        bad = damaged(chance, batch)[HEADER.size :]
        fields = HEADER.unpack_from(batch)
        row[COUNT] = fields[12] if chance.random() < 0.8 else chance.choice((-1, 0, 1, 9, 2**31 - 1))
        row[LAST_DELTA] = fields[6]
        yield bad, row


def scan(data: Any, start: int, stop: int, row: NDArray[np.int64]) -> tuple[int, int, list[list[int]]]:
    """Return code, record and, where all is well, the columns."""
    count = int(max(0, min(row[COUNT], (stop - start) // MIN_RECORD_BYTES)))
    block = np.full((9, count), -7, np.int64)
    code, record = scan_kernel(data, start, stop, row, 0, RecordTable(*block))
    return int(code), int(record), block.tolist() if code == 0 else []


def compare_guards(seed: int, count: int) -> Counts:
    """Scan each section between guard bytes of two kinds: who reads beyond sees the difference."""
    refused = 0
    for number, (payload, row) in enumerate(payloads(seed, count)):
        answers = []
        for guard in (b"\x00", b"\x02", b"\xff"):
            data = np.frombuffer(bytearray(guard * GUARD + payload + guard * GUARD), np.uint8)
            answers.append(scan(data, GUARD, GUARD + len(payload), row))
        assert answers[0] == answers[1] == answers[2], (seed, number, payload, answers)
        refused += answers[0][0] != 0
    return Counts(count - refused, refused)


class Watched:
    """Bytes that may be read between two bounds only."""

    def __init__(self, data: bytes, start: int, stop: int) -> None:
        self._data, self._start, self._stop = data, start, stop
        self.size = len(data)

    def __getitem__(self, at: int) -> np.uint8:
        assert self._start <= at < self._stop, f"read at {at}, outside of {self._start} to {self._stop}"
        return np.uint8(self._data[at])


def watch_reads(seed: int, count: int) -> Counts:
    """Run `walk` and `scan` as plain Python with every read watched."""
    assert os.environ.get("NUMBA_DISABLE_JIT") == "1"
    warnings.simplefilter("ignore", RuntimeWarning)  # compiled code wraps silently, as it should
    refused = 0
    for payload, row in payloads(seed, count):
        stop = GUARD + len(payload)
        refused += scan(Watched(bytes(GUARD) + payload + bytes(GUARD), GUARD, stop), GUARD, stop, row)[0] != 0
    for chunk in chunks(seed, count):
        table = np.zeros((len(chunk.data) // HEADER.size + 1, BATCH_COLUMNS), np.int64)
        walk(Watched(chunk.data, 0, len(chunk.data)), table)  # type: ignore[arg-type]  # reads the same
    return Counts(count - refused, refused)


def main() -> None:
    """Run everything that plain Python can, and say how much."""
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("ignore", RuntimeWarning)
    sys.stdout.write(f"watched: {watch_reads(seed, count)}\n")
    sys.stdout.write(f"compared: {compare_chunks(seed, count)}\n")


if __name__ == "__main__":
    main()
