"""Measures what it costs from a raw topic to an aggregate, with Seqmark before Spark and by Spark alone.

Two ways over the same input, each from cold processes to the end of the topic:

- Seqmark + Spark: ``seqmark worker --drain``, then ``seqmark aggregate --available-now`` on the clean topic;
- Spark alone: one query on the raw topic with `dropDuplicatesWithinWatermark` (`spark_alone`).

And beside them with all there is in one batch: from the clean topic (``summed``), and from the raw topic by its
verdicts (``by_verdicts``, after a worker with ``output = "verdicts"``, ``judge``). All but Spark alone have the
events summed up by Seqmark's kernels as they are read.

Same windows, watermark, batches, output, partitions, memory and state store. CPU seconds are those of
whole process trees, JVM and its start included; the broker's are shown beside (in the first way it writes the
clean topic too). Of each Spark process the second half of its batches is told apart, when its JVM is warm. Both
outputs must hold the same rows.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.cluster import cluster
from benchmarks.measure.processes import Tree, running
from benchmarks.peers import ROOT, FailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BATCHES = 10
SAMPLE_S = 0.25
STATE = ("seqmark_sink_state_rows", "seqmark_sink_state_bytes", "seqmark_sink_state_disk_bytes")
ROWS = "seqmark_sink_rows_total"
LONGEST_S = 900.0
DUPLICATES = 0.05
PIPELINE = """\
[kafka]
bootstrap_servers = "{servers}"

[worker]
application_id = "bench-spark"
state_dir = "{folder}/state"
web_port = 0

[[pipelines]]
name = "clicks"
source = "bench-spark.raw"
{output}

[pipelines.dedup]
mode = "watermark"
sequence = {{ from = "header", name = "seq", format = "int64" }}
"""
CLEAN = 'sink = "bench-spark.clean"', 'topic = "bench-spark.clean"'
VERDICTS = (
    'output = "verdicts"\nverdicts = "bench-spark.verdicts"',
    'topic = "bench-spark.raw"\nverdicts = "bench-spark.verdicts"',
)


@dataclass(slots=True)
class Cost:
    """What a program took.

    Attributes:
        broker_cpu_s: Of the broker meanwhile.
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
    """Measure all ways.

    Returns:
        Figures as JSON takes them.

    Raises:
        FailedError: A program failed, or the outputs differ.
    """
    with tempfile.TemporaryDirectory(prefix="seqmark-bench-") as name, cluster(say) as (servers, broker):
        folder, batch, port = Path(name), max(records // BATCHES, 1), free_port()
        config, judged = write_configs(folder, servers, batch)
        python = [sys.executable, "-m"]

        def ours(command: str, *options: str, given: Path = config) -> list[str]:
            return [*python, "processor", command, "-c", str(given), *options]

        say(f"Spark: producing {records:,} records")
        counted = ("--records", str(records), "--duplicates", str(DUPLICATES), "--seed", "7")
        measure(ours("generate", "--pipeline", "clicks", *counted), folder, None)
        rival = [*python, "benchmarks.studies.spark_alone", str(config), "alone", str(port)]
        now = ("--available-now", "--metrics-port", str(port))
        by_verdicts = ours("sink", "--name", "by_verdicts", *now, given=judged)
        programs = {
            "worker": (ours("worker", "--drain"), 0, "state"),
            "sink": (ours("sink", "--name", "seqmark", *now), port, "seqmark-checkpoint/state"),
            "alone": (rival, port, "alone-checkpoint/state"),
            "summed": (ours("sink", "--name", "summed", *now), port, "summed-checkpoint/state"),
            "judge": (ours("worker", "--drain", given=judged), 0, "state-verdicts"),
            "by_verdicts": (by_verdicts, port, "by_verdicts-checkpoint/state"),
        }
        costs = {}
        for what, (call, served, state) in programs.items():
            say(f"Spark: {' '.join(call[2:])}")
            cost = costs[what] = measure(call, folder, broker, served)
            files = (file for file in (folder / state).rglob("*") if file.is_file())
            cost.state_files_bytes = sum(file.stat().st_size for file in files)
        kept = {name: asdict(cost) for name, cost in costs.items()}
        given = {"records": records, "duplicates": DUPLICATES, "batch": batch}
        return {**given, "rows": compare(folder), "costs": kept}


def declared(name: str, topic: str, folder: Path, group: str = "campaign") -> str:
    """Return the aggregate of all ways, as a config has it.

    Args:
        name: Its name.
        topic: The lines that say what it reads.
        folder: Where its rows and its checkpoint go.
        group: The field of its groups.
    """
    return f"""
[[aggregates]]
name = "{name}"
{topic}
event = "schemas.events:ClickEvent"
time_field = "occurred_at"
window = "1 hour"
watermark = "1 hour"
group_by = ["{group}"]
aggregates = {{ events = "count", revenue = "sum:amount" }}
output = {{ kind = "parquet", path = "{folder}/{name}-rows" }}
checkpoint = "{folder}/{name}-checkpoint"
"""


def write_configs(folder: Path, servers: str, batch: int) -> tuple[Path, Path]:
    """Write the config with a clean topic, and the one with verdicts; return both paths."""
    clean, judged = folder / "bench.toml", folder / "verdicts.toml"
    bound = f"max_offsets_per_trigger = {batch}\n"
    bounded = [declared(each, CLEAN[1], folder) + bound for each in ("seqmark", "alone")]
    summed = declared("summed", CLEAN[1], folder)
    pipeline = PIPELINE.format(servers=servers, folder=folder, output=CLEAN[0])
    clean.write_text("".join([pipeline, *bounded, summed]))
    pipeline = PIPELINE.format(servers=servers, folder=folder, output=VERDICTS[0])
    # Another application: it judges the same source once more, from the beginning.
    pipeline = pipeline.replace('"bench-spark"', '"bench-verdicts"').replace('/state"', '/state-verdicts"')
    judged.write_text(pipeline + declared("by_verdicts", VERDICTS[1], folder))
    return clean, judged


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
    seen: list[tuple[int, float]] = [(0, 0.0)]
    # Executors' Pythons find this checkout, too.
    with running(call, {"PYTHONPATH": str(ROOT)}, log) as process:
        tree = Tree(process.pid)
        while process.poll() is None:
            if time.monotonic() - began > LONGEST_S:
                raise FailedError(f"{' '.join(call)} does not end:\n{log.read_text()[-3000:]}")
            cost.cpu_s = tree.look()
            metrics = _metrics(port) if port else {}
            for name in STATE:
                cost.state[name] = max(cost.state.get(name, 0), metrics.get(name, 0))
            rows = int(metrics.get(ROWS, 0))
            if rows > seen[-1][0]:
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
    cost.rows, last_s = seen[-1]
    middle = next(each for each in seen if each[0] >= cost.rows / 2)
    cost.half_rows, cost.half_cpu_s = cost.rows - middle[0], last_s - middle[1]
    return cost


def _metrics(port: int) -> dict[str, float]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {each.name: each.value for each in samples if each.name in (*STATE, ROWS)}


def compare(folder: Path) -> int:
    """Read both outputs and return how many rows they have in common, which must be all.

    In a process of its own: a JVM must not stay beside what is measured next.
    """
    call = [sys.executable, "-m", "benchmarks.studies.spark_alone", "--compare", str(folder)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(done.stderr.strip()[-2000:])
    return int(done.stdout.split()[-1])


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
