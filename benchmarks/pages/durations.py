"""Turns how long each case took into rows of text: what to leave out is seen here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cases import CASES, ID_CASES
from benchmarks.pages.tables import Rows

if TYPE_CHECKING:
    from benchmarks.results import Results


def durations(results: Results) -> Rows:
    """List the seconds of each case: all of it, making its source, and its runs; the rest is comparing."""
    rows = []
    for case in (*CASES, *ID_CASES):
        if took := results.took.get(case.name):
            runs = [run.figures.wall_s for run in results.runs if run.case == case.name and run.figures]
            parts = took["all_s"], took["producing_s"], sum(runs)
            shown = (f"{part:,.0f}" for part in (*parts, parts[0] - parts[1] - parts[2]))
            rows.append((case.title, f"{len(runs)}", *shown))
    titles = ("case", "runs", "s, all of it", "making its source", "runs", "comparing, starts and ends")
    return Rows(titles, rows)
