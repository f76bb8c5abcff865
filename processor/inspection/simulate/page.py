"""Renders simulations as one HTML file that needs nothing else: no script, no network, the plots inside.

Of the same style and means as the report's page: whatever comes from records is escaped on its way in.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from processor.inspection.proposal.toml_text import toml_text
from processor.inspection.report import page as report_page
from processor.inspection.report.markup import Html, bullets, element, joined, table
from processor.inspection.simulate.forecast import IdForecast
from processor.inspection.simulate.recommend import knee
from processor.inspection.simulate.show import sentences, tables
from processor.ops.status_text import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.inspection.simulate.forecast import Forecast, Simulation
    from processor.inspection.simulate.recommend import Recommendation
    from processor.inspection.simulate.windows import WindowPrediction

_STYLE = Path(report_page.__file__).with_name("report.css")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_PLOT = """
figure svg text { fill: var(--ink); }
.axis { stroke: var(--line); stroke-width: 1; } .curve { fill: none; stroke: var(--link); stroke-width: 2.5; }
.knee { fill: var(--bad); }
pre { overflow: auto; padding: .6rem .8rem; background: var(--ground); }
"""
_MARKS_MS = (1_000, 60_000, 3_600_000, 86_400_000, 7 * 86_400_000, 30 * 86_400_000, 365 * 86_400_000)
_NAME = 34
"""The width of a time's name."""
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


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
    head = [
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        element("title", f"Seqmark: a simulation of {config}"),
        element("style", Html(_STYLE.read_text(encoding="utf-8") + _PLOT)),
    ]
    return f'<!doctype html>\n<html lang="en">\n{element("head", *head)}\n{element("body", *body)}\n</html>\n'


def _section(simulation: Simulation, chosen: Recommendation, commit_interval_ms: int) -> Html:
    settings = "\n".join(f"{key} = {toml_text(value)}" for key, value in chosen.dedup.items())
    return element(
        "section",
        element("h2", f"Pipeline {simulation.pipeline}, source {simulation.source}"),
        element("h3", "Recommended"),
        element("pre", element("code", settings), tabindex="0"),
        bullets(chosen.reasons),
        *(_way(each, commit_interval_ms) for each in simulation.forecasts),
        _candidates(simulation),
        element("h3", "Notes") if simulation.notes else "",
        bullets(simulation.notes),
    )


def _way(forecast: Forecast, commit_interval_ms: int) -> Html:
    parts: list[Html] = [
        element("h3", forecast.way.title.capitalize()),
        bullets(list(sentences(forecast))),
    ]
    if isinstance(forecast, IdForecast):
        parts += [_figure(forecast.curve)]
    for each in tables(forecast, commit_interval_ms):
        configured = " (* as configured)" if any("*" in row[0] for row in each.rows) else ""
        parts += [
            element("p", each.name.capitalize() + configured),
            table(each.name, each.titles, each.rows),
        ]
    return joined(parts)


def _candidates(simulation: Simulation) -> Html:
    if not simulation.candidates:
        return Html("")
    rows = [
        (
            each["place"],
            each["distinct"],
            each["copies"],
            each["crossing"],
            each["rising"],
            each["out_of_order"],
        )
        for each in simulation.candidates
    ]
    titles = ("place", "different", "copies", "in other partitions", "rising per", "out of order by")
    name = "What tells the newest records apart, or rises"
    return joined([element("h3", name), table(name, titles, rows)])


def _figure(curve: Sequence[WindowPrediction]) -> Html:
    """Return the plot for desks and for phones, and what it says in words."""
    bend = knee(curve)
    words = "The share of the copies that is caught, against the window."
    if bend is not None:
        share = f"{100 * bend.share:.1f} %"
        words += f" It bends at {duration(bend.window_ms / 1000)}, where {share} are caught (the dot)."
    return element(
        "figure",
        _svg(curve, bend, 640, 260, "wide"),
        _svg(curve, bend, 340, 240, "narrow"),
        element("figcaption", words),
    )


def _svg(
    curve: Sequence[WindowPrediction], bend: WindowPrediction | None, width: int, height: int, kind: str
) -> Html:
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
