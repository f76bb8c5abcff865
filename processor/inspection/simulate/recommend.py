"""Says in words what to choose after a simulation, and why. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from processor.inspection.proposal.toml_text import dedup_keys
from processor.inspection.simulate.forecast import IdForecast, SequenceForecast
from processor.inspection.simulate.grid import costs_of, sequence_cost_of
from processor.ops.status_text import count, duration, size
from schemas.config.values import duration_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.inspection.simulate.costs import BackendCost
    from processor.inspection.simulate.forecast import Forecast, Simulation
    from processor.inspection.simulate.windows import WindowPrediction

ENOUGH = 0.999
"""The part of the copies that the longest window catches from which on a shorter one will do."""
_CROSSING = 0.0001
"""Of all records; fewer copies in other partitions are not worth a second hop."""
_LARGE_BYTES = 2e9
"""Memory of ids from which on filters are named, with what they lose."""
_MORE_FAULTS = 0.01
_MORE_LOST = 0.01
"""Of all records; a scope that lets so many more pass is another one than the config has."""


@dataclass(frozen=True)
class Recommendation:
    """What to choose.

    Attributes:
        dedup: Keys of ``[pipelines.dedup]`` as TOML has them.
        reasons: A sentence each, the most important first.
        catches: Records that it drops.
        cost: Of it.
    """

    dedup: dict[str, Any]
    reasons: list[str]
    catches: float
    cost: BackendCost


def recommend(simulation: Simulation, commit_interval_ms: int) -> Recommendation:
    """Choose among what was simulated: the configured way, unless another one is clearly better."""
    found = [_of(each, commit_interval_ms) for each in simulation.forecasts]
    best, forecast = found[0], simulation.forecasts[0]
    for other, each in zip(found[1:], simulation.forecasts[1:], strict=True):
        if each.way.name == "proposed" and _fewer_faults(forecast, each):
            worse = f"{100 * _faulty(forecast):.1f} % of {_which(forecast)} cannot be judged as configured"
            best, forecast = _because(other, f"{worse}; {each.way.why}"), each
        elif more := _more_pass(forecast, each):
            best, forecast = _because(other, more), each
    if isinstance(forecast, IdForecast) and simulation.changing and _would_collide(forecast):
        names = ", ".join(simulation.changing)
        best = _because(best, f"copies differ in {names}: a fingerprint has to exclude them", last=True)
    return best


def chosen_window(forecast: IdForecast) -> tuple[WindowPrediction, bool]:
    """Return the shortest window that catches nearly all that the longest does, and whether with a route."""
    routed = forecast.dedup.route is not None or forecast.crossing > _CROSSING * forecast.judged.judgeable
    rows = (forecast.together if routed else forecast.apart).rows
    most = max(row.caught.value for row in rows)
    if not most:  # nothing speaks against the configured one
        return next(row for row in rows if row.window_ms == forecast.dedup.window), routed
    return next(row for row in rows if row.caught.value >= ENOUGH * most), routed


def knee(curve: Sequence[WindowPrediction]) -> WindowPrediction | None:
    """Return where the curve of what is caught against the logarithm of the window bends most (Kneedle).

    None: it is flat.
    """
    if len(curve) < 3 or curve[-1].caught.value <= curve[0].caught.value:
        return None
    low, high = math.log(curve[0].window_ms), math.log(curve[-1].window_ms)
    least, most = curve[0].caught.value, curve[-1].caught.value

    def above(row: WindowPrediction) -> float:
        across = (math.log(row.window_ms) - low) / (high - low)
        return (row.caught.value - least) / (most - least) - across

    return max(curve, key=above)


def _of(forecast: Forecast, commit_interval_ms: int) -> Recommendation:
    if isinstance(forecast, SequenceForecast):
        return _by_sequence(forecast)
    return _by_id(forecast, commit_interval_ms)


def _by_id(forecast: IdForecast, commit_interval_ms: int) -> Recommendation:
    row, routed = chosen_window(forecast)
    dedup = dedup_keys(forecast.dedup)
    dedup["window"] = duration_text(row.window_ms)
    reasons = [
        _of_window(row),
    ]
    span = forecast.judged.span_ms
    if row.window_ms > span:
        reasons.append(
            f"the records that were read cover {duration(span / 1000)}: copies that come later than that after "
            "the first could not be seen"
        )
    if routed and forecast.dedup.route is None:
        dedup["route"] = "by-id"
        reasons.append(
            f"route by-id: about {forecast.crossing:,.0f} copies came in another partition than the first"
        )
    elif routed and forecast.crossing <= _CROSSING * forecast.judged.judgeable:
        reasons.append("hardly a copy came in another partition: route by-id may not be needed")
    costs = costs_of(forecast, row, commit_interval_ms, routed=routed)
    cost = next(each for each in costs if each.backend == forecast.dedup.backend)
    held = count(round(row.held.value), "id")
    reasons.append(f"backend {cost.backend}: {held} at once take {size(int(cost.memory_bytes))}")
    filters = costs[-1]
    if cost.memory_bytes > _LARGE_BYTES and filters is not cost:
        reasons.append(
            f"backend bloom would take {size(int(filters.memory_bytes))}, and drop about {filters.lost:,.4g} "
            "new records by mistake"
        )
    return Recommendation(dedup, reasons, row.caught.value, cost)


def _of_window(row: WindowPrediction) -> str:
    copies = row.caught.value + row.missed.value
    if not copies:
        return f"window {duration_text(row.window_ms)}: as configured; no copies were seen that it could catch"
    return (
        f"window {duration_text(row.window_ms)}: the shortest of those looked at that catches nearly what the "
        f"longest does, {100 * row.share:.2f} % of {copies:,.0f} copies"
    )


def _by_sequence(forecast: SequenceForecast) -> Recommendation:
    # The shortest that lets pass what the longest does: what it drops beyond that is lost.
    best = max(forecast.rows, key=lambda row: row.passed)
    row = next(row for row in forecast.rows if row.passed >= best.passed)
    dedup = dedup_keys(forecast.dedup)
    reasons = []
    if row.reorder_window != forecast.dedup.reorder_window:
        dedup["reorder_window"] = row.reorder_window
        gained = row.passed - forecast.configured.passed
        if gained > 0:
            reasons.append(
                f"reorder_window {row.reorder_window}: {count(gained, 'record')} came late and for the first "
                "time, and would be dropped otherwise"
            )
        else:
            reasons.append(f"reorder_window {row.reorder_window}: no longer one lets more pass")
    reasons.append(f"drops {row.duplicates:,} duplicates and {row.late:,} late records")
    if row.new:
        reasons.append(
            f"{row.new:,} of those have a content that never passed: they are lost, unless they are copies "
            "that were changed"
        )
    cost = sequence_cost_of(forecast, row)
    return Recommendation(dedup, reasons, float(row.duplicates + row.late), cost)


def _are_same(forecast: Forecast, other: Forecast) -> bool:
    """Whether what is known of two ways is of the same records: one may have stopped before."""
    return forecast.shared.records == other.shared.records


def _which(forecast: Forecast) -> str:
    """Say of which records something is said."""
    some = forecast.shared.records
    return "the records" if some == forecast.judged.records else f"the first {count(some, 'record')}"


def _faulty(forecast: Forecast) -> float:
    """Return the part of the records that cannot be judged."""
    return forecast.shared.faulty / max(1, forecast.shared.records)


def _fewer_faults(forecast: Forecast, other: Forecast) -> bool:
    """Whether another way can judge clearly more records."""
    return _are_same(forecast, other) and _faulty(forecast) > _faulty(other) + _MORE_FAULTS


def _more_pass(forecast: Forecast, other: Forecast) -> str | None:
    """Return why another scope of the same sequence, that loses clearly fewer records; None: it is none."""
    if not (isinstance(forecast, SequenceForecast) and isinstance(other, SequenceForecast)):
        return None
    if (forecast.dedup.sequence, forecast.dedup.epoch) != (other.dedup.sequence, other.dedup.epoch):
        return None
    one, two = forecast.shared, other.shared
    more = (two.passed - one.passed) / max(1, one.records)
    if not _are_same(forecast, other) or more <= _MORE_LOST or two.faulty > one.faulty:
        return None
    lost = f"{100 * more:.1f} % of {_which(forecast)}"
    return f"scope {other.dedup.scope_name}: {lost} pass that scope {forecast.dedup.scope_name} drops"


def _would_collide(forecast: IdForecast) -> bool:
    of = forecast.dedup.fingerprint
    return of is not None and any(row.collisions.value for row in forecast.configured)


def _because(one: Recommendation, reason: str, *, last: bool = False) -> Recommendation:
    reasons = [*one.reasons, reason] if last else [reason, *one.reasons]
    return Recommendation(one.dedup, reasons, one.catches, one.cost)
