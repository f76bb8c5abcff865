"""How fast is a certificate? ``python -m benchmarks.verify [RECORDS] [SCOPE | ids]`` prints records a second.

Makes a topic (10 million records unless told otherwise, about 150 B, lz4, 4 partitions, 5 % duplicates) on a
broker of its own, cleans it by a worker with receipts, and proves it by ``seqmark verify`` as a process. That
process's start is part of the time; its peak memory is printed too. With ``ids`` the sequence is taken for an
insert id, with a window that holds all of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from rich.console import Console
from rich.progress import Progress

from benchmarks.load import Load, produce
from processor.broker.embedded import find_broker
from processor.pipeline.warm import warm

SAMPLE_S = 0.05
CONFIG = """\
[kafka]
bootstrap_servers = "{bootstrap_servers}"

[worker]
application_id = "bench-verify"
state_dir = "{folder}/state"
web_port = 0

[[pipelines]]
name = "clicks"
source = "verify.raw"
sink = "verify.clean"
duplicates = "verify.duplicates"
quarantine = "verify.quarantine"

[pipelines.dedup]
"""
BY_SEQUENCE = """\
mode = "watermark"
scope = "{scope}"
sequence = {{ from = "header", name = "seq", format = "int64" }}
"""
BY_ID = """\
mode = "insert-id"
id = [{ from = "header", name = "seq" }]
window = "7d"
"""


async def make(bootstrap_servers: str, load: Load, progress: Progress) -> int:
    """Write the source; returns how many records must pass."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics(
            [NewTopic("verify.raw", load.partitions, 1, topic_configs={"retention.ms": "-1"})]
        )
    finally:
        await admin.close()
    task = progress.add_task("producing", total=load.records)
    return await produce(bootstrap_servers, "verify.raw", load, lambda done: progress.advance(task, done))


def run(command: list[str], folder: Path) -> tuple[str, float, float, int]:
    """Run a command of Seqmark to its end.

    Returns:
        What it printed; wall and CPU seconds; peak resident bytes.
    """
    began, peak, cpu = time.monotonic(), 0, 0.0
    with (
        (folder / "out.log").open("w+") as out,
        subprocess.Popen([sys.executable, "-m", "processor", *command], stdout=out) as process,
    ):
        seen = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                peak = max(peak, seen.memory_info().rss)
                times = seen.cpu_times()
                cpu = times.user + times.system
            except psutil.NoSuchProcess:
                break
            time.sleep(SAMPLE_S)
        seconds = time.monotonic() - began
        if process.wait():
            raise SystemExit(f"{command[0]} ended with exit code {process.returncode}")
        out.seek(0)
        return out.read(), seconds, cpu, peak


def main(records: int, scope: str) -> None:
    """Make, clean, prove, print."""
    load = Load(records=records)
    console = Console(stderr=True)
    warm()
    with (
        tempfile.TemporaryDirectory(prefix="seqmark-bench-") as name,
        find_broker(os.environ.get("SEQMARK_KAFKA__BOOTSTRAP_SERVERS")) as bootstrap_servers,
    ):
        folder = Path(name)
        with Progress(console=console) as progress:
            passing = asyncio.run(make(bootstrap_servers, load, progress))
        config = folder / "config.toml"
        dedup = BY_ID if scope == "ids" else BY_SEQUENCE.format(scope=scope)
        config.write_text(CONFIG.format(bootstrap_servers=bootstrap_servers, folder=folder) + dedup)
        run(["worker", "-c", str(config), "--drain"], folder)
        for turn in ("first", "second"):
            text, seconds, cpu, peak = run(["verify", "-c", str(config), "--json"], folder)
            told = json.loads(text.splitlines()[-1])
            if scope in {"partition", "ids"} and (told["source"], told["sink"]) != (records, passing):
                raise SystemExit(f"{told}: must be {records} and {passing}")
            print(
                f"{turn}: {records:,} records in {seconds:.1f} s: {records / seconds:,.0f} records/s, "
                f"{records / told['seconds']:,.0f} without the start of the process, "
                f"{records / cpu:,.0f} a CPU second; peak memory {peak / 1e6:,.0f} MB"
            )


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 10_000_000, given[1] if len(given) > 1 else "partition")
