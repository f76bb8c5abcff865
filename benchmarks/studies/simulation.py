"""Measures how fast `seqmark simulate` reads: ``python -m benchmarks.studies.simulation [RECORDS]``.

By a sequence in a header, by ids in a header and by ids in the JSON value, 8 million records each where nothing
else is said. Prints records per CPU second of the process, its start included, and its peak memory; exit code 1
where one is beyond what `LEAST` and `MOST_MB` promise. From two million records on the sample of ids is full:
more records take no more memory. Of fewer records the start and the comparisons are a larger part.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.cases import spread
from benchmarks.cluster import cluster, create
from benchmarks.load import Load, produce
from benchmarks.peers import HEADER, ID_FIELDS, ID_HEADER, FailedError
from processor.commands.console import say, table_on_stdout
from processor.errors import EXIT_DONE, EXIT_FAILED

RECORDS = 8_000_000
LEAST = 800_000
"""Records per CPU second."""
MOST_MB = 512
_IN_VALUE = ", ".join(f'{{ from = "value", pointer = "/{name}" }}' for name in ID_FIELDS)
_IDS = 'mode = "insert-id"\nwindow = "7d"\nid = '
CASES = (
    ("sequence in a header", Load(),
     f'mode = "watermark"\nsequence = {{ from = "header", name = "{HEADER}", format = "int64" }}'),
    ("id in a header", spread(Load(ids="text")), f'{_IDS}[{{ from = "header", name = "{ID_HEADER}" }}]'),
    ("id in the JSON value", spread(Load(ids="json")), f"{_IDS}[{_IN_VALUE}]"),
)  # fmt: skip


class SimulationCost(NamedTuple):
    """What one simulation took."""

    records: int
    cpu_s: float
    memory_mb: float

    @property
    def rate(self) -> float:
        """Records per CPU second."""
        return self.records / self.cpu_s


def read(servers: str, folder: Path, number: int, load: Load, dedup: str) -> SimulationCost:
    """Make a source and simulate it.

    Raises:
        FailedError: The simulation did not end well.
    """
    topic = f"bench-simulate-{number}"
    asyncio.run(create(servers, topic, load.partitions))
    asyncio.run(produce(servers, topic, load))
    config = folder / f"{topic}.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{servers}"\n[worker]\napplication_id = "bench"\n'
        f'[[pipelines]]\nname = "bench"\nsource = "{topic}"\nsink = "{topic}.clean"\n'
        f"[pipelines.dedup]\n{dedup}\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "processor", "simulate", "--json", "-c", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        said = process.stdout.read().decode()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise FailedError(f"simulate: {said}")
    return SimulationCost(load.records, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> int:
    """Measure all cases; returns the exit code."""
    records = int(sys.argv[1]) if sys.argv[1:] else RECORDS
    rows, kept = [], True
    with tempfile.TemporaryDirectory(prefix="seqmark-bench-") as folder, cluster(say) as (servers, _):
        for number, (title, load, dedup) in enumerate(CASES):
            step_ms = load.step_ms * load.records // records if load.ids else load.step_ms
            given = replace(load, records=records, step_ms=step_ms)
            found = read(servers, Path(folder), number, given, dedup)
            kept &= found.rate >= LEAST and found.memory_mb <= MOST_MB
            numbers = (
                f"{found.records:,}",
                f"{found.cpu_s:.1f}",
                f"{found.rate:,.0f}",
                f"{found.memory_mb:,.0f}",
            )
            rows.append((title, *numbers))
    table_on_stdout(("case", "records", "CPU s", "records per CPU s", "peak memory MB"), rows, range(1, 5))
    return EXIT_DONE if kept else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
