"""Draws the counts as SVG text for a page: a pipeline's hours, an aggregate's columns, and a batch's dates.

A colour says what a person should make of it: greys and sand are ordinary resends, neither good nor bad, purple
is to be looked at. Those of groups are from the palette of Okabe and Ito, dark enough for white paper. What is
stacked is hatched as well, so that it differs in black and white. Every number is also in a table.
"""

from __future__ import annotations

import io
from datetime import UTC
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from processor.inspection.report.hours import HOUR_MS, Fate
from processor.inspection.report.svg import for_page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from processor.inspection.report.hours import Flow

MOST_STEPS = 1_440
"""Windows of a stacked picture, those without an event included; as `MOST_HOURS`."""
MOST_HOURS = 1_440
"""Sixty days: an hour is then 0.7 of a pixel wide. Totals and tables say what lies before."""
MOST_DATES = 1_440
"""Four years, for the same reason."""
KEPT_OUT = "kept out of the clean topic"
_RAW, _CLEAN, _INK, _GRID = "#4d4d4d", "#00568c", "#222222", "#d9d9d9"
_WAITING = "#e8e8e8"
_DROPPED = {
    Fate.DUPLICATE: ("#a6a6a6", ""),
    Fate.LATE: ("#d9c08c", "////"),
    Fate.COLLISION: ("#56b4e9", "...."),
    Fate.QUARANTINED: ("#cc79a7", "xxxx"),
}
_GROUPS = ("#00568c", "#b03a00", "#007a59", "#9c4a7d", "#8a6100", "#444444")
# The same hues, light enough for what is hatched over them.
_BANDS = ("#8db8d6", "#e0a080", "#86c3ac", "#d3a6c3", "#d8c07a", "#b5b5b5")
_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
_COLLIDED = {Fate.CLEAN: "#0072b2", Fate.QUARANTINED: "#8a3a6b"}
"""Lines of collisions, by where they are."""
_KEPT = {"Date": None, "Creator": None, "Format": None, "Type": None}


class DateCounts(NamedTuple):
    """Rows of a batch by date, each of as many numbers as there are dates.

    Attributes:
        kept: In the clean table.
        duplicate: Dropped.
        collision: Dropped as well.
        quarantined: In quarantine.
        collided: In the clean table or in quarantine, where they are counted too.
    """

    kept: Sequence[int]
    duplicate: Sequence[int]
    collision: Sequence[int]
    quarantined: Sequence[int]
    collided: Sequence[int]


class _Paper(NamedTuple):
    """What a picture is drawn for; the page shows one of the two drawings, by the width of the window."""

    kind: str
    width_in: float


# In CSS a point of the narrow one is about a pixel of a phone: its text can be read there.
_PAPERS = (_Paper("wide", 10.5), _Paper("narrow", 4.5))


def draw_flow(flow: Flow, name: str) -> str:
    """Return a pipeline's picture: raw against clean above, what was kept out below, one step per hour.

    The flow has at least one hour; ``name`` is unique in the page, of letters, digits and `-`.
    """
    hours = flow.hours[-MOST_HOURS:]
    at = _numbers([hour * HOUR_MS for hour in (*hours, hours[-1] + 1)])

    def draw(both: Any) -> None:
        above, below = both
        _above(above, at, flow, hours)
        _below(below, at, flow, hours)
        for axes in both:
            _tidy(axes)
            _legend(axes)

    return _drawn(name, 5.6, draw, (3, 2))


def draw_dates(days: Sequence[str], counts: DateCounts, name: str) -> str:
    """Return a batch's picture: all rows and the kept ones above, what was kept out below, one step per date.

    Args:
        days: Dates that follow each other, at least one.
        counts: Of these dates.
        name: See `draw_flow`.
    """
    starts = np.array(days, "datetime64[D]")
    at = _numbers(np.append(starts, starts[-1:] + 1).astype("datetime64[ms]").astype(np.int64).tolist())
    kept = np.array(counts.kept)
    whole = kept + np.array(counts.duplicate) + np.array(counts.collision) + np.array(counts.quarantined)

    def draw(both: Any) -> None:
        above, below = both
        above.stairs(kept, at, fill=True, color=_CLEAN, alpha=0.18)
        above.stairs(whole, at, baseline=kept, fill=True, color=_RAW, alpha=0.3, label="kept out")
        above.stairs(whole, at, color=_RAW, linewidth=2, baseline=None, label="all rows")
        above.stairs(kept, at, color=_CLEAN, linewidth=2, baseline=None, linestyle="--", label="kept")
        above.set_ylim(0, max(int(whole.max()), 1) * 1.08)
        above.set_ylabel("rows per date")
        _below_dates(below, at, counts)
        for axes in both:
            _tidy(axes)
            _legend(axes)

    return _drawn(name, 5.6, draw, (3, 2))


def _below_dates(axes: Any, at: Any, counts: DateCounts) -> None:
    """Draw what was kept out, by why, and collisions that were not dropped."""
    bands = (
        (Fate.DUPLICATE, counts.duplicate, "duplicates"),
        (Fate.COLLISION, counts.collision, "collisions dropped"),
        (Fate.QUARANTINED, counts.quarantined, "quarantined"),
    )
    ground = np.zeros(len(counts.kept), np.int64)
    for fate, values, label in bands:
        if any(values):
            ground = _band(axes, at, ground, np.array(values), *_DROPPED[fate], label)
    most = int(ground.max())
    if any(counts.collided):
        style = {"color": _COLLIDED[Fate.CLEAN], "linewidth": 2, "linestyle": ":", "baseline": None}
        axes.stairs(np.array(counts.collided), at, label="collisions kept or quarantined", **style)
        most = max(most, *counts.collided)
    axes.set_ylim(0, max(most, 1) * 1.08)
    axes.set_ylabel("kept out per date")
    axes.set_xlabel("date of the events (UTC)", loc="left")


def draw_series(
    what: str, starts_ms: Sequence[int], series: Sequence[tuple[str, NDArray[np.float64]]], name: str
) -> str:
    """Return one aggregate's picture, one line per group.

    Args:
        what: The aggregate.
        starts_ms: Starts of the windows, rising.
        series: Label and values, float64[windows] with NaN where there is none, of at most six groups.
        name: See `draw_flow`.
    """
    at = _numbers(starts_ms)

    def draw(axes: Any) -> None:
        for place, (label, values) in enumerate(series):
            style = {"color": _GROUPS[place], "linestyle": _DASHES[place], "label": _plain(label)}
            marker = "o" if len(starts_ms) < 60 else None
            axes.plot(at, values, linewidth=1.8, marker=marker, markersize=3.5, **style)
        finite = [values[np.isfinite(values)] for _, values in series]
        if all((each >= 0).all() for each in finite):
            axes.set_ylim(bottom=0)
        _label(axes, what, "start of the window (UTC)", [label for label, _ in series])

    return _drawn(name, 3.0, draw)


def draw_stack(
    what: str, edges_ms: Sequence[int], series: Sequence[tuple[str, NDArray[np.float64]]], name: str
) -> str:
    """Return the picture of an aggregate whose groups add up: one step per window, one band per group.

    Args:
        what: The aggregate.
        edges_ms: Where windows begin and end, rising: one more than there are windows, which leave no gap.
        series: Label and values, float64[windows], none below 0, of at most six groups.
        name: See `draw_flow`.
    """
    at = _numbers(edges_ms)

    def draw(axes: Any) -> None:
        ground = np.zeros(len(edges_ms) - 1)
        for place, (label, values) in enumerate(series):
            ground = _band(axes, at, ground, values, _BANDS[place], _HATCHES[place], _plain(label))
        axes.set_ylim(0, max(float(ground.max()), 1e-9) * 1.08)
        _label(axes, what, "window (UTC)", [label for label, _ in series])

    return _drawn(name, 3.4, draw)


def _label(axes: Any, what: str, along: str, labels: Sequence[str]) -> None:
    axes.set_ylabel(_plain(what))
    axes.set_xlabel(along, loc="left")
    _tidy(axes)
    if len(labels) > 1 or labels[0]:
        _legend(axes)


def _above(axes: Any, at: Any, flow: Flow, hours: Sequence[int]) -> None:
    """Draw raw and clean, and between them what was kept out and what waits."""
    raw = np.array([flow.raw.counts[hour] for hour in hours])
    clean = np.array([flow.fates[Fate.CLEAN].counts[hour] for hour in hours])
    judged = raw - np.array([flow.fates[Fate.WAITING].counts[hour] for hour in hours])
    axes.stairs(clean, at, fill=True, color=_CLEAN, alpha=0.18)
    axes.stairs(
        judged, at, baseline=np.minimum(clean, judged), fill=True, color=_RAW, alpha=0.3, label=KEPT_OUT
    )
    if (judged < raw).any():
        style = {"fill": True, "facecolor": _WAITING, "edgecolor": _RAW, "linewidth": 0, "hatch": "...."}
        axes.stairs(raw, at, baseline=judged, label=Fate.WAITING.value, **style)
    axes.stairs(raw, at, color=_RAW, linewidth=2, baseline=None, label="raw")
    axes.stairs(clean, at, color=_CLEAN, linewidth=2, baseline=None, linestyle="--", label="clean")
    axes.set_ylim(0, max(int(raw.max()), int(clean.max()), 1) * 1.08)
    axes.set_ylabel("records per hour")


def _below(axes: Any, at: Any, flow: Flow, hours: Sequence[int]) -> None:
    """Draw what was kept out, by why, and collisions that are in the clean topic or in quarantine."""
    ground = np.zeros(len(hours), np.int64)
    for fate, (colour, hatch) in _DROPPED.items():
        counts = np.array([flow.fates[fate].counts[hour] for hour in hours])
        if counts.any():
            ground = _band(axes, at, ground, counts, colour, hatch, flow.fate_words(fate))
    most = int(ground.max())
    for fate in flow.collided_in:
        counts = np.array([flow.collided[fate].counts[hour] for hour in hours])
        style = {"color": _COLLIDED[fate], "linewidth": 2, "linestyle": ":", "baseline": None}
        axes.stairs(counts, at, label=flow.collided_name(fate), **style)
        most = max(most, int(counts.max()))
    axes.set_ylim(0, max(most, 1) * 1.08)
    axes.set_ylabel("kept out per hour")
    axes.set_xlabel("time of the records (UTC)", loc="left")


def _band(axes: Any, at: Any, ground: Any, values: Any, colour: str, hatch: str, label: str) -> Any:
    """Draw one band on top of ``ground``; return the ground of the next."""
    style = {"fill": True, "facecolor": colour, "edgecolor": _INK, "linewidth": 0.4, "hatch": hatch}
    axes.stairs(ground + values, at, baseline=ground, label=label, **style)
    return ground + values


def _drawn(name: str, height_in: float, draw: Callable[[Any], None], ratios: Sequence[int] = (1,)) -> str:
    """Return what ``draw`` draws into the axes that it is given, once for each paper."""
    # Late: it takes a second, and a worker never draws. Agg needs no display.
    import matplotlib as mpl  # noqa: PLC0415 - see above

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - see above

    # Text stays text in the SVG; the salt makes the same picture the same bytes.
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 11,
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "hatch.linewidth": 0.6,
        "text.parse_math": False,
    }
    made = []
    with mpl.rc_context(style):
        for paper in _PAPERS:
            size = (paper.width_in, height_in)
            figure, axes = plt.subplots(
                len(ratios), 1, figsize=size, sharex=True, height_ratios=ratios, layout="constrained"
            )
            buffer = io.StringIO()
            try:
                draw(axes)
                figure.savefig(buffer, format="svg", metadata=_KEPT, transparent=True)
            finally:
                plt.close(figure)
            made.append(for_page(buffer.getvalue(), f"{name}-{paper.kind}", paper.kind))
    return "".join(made)


def _numbers(times_ms: Sequence[int]) -> Any:
    from matplotlib.dates import date2num  # noqa: PLC0415 - with the rest of matplotlib

    return date2num(np.array(times_ms, "datetime64[ms]"))  # type: ignore[no-untyped-call]  # matplotlib types its dates not yet


def _plain(text: str) -> str:
    """Return a label that matplotlib takes as it stands: a leading ``_`` would hide it."""
    short = text if len(text) <= 40 else f"{text[:39]}…"
    return f"\u200b{short}" if short.startswith("_") else short


def _legend(axes: Any) -> None:
    labels = axes.get_legend_handles_labels()[1]
    if labels:
        # A letter takes about 7 of the 72 points of an inch, the sign before it as much as five letters.
        columns = int(axes.figure.get_figwidth() * 72 / 7 // (max(map(len, labels)) + 5))
        style = {"ncols": min(max(columns, 1), 6), "frameon": False, "borderpad": 0.1}
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), **style)


def _tidy(axes: Any) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415 - likewise
    from matplotlib.ticker import StrMethodFormatter  # noqa: PLC0415 - likewise

    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    wide = axes.figure.get_figwidth() > 6
    least, most = (3, 9) if wide else (2, 5)  # 48 hours have 5 steps of 12, matplotlib's longest of hours
    locator = AutoDateLocator(tz=UTC, minticks=least, maxticks=most)  # type: ignore[no-untyped-call]  # likewise
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]  # likewise
    axes.margins(x=0.01)
