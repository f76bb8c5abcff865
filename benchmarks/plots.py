"""How do the figures look? SVG files beside the results: systems side by side, and how the cost grows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.cases import CASES, STANDARD
from benchmarks.id_cases import SIZES
from benchmarks.id_tables import systems
from benchmarks.peers import RECEIPTS, SEQMARK
from benchmarks.results import Spread
from benchmarks.tables import WORDS, entries, half

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.cases import Case
    from benchmarks.results import Results

# The palette of the report's pictures: Okabe and Ito's, dark enough for white paper.
_OURS, _THEIRS, _INK, _GRID = "#00568c", "#b03a00", "#222222", "#d9d9d9"
_LINES = ("#00568c", "#0072b2", "#4a90c2", "#b03a00", "#a05a00", "#7a4a8c", "#444444")
_MARKERS = "os^Dvx*"
_GROWTH: tuple[tuple[str, Callable[[Case], float], tuple[str, ...]], ...] = (
    ("partitions", lambda case: case.load.partitions, (STANDARD, "partitions-16", "partitions-64")),
    ("records in a batch", lambda case: case.load.batch_records, ("batch-1", "batch-16k", STANDARD)),
    ("duplicates, %", lambda case: case.load.duplicates * 100, ("duplicates-0", STANDARD, "duplicates-50")),
)
"""What a picture's axis is, where a case stands on it, which cases."""


def draw(results: Results, folder: Path, prefix: str) -> list[Path]:
    """Write the pictures that the results have figures for, ``PREFIX-...svg``, and return their files."""
    drawn = []
    if entries(results):
        drawn.append(_systems(results, folder / f"{prefix}-systems.svg"))
    if any(results.of(case.name, SEQMARK) for case in CASES):
        drawn.append(_growth(results, folder / f"{prefix}-growth.svg"))
    if windows(results):
        drawn.append(_windows(results, folder / f"{prefix}-ids.svg"))
    return drawn


def _systems(results: Results, file: Path) -> Path:
    """Draw a bar a system, the median, with its range."""
    bars = [
        (f"{results.systems.get(system, system)}, {WORDS[guarantee]}", found, system in (SEQMARK, RECEIPTS))
        for system, guarantee in entries(results)
        if (found := Spread.of(map(half, results.of(STANDARD, system, guarantee))))
    ]
    with _figure(file, (9.5, 0.6 + 0.36 * len(bars)), 1) as (axes,):
        for at, (_, found, ours) in enumerate(bars):
            axes.barh(at, found.median, color=_OURS if ours else _THEIRS, height=0.66)
            axes.plot((found.low, found.high), (at, at), color=_INK, linewidth=1.2)
            axes.annotate(
                f"{found.median:,.0f}",
                (found.high, at),
                (5, 0),
                textcoords="offset points",
                va="center",
                color=_INK,
            )
        axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
        axes.invert_yaxis()
        axes.set_xlim(0, max(found.high for _, found, _ in bars) * 1.16)
        axes.set_xlabel("records per CPU second, second half (line: range of the repetitions)")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(axis="x", color=_GRID)
    return file


def _growth(results: Results, file: Path) -> Path:
    """Draw Seqmark's cost against what makes it grow."""
    by_name = {case.name: case for case in CASES}
    with _figure(file, (10.5, 3.0), len(_GROWTH)) as panels:
        for axes, (label, place, names) in zip(panels, _GROWTH, strict=True):
            points = [
                (place(by_name[name]), Spread.of(1e9 / half(figures) for figures in results.of(name, SEQMARK)))
                for name in names
            ]
            known = [(at, found) for at, found in points if found]
            places = [at for at, _ in known]
            axes.plot(places, [found.median for _, found in known], color=_OURS, marker="o")
            axes.vlines(
                places,
                [found.low for _, found in known],
                [found.high for _, found in known],
                color=_INK,
                linewidth=1.2,
            )
            if places and min(places) > 0:
                axes.set_xscale("log")
                axes.set_xticks(places, [f"{at:,.0f}" for at in places])
                axes.minorticks_off()
            axes.set_xlabel(label)
            axes.set_ylim(bottom=0)
            axes.grid(axis="y", color=_GRID)
        panels[0].set_ylabel("CPU ns a record")
    return file


def windows(results: Results) -> dict[str, list[tuple[int, Spread]]]:
    """Return by system its points: ids in the window, and records per CPU second."""
    found: dict[str, list[tuple[int, Spread]]] = {}
    for case in SIZES:
        for system, guarantee in systems(results, case):
            figures = results.of(case, system, guarantee)
            rate = Spread.of(map(half, figures))
            if rate:
                found.setdefault(system, []).append((figures[0].ids, rate))
    return found


def _windows(results: Results, file: Path) -> Path:
    """Draw a line a system against the ids in the window."""
    with _figure(file, (9.5, 4.2), 1) as (axes,):
        for number, (system, points) in enumerate(windows(results).items()):
            places = [at for at, _ in points]
            color, marker = _LINES[number % len(_LINES)], _MARKERS[number % len(_MARKERS)]
            axes.plot(
                places,
                [rate.median for _, rate in points],
                color=color,
                marker=marker,
                label=results.systems.get(system, system),
            )
            axes.vlines(
                places,
                [rate.low for _, rate in points],
                [rate.high for _, rate in points],
                color=_INK,
                linewidth=1.2,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("ids in the window")
        axes.set_ylabel("records per CPU second, warm")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(color=_GRID)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return file


@contextmanager
def _figure(file: Path, size: tuple[float, float], panels: int) -> Iterator[Any]:
    """Give axes side by side; the file is the same for the same figures."""
    # Slow to import, and only wanted at the end.
    import matplotlib as mpl  # noqa: PLC0415 - see above
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415 - see above
    from matplotlib.figure import Figure  # noqa: PLC0415 - see above

    with mpl.rc_context({"svg.hashsalt": file.name, "font.size": 9}):
        figure = Figure(size, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots(1, panels, squeeze=False)[0]
        for each in axes:
            each.spines[["top", "right"]].set_visible(False)
            each.set_axisbelow(True)
        yield axes
        kept = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(file, format="svg", metadata=kept)
