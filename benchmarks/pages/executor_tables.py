"""Turns what a second executor and a second aggregate cost into rows of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.cases import EXECUTOR_CORES, EXECUTOR_FACTOR
from benchmarks.pages.tables import NONE, Rows, rounded
from benchmarks.studies.executors import per_record

if TYPE_CHECKING:
    from benchmarks.results import Results

_TITLES = (
    "records", "CPU s a run by itself", "CPU µs a record more", "wall s a run by itself",
    "records more per s",
)  # fmt: skip


def executors(results: Results) -> Rows:
    """Compare one executor with two, and say whether the second one is worth what was asked for."""
    rows: list[tuple[str, ...]] = []
    for title, ways in (("aggregate", ("one", "two")), ("`seqmark batch`", ("batch-one", "batch-two"))):
        names = (f"{title}, one executor", f"{title}, two")
        found = _ways(results, dict(zip(ways, names, strict=True)))
        rate, cpu = (_factor(results, ways, what) for what in ("wall_s", "cpu_s"))
        if len(found) == len(ways) and rate and cpu:
            rows += [(*row, NONE) for row in found]
            shown = NONE, NONE, f"{cpu:.2f} times", NONE, f"{1 / rate:.2f} times"
            rows.append(("two of one", *shown, _judged(results, 1 / rate, cpu)))
    return Rows(("Spark's part", *_TITLES, "judged"), rows)


def _judged(results: Results, rate: float, cpu: float) -> str:
    if results.machine.get("cores", 0) >= EXECUTOR_CORES:
        good, bound = rate >= EXECUTOR_FACTOR, f"by rate, {EXECUTOR_FACTOR} times at least"
    else:
        # Twice the cores for 1.7 times the rate is 2 / 1.7 times the CPU per record.
        most = 2 / EXECUTOR_FACTOR
        good, bound = cpu <= most, f"by CPU, {most:.2f} times at most"
    return f"{bound}: {'yes' if good else 'no'}"


def aggregates(results: Results) -> Rows:
    """Compare one aggregate with two of the same topic in one job."""
    rows = _ways(results, {"alone": "one aggregate", "pair": "two aggregates on one topic, one job"})
    if factor := _factor(results, ("alone", "pair"), "cpu_s"):
        rows.append(("two of one", NONE, NONE, f"{factor:.2f} times", NONE, NONE))
    return Rows(("Spark's part", *_TITLES), rows)


def _ways(results: Results, titles: dict[str, str]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    costs: list[dict[str, Any]] = results.executors.get("costs", [])
    for way, title in titles.items():
        cpu, wall = (per_record(costs, way, what) for what in ("cpu_s", "wall_s"))
        if cpu and wall:
            records = max(cost["records"] for cost in costs if cost["way"] == way)
            rate = rounded(1 / wall[1]) if wall[1] > 0 else NONE
            rows.append((title, f"{records:,}", rounded(cpu[0]), rounded(cpu[1] * 1e6), rounded(wall[0]), rate))
    return rows


def _factor(results: Results, ways: tuple[str, str], what: str) -> float | None:
    """Return how much a record more takes of the second way, of the first 1; None where that cannot be told."""
    costs = results.executors.get("costs", [])
    first, second = (per_record(costs, way, what) for way in ways)
    good = first and second and first[1] > 0 and second[1] > 0
    return second[1] / first[1] if good and first and second else None
