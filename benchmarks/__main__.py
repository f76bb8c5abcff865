"""How fast is Seqmark on this machine? ``make bench`` prints a table and keeps the figures as JSON.

Starts a broker of its own, makes the input, runs a worker for each case over it and checks that what passed is
what must pass. ``RECORDS=500000 make bench`` is quicker, ``DUPLICATES=0.5`` resends every second record.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import socket
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import psutil
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.load import Load, produce
from benchmarks.measure import Result, run_worker
from processor.engine.warm import warm
from processor.kafka.embedded import find_broker

RESULTS = Path(__file__).parent / "results"
CASES = {
    "exactly_once": ("exactly_once", ""),
    "at_least_once": ("at_least_once", ""),
    "with receipts": ("exactly_once", 'duplicates = "bench.duplicates"'),
}
"""Guarantee, and what the pipeline has besides."""
CONFIG = """\
[kafka]
bootstrap_servers = "{bootstrap_servers}"

[worker]
application_id = "{name}"
state_dir = "{folder}/state"
guarantee = "{guarantee}"
web_port = {port}

[[pipelines]]
name = "clicks"
source = "bench.raw"
sink = "{name}"
{more}

[pipelines.dedup]
mode = "watermark"
scope = "partition"
sequence = {{ from = "header", name = "seq", format = "int64" }}
"""


def main() -> None:
    """Run everything."""
    load = Load(
        records=int(os.environ.get("RECORDS", "4000000")),
        duplicates=float(os.environ.get("DUPLICATES", "0.05")),
    )
    console = Console(stderr=True)
    if not console.is_terminal:
        console.width = 120
    warm()  # the figures are those of a warm kernel cache
    with (
        tempfile.TemporaryDirectory(prefix="seqmark-bench-") as folder,
        find_broker(os.environ.get("SEQMARK_KAFKA__BOOTSTRAP_SERVERS")) as bootstrap_servers,
        Progress(console=console) as progress,
    ):
        passing = asyncio.run(_produce(bootstrap_servers, load, progress))
        results = {}
        for case in CASES:
            task = progress.add_task(case, total=None)
            results[case] = _run(bootstrap_servers, case, load, Path(folder), passing)
            progress.update(task, total=1, completed=1)
    console.print(_table(load, results))
    _keep(load, results)


async def _produce(bootstrap_servers: str, load: Load, progress: Progress) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("bench.raw", load.partitions, 1)])
    finally:
        await admin.close()
    return await produce(bootstrap_servers, "bench.raw", load, progress)


def _run(bootstrap_servers: str, case: str, load: Load, folder: Path, passing: int) -> Result:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    guarantee, more = CASES[case]
    name = f"bench-{case.replace(' ', '-')}"
    config = folder / f"{name}.toml"
    config.write_text(
        CONFIG.format(
            bootstrap_servers=bootstrap_servers,
            folder=folder,
            guarantee=guarantee,
            port=port,
            name=name,
            more=more,
        )
    )
    result = run_worker(config, port, load.records, folder)
    if result.verdicts.get("pass") != passing:
        raise SystemExit(f"{case}: {result.verdicts} passed, must be {passing}")
    return result


def _table(load: Load, results: dict[str, Result]) -> Table:
    table = Table(
        "case",
        "records/CPU s\n2nd half",
        "records/CPU s\nwhole run",
        "records/s\n2nd half",
        "ready\ns",
        "commit p50\nms",
        "commit p99\nms",
        "peak RSS\nMB",
        title=f"{load.records:,} records of about 150 B, lz4, {load.partitions} partitions, "
        f"{load.duplicates:.0%} duplicates, 256 KB batches",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for case, result in results.items():
        table.add_row(
            case,
            f"{result.half_records / result.half_cpu_s:,.0f}",
            f"{result.records / result.cpu_s:,.0f}",
            f"{result.half_records / result.half_wall_s:,.0f}",
            f"{result.ready_s:.1f}",
            f"{result.commit_p50_ms:.0f}",
            f"{result.commit_p99_ms:.0f}",
            f"{result.peak_rss_bytes / 1e6:,.0f}",
        )
    return table


def machine() -> dict[str, object]:
    """Return what the figures were measured on."""
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
    }


def _keep(load: Load, results: dict[str, Result]) -> None:
    RESULTS.mkdir(exist_ok=True)
    kept = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load": asdict(load),
        "results": {name: asdict(result) for name, result in results.items()},
    }
    (RESULTS / "latest.json").write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
