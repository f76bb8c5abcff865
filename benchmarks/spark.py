"""What does it cost from a raw topic to an aggregate? ``python -m benchmarks.spark`` prints a table.

Two ways over the same input, each from cold processes to the end of the topic:

- Seqmark + Spark: ``seqmark worker --drain``, then ``seqmark sink --available-now`` on the clean topic;
- Spark alone: one query on the raw topic with `dropDuplicatesWithinWatermark` (`benchmarks.spark_alone`).

Same parsing, windows, watermark, batches, output and state store. CPU seconds are those of whole process trees,
JVM and its start included; the broker's are not (it also writes the clean topic in the first way: they are
shown beside). Both outputs must hold the same rows. The environment changes the load: RECORDS, DUPLICATES, and
BATCH, the records of one batch of Spark's.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import RESULTS, machine
from processor.kafka.embedded import find_broker

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLE_S = 0.25
STATE = ("seqmark_sink_state_rows", "seqmark_sink_state_bytes", "seqmark_sink_state_disk_bytes")
CONFIG = """\
[kafka]
bootstrap_servers = "{bootstrap_servers}"

[worker]
application_id = "bench-spark"
state_dir = "{folder}/state"
web_port = 0

[[pipelines]]
name = "clicks"
source = "bench-spark.raw"
sink = "bench-spark.clean"

[pipelines.dedup]
mode = "watermark"
sequence = {{ from = "header", name = "seq", format = "int64" }}
"""
SINK = """
[[sinks]]
name = "{name}"
topic = "bench-spark.clean"
event = "schemas.events:ClickEvent"
time_field = "occurred_at"
window = "1 hour"
watermark = "1 hour"
group_by = ["campaign"]
aggregates = {{ events = "count", revenue = "sum:amount" }}
output = {{ kind = "parquet", path = "{folder}/{name}-rows" }}
checkpoint = "{folder}/{name}-checkpoint"
max_offsets_per_trigger = {batch}
"""


@dataclass(slots=True)
class Cost:
    """What one or more programs took.

    Attributes:
        wall_s: From their start to their end, one after the other.
        cpu_s: Of their process trees.
        broker_cpu_s: Of the broker meanwhile.
        peak_rss_bytes: The largest of their process trees.
        state: The most that Spark reported at the end of a batch, by metric.
        state_files_bytes: Checkpoints (and the worker's local state) at the end.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0
    broker_cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    state: dict[str, float] = field(default_factory=dict)
    state_files_bytes: int = 0


def main() -> None:
    """Run both and keep the figures."""
    records = int(os.environ.get("RECORDS", "1000000"))
    duplicates = os.environ.get("DUPLICATES", "0.05")
    batch = int(os.environ.get("BATCH", str(max(records // 10, 1))))
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="seqmark-bench-") as name,
        find_broker(os.environ.get("SEQMARK_KAFKA__BOOTSTRAP_SERVERS")) as servers,
    ):
        folder = Path(name)
        config = folder / "bench.toml"
        sinks = "".join(SINK.format(name=each, folder=folder, batch=batch) for each in ("seqmark", "alone"))
        config.write_text(CONFIG.format(bootstrap_servers=servers, folder=folder) + sinks)
        console.print("producing")
        seqmark(config, folder, "generate", "--pipeline", "clicks", "--records", str(records),
                "--duplicates", duplicates, "--seed", "7")  # fmt: skip
        port = free_port()
        worker, sink, alone = Cost(), Cost(), Cost()
        console.print("seqmark worker --drain")
        measure([*program("worker"), "-c", str(config), "--drain"], folder, worker)
        console.print("seqmark sink --available-now")
        call = [*program("sink"), "-c", str(config), "--name", "seqmark", "--available-now"]
        measure([*call, "--metrics-port", str(port)], folder, sink, port)
        console.print("Spark alone")
        call = [sys.executable, "-m", "benchmarks.spark_alone", str(config), "alone", str(port)]
        measure(call, folder, alone, port)
        worker.state_files_bytes = size(folder / "state")
        sink.state_files_bytes = size(folder / "seqmark-checkpoint" / "state")
        alone.state_files_bytes = size(folder / "alone-checkpoint" / "state")
        rows = compare(folder)
    console.print(table(records, worker, sink, alone))
    console.print(f"both outputs hold the same {rows:,} rows")
    keep(records, float(duplicates), batch, {"worker": worker, "sink": sink, "alone": alone})


def program(command: str) -> list[str]:
    """Return how a command of Seqmark is called."""
    return [sys.executable, "-m", "processor", command]


def seqmark(config: Path, folder: Path, command: str, *arguments: str) -> None:
    """Run a command that is not measured."""
    measure([*program(command), "-c", str(config), *arguments], folder, Cost())


def measure(call: Sequence[str], folder: Path, cost: Cost, port: int = 0) -> None:
    """Run a program to its end and add what it took."""
    broker = [each for each in psutil.Process().children() if "java" in each.name()]
    before = sum(map(cpu_of, broker))
    began = time.monotonic()
    seen: dict[int, float] = {}
    with (folder / "program.log").open("wb") as log, subprocess.Popen(call, stdout=log, stderr=log) as process:
        root, done = psutil.Process(process.pid), threading.Event()
        watching = threading.Thread(target=_watch, args=(root, seen, cost, port, done))
        watching.start()
        code = process.wait()
        cost.wall_s += time.monotonic() - began
        done.set()
        watching.join()
    if code:
        raise SystemExit(f"{' '.join(call)} ended with {code}:\n{(folder / 'program.log').read_text()[-3000:]}")
    cost.cpu_s += sum(seen.values())
    cost.broker_cpu_s += sum(map(cpu_of, broker)) - before


def cpu_of(process: psutil.Process) -> float:
    """Return the CPU seconds of a process until now, without its children's."""
    times = process.cpu_times()
    return float(times.user + times.system)


def _watch(root: psutil.Process, seen: dict[int, float], cost: Cost, port: int, done: threading.Event) -> None:
    """Look at a process tree until its end; what a process took after the last look is lost: 0.25 s at most."""
    while not done.wait(SAMPLE_S):
        rss = 0
        for process in (root, *_children(root)):
            try:
                seen[process.pid] = cpu_of(process)
                rss += process.memory_info().rss
            except psutil.Error:
                continue
        cost.peak_rss_bytes = max(cost.peak_rss_bytes, rss)
        for name, value in _metrics(port).items():
            cost.state[name] = max(cost.state.get(name, 0), value)


def _children(root: psutil.Process) -> list[psutil.Process]:
    try:
        return list(root.children(recursive=True))
    except psutil.Error:
        return []


def _metrics(port: int) -> dict[str, float]:
    if not port:
        return {}
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, OSError):
        return {}
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {each.name: each.value for each in samples if each.name in STATE}


def compare(folder: Path) -> int:
    """Read both outputs and return how many rows they have in common, which must be all."""
    from spark_sink.session import spark_session  # noqa: PLC0415 - a JVM, only once nothing is measured

    with spark_session("bench-compare") as spark:
        one, other = (spark.read.parquet(str(folder / f"{name}-rows")) for name in ("seqmark", "alone"))
        apart = one.exceptAll(other).count(), other.exceptAll(one).count()
        if any(apart) or not (rows := one.count()):
            raise SystemExit(
                f"the outputs differ: {apart[0]} rows of one, {apart[1]} of the other are not in both"
            )
        return int(rows)


def size(folder: Path) -> int:
    """Return the bytes of all files under a folder."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def table(records: int, worker: Cost, sink: Cost, alone: Cost) -> Table:
    """Return the figures for people."""
    made = Table(
        "", "wall s", "CPU s", "broker CPU s", "records/CPU s", "state rows\nmost", "state files\nMB",
        "peak RSS\nMB", title=f"{records:,} records, raw topic to aggregate",
    )  # fmt: skip
    both = Cost(
        worker.wall_s + sink.wall_s,
        worker.cpu_s + sink.cpu_s,
        worker.broker_cpu_s + sink.broker_cpu_s,
        max(worker.peak_rss_bytes, sink.peak_rss_bytes),
        sink.state,
        worker.state_files_bytes + sink.state_files_bytes,
    )
    named = {"worker": worker, "Spark on the clean topic": sink, "Seqmark + Spark": both, "Spark alone": alone}
    for name, cost in named.items():
        made.add_row(
            name,
            f"{cost.wall_s:.1f}",
            f"{cost.cpu_s:.1f}",
            f"{cost.broker_cpu_s:.1f}",
            f"{records / cost.cpu_s:,.0f}",
            f"{cost.state.get(STATE[0], 0):,.0f}",
            f"{cost.state_files_bytes / 1e6:,.1f}",
            f"{cost.peak_rss_bytes / 1e6:,.0f}",
        )
    made.add_row("factor", "", "", "", f"{alone.cpu_s / both.cpu_s:.2f}")
    for column in made.columns[1:]:
        column.justify = "right"
    return made


def keep(records: int, duplicates: float, batch: int, costs: dict[str, Cost]) -> None:
    """Keep the figures as JSON."""
    kept = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load": {"records": records, "duplicates": duplicates, "batch": batch},
        "results": {name: asdict(cost) for name, cost in costs.items()},
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "spark.json").write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
