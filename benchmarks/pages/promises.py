"""Turns what was promised beside rates into rows of text, by the rules of `tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cases import (
    COST_OF_EXACTNESS,
    FACTORS,
    LATENCY_OVER_MS,
    LEAST_VERDICTS,
    LONG,
    MOST_BROKER_US,
    MOST_WRITTEN_BYTES,
    STANDARD,
)
from benchmarks.pages import spark_tables
from benchmarks.pages.tables import (
    NONE,
    OURS,
    Rows,
    half,
    half_broker_us,
    reached,
    rounded,
    steady,
    steady_rate,
    times,
    written_bytes,
)
from benchmarks.peers import COMMIT_MS, SEQMARK, VERDICTS
from benchmarks.results import median

if TYPE_CHECKING:
    from benchmarks.results import Results


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
    rows += spark_tables.promises(results)
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
