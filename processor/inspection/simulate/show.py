"""Shows a simulation on a terminal: rows of its tables, and a plot of bars. Pure.

What stands in records, such as a header's name, is escaped by who prints it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from processor.inspection.proposal.toml_text import dedup_keys
from processor.inspection.simulate.forecast import IdForecast, SequenceForecast
from processor.inspection.simulate.grid import costs_of, estimate_fields, grid, grid_fields
from processor.inspection.simulate.recommend import chosen_window, knee
from processor.inspection.simulate.windows import CONFIDENCE
from processor.ops.status_text import count, duration, size
from schemas.config.values import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from processor.inspection.simulate.costs import BackendCost
    from processor.inspection.simulate.forecast import Forecast
    from processor.inspection.simulate.grid import GridRow
    from processor.inspection.simulate.windows import Estimate, WindowPrediction

_BAR = 40
"""Characters of a full bar: all copies."""
_BARS = 12
_TAKES = ("memory", "disk", "changelog", "CPU per million", "restart", "without disk", "lost")


class TableRows(NamedTuple):
    """A table: its name, titles, and rows; all but the first column hold numbers."""

    name: str
    titles: Sequence[str]
    rows: Sequence[tuple[str, ...]]

    @property
    def heading(self) -> str:
        """Its name, and what a star in it means."""
        return f"{self.name} (* as configured)" if any("*" in row[0] for row in self.rows) else self.name


def candidate_table(candidates: Sequence[Mapping[str, Any]]) -> TableRows:
    """Return the table of what tells the newest records apart, or rises."""
    titles = ("place", "different", "copies", "in other partitions", "rising", "out of order by")
    rows = [
        (
            str(each["place"]),
            *(f"{each[name]:,}" for name in ("distinct", "copies", "crossing")),
            f"per {each['rising']}" if each["rising"] else "-",
            f"{each['out_of_order']:,}",
        )
        for each in candidates
    ]
    return TableRows("what tells the newest records apart, or rises", titles, rows)


def tables(forecast: Forecast, commit_interval_ms: int, *, costs: bool = True) -> Iterator[TableRows]:
    """Yield the tables of one way of judging; without ``costs`` not what ids take."""
    rows = list(grid(forecast, commit_interval_ms))
    if isinstance(forecast, SequenceForecast):
        yield _sequence_table(forecast, rows)
        return
    is_configured, routed = forecast.way.name == "configured", forecast.dedup.route is not None
    titles = ("window", "caught", "interval", "missed", "of copies", "collisions", "ids held")
    for scope, name, outcome in (
        ("partition", "ids per partition", forecast.apart),
        ("by-id", 'ids with route = "by-id"', forecast.together),
    ):
        used = routed == (scope == "by-id")
        if not used and not forecast.crossing:
            continue
        marked = [is_configured and used and row.window_ms == forecast.dedup.window for row in outcome.rows]
        windows = [_window_row(row, mark) for row, mark in zip(outcome.rows, marked, strict=True)]
        yield TableRows(name, titles, windows)
        if costs:
            yield _cost_table(name, [row for row in rows if row.scope == scope], marks=is_configured)


def _sequence_table(forecast: SequenceForecast, rows: Sequence[GridRow]) -> TableRows:
    is_configured = forecast.way.name == "configured"
    shown = [
        (
            f"{row.window:,}{_mark(row.configured and is_configured)}",
            f"{found.passed:,}",
            f"{found.duplicates:,}",
            f"{found.late:,}",
            f"{row.lost_late:,}",
            f"{forecast.scopes:,}",
            *_taken(row.cost)[:-1],
        )
        for row, found in zip(rows, forecast.rows, strict=True)
    ]
    titles = ("reorder window", "passed", "duplicates", "late", "of them new", "scopes", *_TAKES[:-1])
    return TableRows(f"by sequence, scope {forecast.dedup.scope_name}", titles, shown)


def _cost_table(name: str, rows: Sequence[GridRow], *, marks: bool) -> TableRows:
    shown = [
        (
            duration_text(row.window) + _mark(row.configured and marks),
            row.cost.backend,
            f"{row.caught.value:,.0f}",
            *_taken(row.cost),
        )
        for row in rows
    ]
    return TableRows(f"what they take, {name}", ("window", "backend", "caught", *_TAKES), shown)


def _mark(is_configured: bool) -> str:  # noqa: FBT001 - one question
    return " *" if is_configured else ""


def _window_row(row: WindowPrediction, configured: bool) -> tuple[str, ...]:  # noqa: FBT001 - as above
    return (
        duration_text(row.window_ms) + _mark(configured),
        f"{row.caught.value:,.0f}",
        interval(row.caught),
        f"{row.missed.value:,.0f}",
        f"{100 * row.share:.2f} %",
        f"{row.collisions.value:,.0f}",
        f"{row.held.value:,.0f}",
    )


def interval(of: Estimate) -> str:
    """Return the bounds of an estimate, or that it was counted."""
    return "exact" if of.exact else f"{of.low:,.0f} to {of.high:,.0f}"


def _taken(cost: BackendCost) -> tuple[str, ...]:
    """Return what stands below `_TAKES`."""
    return (
        size(round(cost.memory_bytes)),
        size(round(cost.disk_bytes)),
        size(round(cost.changelog_bytes)),
        f"{cost.cpu_us:.1f} s",
        duration(cost.restart_s),
        duration(cost.rebuild_s),
        f"{cost.lost:.1g}" if cost.lost else "0",
    )


def plot(curve: Sequence[WindowPrediction]) -> Iterator[str]:
    """Yield lines: the part of the copies that is caught against the window, and where it bends."""
    bend = knee(curve)
    step = max(1, len(curve) // _BARS)
    for n, row in enumerate(curve):
        if n % step and row is not bend and n != len(curve) - 1:
            continue
        bar = "█" * round(_BAR * row.share)
        mark = "  <- knee" if row is bend else ""
        yield f"{_short(row.window_ms):>11} {bar:<{_BAR}} {100 * row.share:6.2f} %{mark}"


def _short(window_ms: int) -> str:
    return duration(window_ms / 1000) if window_ms >= 60_000 else f"{window_ms / 1000:.1f} s"


def sentences(forecast: Forecast) -> Iterator[str]:
    """Yield what was looked at, a sentence each."""
    judged = forecast.judged
    yield f"{count(judged.records, 'record')}, {forecast.way.title}: {forecast.way.why}"
    for code, number in judged.quarantined.items():
        yield f"{count(number, 'record')} cannot be judged: {code}"
    if judged.unjudged:
        yield f"{count(judged.unjudged, 'record')} without an id pass unjudged"
    if isinstance(forecast, IdForecast):
        yield from _id_sentences(forecast)
    else:
        if forecast.scopes:
            yield f"{count(forecast.scopes, 'scope')} take {size(forecast.configured.scope_bytes)}"
        if forecast.left_out:
            names = ", ".join(f"{each:,}" for each in forecast.left_out)
            yield f"left out, for all scopes together take too much memory here: reorder windows of {names}"
        if (share := min(row.share for row in forecast.rows)) < 1:
            yield f"of what is dropped, how many are new is estimated from {100 * share:.3g} % of the sequences"
        if forecast.stopped:
            yield "there were more scopes than fit: only the records up to there were judged"


def _id_sentences(forecast: IdForecast) -> Iterator[str]:
    judged = forecast.judged
    yield f"the clocks go on by {duration(judged.span_ms / 1000)} within what was read"
    if judged.behind:
        yield f"{count(judged.behind, 'record')} came late, below the clock; they are judged like any other"
    if judged.ahead:
        yield f"{count(judged.ahead, 'record')} lie further ahead of this machine's clock than is believed"
    if forecast.order_matters:
        yield (
            'with route = "by-id" what is caught depends on '
            "the order in which a worker reads the partitions: "
            "the numbers are those by the order of the clocks, the intervals hold for every order"
        )
    elif forecast.dedup.route is not None and not forecast.exact:
        yield "the clocks of the sink's partitions are read in steps: a late record's may be one step behind"
    if forecast.rate < 1 or not (forecast.exact or forecast.order_matters):
        yield (
            f"estimated from {100 * forecast.rate:.3g} % of the ids; the truth lies within an interval "
            f"with a chance of {100 * CONFIDENCE:.0f} %"
        )
    if forecast.dedup.time == "arrival":
        yield "the records' timestamps stand for the times of their arrival"


def fields(forecast: Forecast, commit_interval_ms: int) -> dict[str, Any]:
    """Return one way of judging for programs."""
    judged = forecast.judged
    found: dict[str, Any] = {
        "way": forecast.way.name,
        "why": forecast.way.why,
        "dedup": dedup_keys(forecast.dedup),
        "mode": forecast.dedup.mode,
        "records": judged.records,
        "quarantined": judged.quarantined,
        "unjudged": judged.unjudged,
        "grid": [grid_fields(row, forecast.dedup.mode) for row in grid(forecast, commit_interval_ms)],
    }
    if isinstance(forecast, SequenceForecast):
        configured = forecast.dedup.reorder_window
        rows = [row._asdict() | {"configured": row.reorder_window == configured} for row in forecast.rows]
        return found | {
            "scope": forecast.dedup.scope_name,
            "reorder_windows": rows,
            "scopes": forecast.scopes,
            "stopped": forecast.stopped,
            "left_out": list(forecast.left_out),
        }
    routed = forecast.dedup.route is not None
    configured_as = forecast.dedup.window, routed
    windows = [
        _window_fields(row) | {"route": route, "configured": (row.window_ms, route) == configured_as}
        for route, outcome in ((False, forecast.apart), (True, forecast.together))
        for row in outcome.rows
    ]
    best, as_routed = chosen_window(forecast)
    bend = knee(forecast.curve)
    return found | {
        "rate": forecast.rate,
        "exact": forecast.exact,
        "order_matters": forecast.order_matters,
        "span_ms": judged.span_ms,
        "behind": judged.behind,
        "ahead": judged.ahead,
        "crossing": round(forecast.crossing),
        "windows": windows,
        "curve": [{"window_ms": row.window_ms, "share": round(row.share, 6)} for row in forecast.curve],
        "knee_ms": None if bend is None else bend.window_ms,
        "costs": [cost._asdict() for cost in costs_of(forecast, best, commit_interval_ms, routed=as_routed)],
    }


def _window_fields(row: WindowPrediction) -> dict[str, Any]:
    return {"window_ms": row.window_ms, "share": round(row.share, 6), **estimate_fields(row)}
