"""Measures what a second executor costs, and a second aggregate: ``python -m benchmarks.studies.executors``.

Click events lie in a topic with few of them, and in one with many. `seqmark aggregate` runs from a cold process
to the end of each, so that the difference of both is what records cost, and the rest what a run does:

    one, two               with one executor, and with two: `local-cluster`, processes with a core each
    alone, pair            in the driver's own process, one aggregate, and two with other groups in one job
    batch-one, batch-two   `seqmark batch` over as many rows of Parquet, with one executor, and with two

CPU seconds are those of the whole process tree: the driver, its JVM, executors and their Pythons. Ways take
turns. What they have written is compared: rows of aggregates with each other, those of batches by their ids.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds

from benchmarks.cluster import cluster
from benchmarks.peers import FailedError
from benchmarks.rest.archive import id_sum, write_history
from benchmarks.rest.protocol import ID, TIME, parquet_files
from benchmarks.studies.spark import Cost, declared, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FEW = 20
"""The topic with few records has this part of the others."""
_HEAD = """\
[kafka]
bootstrap_servers = "{servers}"

[worker]
application_id = "bench-executors"
state_dir = "{folder}/state"
web_port = 0
"""
_SOURCE = """
[[pipelines]]
name = "{name}"
source = "bench-executors.{name}"
sink = "bench-executors.{name}.clean"

[pipelines.dedup]
mode = "watermark"
sequence = {{ from = "header", name = "seq", format = "int64" }}
"""
_BATCH = """
[[batches]]
name = "clean"
input = {{ format = "parquet", path = "{raw}" }}
output = {{ format = "parquet", path = "{folder}/clean" }}
id = ["{id}"]
event_time = "{time}"
window = "1d"
"""
GROUPS = ("campaign", "page")
"""Of the first aggregate, and of the second one."""
_CORE = ("--conf", "spark.sql.shuffle.partitions=2")
"""The same in all ways: a partition of the state per core of the larger cluster."""


@dataclass(frozen=True, slots=True)
class ExecutorWay:
    """One way to do it."""

    name: str
    master: str
    aggregates: int = 1
    """0: it is a batch, which is measured in the first round only."""


WAYS = (
    ExecutorWay("one", "local-cluster[1,1,1024]"),
    ExecutorWay("two", "local-cluster[2,1,1024]"),
    ExecutorWay("alone", "local[2]"),
    ExecutorWay("pair", "local[2]", aggregates=2),
    ExecutorWay("batch-one", "local-cluster[1,1,1024]", aggregates=0),
    ExecutorWay("batch-two", "local-cluster[2,1,1024]", aggregates=0),
)


@dataclass(frozen=True, slots=True)
class ExecutorCost:
    """What one way took of one topic."""

    way: str
    records: int
    wall_s: float
    cpu_s: float


def run_executors(
    records: int, repetitions: int, say: Callable[[str], None], ways: Sequence[ExecutorWay] = WAYS
) -> dict[str, Any]:
    """Measure all ways; figures as JSON takes them.

    Raises:
        FailedError: A program failed, or two ways have written different rows.
    """
    sizes = {"few": max(records // FEW, 1), "many": records}
    with tempfile.TemporaryDirectory(prefix="seqmark-bench-") as name, cluster(say) as (servers, broker):
        study = _Study(Path(name), servers, broker)
        for size, count in sizes.items():
            say(f"executors: producing {count:,} records")
            study.produce(size, count)
        costs = []
        for number in range(repetitions):
            # Each round begins with another way.
            taking = [way for way in ways if way.aggregates or not number]
            first = number % len(taking) if taking else 0
            for size, count in sizes.items():
                for way in [*taking[first:], *taking[:first]]:
                    say(f"executors: {way.name}, {count:,} records")
                    cost = study.run(way, size, number)
                    costs.append(ExecutorCost(way.name, count, cost.wall_s, cost.cpu_s))
                    say(f"  {cost.wall_s:.1f} s, {cost.cpu_s:.1f} s of CPU")
        return {"records": records, "few": sizes["few"], "costs": [asdict(cost) for cost in costs]}


class _Study:
    """Topics and files of both sizes, and what the first way has made of them."""

    def __init__(self, folder: Path, servers: str, broker: int | None) -> None:
        self._folder, self._broker = folder, broker
        self._head = _HEAD.format(servers=servers, folder=folder)
        self._written: dict[tuple[str, str], object] = {}

    def produce(self, size: str, count: int) -> None:
        """Make the records of a size."""
        config = self._folder / f"{size}.toml"
        config.write_text(self._head + _SOURCE.format(name=size))
        words = ("generate", "-c", str(config), "--pipeline", size, "--records", str(count))
        self._call([*words, "--duplicates", "0", "--seed", "7"], self._folder)
        raw = self._folder / f"{size}-raw"
        raw.mkdir()
        write_history(raw, count)

    def run(self, way: ExecutorWay, size: str, number: int) -> Cost:
        """Run a way to its end, and compare what it has written.

        Raises:
            FailedError: It failed, or has written something else than the first way.
        """
        place = self._folder / f"{way.name}-{size}-{number}"
        place.mkdir()
        config, groups = place / "bench.toml", GROUPS[: way.aggregates]
        if groups:
            topic = f'topic = "bench-executors.{size}"'
            parts = [declared(each, topic, place, each) for each in groups]
            call = ["aggregate", "-c", str(config), "--available-now", "--master", way.master, *_CORE]
        else:
            parts = [_BATCH.format(raw=self._folder / f"{size}-raw", folder=place, id=ID, time=TIME)]
            call = ["batch", "-c", str(config), "--master", way.master]
        config.write_text(self._head + "".join(parts))
        cost = self._call(call, place)
        found: dict[str, object] = {each: rows_of(place / f"{each}-rows") for each in groups}
        if not groups:
            found["clean"] = id_sum(sorted(map(str, parquet_files(place / "clean"))))
        for what, rows in found.items():
            if not rows or self._written.setdefault((size, what), rows) != rows:
                raise FailedError(f"{way.name}: its rows of {what} are not those of the first way")
        return cost

    def _call(self, words: Sequence[str], folder: Path) -> Cost:
        return measure([sys.executable, "-m", "processor", *words], folder, self._broker)


def rows_of(folder: Path) -> list[tuple[str, ...]]:
    """Return what an aggregate has written, in an order of its own."""
    table = ds.dataset(folder, format="parquet").to_table()
    return sorted(tuple(map(str, row.values())) for row in table.to_pylist())


def per_record(costs: Sequence[Mapping[str, Any]], way: str, what: str) -> tuple[float, float] | None:
    """Return what a run of a way takes by itself, and what each record takes more, in seconds.

    The medians of both topics make a line; None where one of the two was not measured.
    """
    found: dict[int, list[float]] = {}
    for cost in costs:
        if cost["way"] == way:
            found.setdefault(cost["records"], []).append(cost[what])
    if len(found) < 2:
        return None
    (few, low), (many, high) = sorted((count, sorted(each)[len(each) // 2]) for count, each in found.items())
    each = (high - low) / (many - few)
    return low - few * each, each


def main() -> None:
    """Measure so many records, once, by all ways or those that are named, and print."""
    ways = [way for way in WAYS if way.name in sys.argv[2:]] or WAYS
    found = run_executors(int(sys.argv[1]), 1, print, ways)
    for cost in found["costs"]:
        print(cost)
    for way in ways:
        print(way.name, per_record(found["costs"], way.name, "cpu_s"))


if __name__ == "__main__":
    main()
