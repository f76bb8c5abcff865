"""Draws the cleaning over event time: raw against clean above, what was dropped below.

Where records collided the line below is of those: clicks that would be missing had they been dropped too.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from processor.demo.check import COPIES, DROPPED, PASSED
from processor.generator import RecordKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from processor.demo.census import Census
    from processor.demo.summary import DemoChecks

BIN_MS = 5 * 60_000

RAW, CLEAN, _INK = "#4d4d4d", "#1d6fa5", "#333333"
# Muted: to send again is neither good nor bad. As dark as text on white has to be, and unlike in brightness.
MUTED = "#3d4b57", "#8f7335", "#9a6d8c"
_KINDS = dict(zip((RecordKind.RESEND, RecordKind.TAIL, RecordKind.LATE), MUTED, strict=True))


class TimeBand(NamedTuple):
    """Events of one kind: what they are called, their colour, and int64[n], their times."""

    label: str
    colour: str
    times_ms: NDArray[np.int64]


class Cleaning(NamedTuple):
    """What a picture shows.

    Attributes:
        raw: All that came.
        clean: What is left.
        dropped: What is not, by why, from the ground up; three at most.
        kept: A line beside what was dropped, of what came with the id of other content; None: there is none.
        step_ms: How long the steps are.
        step: The same in words.
        clock: How times are written, as `strftime` has it.
    """

    raw: TimeBand
    clean: TimeBand
    dropped: Sequence[TimeBand]
    kept: TimeBand | None
    step_ms: int
    step: str
    clock: str


def draw(checked: Sequence[DemoChecks], path: Path, title: str, census: Census | None = None) -> None:
    """Write the picture of a stream; ``census`` says what collisions are worth, where there are some."""
    raw = np.concatenate([each.source_ms for each in checked])
    clean = np.concatenate([each.sink_ms for each in checked])
    dropped = [
        TimeBand(COPIES[kind], colour, np.concatenate([each.times_ms(kind, DROPPED) for each in checked]))
        for kind, colour in _KINDS.items()
    ]
    kept = None
    if census is not None:
        said = (
            f"kept, although their ids were taken: {census.lost_events:,} events, {census.lost_users:,} users"
        )
        times = np.concatenate([each.times_ms(RecordKind.COLLISION, PASSED) for each in checked])
        kept = TimeBand(said, CLEAN, times)
    words = TimeBand(f"raw topic: {raw.size:,} records", RAW, raw)
    left = TimeBand(f"clean topic: {clean.size:,} records", CLEAN, clean)
    draw_cleaning(Cleaning(words, left, dropped, kept, BIN_MS, "5 minutes", "%H:%M"), path, title)


def draw_cleaning(shown: Cleaning, path: Path, title: str) -> None:
    """Write a picture; the ending of ``path`` says whether as SVG or PNG."""
    # Late: it takes a second, and a worker never draws. Agg needs no display.
    import matplotlib as mpl  # noqa: PLC0415 - see above

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - see above

    edges = _edges(shown.raw.times_ms, shown.step_ms)
    # Text stays text in the SVG; a fixed salt makes the same picture the same file.
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "seqmark", "font.size": 11}
    with mpl.rc_context(style):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(11, 7), sharex=True, height_ratios=(3, 2), layout="constrained"
        )
        try:
            _counts(above, shown, edges)
            _drops(below, shown, edges)
            if shown.kept is not None:
                _kept(below, shown.kept, edges)
            for axes in (above, below):
                _tidy(axes, shown.clock)
            figure.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold", color=_INK)
            figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
        finally:
            plt.close(figure)


def _edges(raw: NDArray[np.int64], step_ms: int) -> NDArray[np.int64]:
    if not raw.size:
        return np.array([0, step_ms])
    return np.arange(raw.min() // step_ms, raw.max() // step_ms + 2) * step_ms


def _counts(axes: Any, shown: Cleaning, edges: NDArray[np.int64]) -> None:
    raw_ms, clean_ms = shown.raw.times_ms, shown.clean.times_ms
    raw, _ = np.histogram(raw_ms, edges)
    clean, _ = np.histogram(clean_ms, edges)
    at = _numbers(edges)
    axes.stairs(raw, at, color=RAW, linewidth=1.6, baseline=None)
    axes.stairs(raw, at, baseline=clean, fill=True, color=RAW, alpha=0.3)
    axes.stairs(clean, at, fill=True, color=CLEAN, alpha=0.25)
    axes.stairs(clean, at, color=CLEAN, linewidth=1.6, baseline=None)
    axes.set_ylim(0, max(int(raw.max()), 1) * 1.2)
    axes.set_ylabel(f"events in {shown.step}")
    share = (raw_ms.size - clean_ms.size) / max(raw_ms.size, 1)
    _label(axes, 0, shown.raw.label, RAW)
    _label(axes, 1, shown.clean.label, CLEAN)
    _label(axes, 2, f"kept out: {share:.2%}", _INK)


def _drops(axes: Any, shown: Cleaning, edges: NDArray[np.int64]) -> None:
    at = _numbers(edges)
    ground = np.zeros(edges.size - 1, np.int64)
    for place, band in enumerate(shown.dropped):
        count, _ = np.histogram(band.times_ms, edges)
        axes.stairs(ground + count, at, baseline=ground, fill=True, color=band.colour)
        ground = ground + count
        _label(axes, place, f"{band.label}: {band.times_ms.size:,}", band.colour)
    axes.set_ylim(0, max(int(ground.max()), 1) * 1.25)
    axes.set_ylabel(f"dropped in {shown.step}")
    axes.set_xlabel("event time (UTC)")


def _kept(axes: Any, kept: TimeBand, edges: NDArray[np.int64]) -> None:
    count, _ = np.histogram(kept.times_ms, edges)
    axes.stairs(count, _numbers(edges), color=kept.colour, linewidth=1.6, baseline=None)
    # Room for one line more.
    axes.set_ylim(0, max(axes.get_ylim()[1] * 1.1, int(count.max()) * 1.4))
    _label(axes, 0, kept.label, kept.colour, line=1)


def _numbers(times_ms: NDArray[np.int64]) -> Any:
    from matplotlib.dates import date2num  # noqa: PLC0415 - with the rest of matplotlib

    return date2num(times_ms.astype("datetime64[ms]"))  # type: ignore[no-untyped-call]  # matplotlib types its dates not yet


def _label(axes: Any, place: int, text: str, colour: str, line: int = 0) -> None:
    """Write into one of three places over the data: what a legend would say, at the thing itself."""
    at = 0.012 + 0.34 * place
    axes.text(at, 0.97 - 0.1 * line, text, color=colour, transform=axes.transAxes, va="top", fontweight="bold")


def _tidy(axes: Any, clock: str) -> None:
    from matplotlib.dates import AutoDateLocator, DateFormatter  # noqa: PLC0415 - likewise
    from matplotlib.ticker import StrMethodFormatter  # noqa: PLC0415 - likewise

    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_major_locator(AutoDateLocator(tz=UTC))  # type: ignore[no-untyped-call]  # likewise
    axes.xaxis.set_major_formatter(DateFormatter(clock, tz=UTC))  # type: ignore[no-untyped-call]  # likewise
    axes.margins(x=0)
