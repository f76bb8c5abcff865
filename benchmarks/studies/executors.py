"""Measures what a second executor costs, and a second aggregate: ``python -m benchmarks.studies.executors``.

Click events lie in a topic with few of them, and in one with many. `seqmark aggregate` runs from a cold process
to the end of each, so that the difference of both is what records cost, and the rest what a run does:

    one, two        with one executor, and with two: `local-cluster`, processes of their own with a core each
    alone, pair     in the driver's own process, one aggregate, and two with other groups in one job
    batch-one, -two `seqmark batch` over the same events as files, with one executor and with two

CPU seconds are those of the whole process tree: the driver, its JVM, executors and their Pythons. Ways take
turns. What aggregates have written is compared, row by row, with each other.
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
from benchmarks.studies.spark import measure

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
_AGGREGATE = """
[[aggregates]]
name = "{name}"
topic = "bench-executors.{size}"
event = "schemas.events:ClickEvent"
time_field = "occurred_at"
window = "1 hour"
watermark = "1 hour"
group_by = ["{group}"]
aggregates = {{ events = "count", revenue = "sum:amount" }}
output = {{ kind = "parquet", path = "{folder}/{name}-rows" }}
checkpoint = "{folder}/{name}-checkpoint"
"""
GROUPS = ("campaign", "page")
"""Of the first aggregate, and of the second one."""
_CORE = ("--conf", "spark.sql.shuffle.partitions=2")
"""The same in all ways: a partition of the state per core of the larger cluster."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do it."""

    name: str
    master: str
    aggregates: int = 1


WAYS = (
    Way("one", "local-cluster[1,1,1024]"),
    Way("two", "local-cluster[2,1,1024]"),
    Way("alone", "local[2]"),
    Way("pair", "local[2]", aggregates=2),
)


@dataclass(frozen=True, slots=True)
class WayCost:
    """What one way took of one topic."""

    way: str
    records: int
    wall_s: float
    cpu_s: float


def run_executors(
    records: int, repetitions: int, say: Callable[[str], None], ways: Sequence[Way] = WAYS
) -> dict[str, Any]:
    """Measure all ways; figures as JSON takes them.

    Raises:
        FailedError: A program failed, or two ways have written different rows.
    """
    sizes = {"few": max(records // FEW, 1), "many": records}
    with tempfile.TemporaryDirectory(prefix="seqmark-bench-") as name, cluster(say) as (servers, broker):
        folder = Path(name)
        head = _HEAD.format(servers=servers, folder=folder)
        given = folder / "generate.toml"
        given.write_text(head + "".join(_SOURCE.format(name=size) for size in sizes))
        for size, count in sizes.items():
            say(f"executors: producing {count:,} records")
            words = ("generate", "-c", str(given), "--pipeline", size, "--records", str(count))
            _call([*words, "--duplicates", "0", "--seed", "7"], folder, None)
        costs: list[WayCost] = []
        written: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        for number in range(repetitions):
            for size, count in sizes.items():
                # Each round begins with another way.
                for way in [*ways[number % len(ways) :], *ways[: number % len(ways)]]:
                    say(f"executors: {way.name}, {count:,} records")
                    place = folder / f"{way.name}-{size}-{number}"
                    place.mkdir()
                    config = place / "bench.toml"
                    parts = [
                        _AGGREGATE.format(name=group, group=group, size=size, folder=place)
                        for group in GROUPS[: way.aggregates]
                    ]
                    config.write_text(head + "".join(parts))
                    now = ["aggregate", "-c", str(config), "--available-now", "--master", way.master, *_CORE]
                    wall_s, cpu_s = _call(now, place, broker)
                    costs.append(WayCost(way.name, count, wall_s, cpu_s))
                    for group in GROUPS[: way.aggregates]:
                        rows = rows_of(place / f"{group}-rows")
                        if not rows or written.setdefault((size, group), rows) != rows:
                            raise FailedError(f"{way.name}: its rows by {group} are not those of the first way")
        return {"records": records, "few": sizes["few"], "costs": [asdict(cost) for cost in costs]}


def _call(words: Sequence[str], folder: Path, broker: int | None) -> tuple[float, float]:
    cost = measure([sys.executable, "-m", "processor", *words], folder, broker)
    return cost.wall_s, cost.cpu_s


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
    """Measure so many records, once, and print."""
    found = run_executors(int(sys.argv[1]), 1, print)
    for cost in found["costs"]:
        print(cost)
    for way in WAYS:
        print(way.name, per_record(found["costs"], way.name, "cpu_s"))


if __name__ == "__main__":
    main()
