"""What does the state of ids cost, its disk included?

``python -m benchmarks.id_state [MILLIONS] [EXPECTED] [BACKEND ...]``: one partition, random ids, 20,000 records
a commit of which 5 % are ids of the last 5 million: judged, looked up, written as a block and into RocksDB.
What Kafka, decoding and encoding cost is not in it. CPU time is of the whole process, RocksDB's own threads
included; of the second half of the records. Then the local state is opened once more. EXPECTED is
``expected_per_bucket``; the window has eight buckets.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.ids import CHUNK, DAY_MS, ids_of
from processor.judges.bloom import BloomIds
from processor.judges.ids import IdJudge, InsertIds
from processor.judges.judge import Evidence
from processor.pipeline.warm_ids import warm_ids
from processor.state.kv.rocks import RocksStore
from processor.state.table import Table
from schemas.changelog.values import LocalMark
from schemas.config import InsertIdDedup

if TYPE_CHECKING:
    from numpy.typing import NDArray

BACKENDS = ("exact", "confirmed", "unconfirmed")
MILLION = 1_000_000
RECENT = 5 * MILLION
DUPLICATES = 0.05
BEGUN_MS = 1_700_000_000_000
LIMIT_BYTES = 1_048_588
STATE = bytes(16)


def judge_of(backend: str, expected: int) -> IdJudge:
    """Return a judge for a window of seven days."""
    given = {"mode": "insert-id", "id": [{"from": "key"}], "window": "7d"}
    if backend == "exact":
        return InsertIds(InsertIdDedup.model_validate(given))
    bloom = {"bucket": "1d", "expected_per_bucket": expected, "confirm": backend == "confirmed"}
    return BloomIds(InsertIdDedup.model_validate({**given, "backend": "bloom", "bloom": bloom}))


class Partition:
    """A judge and its table.

    Args:
        backend: Which.
        expected: Ids of a bucket.
        folder: Of its store.
    """

    def __init__(self, backend: str, expected: int, folder: Path) -> None:
        self.judge = judge_of(backend, expected)
        assert self.judge.log is not None  # noqa: S101 - ids are kept in bulk
        self.log = self.judge.log
        self.table = Table(RocksStore(folder), self.log)
        self.written = self._offset = 0

    def take(self, numbers: NDArray[np.int64], clock_ms: int) -> None:
        """Judge some ids and commit."""
        nothing, rows = np.zeros(0, np.int64), numbers.size
        ids = ids_of(numbers)
        offset = np.arange(self._offset, self._offset + rows)
        times = np.full(rows, clock_ms)
        self.judge.judge(Evidence(nothing, ids.fault, ids=ids, offset=offset, timestamp=times))
        self._offset += rows
        changes = self.judge.changes()
        self.written += sum(batch.size for batch in self.judge.changelog_batches(LIMIT_BYTES))
        self.judge.committed()
        self.table.hold(changes, LocalMark(self._offset, STATE))
        self.table.settle()


def measure(backend: str, records: int, expected: int, folder: Path) -> None:
    """Fill seven days, and open what was written."""
    partition = Partition(backend, expected, folder / "state")
    partition.judge.load(partition.table)
    dice = np.random.default_rng(1)
    commits = records // CHUNK
    longest_s = cpu_s = wall_s = 0.0
    for commit in range(commits):
        new = commit * CHUNK
        numbers = np.arange(new, new + CHUNK)
        again = np.flatnonzero(dice.random(CHUNK) < DUPLICATES)
        if new:
            numbers[again] = dice.integers(max(0, new - RECENT), new, again.size)
        cpu, wall = time.process_time(), time.perf_counter()
        partition.take(numbers, BEGUN_MS + commit * 7 * DAY_MS // commits)
        took_s = time.perf_counter() - wall
        longest_s = max(longest_s, took_s)
        if 2 * commit >= commits:
            cpu_s += time.process_time() - cpu
            wall_s += took_s
    half = CHUNK * (commits // 2)
    count, size = partition.judge.size()
    partition.table.close()
    disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{backend}, {records / MILLION:.0f} M records:")
    print(f"  {cpu_s / half * 1e9:.0f} ns CPU, {wall_s / half * 1e9:.0f} ns a record")
    print(f"  longest commit {longest_s * 1e3:.0f} ms")
    bytes_an_id = " ".join(f"{part / count:.1f}" for part in (size, disk, partition.written))
    print(f"  B an id in memory, on disk, in the changelog: {bytes_an_id}")
    began_s = time.perf_counter()
    opened = Partition(backend, expected, folder / "state")
    asyncio.run(_load(opened))
    print(f"  opened in {time.perf_counter() - began_s:.2f} s", flush=True)
    opened.table.close()


async def _load(partition: Partition) -> None:
    await asyncio.to_thread(lambda: [None for _ in partition.table.load_log()])


def main() -> None:
    """Measure what is asked for."""
    given = sys.argv[1:]
    millions, expected = (int(text) for text in (given + ["10", "1500000"][len(given) :])[:2])
    warm_ids()
    for backend in given[2:] or BACKENDS:
        with tempfile.TemporaryDirectory() as folder:
            measure(backend, millions * MILLION, expected, Path(folder))


if __name__ == "__main__":
    main()
