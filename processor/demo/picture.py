"""Draws the cleaning over event time: raw against clean above, what was dropped below.

Where records collided the line below is of those: clicks that would be missing had they been dropped too.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import numpy as np

from processor.demo.check import COPIES, DROPPED, PASSED
from processor.generator import RecordKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from processor.demo.census import Census
    from processor.demo.summary import DemoChecks

BIN_MS = 5 * 60_000

_RAW, _CLEAN, _INK = "#4d4d4d", "#1d6fa5", "#333333"
# Muted: to send again is neither good nor bad. As dark as text on white has to be, and unlike in brightness.
_KINDS = {RecordKind.RESEND: "#3d4b57", RecordKind.TAIL: "#8f7335", RecordKind.LATE: "#9a6d8c"}


def draw(checked: Sequence[DemoChecks], path: Path, title: str, census: Census | None = None) -> None:
    """Write the picture; the ending of ``path`` says whether as SVG or PNG.

    ``census`` says what collisions are worth, where there are some.
    """
    raw = np.concatenate([each.source_ms for each in checked])
    clean = np.concatenate([each.sink_ms for each in checked])
    dropped = {kind: np.concatenate([each.times_ms(kind, DROPPED) for each in checked]) for kind in _KINDS}
    saved = np.concatenate([each.times_ms(RecordKind.COLLISION, PASSED) for each in checked])
    # Late: it takes a second, and a worker never draws. Agg needs no display.
    import matplotlib as mpl  # noqa: PLC0415 - see above

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - see above

    edges = _edges(raw)
    # Text stays text in the SVG; a fixed salt makes the same picture the same file.
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "seqmark", "font.size": 11}
    with mpl.rc_context(style):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(11, 7), sharex=True, height_ratios=(3, 2), layout="constrained"
        )
        try:
            _counts(above, raw, clean, edges)
            _drops(below, dropped, edges)
            if census is not None:
                _saved(below, saved, edges, census)
            figure.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold", color=_INK)
            figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
        finally:
            plt.close(figure)


def _edges(raw: NDArray[np.int64]) -> NDArray[np.int64]:
    if not raw.size:
        return np.array([0, BIN_MS])
    return np.arange(raw.min() // BIN_MS, raw.max() // BIN_MS + 2) * BIN_MS


def _counts(
    axes: Any, raw_ms: NDArray[np.int64], clean_ms: NDArray[np.int64], edges: NDArray[np.int64]
) -> None:
    raw, _ = np.histogram(raw_ms, edges)
    clean, _ = np.histogram(clean_ms, edges)
    at = _numbers(edges)
    axes.stairs(raw, at, color=_RAW, linewidth=1.6, baseline=None)
    axes.stairs(raw, at, baseline=clean, fill=True, color=_RAW, alpha=0.3)
    axes.stairs(clean, at, fill=True, color=_CLEAN, alpha=0.25)
    axes.stairs(clean, at, color=_CLEAN, linewidth=1.6, baseline=None)
    axes.set_ylim(0, max(int(raw.max()), 1) * 1.2)
    axes.set_ylabel("events in 5 minutes")
    share = (raw_ms.size - clean_ms.size) / max(raw_ms.size, 1)
    _label(axes, 0, f"raw topic: {raw_ms.size:,} records", _RAW)
    _label(axes, 1, f"clean topic: {clean_ms.size:,} records", _CLEAN)
    _label(axes, 2, f"kept out: {share:.2%}", _INK)
    _tidy(axes)


def _drops(axes: Any, dropped: Mapping[RecordKind, NDArray[np.int64]], edges: NDArray[np.int64]) -> None:
    at = _numbers(edges)
    ground = np.zeros(edges.size - 1, np.int64)
    for kind, colour in _KINDS.items():
        count, _ = np.histogram(dropped[kind], edges)
        axes.stairs(ground + count, at, baseline=ground, fill=True, color=colour)
        ground = ground + count
    axes.set_ylim(0, max(int(ground.max()), 1) * 1.25)
    axes.set_ylabel("dropped in 5 minutes")
    axes.set_xlabel("event time (UTC)")
    for place, (kind, colour) in enumerate(_KINDS.items()):
        _label(axes, place, f"{COPIES[kind]}: {dropped[kind].size:,}", colour)
    _tidy(axes)


def _saved(axes: Any, saved_ms: NDArray[np.int64], edges: NDArray[np.int64], census: Census) -> None:
    count, _ = np.histogram(saved_ms, edges)
    axes.stairs(count, _numbers(edges), color=_CLEAN, linewidth=1.6, baseline=None)
    # Room for one line more.
    axes.set_ylim(0, max(axes.get_ylim()[1] * 1.1, int(count.max()) * 1.4))
    said = f"kept, although their ids were taken: {census.lost_events:,} events, {census.lost_users:,} users"
    _label(axes, 0, said, _CLEAN, line=1)


def _numbers(times_ms: NDArray[np.int64]) -> Any:
    from matplotlib.dates import date2num  # noqa: PLC0415 - with the rest of matplotlib

    return date2num(times_ms.astype("datetime64[ms]"))  # type: ignore[no-untyped-call]  # matplotlib types its dates not yet


def _label(axes: Any, place: int, text: str, colour: str, line: int = 0) -> None:
    """Write into one of three places over the data: what a legend would say, at the thing itself."""
    at = 0.012 + 0.34 * place
    axes.text(at, 0.97 - 0.1 * line, text, color=colour, transform=axes.transAxes, va="top", fontweight="bold")


def _tidy(axes: Any) -> None:
    from matplotlib.dates import AutoDateLocator, DateFormatter  # noqa: PLC0415 - likewise
    from matplotlib.ticker import StrMethodFormatter  # noqa: PLC0415 - likewise

    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_major_locator(AutoDateLocator(tz=UTC))  # type: ignore[no-untyped-call]  # likewise
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M", tz=UTC))  # type: ignore[no-untyped-call]  # likewise
    axes.margins(x=0)
