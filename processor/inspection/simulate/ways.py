"""Finds the ways of judging that are compared: the config's, and one that the records propose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from processor.inspection.proposal.choose import propose
from processor.inspection.simulate.forecast import JudgingWay
from schemas.config.dedup import InsertIdDedup, WatermarkDedup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.inspection.proposal.choose import Proposal
    from processor.inspection.proposal.observed import ObservedRecord
    from processor.inspection.simulate.forecast import Simulation
    from schemas.config import Pipeline

_DEDUP: TypeAdapter[InsertIdDedup | WatermarkDedup] = TypeAdapter(InsertIdDedup | WatermarkDedup)
_SHOWN = 5
"""Candidates that are named."""


def ways_of(pipeline: Pipeline, observed: Sequence[ObservedRecord], found: Simulation) -> list[JudgingWay]:
    """Return the configured way, and another one where a sample of the records proposes it.

    Args:
        pipeline: With the configured way.
        observed: Some records.
        found: Gets notes, and which members differ between copies.
    """
    ways = [JudgingWay("configured", pipeline.dedup, "as the config has it")]
    proposal = propose(observed)
    if proposal is None:
        return ways
    found.changing = sorted({name for each in proposal.candidates for name in each.changing})
    found.notes += proposal.notes
    found.candidates = _candidates(proposal)
    for dedup, why in proposal.others:
        way = _way(dedup, why)
        if way is not None and not any(_same(way.dedup, each.dedup) for each in ways):
            ways.append(way)
            break
    return ways


def _way(dedup: dict[str, Any], why: str) -> JudgingWay | None:
    try:
        return JudgingWay("proposed", _DEDUP.validate_python(dedup), why)
    except ValidationError:
        return None  # of a name that no config takes


def _same(one: Any, other: Any) -> bool:
    """Whether two ways read the same places."""
    if one.mode != other.mode:
        return False
    if one.mode == "insert-id":
        return bool(one.id == other.id)
    return bool((one.sequence, one.scope, one.epoch) == (other.sequence, other.scope, other.epoch))


def _candidates(proposal: Proposal) -> list[dict[str, Any]]:
    """Return what nearly tells the records apart, or rises, the likeliest first."""
    found: list[dict[str, Any]] = []
    for each in proposal.candidates:
        rises = proposal.rises.get(each.places[0])
        if not ((each.common and each.unique) or rises is not None):
            continue
        found.append(
            {
                "place": str(each),
                "present": each.present,
                "distinct": each.distinct,
                "copies": each.copies,
                "crossing": each.crossing,
                "rising": None if rises is None else rises.scope,
                "out_of_order": 0 if rises is None else rises.reach,
                "reorder_window": 0 if rises is None else rises.reorder_window,
            }
        )
    return found[:_SHOWN]
