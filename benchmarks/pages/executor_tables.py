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
    rows = _ways(results, {"one": "one executor", "two": "two executors"})
    one, two = (_each(results, way, "wall_s") for way in ("one", "two"))
    rate = one / two if one and two else None
    one, two = (_each(results, way, "cpu_s") for way in ("one", "two"))
    cpu = two / one if one and two else None
    if rate is None or cpu is None:
        return Rows((), [])
    by_rate = results.machine.get("cores", 0) >= EXECUTOR_CORES
    # Twice the cores for 1.7 times the rate is 2 / 1.7 times the CPU per record.
    most = 2 / EXECUTOR_FACTOR
    good = rate >= EXECUTOR_FACTOR if by_rate else cpu <= most
    bound = f"by rate, {EXECUTOR_FACTOR} times at least" if by_rate else f"by CPU, {most:.2f} times at most"
    judged = f"{bound}: {'yes' if good else 'no'}"
    rows.append(("two of one", NONE, NONE, f"{cpu:.2f} times", NONE, f"{rate:.2f} times", judged))
    rows[:-1] = [(*row, NONE) for row in rows[:-1]]
    return Rows(("Spark's part", *_TITLES, "judged"), rows)


def aggregates(results: Results) -> Rows:
    """Compare one aggregate with two of the same topic in one job."""
    rows = _ways(results, {"alone": "one aggregate", "pair": "two aggregates on one topic, one job"})
    alone, pair = (_each(results, way, "cpu_s") for way in ("alone", "pair"))
    if alone and pair:
        rows.append(("two of one", NONE, NONE, f"{pair / alone:.2f} times", NONE, NONE))
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


def _each(results: Results, way: str, what: str) -> float | None:
    """Return seconds per record more; None where they were not measured, or were too few to tell."""
    found = per_record(results.executors.get("costs", []), way, what)
    return found[1] if found and found[1] > 0 else None
