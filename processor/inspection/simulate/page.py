"""Renders simulations as one HTML file that needs nothing else: no script, no network, the plots inside.

Of the same style and means as the report's page: whatever comes from records is escaped on its way in.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from processor.inspection.proposal.toml_text import toml_text
from processor.inspection.report.markup import Html, bullets, document, element, joined, table
from processor.inspection.simulate.forecast import IdForecast
from processor.inspection.simulate.recommend import knee
from processor.inspection.simulate.show import candidate_table, sentences, tables
from processor.ops.status_text import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.inspection.simulate.forecast import Forecast, Simulation
    from processor.inspection.simulate.recommend import Recommendation
    from processor.inspection.simulate.show import TableRows

PLOT_STYLE = """
figure svg text { fill: var(--ink); }
.axis { stroke: var(--line); stroke-width: 1; } .curve { fill: none; stroke: var(--link); stroke-width: 2.5; }
.knee { fill: var(--bad); }
pre { overflow: auto; padding: .6rem .8rem; background: var(--ground); }
"""
_MARKS_MS = (1_000, 60_000, 3_600_000, 86_400_000, 7 * 86_400_000, 30 * 86_400_000, 365 * 86_400_000)
_NAME = 34
"""The width of a time's name."""
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


class CurvePoint(Protocol):
    """What share of the copies comes within a time."""

    @property
    def window_ms(self) -> int:
        """The time."""

    @property
    def share(self) -> float:
        """From 0 to 1."""


def render(config: str, commit_interval_ms: int, found: Sequence[tuple[Simulation, Recommendation]]) -> str:
    """Return the page.

    Args:
        config: The name of the config file.
        commit_interval_ms: Of the worker.
        found: What was simulated, and what is recommended of it.
    """
    body = [
        element(
            "header",
            element("h1", "What windows and modes would do"),
            element("p", "Simulated by Seqmark from ", element("code", config), class_="soft"),
        ),
        *(_section(simulation, chosen, commit_interval_ms) for simulation, chosen in found),
        element(
            "footer",
            "Copies that came before what was read, or have not come yet, nobody could see. Costs are computed "
            "from figures per id that were measured on one machine.",
        ),
    ]
    return document(f"Seqmark: a simulation of {config}", body, PLOT_STYLE)


def _section(simulation: Simulation, chosen: Recommendation, commit_interval_ms: int) -> Html:
    settings = "\n".join(f"{key} = {toml_text(value)}" for key, value in chosen.dedup.items())
    return element(
        "section",
        element("h2", f"Pipeline {simulation.pipeline}, source {simulation.source}"),
        element("h3", "Recommended"),
        element("pre", element("code", settings), tabindex="0"),
        bullets(chosen.reasons),
        *(_way(each, commit_interval_ms) for each in simulation.forecasts),
        *(_table(candidate_table(simulation.candidates), "h3") if simulation.candidates else ()),
        element("h3", "Notes") if simulation.notes else "",
        bullets(simulation.notes),
    )


def _way(forecast: Forecast, commit_interval_ms: int) -> Html:
    parts: list[Html] = [
        element("h3", forecast.way.title.capitalize()),
        bullets(list(sentences(forecast))),
    ]
    if isinstance(forecast, IdForecast):
        parts += [curve_figure(forecast.curve, "against the window", knee(forecast.curve))]
    for each in tables(forecast, commit_interval_ms):
        parts += _table(each, "p")
    return joined(parts)


def _table(rows: TableRows, kind: str) -> list[Html]:
    return [element(kind, rows.heading.capitalize()), table(rows.name, rows.titles, rows.rows)]


def curve_figure(curve: Sequence[CurvePoint], along: str, bend: CurvePoint | None) -> Html:
    """Return the plot of a share of copies over time for desks and for phones, and what it says in words."""
    words = f"The share of the copies that is caught, {along}."
    if bend is not None:
        share = f"{100 * bend.share:.1f} %"
        words += f" It bends at {duration(bend.window_ms / 1000)}, where {share} are caught (the dot)."
    return element(
        "figure",
        _svg(curve, bend, 640, 260, "wide"),
        _svg(curve, bend, 340, 240, "narrow"),
        element("figcaption", words),
    )


def _svg(curve: Sequence[CurvePoint], bend: CurvePoint | None, width: int, height: int, kind: str) -> Html:
    left, right, top, bottom = 52, 16, 12, 30
    low, high = math.log(curve[0].window_ms), math.log(max(curve[-1].window_ms, curve[0].window_ms + 1))

    def x(window_ms: float) -> float:
        return left + (width - left - right) * (math.log(window_ms) - low) / (high - low)

    def y(share: float) -> float:
        return top + (height - top - bottom) * (1 - share)

    parts = []
    for share in _SHARES:
        at = f"{y(share):.1f}"
        parts += [
            element("line", class_="axis", x1=str(left), x2=str(width - right), y1=at, y2=at),
            _text(f"{100 * share:.0f} %", left - 6, y(share) + 4, "end"),
        ]
    marks = [each for each in _MARKS_MS if curve[0].window_ms <= each <= curve[-1].window_ms]
    named = dict(zip(_MARKS_MS, ("1 s", "1 min", "1 h", "1 d", "7 d", "30 d", "1 y"), strict=True))
    last = -math.inf
    for each in marks:
        if x(each) - last < _NAME:
            continue
        last = x(each)
        at = f"{last:.1f}"
        parts += [
            element("line", class_="axis", x1=at, x2=at, y1=str(top), y2=str(height - bottom)),
            _text(named[each], min(last, width - right - 12), height - 10, "middle"),
        ]
    points = " ".join(f"{x(row.window_ms):.1f},{y(row.share):.1f}" for row in curve)
    parts.append(element("polyline", class_="curve", points=points))
    if bend is not None:
        parts.append(
            element("circle", class_="knee", cx=f"{x(bend.window_ms):.1f}", cy=f"{y(bend.share):.1f}", r="5")
        )
    return element("svg", *parts, viewBox=f"0 0 {width} {height}", class_=kind, aria_hidden="true")


def _text(text: str, x: float, y: float, anchor: str) -> Html:
    return Html(
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12">{element("tspan", text)}</text>'
    )
