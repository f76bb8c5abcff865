"""What do the figures say, as rows of text? The same rows for the terminal and for the pages.

Invariant: nothing is measured or rounded elsewhere; a figure that is not there is a dash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.cases import CASES, COST_OF_EXACTNESS, FACTORS, LATENCY_OVER_MS, STANDARD
from benchmarks.peers import COMMIT_MS, RECEIPTS, SEQMARK
from benchmarks.results import Spread, median

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.cases import Case
    from benchmarks.measure import Figures
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
    if found is None:
        return NONE
    if found.count == 1:
        return rounded(found.median)
    return f"{rounded(found.median)} ({rounded(found.low)}-{rounded(found.high)})"


def entries(results: Results) -> list[tuple[str, str]]:
    """Return (system, guarantee) that took part in the standard case, Seqmark first, the best next."""
    found = dict.fromkeys((run.system, run.guarantee) for run in results.runs if run.case == STANDARD)

    def rank(entry: tuple[str, str]) -> tuple[bool, float]:
        return entry[0] != SEQMARK, -(median(results.of(STANDARD, *entry), half) or 0)

    return sorted(found, key=rank)


def standard(results: Results) -> Rows:
    """Compare all systems in the standard case."""
    rows = []
    for system, guarantee in entries(results):
        figures = results.of(STANDARD, system, guarantee)
        own = median(figures, half)
        ours = median(results.of(STANDARD, SEQMARK, guarantee), half)
        factor = f"{ours / own:.1f}" if ours and own and system not in (SEQMARK, RECEIPTS) else NONE
        rows.append(
            (
                results.systems.get(system, system),
                WORDS[guarantee],
                f"{figures[0].records:,}" if figures else "failed",
                halves(figures),
                _median(figures, lambda each: each.rate),
                _median(figures, lambda each: each.half_wall_rate),
                factor,
                _median(figures, lambda each: each.first_s),
                _median(figures, lambda each: each.broker_cpu_s / each.records * 1e6),
                _median(figures, lambda each: each.peak_rss_bytes / 1e6),
            )
        )
    titles = (
        "system", "guarantee", "records", "records per CPU s, 2nd half", "whole run", "records per s, 2nd half",
        "Seqmark is ahead by", "first commit s", "broker CPU µs a record", "peak memory MB",
    )  # fmt: skip
    return Rows(titles, rows, 2)


def _median(figures: list[Figures], what: Callable[[Figures], float]) -> str:
    return rounded(median(figures, what))


def cases(results: Results) -> Rows:
    """List Seqmark in all cases, exactly once, with targets."""
    rows: list[tuple[str, ...]] = []
    for case in CASES:
        figures = results.of(case.name, SEQMARK)
        if not figures and not results.failure(case.name, SEQMARK, "exactly_once"):
            continue
        least, aim = targets(case, results)
        own = median(figures, half)
        beside = median(results.of(case.name, "kafka_streams"), half)
        rows.append(
            (
                case.title,
                f"{figures[0].records:,}" if figures else "failed",
                halves(figures),
                _median(figures, lambda each: each.rate),
                _median(figures, lambda each: each.half_wall_rate),
                rounded(least),
                rounded(aim),
                reached(own if steady(figures) else None, least, aim),
                rounded(beside),
                f"{own / beside:.1f}" if own and beside else NONE,
            )
        )
        written = results.of(case.name, RECEIPTS)
        if written:
            rates = (
                _median(written, lambda each: each.rate),
                _median(written, lambda each: each.half_wall_rate),
            )
            told = (
                f"{case.title}, with receipts",
                f"{written[0].records:,}",
                halves(written),
                *rates,
            )
            rows.append((*told, *[NONE] * 5))
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
    """List what issue 6 asks for beside rates."""
    rows = []
    ours = steady_rate(results, STANDARD, SEQMARK)
    for system, factor in FACTORS.items():
        theirs = steady_rate(results, STANDARD, system)
        value = ours / theirs if ours and theirs else None
        name = results.systems.get(system, system)
        rows.append(
            (f"ahead of {name}, exactly once both", f"{factor:.0f} times", *_judged(value, factor, "times"))
        )
    loose = steady_rate(results, STANDARD, SEQMARK, "at_least_once")
    cost = 1 - ours / loose if ours and loose else None
    shown = NONE if cost is None else f"{cost:.0%}"
    good = NONE if cost is None else "yes" if cost <= COST_OF_EXACTNESS else "no"
    rows.append(
        ("what exactly once costs against at least once", f"{COST_OF_EXACTNESS:.0%} at most", shown, good)
    )
    bound = COMMIT_MS + LATENCY_OVER_MS
    p99 = next((each.p99_ms for each in results.latency if (each.system, each.guarantee) == OURS), None)
    shown = NONE if p99 is None else f"{p99:.0f} ms"
    # A quick run's broker is not warm yet, and a part may be of one.
    good = NONE if p99 is None or results.kind != "latest" else "yes" if p99 <= bound else "no"
    rows.append(("p99 from produce to visible at half load", f"{bound} ms at most", shown, good))
    gain = results.cores.get("factor")
    why = results.cores.get("missing", "not measured")
    rows.append(
        ("wall rate with a second core", "1.6 times", *(_judged(gain, 1.6, "times") if gain else (why, NONE)))
    )
    return Rows(("promise", "target", "measured", "reached"), rows, 4)


def steady_rate(results: Results, case: str, system: str, guarantee: str = "exactly_once") -> float | None:
    """Return what a system did in the second half; None where that was too short to be compared."""
    figures = results.of(case, system, guarantee)
    return median(figures, half) if steady(figures) else None


def _judged(value: float | None, least: float, unit: str) -> tuple[str, str]:
    if value is None:
        return NONE, NONE
    return f"{value:.1f} {unit}", "yes" if value >= least else "no"


def latency(results: Results) -> Rows:
    """List delays from produce to visible."""
    rows = [
        (
            results.systems.get(each.system, each.system),
            WORDS[each.guarantee],
            f"{each.rate:,}",
            f"{each.p50_ms:.0f}",
            f"{each.p99_ms:.0f}",
            f"{each.most_ms:.0f}",
        )
        for each in results.latency
    ]
    return Rows(("system", "guarantee", "records per s offered", "p50 ms", "p99 ms", "slowest ms"), rows, 2)


def spark(results: Results) -> Rows:
    """Compare Seqmark and Spark with Spark alone, from raw topic to aggregate."""
    costs = results.spark.get("costs", {})
    if not costs:
        return Rows((), [])
    records = results.spark["records"]
    worker, sink, alone = (costs[name] for name in ("worker", "sink", "alone"))
    both = {
        name: worker[name] + sink[name] for name in ("wall_s", "cpu_s", "broker_cpu_s", "state_files_bytes")
    }
    both |= {"peak_rss_bytes": max(worker["peak_rss_bytes"], sink["peak_rss_bytes"]), "state": sink["state"]}
    warm = _warm(results.spark)
    rows: list[tuple[str, ...]] = []
    for name, cost, us in (
        ("Seqmark's worker", worker, warm["worker"]),
        ("Spark on the clean topic", sink, warm["sink"]),
        ("Seqmark and Spark", both, warm["both"]),
        ("Spark alone", alone, warm["alone"]),
    ):
        rows.append(
            (
                name,
                f"{cost['wall_s']:.1f}",
                f"{cost['cpu_s']:.1f}",
                f"{cost['broker_cpu_s']:.1f}",
                rounded(records / cost["cpu_s"]),
                NONE if us is None else f"{us:.1f}",
                f"{cost['state'].get('seqmark_sink_state_rows', 0):,.0f}",
                f"{cost['state_files_bytes'] / 1e6:,.1f}",
                f"{cost['peak_rss_bytes'] / 1e6:,.0f}",
            )
        )
    whole = f"{alone['cpu_s'] / both['cpu_s']:.1f} times"
    half_way = f"{warm['alone'] / warm['both']:.1f} times" if warm["alone"] and warm["both"] else NONE
    rows.append(("Seqmark and Spark are ahead by", *[""] * 3, whole, half_way, *[""] * 3))
    titles = (
        "way", "wall s", "CPU s", "broker CPU s", "records per CPU s", "CPU µs a record, 2nd half",
        "state rows, most", "state files MB", "peak memory MB",
    )  # fmt: skip
    return Rows(titles, rows)


def _warm(found: dict[str, Any]) -> dict[str, float | None]:
    """Return CPU microseconds a record of the raw topic once a JVM is warm; the worker's include its start."""
    costs, records = found["costs"], found["records"]
    us: dict[str, float | None] = {"worker": costs["worker"]["cpu_s"] / records * 1e6}
    for name in ("sink", "alone"):
        cost = costs[name]
        share = cost["rows"] / records
        us[name] = cost["half_cpu_s"] / cost["half_rows"] * share * 1e6 if cost.get("half_rows") else None
    us["both"] = us["worker"] + us["sink"] if us["worker"] and us["sink"] else None
    return us


def delays(results: Results) -> Rows:
    """List delays from event to aggregate."""
    names = {"seqmark": "Seqmark and Spark", "alone": "Spark alone"}
    rows = [
        (
            names[way],
            f"{found['rate']:,}",
            f"{found['events']:,}",
            f"{found['p50_ms']:,.0f}",
            f"{found['p99_ms']:,.0f}",
            f"{found['most_ms']:,.0f}",
        )
        if "failure" not in found
        else (names[way], "failed", *[NONE] * 4)
        for way, found in results.spark.get("delays", {}).items()
    ]
    return Rows(("way", "events per s", "events", "p50 ms", "p99 ms", "slowest ms"), rows)


def settings(results: Results) -> Rows:
    """List what was set for each system."""
    rows = [
        (
            results.systems.get(system, system),
            WORDS[guarantee],
            ", ".join(f"`{k}` {v}" for k, v in each.items()),
        )
        for system, by_guarantee in results.settings.items()
        for guarantee, each in by_guarantee.items()
    ]
    return Rows(("system", "guarantee", "settings"), rows, 3)


def noise(results: Results) -> str:
    """Say how quiet the machine was."""
    loops = [
        loop
        for run in results.runs
        if run.figures
        for loop in (run.figures.noise_before_s, run.figures.noise_after_s)
    ]
    found = Spread.of(loops)
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
