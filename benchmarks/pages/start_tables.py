"""Turns starts of a worker, and what its kernels were compiled for, into rows of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cases import CASES, COLD_S, ID_CASES, WARM_S
from benchmarks.pages.tables import NONE, Rows, half, halves, spread, steady
from benchmarks.peers import SEQMARK, SHIPPED
from benchmarks.results import median

if TYPE_CHECKING:
    from benchmarks.measure.cost import Figures
    from benchmarks.results import Results

_KERNELS = {
    "compiled": ("empty cache, a checkout: compiles", COLD_S),
    "wheel": ("empty cache, a wheel's kernels", COLD_S),
    "kept": ("warm cache, a checkout", WARM_S),
}
_MODES = {"watermark": "watermark", "insert-id": "ids"}


def starts(results: Results) -> Rows:
    """List how soon a started worker lets its first record through."""
    rows = []
    for kernels, (title, most_s) in _KERNELS.items():
        for mode, pipeline in _MODES.items():
            found = [
                each
                for each in results.starts.get("starts", ())
                if (each["kernels"], each["mode"]) == (kernels, mode)
            ]
            if found:
                shown = (spread(each[what] for each in found) for what in ("first_s", "health_s", "cpu_s"))
                middle = sorted(each["first_s"] for each in found)[len(found) // 2]
                reached = "yes" if middle <= most_s else f"no: {middle / most_s:.1f} times that"
                rows.append((title, pipeline, *shown, f"{most_s:.0f}", reached))
    titles = ("start", "mode", "first record s", "`/health` s", "CPU s", "first record, at most", "reached")
    return Rows(titles, rows, 2)


def restarts(results: Results) -> Rows:
    """List how soon a worker is ready again, by the ids that it has."""
    rows = []
    found = results.restarts.get("restarts", ())
    for ids in dict.fromkeys(each["ids"] for each in found):
        shown = (spread(each[what] for each in found if each["ids"] == ids) for what in ("ready_s", "cpu_s"))
        rows.append((f"{ids:,}", *shown))
    return Rows(("ids", "ready after s", "CPU s"), rows, 0)


def kernels(results: Results) -> Rows:
    """Compare kernels compiled for exactly this machine with those of a wheel."""
    rows = []
    for case in (each for each in (*CASES, *ID_CASES) if each.shipped):
        own, wheel = (results.of(case.name, system) for system in (SEQMARK, SHIPPED))
        if own and wheel:
            ours, theirs = (median(figures, half_ns) or 0.0 for figures in (own, wheel))
            shown = (spread(map(half_ns, figures)) for figures in (wheel, own))
            rates = map(halves, (wheel, own))
            gain = f"{theirs / ours - 1:.0%}" if ours and steady(own) and steady(wheel) else NONE
            rows.append((case.title, f"{own[0].records:,}", *shown, *rates, gain))
    titles = (
        "case", "records", "CPU ns a record, 2nd half, a wheel's kernels", "of exactly this machine",
        "records per CPU s, a wheel's kernels", "of exactly this machine", "this machine's are quicker by",
    )  # fmt: skip
    return Rows(titles, rows)


def half_ns(figures: Figures) -> float:
    """Return CPU ns per record of the second half."""
    return 1e9 / half(figures)
