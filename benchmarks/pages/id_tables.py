"""Turns figures of cases with ids into rows of text, by the rules of `benchmarks.pages.tables`."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks.cases import (
    FINGERPRINTS,
    ID_CASES,
    ID_FACTORS,
    LEAST_BLOOM,
    READY_S,
    RESTART_IDS,
    SHARES,
    SIZES,
    VERDICTS_FACTOR,
)
from benchmarks.pages import tables
from benchmarks.pages.tables import COSTS, NONE, WORDS, Rows, half, rounded
from benchmarks.peers import BLOOM, SEQMARK, SHIPPED, VERDICTS
from benchmarks.results import median

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measure.cost import Figures
    from benchmarks.results import Results


def all_rates(results: Results) -> Rows:
    """List all systems in all cases with ids."""
    rows = []
    for case in ID_CASES:
        for system, guarantee in results.entries(case.name):
            figures = results.of(case.name, system, guarantee)
            counts = (f"{figures[0].records:,}", f"{figures[0].ids:,}") if figures else ("failed", NONE)
            factor = tables.ahead(results, case.name, system, guarantee, "exactly_once")
            names = case.title, results.title(system), WORDS[guarantee]
            rows.append((*names, *counts, *tables.rates(figures), factor, *tables.costs(figures)))
    titles = (
        "case", "system", "guarantee", "records", "ids", "records per CPU s, warm", "whole run",
        "records per s, warm", "Seqmark exact is ahead by", *COSTS,
    )  # fmt: skip
    return Rows(titles, rows, 3)


def sizes(results: Results) -> Rows:
    """List bytes per id: of each system at each window that it was measured with."""
    rows = []
    order = dict.fromkeys(entry for name in SIZES for entry in results.entries(name))
    # Kernels take no other memory.
    for system, guarantee in (entry for entry in order if entry[0] != SHIPPED):
        found = [figures for name in SIZES if (figures := results.of(name, system, guarantee))]
        for figures in found:
            ids, fewest = figures[0].ids, found[0][0].ids
            peak, least = (median(each, lambda each: each.peak_rss_bytes) or 0 for each in (figures, found[0]))
            parts = (
                (peak - least) / (ids - fewest) if ids > fewest else 0,
                peak / ids,
                (median(figures, lambda each: each.local_bytes) or 0) / ids,
                (median(figures, lambda each: each.remote_bytes) or 0) / ids,
            )
            shown = (f"{part:.1f}" if part else NONE for part in parts)
            rows.append((results.title(system), f"{ids:,}", *shown))
    for name, each in results.redis.items():
        if "bytes" in each:
            rows.append((name, f"{each['ids']:,}", f"{each['bytes'] / each['ids']:.1f}", NONE, NONE, NONE))
    titles = (
        "system", "ids", "memory, an id more", "memory, all of the process by ids", "local disk",
        "changelog or checkpoints",
    )  # fmt: skip
    return Rows(titles, rows)


def promises(results: Results) -> Rows:
    """List what was promised of ids."""
    rows: list[tuple[str, ...]] = []
    for case in ID_CASES:
        # What a case keeps of another's rate is held against that.
        share, other = SHARES.get(case.name, (0.0, ""))
        whole = median(results.of(other, SEQMARK), half)
        least = whole and share * whole if other else case.least
        held = (
            (case.title, SEQMARK, least),
            (f"{case.title}, Bloom filters", BLOOM, LEAST_BLOOM if case.name == SIZES[1] else None),
        )
        for title, system, bound in held:
            if bound is not None and (figures := results.of(case.name, system)):
                rows.append((title, *_held(figures, bound)))
        ours, theirs = (tables.steady_rate(results, case.name, each) for each in (VERDICTS, SEQMARK))
        if ours and theirs:
            name = f"{case.title}, verdicts ahead of records"
            rows.append((name, f"{VERDICTS_FACTOR} times", *tables.times(ours / theirs, VERDICTS_FACTOR)))
    for case_name, system, factor in ID_FACTORS:
        ours, theirs = (tables.steady_rate(results, case_name, each) for each in (SEQMARK, system))
        if ours and theirs:
            which = ", fingerprints" if case_name == FINGERPRINTS else ""
            name = f"ahead of {results.title(system)}, exactly once both{which}"
            rows.append((name, f"{factor:.0f} times", *tables.times(ours / theirs, factor)))
    ready_s = [each["ready_s"] for each in results.restarts.get("restarts", ()) if each["ids"] == RESTART_IDS]
    if ready_s:
        middle = statistics.median(ready_s)
        name = f"ready after a start with {RESTART_IDS // 10**6} million ids"
        rows.append((name, f"{READY_S} s at most", f"{middle:.1f} s", "yes" if middle <= READY_S else "no"))
    return Rows(("promise", "goal", "measured", "reached"), rows, 1)


def _held(figures: Sequence[Figures], least: float | None) -> tuple[str, str, str]:
    own = median(figures, half)
    return rounded(least), rounded(own), tables.reached(own if tables.steady(figures) else None, least, None)
