"""Draws the picture of the README: systems side by side in the standard case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cases import STANDARD
from benchmarks.pages.tables import WORDS, half
from benchmarks.peers import RECEIPTS, SEQMARK
from benchmarks.results import Spread

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.results import Results

# The palette of the report's pictures: Okabe and Ito's, dark enough for white paper.
_OURS, _THEIRS, _INK, _GRID = "#00568c", "#b03a00", "#222222", "#d9d9d9"


def draw(results: Results, file: Path) -> Path | None:
    """Draw a bar per system, the median, with its range; None where there are no figures.

    The file is the same for the same figures.
    """
    bars = [
        (f"{results.title(system)}, {WORDS[guarantee]}", found, system in (SEQMARK, RECEIPTS))
        for system, guarantee in results.entries(STANDARD)
        if (found := Spread.of(map(half, results.of(STANDARD, system, guarantee))))
    ]
    if not bars:
        return None
    # Slow to import, and only wanted at the end.
    import matplotlib as mpl  # noqa: PLC0415 - see above
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415 - see above
    from matplotlib.figure import Figure  # noqa: PLC0415 - see above

    with mpl.rc_context({"svg.hashsalt": file.name, "font.size": 9}):
        figure = Figure((9.5, 0.6 + 0.36 * len(bars)), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        for at, (_, found, ours) in enumerate(bars):
            axes.barh(at, found.median, color=_OURS if ours else _THEIRS, height=0.66)
            axes.plot((found.low, found.high), (at, at), color=_INK, linewidth=1.2)
            text, place = f"{found.median:,.0f}", (found.high, at)
            axes.annotate(text, place, (5, 0), textcoords="offset points", va="center", color=_INK)
        axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
        axes.invert_yaxis()
        axes.set_xlim(0, max(found.high for _, found, _ in bars) * 1.16)
        axes.set_xlabel("records per CPU second, second half (line: range of the repetitions)")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(axis="x", color=_GRID)
        kept = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(file, format="svg", metadata=kept)
    return file
