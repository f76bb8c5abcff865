"""Lays out what was simulated as a grid: a row per scope, window and backend, with what each takes. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.inspection.simulate.costs import id_costs, sequence_cost
from processor.inspection.simulate.forecast import SequenceForecast
from processor.inspection.simulate.windows import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from processor.inspection.simulate.costs import BackendCost
    from processor.inspection.simulate.forecast import Forecast, IdForecast, ReorderRow, ScopeOutcome
    from processor.inspection.simulate.windows import WindowPrediction

_NONE = Estimate(0.0, 0.0, 0.0)


class GridRow(NamedTuple):
    """What one choice does, and takes.

    Attributes:
        scope: Where records meet: ``partition``, ``key``, ``header:NAME``; ``by-id`` with a route.
        window: In ms; with sequences how many numbers back.
        caught: Duplicates that are dropped.
        missed: Copies that pass again; of sequences none does.
        late: Records that are dropped for being late: by sequences only.
        lost_late: Of what is dropped by sequences, what has a content that never passed: it is new, and lost.
        collisions: Records whose id is remembered with other content.
        held: Ids, or scopes, that are remembered at once.
        cost: With the backend.
        configured: Whether it is what the config says.
    """

    scope: str
    window: int
    caught: Estimate
    missed: Estimate
    late: int
    lost_late: int
    collisions: Estimate
    held: Estimate
    cost: BackendCost
    configured: bool


def grid(forecast: Forecast, commit_interval_ms: int) -> Iterator[GridRow]:
    """Yield the rows of one way of judging."""
    if isinstance(forecast, SequenceForecast):
        yield from _by_sequence(forecast)
        return
    for routed, outcome in ((False, forecast.apart), (True, forecast.together)):
        yield from _by_id(forecast, outcome, commit_interval_ms, routed=routed)


def _by_sequence(forecast: SequenceForecast) -> Iterator[GridRow]:
    for row in forecast.rows:
        caught, held = (Estimate(each, each, each) for each in (float(row.duplicates), float(forecast.scopes)))
        yield GridRow(
            forecast.dedup.scope_name,
            row.reorder_window,
            caught,
            _NONE,
            row.late,
            row.new,
            _NONE,
            held,
            sequence_cost_of(forecast, row),
            row.reorder_window == forecast.dedup.reorder_window,
        )


def _by_id(
    forecast: IdForecast, outcome: ScopeOutcome, commit_interval_ms: int, *, routed: bool
) -> Iterator[GridRow]:
    dedup = forecast.dedup
    for n, row in enumerate(outcome.rows):
        as_configured = routed == (dedup.route is not None) and row.window_ms == dedup.window
        for cost in costs_of(forecast, row, commit_interval_ms, routed=routed):
            # Filters forget ids bucket by bucket.
            by_bucket = cost.backend == "bloom" and outcome.filtered
            found = outcome.filtered[n] if by_bucket else row
            yield GridRow(
                "by-id" if routed else "partition",
                row.window_ms,
                found.caught,
                found.missed,
                0,
                0,
                found.collisions,
                found.held,
                cost,
                as_configured and cost.backend == dedup.backend,
            )


def costs_of(
    forecast: IdForecast, row: WindowPrediction, commit_interval_ms: int, *, routed: bool
) -> list[BackendCost]:
    """Return what each backend takes for one window."""
    judged = forecast.judged.judgeable
    lasting = min(row.window_ms, forecast.judged.span_ms)
    commits = math.ceil(lasting / commit_interval_ms) * forecast.partitions[routed]
    return id_costs(
        forecast.dedup,
        row.held.value,
        row.collisions.value,
        row.window_ms,
        min(commits, judged),
        judged,
        routed=routed,
    )


def sequence_cost_of(forecast: SequenceForecast, row: ReorderRow) -> BackendCost:
    """Return what one reorder window takes."""
    return sequence_cost(forecast.dedup, forecast.scopes, row.scope_bytes, row.reorder_window)


def grid_fields(row: GridRow, mode: str) -> dict[str, Any]:
    """Return a row for programs."""
    window = "window_ms" if mode == "insert-id" else "reorder_window"
    return {
        "mode": mode,
        "scope": row.scope,
        window: row.window,
        **row.cost._asdict(),
        **estimate_fields(row),
        "late": row.late,
        "lost_late": row.lost_late,
        "configured": row.configured,
    }


def estimate_fields(row: GridRow | WindowPrediction) -> dict[str, dict[str, int]]:
    """Return its estimates for programs, each with its bounds."""
    return {
        name: {"value": round(each.value), "low": round(each.low), "high": round(each.high)}
        for name, each in (
            ("caught", row.caught),
            ("missed", row.missed),
            ("collisions", row.collisions),
            ("held", row.held),
        )
    }
