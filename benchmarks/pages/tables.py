"""Turns figures into rows of text, the same for the terminal and for the pages.

Invariant: nothing is measured or rounded elsewhere; a figure that is not there is a dash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.cases import (
    CASES,
    COST_OF_EXACTNESS,
    FACTORS,
    LATENCY_OVER_MS,
    LEAST_VERDICTS,
    LONG,
    MOST_BROKER_US,
    MOST_WRITTEN_BYTES,
    STANDARD,
)
from benchmarks.peers import COMMIT_MS, OWN, RECEIPTS, SEQMARK, VERDICTS
from benchmarks.results import Spread, median

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.cases import Case
    from benchmarks.measure.cost import Figures
    from benchmarks.results import Results

NONE = "-"
OURS = (SEQMARK, "exactly_once")
STEADY_S = 0.3
"""A second half of less CPU time is two or three looks, of which each end may be wrong by one."""
WORDS = {"exactly_once": "exactly once", "at_least_once": "at least once"}


class Rows(NamedTuple):
    """A table: numbers stand in all columns behind the first ``left``."""

    titles: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    left: int = 1


def half(figures: Figures) -> float:
    """Return records per CPU second of the second half."""
    return figures.half_rate


def steady(figures: Sequence[Figures]) -> bool:
    """Tell whether second halves were long enough to be told from their ends."""
    return all(each.half_cpu_s >= STEADY_S for each in figures)


def halves(figures: Sequence[Figures]) -> str:
    """Return records per CPU second of second halves, with a tilde where they were too short to mean much."""
    return ("" if steady(figures) else "~") + spread(map(half, figures))


def rounded(value: float | None) -> str:
    """Return three digits of a figure: more are not known."""
    if value is None:
        return NONE
    digits = 3 - len(str(int(abs(value))))
    return f"{round(value, digits):,.0f}" if digits <= 0 else f"{value:.{digits}f}"


def spread(values: Iterable[float]) -> str:
    """Return median and range."""
    found = Spread.of(values)
    middle = rounded(found.median if found else None)
    return f"{middle} ({rounded(found.low)}-{rounded(found.high)})" if found and found.count > 1 else middle


def medians(figures: Sequence[Figures], *columns: Callable[[Figures], float]) -> list[str]:
    """Return the median of each of these figures over repetitions."""
    return [rounded(median(figures, column)) for column in columns]


def rates(figures: Sequence[Figures]) -> list[str]:
    """Return records per CPU second of second halves and of whole runs, and per second of second halves."""
    return [halves(figures), *medians(figures, lambda each: each.rate, lambda each: each.half_wall_rate)]


def costs(figures: Sequence[Figures]) -> list[str]:
    """Return first commit, the broker's time and bytes per record, and memory: see `COSTS`."""
    written = median(figures, written_bytes)
    return [
        *medians(figures, lambda each: each.first_s, broker_us),
        # Results of before it was measured have none.
        rounded(written or None),
        *medians(figures, lambda each: each.peak_rss_bytes / 1e6),
    ]


def broker_us(figures: Figures) -> float:
    """Return the broker's CPU per record, in µs."""
    return figures.broker_cpu_s / figures.records * 1e6


def half_broker_us(figures: Figures) -> float:
    """Return the broker's CPU per record of the second half, in µs: a JVM compiles in the first."""
    return figures.half_broker_cpu_s / max(figures.half_records, 1) * 1e6


def written_bytes(figures: Figures) -> float:
    """Return the bytes of all topics that were written, per record of the source."""
    return figures.written_bytes / figures.records


COSTS = ("first commit s", "broker CPU µs a record", "written B a record", "peak memory MB")


def ahead(results: Results, case: str, system: str, guarantee: str, ours: str) -> str:
    """Return by how much Seqmark (with the guarantee ``ours``) is ahead of a peer in a case."""
    own, theirs = (median(results.of(case, *entry), half) for entry in ((SEQMARK, ours), (system, guarantee)))
    return f"{own / theirs:.1f}" if system not in OWN and own and theirs else NONE


def standard(results: Results) -> Rows:
    """Compare all systems in the standard case."""
    rows = []
    for system, guarantee in results.entries(STANDARD):
        figures = results.of(STANDARD, system, guarantee)
        count = f"{figures[0].records:,}" if figures else "failed"
        factor = ahead(results, STANDARD, system, guarantee, guarantee)
        rows.append((results.title(system), WORDS[guarantee], count, *rates(figures), factor, *costs(figures)))
    titles = (
        "system", "guarantee", "records", "records per CPU s, 2nd half", "whole run", "records per s, 2nd half",
        "Seqmark is ahead by", *COSTS,
    )  # fmt: skip
    return Rows(titles, rows, 2)


def cases(results: Results) -> Rows:
    """List Seqmark in all cases, exactly once, with targets."""
    rows: list[tuple[str, ...]] = []
    for case in CASES:
        figures = results.of(case.name, SEQMARK)
        if figures or results.failed(case.name, SEQMARK):
            least, aim = targets(case, results)
            own = median(figures, half)
            beside = median(results.of(case.name, "kafka_streams"), half)
            rows.append(
                (
                    case.title,
                    f"{figures[0].records:,}" if figures else "failed",
                    *rates(figures),
                    rounded(least),
                    rounded(aim),
                    reached(own if steady(figures) else None, least, aim),
                    rounded(beside),
                    f"{own / beside:.1f}" if own and beside else NONE,
                )
            )
        if written := results.of(case.name, RECEIPTS):
            title = f"{case.title}, with receipts"
            rows.append((title, f"{written[0].records:,}", *rates(written), *[NONE] * 5))
        if case.verdicts and (judged := results.of(case.name, VERDICTS)):
            title = f"{case.title}, verdicts in place of the sink"
            rows.append((title, f"{judged[0].records:,}", *rates(judged), *[NONE] * 5))
    titles = (
        "case", "records", "records per CPU s, 2nd half", "whole run", "records per s, 2nd half", "at least",
        "aim", "reached", "Kafka Streams", "ahead by",
    )  # fmt: skip
    return Rows(titles, rows)


def targets(case: Case, results: Results) -> tuple[float | None, float | None]:
    """Return what a case has to reach at least, and the aim."""
    if case.share is None:
        return case.least, case.aim
    whole = median(results.of(STANDARD, SEQMARK), half)
    return (case.share[0] * whole, case.share[1] * whole) if whole else (None, None)


def reached(value: float | None, least: float | None, aim: float | None) -> str:
    """Say how a figure stands to its target."""
    if value is None or least is None:
        return NONE
    if value < least:
        return f"no: {value / least:.0%} of it"
    return "aim" if aim is not None and value >= aim else "yes"


def promises(results: Results) -> Rows:
    """List what was promised beside rates."""
    rows = []
    for case, system, factor in FACTORS:
        own, theirs = (steady_rate(results, case, each) for each in (SEQMARK, system))
        value = own / theirs if own and theirs else None
        shown, good = (NONE, NONE) if value is None else times(value, factor)
        where = "" if case == STANDARD else ", resends in tails"
        name = f"ahead of {results.title(system)}, exactly once both{where}"
        rows.append((name, f"{factor:.0f} times", shown, good))
    rows += _verdict_promises(results)
    ours = steady_rate(results, STANDARD, SEQMARK)
    loose = steady_rate(results, STANDARD, SEQMARK, "at_least_once")
    cost = 1 - ours / loose if ours and loose else None
    target = f"{COST_OF_EXACTNESS:.0%} at most"
    shown, good = (
        (NONE, NONE) if cost is None else (f"{cost:.0%}", "yes" if cost <= COST_OF_EXACTNESS else "no")
    )
    rows.append(("what exactly once costs against at least once", target, shown, good))
    bound = COMMIT_MS + LATENCY_OVER_MS
    p99 = next((each.p99_ms for each in results.latency if (each.system, each.guarantee) == OURS), None)
    shown, good = (NONE, NONE) if p99 is None else (f"{p99:.0f} ms", "yes" if p99 <= bound else "no")
    # A quick run's broker is not warm yet, and a part may be of one.
    good = good if results.kind == "latest" else NONE
    rows.append(("p99 from produce to visible at half load", f"{bound} ms at most", shown, good))
    return Rows(("promise", "target", "measured", "reached"), rows, 4)


def _verdict_promises(results: Results) -> list[tuple[str, str, str, str]]:
    """List what was promised of verdicts, in the long case or the standard one; nothing without either."""
    figures = results.of(LONG, VERDICTS) or results.of(STANDARD, VERDICTS)
    if not figures:
        return []
    rate = median(figures, half) if steady(figures) else None
    rows = [
        (
            "verdicts, records per CPU second",
            f"{rounded(LEAST_VERDICTS)} at least",
            rounded(rate),
            reached(rate, LEAST_VERDICTS, None),
        )
    ]
    for name, most, column, unit in (
        ("verdicts, the broker's CPU, 2nd half", MOST_BROKER_US, half_broker_us, "µs"),
        ("verdicts, bytes written", MOST_WRITTEN_BYTES, written_bytes, "B"),
    ):
        # Both are 0 where the broker is not ours.
        value = (median(figures, column) or None) if steady(figures) else None
        good = NONE if value is None else "yes" if value <= most else "no"
        shown = NONE if value is None else f"{rounded(value)} {unit} a record"
        rows.append((name, f"{most} {unit} a record at most", shown, good))
    return rows


def steady_rate(results: Results, case: str, system: str, guarantee: str = "exactly_once") -> float | None:
    """Return what a system did in the second half; None where that was too short to be compared.

    Where some repetitions were too short, which are the quickest, it is the median of the others.
    """
    figures = [each for each in results.of(case, system, guarantee) if steady([each])]
    return median(figures, half) if figures else None


def times(value: float, least: float) -> tuple[str, str]:
    """Return a factor, and whether it is reached."""
    return f"{value:.1f} times", "yes" if value >= least else "no"


def latency(results: Results) -> Rows:
    """List delays from produce to visible."""
    rows = []
    for each in results.latency:
        delays = (f"{ms:.0f}" for ms in (each.p50_ms, each.p99_ms, each.most_ms))
        rows.append((results.title(each.system), WORDS[each.guarantee], f"{each.rate:,}", *delays))
    return Rows(("system", "guarantee", "records per s offered", "p50 ms", "p99 ms", "slowest ms"), rows, 2)


def spark(results: Results) -> Rows:
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


def settings(results: Results) -> Rows:
    """List what was set for each system."""
    rows = [
        (results.title(system), WORDS[guarantee], ", ".join(f"`{k}` {v}" for k, v in each.items()))
        for system, by_guarantee in results.settings.items()
        for guarantee, each in by_guarantee.items()
    ]
    return Rows(("system", "guarantee", "settings"), rows, 3)


def noise(results: Results) -> str:
    """Say how quiet the machine was."""
    kept = [run.figures for run in results.runs if run.figures]
    found = Spread.of(loop for each in kept for loop in (each.noise_before_s, each.noise_after_s))
    if found is None:
        return "Noise was not measured."
    return (
        f"Noise: the fixed loop, {found.count} times before and after runs, took {found.median * 1000:.0f} ms "
        f"(median), {found.low * 1000:.0f} to {found.high * 1000:.0f} ms: {found.median / found.low - 1:.0%} "
        f"(median) and {found.high / found.low - 1:.0%} (worst) above the quickest."
    )


def markdown(table: Rows) -> str:
    """Return a table for a page; empty where it has no rows."""
    if not table.rows:
        return ""
    marks = ["---" if column < table.left else "---:" for column in range(len(table.titles))]
    lines = [table.titles, marks, *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
