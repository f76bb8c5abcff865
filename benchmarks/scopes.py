"""What do many scopes cost? ``python -m benchmarks.scopes [SCOPES] [WINDOW]`` prints a table.

CPU nanoseconds of this thread (other work on the machine does not count, but its use of caches does), scopes of
16 bytes in random order, one partition: judged in chunks of 20,000 records, written to changelog batches,
restored from them through the decoder, written to RocksDB and read back.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil

from processor.engine.watermark.scope_table import ScopeTable
from processor.pipeline.warm import warm
from processor.state.kv.rocks import RocksStore
from processor.state.scope_log import MOST_UNSAVED, ScopeLog
from processor.state.table import Table
from processor.wire.decode import Chunk, Decoder
from processor.wire.encode import EncodedBatch
from schemas.changelog.values import BLOCK_KIND, LocalMark

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from processor.engine.watermark.scope_table import ScopeJudgement

CHUNK = 20_000
ROUNDS = 100
PASSES = 3
"""How often each scope changes before the local blocks are read: as they are after a while."""
BATCH_BYTES = 1_000_000


def judge(table: ScopeTable, ids: NDArray[np.int64], sequence: int) -> ScopeJudgement:
    """Judge one record of each scope; ids as 16 decimal digits."""
    text = np.zeros((ids.size, 16), np.uint8)
    left = ids.copy()
    for digit in range(15, -1, -1):
        text[:, digit] = 48 + left % 10
        left //= 10
    rows = ids.size
    numbers, fault = np.full(rows, sequence, np.int64), np.zeros(rows, np.uint8)
    at, size = np.arange(rows) * 16, np.full(rows, 16)
    begun = time.thread_time()
    judged = table.judge(text.ravel(), at, size, numbers, numbers, fault)
    CLOCK.add(time.thread_time() - begun)
    return judged


class Clock:
    """Adds up, and remembers the longest."""

    def __init__(self) -> None:
        self.total_s = self.longest_s = 0.0

    def of(self, work: Callable[[], object]) -> None:
        """Time one call."""
        begun = time.thread_time()
        work()
        self.add(time.thread_time() - begun)

    def add(self, took: float) -> None:
        """Add one time."""
        self.total_s += took
        self.longest_s = max(self.longest_s, took)

    def say(self, what: str, count: int) -> None:
        """Print a line."""
        each = self.total_s / count * 1e9
        print(f"{what:<34} {each:7.0f} ns  {1e3 / each:6.2f} M/s  longest {self.longest_s * 1e3:6.1f} ms")


CLOCK = Clock()
"""Of judging."""


def memory(what: str) -> None:
    """Print what the process has in memory now."""
    print(f"{what:<34} {psutil.Process().memory_info().rss / 1e6:7.0f} MB resident")


def fill(table: ScopeTable, total: int) -> list[EncodedBatch]:
    """Fill a table and change it; returns the changelog of the filling."""
    random = np.random.default_rng(1)
    written = Clock()
    batches: list[EncodedBatch] = []

    def write() -> None:
        for payload, count in table.encode(table.changed(), BATCH_BYTES):
            batches.append(EncodedBatch(0, 0, 0, count, payload))
        table.committed()

    for start in range(0, total, CHUNK):
        judge(table, np.arange(start, min(start + CHUNK, total)), 1)
        written.of(write)
        table.saved()
    CLOCK.say("new scopes judged", total)
    written.say("changelog written", total)
    memory("with the changelog kept")
    kept = batches.copy()
    CLOCK.total_s = CLOCK.longest_s = 0
    for number in range(ROUNDS):
        judge(table, random.integers(0, total, CHUNK), 2 + number)
        table.committed()
        table.saved()
    CLOCK.say("known scopes judged", ROUNDS * CHUNK)
    return kept


def restore(batches: list[EncodedBatch], log: ScopeLog) -> None:
    """Read a changelog as a restore does, but for the network."""
    clock, decoder = Clock(), Decoder()
    offset = 0
    for batch in batches:
        data = bytearray(batch.build(1, 0, 0, transactional=True))
        data[:8] = offset.to_bytes(8, "big")
        chunk = Chunk("changelog", 0, offset, bytes(data))

        def take(chunk: Chunk = chunk) -> None:
            for piece in decoder.pieces(chunk):
                log.take(piece.columns)
            if log.due(0):
                log.scopes.saved()

        clock.of(take)
        offset += batch.count
    clock.say("restored from the changelog", offset)


def local(log: ScopeLog, total: int, window: int, folder: Path) -> None:
    """Write all scopes as the stream would, then read the blocks."""
    mark = LocalMark(0, bytes(16))
    store = RocksStore(folder)
    table = Table(store, log)
    clock = Clock()
    table.apply({}, mark)
    for start in range(0, PASSES * total, MOST_UNSAVED):
        judge(log.scopes, np.arange(start, start + MOST_UNSAVED) % total, 1000 + start)
        log.scopes.committed()
        clock.of(lambda: table.apply({}, mark))
    clock.say("written locally, sweep included", PASSES * total)
    entries = sum(int.from_bytes(value[1:5], "big") for _, value in store.items(BLOCK_KIND))
    print(f"{'entries in the log':<34} {entries / total:7.2f} a scope")
    store.close()
    print(f"{'on disk':<34} {sum(file.stat().st_size for file in folder.iterdir()) / 1e6:7.0f} MB")
    store = RocksStore(folder)
    again = Table(store, ScopeLog(ScopeTable(bytes(16), epoch=False, window=window)))
    clock = Clock()
    clock.of(lambda: list(again.load_log()))
    clock.say("restored from local blocks", total)
    store.close()


def main(total: int, window: int) -> None:
    """Measure all of it."""
    warm()
    memory("libraries and kernels")
    table = ScopeTable(bytes(16), epoch=False, window=window)
    batches = fill(table, total)
    size = table.size_bytes
    print(f"{'the table':<34} {size / 1e6:7.0f} MB, {size / total:.0f} B a scope")
    del table
    log = ScopeLog(ScopeTable(bytes(16), epoch=False, window=window))
    restore(batches, log)
    batches.clear()
    memory("restored")
    with tempfile.TemporaryDirectory() as folder:
        local(log, total, window, Path(folder) / "state")


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*given, *(1_000_000, 0)[len(given) :])
