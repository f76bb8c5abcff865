"""Turns what it costs from a raw topic to an aggregate into rows of text, by the rules of `tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.cases import SINK_US, SPARK_FACTOR, SPARK_US
from benchmarks.pages.tables import NONE, Rows, rounded, times

if TYPE_CHECKING:
    from benchmarks.results import Results


def ways(results: Results) -> Rows:
    """Compare Seqmark and Spark with Spark alone, from raw topic to aggregate."""
    found = results.spark.get("costs", {})
    if not found:
        return Rows((), [])
    worker, sink, alone = (found[name] for name in ("worker", "sink", "alone"))
    added = ("wall_s", "cpu_s", "broker_cpu_s", "state_files_bytes")
    both = {name: worker[name] + sink[name] for name in added}
    both |= {"peak_rss_bytes": max(worker["peak_rss_bytes"], sink["peak_rss_bytes"]), "state": sink["state"]}
    warm = _warm(results.spark)
    ways = {
        "Seqmark's worker": (worker, warm["worker"]),
        "Spark on the clean topic, in ten batches": (sink, warm["sink"]),
        "Seqmark and Spark": (both, warm["both"]),
        "Spark alone": (alone, warm["alone"]),
    }
    rows = [_way(name, cost, us, results.spark["records"]) for name, (cost, us) in ways.items()]
    rows += [
        _way(name, found[key], None, results.spark["records"])
        for name, key in _BY_KERNELS.items()
        if key in found
    ]
    half_way = f"{warm['alone'] / warm['both']:.1f} times" if warm["alone"] and warm["both"] else NONE
    factors = f"{alone['cpu_s'] / both['cpu_s']:.1f} times", half_way
    rows.append(("Seqmark and Spark are ahead by", *[""] * 3, *factors, *[""] * 3))
    titles = (
        "way", "wall s", "CPU s", "broker CPU s", "records per CPU s", "CPU µs a record, 2nd half",
        "state rows, most", "state files MB", "peak memory MB",
    )  # fmt: skip
    return Rows(titles, rows)


_BY_KERNELS = {
    "Spark on the clean topic, in one batch": "summed",
    "Seqmark's worker, verdicts in place of a clean topic": "judge",
    "Spark on the raw topic by verdicts, in one batch": "by_verdicts",
}
"""Rows of the ways that are one batch, whose JVM is not warm before it."""


def _way(name: str, cost: dict[str, Any], us: float | None, records: int) -> tuple[str, ...]:
    """Return one row."""
    return (
        name,
        *(f"{cost[part]:.1f}" for part in ("wall_s", "cpu_s", "broker_cpu_s")),
        rounded(records / cost["cpu_s"]),
        NONE if us is None else f"{us:.1f}",
        f"{cost['state'].get('seqmark_sink_state_rows', 0):,.0f}",
        f"{cost['state_files_bytes'] / 1e6:,.1f}",
        f"{cost['peak_rss_bytes'] / 1e6:,.0f}",
    )


def _warm(found: dict[str, Any]) -> dict[str, float | None]:
    """Return CPU µs per record of the raw topic once a JVM is warm; the worker's include its start."""
    records = found["records"]
    us: dict[str, float | None] = {"worker": found["costs"]["worker"]["cpu_s"] / records * 1e6}
    for name in ("sink", "alone"):
        cost = found["costs"][name]
        each = cost["half_cpu_s"] / cost["half_rows"] if cost.get("half_rows") else None
        us[name] = each and each * cost["rows"] / records * 1e6
    us["both"] = us["worker"] + us["sink"] if us["worker"] and us["sink"] else None
    return us


def promises(results: Results) -> list[tuple[str, str, str, str]]:
    """List what was promised of an aggregate, by batches whose JVM is warm; nothing where none was measured."""
    if not results.spark.get("costs"):
        return []
    warm = _warm(results.spark)
    both, alone = warm["both"], warm["alone"]
    rows = []
    for name, most, value in (
        ("raw topic to an aggregate, CPU of a record, all of it", SPARK_US, both),
        ("Spark's part of it", SINK_US, warm["sink"]),
    ):
        shown, good = (NONE, NONE) if value is None else (f"{value:.1f} µs", "yes" if value <= most else "no")
        rows.append((name, f"{most} µs at most", shown, good))
    shown, good = times(alone / both, SPARK_FACTOR) if both and alone else (NONE, NONE)
    name = "ahead of Spark alone, from a raw topic to an aggregate"
    return [*rows, (name, f"{SPARK_FACTOR:.0f} times", shown, good)]
