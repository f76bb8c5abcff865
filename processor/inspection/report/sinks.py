"""Writes the section of an aggregate: what its output holds, drawn over its windows and as numbers."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from processor.inspection.report.markup import Html, bullets, element, shown_time, shown_value, table
from processor.inspection.report.plots import MOST_STEPS, draw_series, draw_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from spark_sink.reading.summary import Group, SinkPart, SinkSummary, Value


def sink_section(name: str, sink: SinkPart) -> Html:
    """Return the section of one aggregate; ``name`` is its anchor."""
    parts = [
        element("h2", "Aggregate ", element("code", sink.name)),
        element("p", element("code", sink.topic), f" \u2192 {sink.output} \u00b7 {sink.window}", class_="soft"),
        bullets([*sink.problems, *sink.notes]),
    ]
    if sink.summary is not None:
        parts += _summary(name, sink, sink.summary)
    return element("section", *parts, id=name)


def _summary(name: str, sink: SinkPart, summary: SinkSummary) -> list[Html]:
    if summary.first_ms is None or summary.last_ms is None:
        said = "There is no row yet: a window is written when the event-time watermark has passed its end."
        return [element("p", said)]
    grouped = bool(summary.group_by)
    tiles = [(summary.rows, "rows"), (summary.windows, "windows")]
    if grouped:
        tiles.append((summary.groups, "groups"))
    counts = (element("li", element("b", f"{count:,}"), element("span", what)) for count, what in tiles)
    parts = [
        element("ul", *counts, class_="tiles"),
        element("p", f"Windows from {shown_time(summary.first_ms)} to {shown_time(summary.last_ms)} UTC."),
    ]
    if grouped and summary.everything is not None:
        all_shown = summary.groups <= len(summary.largest)
        title = f"The largest {len(summary.largest)} of {summary.groups:,} groups"
        parts.append(element("h3", "By group" if all_shown else title))
        parts.append(_groups_table(sink, summary, summary.everything))
    for place, what in enumerate(summary.aggregates):
        parts += _picture(f"{name}-{place}", sink, summary, place, what)
    parts += [element("h3", "By window"), _rows_table(sink, summary)]
    return parts


def _groups_table(sink: SinkPart, summary: SinkSummary, everything: Group) -> Html:
    # Where a sum over windows means nothing, there is none.
    places = [place for place, total in enumerate(everything.totals) if total is not None]
    head = [*summary.group_by, "windows", *(f"{summary.aggregates[place]}, summed" for place in places)]

    def numbers(group: Group, windows: int) -> list[object]:
        return [windows, *(group.totals[place] for place in places)]

    rows = [[*group.group, *numbers(group, group.windows)] for group in summary.largest]
    # All groups together have as many windows as there are, not as many as rows.
    foot = ["all", *[""] * (len(summary.group_by) - 1), *numbers(everything, summary.windows)]
    return table(f"Groups of {sink.name}", head, rows, foot=foot, texts=len(summary.group_by))


def _picture(name: str, sink: SinkPart, summary: SinkSummary, place: int, what: str) -> list[Html]:
    starts = sorted({row.start_ms for row in summary.shown})
    # By name: a group has the same colour in all pictures, also of other aggregates with the same groups.
    groups = sorted((group.group for group in summary.largest), key=label)
    edges = _steps(summary, starts, place)
    if edges:
        starts = edges[:-1]
    series = [(label(group), _values(summary, group, starts, place)) for group in groups]
    series = [(text, values) for text, values in series if np.isfinite(values).any()]
    if not series:
        return []
    stacked = bool(edges) and all((values[np.isfinite(values)] >= 0).all() for _, values in series)
    if stacked:
        drawn = draw_stack(what, edges, [(text, np.nan_to_num(values)) for text, values in series], name)
    else:
        drawn = draw_series(what, starts, series, name)
    form = "band" if stacked else "line"
    alt = (
        f"{what} of {sink.name} by window from {shown_time(starts[0])} to {shown_time(starts[-1])} UTC"
        + (f", a {form} each for {', '.join(text for text, _ in series)}" if summary.group_by else "")
        + ". The table below has every number."
    )
    parts = [element("div", Html(drawn), role="img", aria_label=alt)]
    if stacked and summary.group_by:
        said = "Bands stand on one another: the height is that of all groups together."
        parts.append(element("figcaption", said))
    return [element("h3", element("code", what), " by window"), element("figure", *parts)]


def _steps(summary: SinkSummary, starts: Sequence[int], place: int) -> list[int]:
    """Return the edges of windows whose groups add up to all there is; nothing where they do not.

    They do where every group is shown, sums of the aggregate mean something, and windows are of one width and
    do not overlap. Windows without an event count as well.
    """
    everything = summary.everything
    widths = {row.end_ms - row.start_ms for row in summary.shown}
    if everything is None or everything.totals[place] is None or len(widths) != 1:
        return []
    (width,) = widths
    apart = {(start - starts[0]) % width for start in starts} == {0}
    steps = (starts[-1] - starts[0]) // width + 1
    if not apart or steps > MOST_STEPS or summary.groups > len(summary.largest):
        return []
    return [starts[0] + step * width for step in range(steps + 1)]


def label(group: Sequence[Value]) -> str:
    """Return what a group is called in a picture."""
    return ", ".join(map(shown_value, group))


def _values(
    summary: SinkSummary, group: Sequence[Value], starts: Sequence[int], place: int
) -> NDArray[np.float64]:
    at = {start: index for index, start in enumerate(starts)}
    values = np.full(len(starts), np.nan)
    for row in summary.shown:
        if row.group == tuple(group):
            values[at[row.start_ms]] = _number(row.values[place])
    return values


def _number(value: Value) -> float:
    # True is an int to Python.
    return float(value) if isinstance(value, Decimal | int | float) and not isinstance(value, bool) else np.nan


def _rows_table(sink: SinkPart, summary: SinkSummary) -> Html:
    head = ["window start (UTC)", "window end (UTC)", *summary.group_by, *summary.aggregates]
    rows = [
        (shown_time(row.start_ms), shown_time(row.end_ms), *row.group, *row.values)
        for row in reversed(summary.shown)
    ]
    return table(f"Windows of {sink.name}, newest first", head, rows, texts=2 + len(summary.group_by))
