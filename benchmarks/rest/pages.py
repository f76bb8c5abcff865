"""Turns what the comparison has measured into rows of text, by the rules of `benchmarks.pages.tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.pages.tables import NONE, Rows, rounded
from benchmarks.rest.protocol import COPIED, REMEMBERED, STARTED
from benchmarks.rest.ways import OURS, WAYS
from benchmarks.results import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.rest.results import RestResult, WayCost

SPARK_TIMES = ((2_400_000, 3.0), (100_000_000, 8.0))
"""By how much Seqmark is to be cheaper per row than the cheapest way of Spark's, by ids that are remembered."""
DUCKDB_TIMES = 1.5
JUDGED_PER_S = 400_000
"""Rows per CPU second beyond what reading and writing Parquet takes."""
DAY_SHARE = 0.08
"""Rows of one date of thirty cost at most this share of what rows of all dates cost."""


class Parts(NamedTuple):
    """What a run costs whatever it reads, and what each row costs more."""

    run_s: float
    row_us: float


def parts_of(cost: WayCost) -> Parts | None:
    """Return them by the two warm runs; None where they were not made."""
    small, large = cost.phases.get("tenth"), cost.phases.get("all")
    if small is None or large is None or large.rows <= small.rows:
        return None
    row_s = (large.cpu_s - small.cpu_s) / (large.rows - small.rows)
    return Parts(max(small.cpu_s - row_s * small.rows, 0.0), row_s * 1e6)


def row_us(cost: WayCost | None) -> float | None:
    """Return CPU microseconds per row of the largest run, warm."""
    found = cost.phases.get("all") if cost else None
    return found.cpu_s / found.rows * 1e6 if found else None


def alone_us(cost: WayCost) -> float | None:
    """Return the same of one command: with its start, and with what a first run takes more than a later one."""
    first, small, large = (cost.phases.get(name) for name in ("warm", "tenth", "all"))
    if large is None:
        return None
    more_s = first.cpu_s - small.cpu_s if first and small else 0.0  # without them the largest was the first
    return (cost.phases[STARTED].cpu_s + more_s + large.cpu_s) / large.rows * 1e6


def judged_per_s(cost: WayCost) -> float | None:
    """Return rows per CPU second of the largest run less its reading and writing, measured beside it."""
    whole, copied = cost.phases.get("all"), cost.phases.get(COPIED)
    if whole is None or copied is None or whole.cpu_s <= copied.cpu_s:
        return None
    return whole.rows / (whole.cpu_s - copied.cpu_s)


def costs(results: Sequence[RestResult]) -> Rows:
    """List all ways, by size."""
    rows = []
    for result in results:
        for name, cost in result.ways.items():
            named = WAYS[name].title, f"{result.new:,}", f"{result.old:,}"
            large, parts = cost.phases.get("all"), parts_of(cost)
            if cost.failure or large is None:
                rows.append((*named, "failed", *[NONE] * 7))
                continue
            figures = row_us(cost), alone_us(cost), parts and parts.run_s, parts and parts.row_us
            more = cost.phases[REMEMBERED].cpu_s, large.wall_s, cost.peak_rss_bytes / 1e6
            rows.append((*named, *map(rounded, (*figures, *more)), f"{cost.lost:,}"))
    titles = (
        "way", "new rows", "remembered", "CPU µs per row", "as one command, from its start", "CPU s per run",
        "CPU µs per row more", "CPU s to remember", "wall s", "peak memory MB", "events lost",
    )  # fmt: skip
    return Rows(titles, rows)


def goals(results: Sequence[RestResult]) -> Rows:
    """List what was aimed at."""
    rows: list[tuple[str, ...]] = []
    for result in results:
        size = f"{result.new:,} of {result.old:,}"
        ours = result.ways.get(OURS)
        own = row_us(ours)
        if ours is None or own is None:
            continue
        others = {name: row_us(each) for name, each in result.ways.items() if not each.failure}
        spark = [us for name, us in others.items() if us and WAYS[name].kind == "spark"]
        least = next((times for old, times in reversed(SPARK_TIMES) if result.old >= old), None)
        if spark and least:
            times = min(spark) / own
            rows.append(
                ("cheaper than the cheapest way of Spark's", size, f"{least:.0f} times", f"{times:.1f} times",
                 _yes(times >= least))
            )  # fmt: skip
        if duck := others.get("duckdb"):
            share = own / duck
            rows.append(
                ("of what DuckDB takes", size, f"{DUCKDB_TIMES} times at most", f"{share:.1f} times",
                 _yes(share <= DUCKDB_TIMES))
            )  # fmt: skip
        whole = ours.phases["all"].cpu_s
        if rate := judged_per_s(ours):
            rows.append(
                ("rows judged per CPU second, beyond reading and writing Parquet", size,
                 f"{JUDGED_PER_S:,} at least", f"{rate:,.0f}", _yes(rate >= JUDGED_PER_S))
            )  # fmt: skip
        for name, window in (("day", "1 d"), ("day_wide", "180 d")):
            if day := ours.phases.get(name):
                title = f"a thirtieth of the rows, of one date, window {window}: of what all take"
                share = day.cpu_s / whole
                rows.append((title, size, f"{DAY_SHARE:.0%} at most", f"{share:.0%}", _yes(share <= DAY_SHARE)))
    return Rows(("goal", "rows", "goal is", "measured", "reached"), rows, 2)


def _yes(reached: bool) -> str:  # noqa: FBT001 - a word for it
    return "yes" if reached else "no"


def machine(results: Sequence[RestResult]) -> str:
    """Say when and where it was measured, and how quiet the machine was."""
    lines = []
    for result in results:
        found, noise = result.machine, Spread.of(result.noise_s)
        loop = ""
        if noise:
            ends = f"{noise.low * 1000:.0f} to {noise.high * 1000:.0f}"
            loop = f"; the fixed loop took {noise.median * 1000:.0f} ms (median; {ends})"
        lines.append(
            f"{result.new:,} new rows against {result.old:,}: measured on {result.at[:10]}, of commit "
            f"{result.commit}, with {found['cores']} cores ({found['cpu']}), Python {found['python']}, "
            f"{result.memory_gb} GB{loop}."
        )
    return "\n\n".join(lines)


def missing(results: Sequence[RestResult]) -> str:
    """Say which ways were left out or failed, each with its reason."""
    lines = []
    for result in results:
        size = f"{result.new:,} of {result.old:,}"
        lines += [f"- {size}, {WAYS[name].title}: {why}" for name, why in result.missing.items()]
        lines += [
            f"- {size}, {WAYS[name].title}, failed: {each.failure}"
            for name, each in result.ways.items()
            if each.failure
        ]
    return "\n".join(lines) or "All ways took part, and none failed."
