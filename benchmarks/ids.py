"""What do ids cost in memory? ``python -m benchmarks.ids [MILLIONS] [BLOOM_MILLIONS]`` prints tables.

CPU nanoseconds of this thread (other work on the machine does not count, but its use of caches does), random
ids, one partition, chunks of 20,000 records with a commit each: ids hashed, new ones put into the exact index
at growing sizes, known ones judged with their pages at hand, blocks written and restored; the same through
Bloom filters of eight buckets. Pages are not fetched from anywhere here: that is RocksDB's part.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import psutil

from processor.engine.bytes import siphash
from processor.engine.extract.ids import HeaderPart, IdExtractor, Ids, KeyPart, Part, ValuePart
from processor.engine.ids.block import Confirmed, Pages, Rows, decode, encode
from processor.engine.ids.bloom.bits import NOWHERE
from processor.engine.ids.bloom.window import BloomWindow, Found
from processor.engine.ids.exact.index import ExactIndex
from processor.wire.decode import Chunk, Decoder
from processor.wire.encode import plain_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns

CHUNK = 20_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
KEY = bytes(9)
SEED = 1
READ = 50
"""Chunks of known ids that are judged at each size."""


class Clock:
    """Adds up, and remembers the longest."""

    def __init__(self) -> None:
        self.begun = self.total_s = self.longest_s = 0.0

    def __enter__(self) -> None:
        self.begun = time.thread_time()

    def __exit__(self, *_: object) -> None:
        took = time.thread_time() - self.begun
        self.total_s += took
        self.longest_s = max(self.longest_s, took)

    def say(self, what: str, count: int) -> None:
        """Print a line and begin anew."""
        each = self.total_s / max(count, 1) * 1e9
        print(f"{what:<44} {each:7.0f} ns  {1e3 / each:6.2f} M/s  longest {self.longest_s * 1e3:6.1f} ms")
        self.total_s = self.longest_s = 0.0


def hashes_of(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return 128 evenly spread bits for each number, the same each time (SplitMix64's finaliser, twice)."""
    out = np.empty((numbers.size, 2), np.uint64)
    mixed = numbers.astype(np.uint64)
    for column in range(2):
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + np.uint64(column + SEED)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        out[:, column] = mixed
    return out


def ids_of(numbers: NDArray[np.int64]) -> Ids:
    """Return ids as an extractor would."""
    return ids_with(hashes_of(numbers))


def ids_with(hashes: NDArray[np.uint64]) -> Ids:
    """Return ids that have these hashes, uint64[n, 2]."""
    none = np.zeros((1, len(hashes)), np.int64)
    fault = np.zeros(len(hashes), np.uint8)
    return Ids(hashes, fault, fault.astype(np.bool_), fault[None], none, none)


def columns() -> Columns:
    """Return records with a 36-byte id in a header, and two parts of one in a JSON value of 150 bytes."""
    records = []
    for k in range(CHUNK):
        name = f"{k:08x}-aaaa-bbbb-cccc-ddddeeeeffff".encode()
        value = b'{"insert_id":"%b","device_id":%d,"campaign":"a","page":"/p/%d"%b}' % (name, k, k, b" " * 60)
        records.append((b"key", value, 0, ((b"id", name),)))
    batch = plain_batch(records).build(0, 0, 0, transactional=False)
    (piece,) = Decoder().pieces(Chunk("t", 0, 0, bytes(batch)))
    return piece.columns


def hashing() -> None:
    """Measure reading ids from records."""
    rows = columns()
    cases: list[tuple[str, list[Part]]] = [
        ("id: header of 36 B", [HeaderPart(b"id")]),
        ("id: header and key", [HeaderPart(b"id"), KeyPart()]),
        ("id: two fields of a JSON value", [ValuePart("/insert_id"), ValuePart("/device_id")]),
    ]
    for what, parts in cases:
        extractor, clock = IdExtractor(parts, bytes(siphash.KEY_BYTES)), Clock()
        extractor.extract(rows)
        for _ in range(20):
            with clock:
                extractor.extract(rows)
        clock.say(what, 20 * CHUNK)


def confirmed(numbers: NDArray[np.int64], readings: NDArray[np.int64]) -> Confirmed:
    """Say of candidates what their pages would: here the n-th number belongs to the n-th id."""
    return Confirmed(hashes_of(numbers - 1), numbers - 1, readings)


def exact(sizes: list[int]) -> None:
    """Fill an exact index to each size in turn, and judge known ids at each."""
    index = ExactIndex(HOUR_MS, refresh=False)
    random = np.random.default_rng(SEED)
    look, judge, commit = Clock(), Clock(), Clock()
    zero = np.zeros(CHUNK, np.int64)
    first, peak, fetched = 0, 0.0, 0
    for size in sizes:
        begun = first
        for start in range(first, size, CHUNK):
            ids, offset = ids_of(np.arange(start, start + CHUNK)), start + np.arange(CHUNK)
            with look:
                wanted = index.look_up(ids, zero)
            found = confirmed(wanted.number, wanted.number * 0)
            with judge:
                index.judge(ids, offset, zero, wanted, found)
            pages = index.staged().first + np.arange(0, CHUNK, 180)
            with commit:
                index.commit(Pages(pages, pages * 0, pages[:0]), 0, CHUNK // 2_000)
            if start >= 500_000:
                peak = max(peak, index.size_bytes / len(index))
            fetched += wanted.row.size
        first = size
        count = size - begun
        name = f"{size / 1e6:.0f} M ids"
        look.say(f"exact, {name}: new, looked up", count)
        judge.say(f"exact, {name}: new, judged and put in", count)
        commit.say(f"exact, {name}: committed and swept", count)
        for _ in range(READ):
            numbers = random.integers(0, size, CHUNK)
            ids = ids_of(numbers)
            with look:
                wanted = index.look_up(ids, zero)
            found = confirmed(wanted.number, wanted.number * 0)
            with judge:
                judged = index.judge(ids, zero, zero, wanted, found)
            assert judged.verdict.all()  # noqa: S101 - a benchmark of wrong verdicts says nothing
        look.say(f"exact, {name}: known, looked up", READ * CHUNK)
        judge.say(f"exact, {name}: known, judged", READ * CHUNK)
        print(f"{'exact, ' + name + ': memory':<44} {index.size_bytes / size:7.1f} B an id, peak {peak:.1f}")
    print(f"{'exact: candidates that were another id':<44} {fetched:7d} of {first:,}")
    print(f"{'resident':<44} {psutil.Process().memory_info().rss / 1e6:7.0f} MB")
    expire(index)


def expire(index: ExactIndex) -> None:
    """Let all ids expire at once, and sweep the table in the steps that the stream would."""
    clock, steps = Clock(), 0
    size = len(index)
    with clock:
        index.commit(None, HOUR_MS, 10)
    # Once for what is expired, and some more times for what can be joined then.
    while len(index) or steps < 2 * size // CHUNK:
        with clock:
            index.commit(None, HOUR_MS, 10)
        steps += 1
    clock.say("exact: all expired, swept by 10 extents", size)
    print(f"{'exact: memory left':<44} {index.size_bytes / 1e6:7.1f} MB")


def blocks(count: int) -> None:
    """Write blocks of 20,000 ids, and restore an index from them."""
    written, read, put = Clock(), Clock(), Clock()
    index = ExactIndex(HOUR_MS, refresh=False)
    size = 0
    for start in range(0, count, CHUNK):
        offset = start + np.arange(CHUNK)
        readings = start * 10 + offset * 3
        rows = Rows(1 + start, hashes_of(offset), 2 * offset, readings, np.full(CHUNK, -1))
        with written:
            block, _ = encode(rows, 0, KEY)
        size += len(block)
        with read:
            rows, _, pages = decode(block, KEY)
        with put:
            index.restore(rows, pages)
    poured = Clock()
    with poured:
        index.pour()
    written.say("block written", count)
    read.say("block read", count)
    put.say("gathered for the index", count)
    poured.say("poured into the index, all at once", count)
    print(f"{'block':<44} {size / count:7.1f} B an id")


def bloom(each: int) -> None:
    """Fill eight filters, the last by judging, with and without confirmation."""
    for confirm in (False, True):
        window = BloomWindow(7 * DAY_MS, DAY_MS, each, 1e-9, confirm=confirm)
        look, judge, commit = Clock(), Clock(), Clock()
        for start in range(0, 8 * each, CHUNK):
            day = start // each
            ids, reading = ids_of(np.arange(start, start + CHUNK)), np.full(CHUNK, day * DAY_MS)
            if day < 7:
                window.restore(ids.hash, reading, 0)
                window.commit(day * DAY_MS)
                continue
            with look:
                hit = window.look_up(ids, reading)
            found = None
            if confirm:
                none = np.zeros(CHUNK, np.int64)
                found = Found(np.zeros(CHUNK, np.bool_), none, none)
            with judge:
                judged = window.judge(ids, reading, reading, hit, found)
            with commit:
                window.commit(day * DAY_MS)
            assert not judged.verdict.any()  # noqa: S101 - a false positive at 1e-9 would be a mistake
        name = f"bloom, 8 filters of {each / 1e6:.1f} M{', confirmed' if confirm else ''}"
        look.say(f"{name}: looked up", each)
        judge.say(f"{name}: judged", each)
        commit.say(f"{name}: committed", each)
        ids, reading = ids_of(np.arange(CHUNK)), np.full(CHUNK, 7 * DAY_MS)
        with look:
            hit = window.look_up(ids, reading)
        assert (hit != NOWHERE).all()  # noqa: S101 - a filter forgets nothing
        look.say(f"{name}: known, looked up", CHUNK)
        live = window.rate
        print(f"{name + ': memory':<44} {window.size_bytes / window.ids:7.2f} B an id, live rate {live:.1e}")


def main(millions: int, bloom_millions: int) -> None:
    """Measure all of it; kernels are compiled by a first small run."""
    ExactIndex(1, refresh=False)
    print("first, with compiling:")
    exact([CHUNK])
    blocks(CHUNK)
    bloom(CHUNK)
    print("\nmeasured:")
    hashing()
    sizes = [size * 1_000_000 for size in (1, 10, 50, 100) if size <= millions]
    exact(sizes)
    blocks(5_000_000)
    bloom(bloom_millions * 1_000_000)


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*given, *(10, 1)[len(given) :])
