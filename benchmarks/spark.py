"""What does it cost from a raw topic to an aggregate? ``python -m benchmarks.spark`` prints a table.

Two ways over the same input, each from cold processes to the end of the topic:

- Seqmark + Spark: ``seqmark worker --drain``, then ``seqmark sink --available-now`` on the clean topic;
- Spark alone: one query on the raw topic with `dropDuplicatesWithinWatermark` (`benchmarks.spark_alone`).

Same parsing, windows, watermark, batches, output, partitions, memory and state store. CPU seconds are those of
whole process trees, JVM and its start included; the broker's are not (it also writes the clean topic in the
first way: they are shown beside). Of each Spark process the second half of its batches is told apart, when its
JVM is warm. Both outputs must hold the same rows. `benchmarks.spark_delay` adds the delay from event to
aggregate.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.cluster import cluster
from benchmarks.measure import FailedError
from benchmarks.spark_delay import DelayError, measure_delay
from benchmarks.tree import Tree, running

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BATCHES = 10
DUPLICATES = 0.05
SAMPLE_S = 0.25
STATE = ("seqmark_sink_state_rows", "seqmark_sink_state_bytes", "seqmark_sink_state_disk_bytes")
ROWS = "seqmark_sink_rows_total"
LONGEST_S = 900.0
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
    """What a program took.

    Attributes:
        wall_s: From its start to its end.
        cpu_s: Of its process tree.
        broker_cpu_s: Of the broker meanwhile.
        peak_rss_bytes: Of its process tree.
        rows: Records that Spark has read.
        half_rows: Of those, the ones after the first look that found half of them read.
        half_cpu_s: Of the process tree, from that look to the last one that found new ones.
        state: The most that Spark reported at the end of a batch, by metric.
        state_files_bytes: Checkpoint (or the worker's local state) at the end.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0
    broker_cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    rows: int = 0
    half_rows: int = 0
    half_cpu_s: float = 0.0
    state: dict[str, float] = field(default_factory=dict)
    state_files_bytes: int = 0


def run_spark(records: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure both ways and the delay of both.

    Returns:
        Figures as JSON takes them.

    Raises:
        FailedError: A program failed, or the outputs differ.
    """
    with (
        tempfile.TemporaryDirectory(prefix="seqmark-bench-") as name,
        cluster(say) as (servers, broker),
    ):
        folder = Path(name)
        config = folder / "bench.toml"
        batch = max(records // BATCHES, 1)
        sinks = "".join(SINK.format(name=each, folder=folder, batch=batch) for each in ("seqmark", "alone"))
        config.write_text(CONFIG.format(bootstrap_servers=servers, folder=folder) + sinks)
        say(f"Spark: producing {records:,} records")
        counted = ["--records", str(records), "--duplicates", str(DUPLICATES), "--seed", "7"]
        measure([*program("generate", config), "--pipeline", "clicks", *counted], folder, None)
        say("Spark: seqmark worker --drain")
        worker = measure([*program("worker", config), "--drain"], folder, broker)
        worker.state_files_bytes = size(folder / "state")
        say("Spark: seqmark sink --available-now")
        port = free_port()
        call = [*program("sink", config), "--name", "seqmark", "--available-now", "--metrics-port", str(port)]
        sink = measure(call, folder, broker, port)
        sink.state_files_bytes = size(folder / "seqmark-checkpoint" / "state")
        say("Spark: Spark alone")
        call = [
            sys.executable,
            "-m",
            "benchmarks.spark_alone",
            str(config),
            "alone",
            str(port),
            "--available-now",
        ]
        alone = measure(call, folder, broker, port)
        alone.state_files_bytes = size(folder / "alone-checkpoint" / "state")
        rows = compare(folder)
        costs = {"worker": worker, "sink": sink, "alone": alone}
        found: dict[str, Any] = {
            "records": records,
            "duplicates": DUPLICATES,
            "batch": batch,
            "rows": rows,
            "costs": {name: asdict(cost) for name, cost in costs.items()},
            "delays": {},
        }
        for way in ("seqmark", "alone"):
            say(f"Spark: delay from event to aggregate, {way}")
            try:
                found["delays"][way] = measure_delay(way, servers, folder)
            except DelayError as error:
                found["delays"][way] = {"failure": str(error)}
                say(str(error))
        return found


def program(command: str, config: Path) -> list[str]:
    """Return how a command of Seqmark is called."""
    return [sys.executable, "-m", "processor", command, "-c", str(config)]


def measure(call: Sequence[str], folder: Path, broker: int | None, port: int = 0) -> Cost:
    """Run a program to its end and return what it took.

    What it took after the last look is lost: `SAMPLE_S` at most.

    Raises:
        FailedError: It ended with an error, or does not end.
    """
    cost = Cost()
    broker_tree = Tree(broker) if broker else None
    before = broker_tree.look() if broker_tree else 0.0
    began = time.monotonic()
    log = folder / "program.log"
    seen: list[tuple[int, float]] = []
    with running(call, {}, log) as process:
        tree = Tree(process.pid)
        while process.poll() is None:
            if time.monotonic() - began > LONGEST_S:
                raise FailedError(f"{' '.join(call)} does not end:\n{log.read_text()[-3000:]}")
            cost.cpu_s = tree.look()
            metrics = _metrics(port)
            for name in STATE:
                cost.state[name] = max(cost.state.get(name, 0), metrics.get(name, 0))
            rows = int(metrics.get(ROWS, 0))
            if rows > (seen[-1][0] if seen else 0):
                seen.append((rows, cost.cpu_s))
            try:
                process.wait(SAMPLE_S)
            except subprocess.TimeoutExpired:
                continue
    cost.wall_s = time.monotonic() - began
    cost.peak_rss_bytes = tree.peak_rss_bytes
    cost.broker_cpu_s = broker_tree.look() - before if broker_tree else 0.0
    if process.returncode:
        raise FailedError(f"{' '.join(call)} ended with {process.returncode}:\n{log.read_text()[-3000:]}")
    if seen:
        cost.rows = seen[-1][0]
        middle = next(each for each in seen if each[0] >= cost.rows / 2)
        cost.half_rows, cost.half_cpu_s = cost.rows - middle[0], seen[-1][1] - middle[1]
    return cost


def _metrics(port: int) -> dict[str, float]:
    if not port:
        return {}
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, OSError):
        return {}
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {each.name: each.value for each in samples if each.name in (*STATE, ROWS)}


def compare(folder: Path) -> int:
    """Read both outputs and return how many rows they have in common, which must be all.

    In a process of its own: a JVM must not stay beside what is measured next.
    """
    call = [sys.executable, "-m", "benchmarks.spark_compare", str(folder)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(done.stderr.strip()[-2000:])
    return int(done.stdout.split()[-1])


def size(folder: Path) -> int:
    """Return the bytes of all files under a folder."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
