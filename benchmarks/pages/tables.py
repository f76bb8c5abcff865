"""Turns figures into rows of text, the same for the terminal and for the pages.

Invariant: nothing is measured or rounded elsewhere; a figure that is not there is a dash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.cases import CASES, STANDARD
from benchmarks.peers import OWN, RECEIPTS, SEQMARK, VERDICTS
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
