"""What do the figures of cases with ids say, as rows of text? By the rules of `benchmarks.tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.id_cases import FACTORS, GROWN, HEADER, ID_CASES, LEAST_CONFIRMED, SIZES
from benchmarks.peers import BLOOM, SEQMARK
from benchmarks.results import median
from benchmarks.tables import NONE, WORDS, Rows, half, halves, reached, rounded, steady, steady_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.cases import Case
    from benchmarks.measure import Figures
    from benchmarks.results import Results

CONFIRMED = BLOOM[1]


def systems(results: Results, case: str) -> list[tuple[str, str]]:
    """Return (system, guarantee) that took part in a case, Seqmark's own first, then by their rates."""
    found = dict.fromkeys((run.system, run.guarantee) for run in results.runs if run.case == case)

    def rank(entry: tuple[str, str]) -> tuple[bool, bool, float]:
        system = entry[0]
        return (
            system != SEQMARK,
            system not in BLOOM,
            -(median(results.of(case, *entry), half) or 0),
        )

    return sorted(found, key=rank)


def rates(results: Results) -> Rows:
    """List all systems in all cases with ids."""
    rows = []
    for case in ID_CASES:
        ours = median(results.of(case.name, SEQMARK), half)
        for system, guarantee in systems(results, case.name):
            figures = results.of(case.name, system, guarantee)
            own = median(figures, half)
            peer = system != SEQMARK and system not in BLOOM
            rows.append(
                (
                    case.title,
                    results.systems.get(system, system),
                    WORDS[guarantee],
                    *((f"{figures[0].records:,}", f"{figures[0].ids:,}") if figures else ("failed", NONE)),
                    halves(figures),
                    _median(figures, lambda each: each.rate),
                    _median(figures, lambda each: each.half_wall_rate),
                    f"{ours / own:.1f}" if peer and ours and own else NONE,
                    _median(figures, lambda each: each.first_s),
                    _median(figures, lambda each: each.broker_cpu_s / each.records * 1e6),
                    _median(figures, lambda each: each.peak_rss_bytes / 1e6),
                )
            )
    titles = (
        "case", "system", "guarantee", "records", "ids", "records per CPU s, warm", "whole run",
        "records per s, warm", "Seqmark exact is ahead by", "first commit s", "broker CPU µs a record",
        "peak memory MB",
    )  # fmt: skip
    return Rows(titles, rows, 3)


def _median(figures: Sequence[Figures], what: Callable[[Figures], float]) -> str:
    return rounded(median(figures, what))


def sizes(results: Results) -> Rows:
    """List bytes an id: of each system at each window that it was measured with."""
    rows = []
    order = dict.fromkeys(entry for name in SIZES for entry in systems(results, name))
    for system, guarantee in order:
        found = [figures for name in SIZES if (figures := results.of(name, system, guarantee))]
        for figures in found:
            ids, fewest = figures[0].ids, found[0][0].ids
            peak, least = (_of(each, lambda each: each.peak_rss_bytes) for each in (figures, found[0]))
            parts = (
                (peak - least) / (ids - fewest) if ids > fewest else 0,
                peak / ids,
                _of(figures, lambda each: each.local_bytes) / ids,
                _of(figures, lambda each: each.remote_bytes) / ids,
            )
            name = results.systems.get(system, system)
            rows.append((name, f"{ids:,}", *(f"{part:.1f}" if part else NONE for part in parts)))
    for name, each in results.redis.items():
        if "bytes" in each:
            rows.append((name, f"{each['ids']:,}", f"{each['bytes'] / each['ids']:.1f}", NONE, NONE, NONE))
    titles = (
        "system", "ids", "memory, an id more", "memory, all of the process by ids", "local disk",
        "changelog or checkpoints",
    )  # fmt: skip
    return Rows(titles, rows)


def _of(figures: Sequence[Figures], what: Callable[[Figures], float]) -> float:
    return median(figures, what) or 0.0


def promises(results: Results) -> Rows:
    """List what issue 7 asks for."""
    rows: list[tuple[str, ...]] = []
    whole = median(results.of("ids-10m", SEQMARK), half)
    for case in ID_CASES:
        figures = results.of(case.name, SEQMARK)
        if figures:
            rows.append(_promise(case, figures, whole))
        confirmed = results.of(case.name, CONFIRMED)
        if confirmed:
            own = median(confirmed, half)
            good = reached(own if steady(confirmed) else None, LEAST_CONFIRMED, None)
            name = f"{case.title}, Bloom filters confirmed"
            rows.append((name, rounded(LEAST_CONFIRMED), rounded(own), good))
    ours = steady_rate(results, HEADER, SEQMARK)
    for system, factor in FACTORS.items():
        theirs = steady_rate(results, HEADER, system)
        if ours and theirs:
            value = ours / theirs
            name = f"ahead of {results.systems.get(system, system)}, exactly once both"
            good = "yes" if value >= factor else "no"
            rows.append((name, f"{factor:.0f} times", f"{value:.1f} times", good))
    return Rows(("promise", "at least", "measured", "reached"), rows, 1)


def _promise(case: Case, figures: Sequence[Figures], whole: float | None) -> tuple[str, ...]:
    """Return a row; what a case keeps of the rate at ten million ids is told against that."""
    own = median(figures, half)
    least = case.least if case.share is None else whole and GROWN * whole
    return case.title, rounded(least), rounded(own), reached(own if steady(figures) else None, least, None)
