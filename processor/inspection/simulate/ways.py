"""Finds the ways of judging that are compared.

The config's; those that the records propose: another id, or the other mode; and the config's varied: with other
scopes, by content, with a fingerprint and without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from processor.inspection.proposal.candidates import COMMON, content_part
from processor.inspection.proposal.choose import propose
from processor.inspection.proposal.record_parts import KEY
from processor.inspection.proposal.toml_text import dedup_keys
from processor.inspection.simulate.forecast import JudgingWay
from schemas.config.dedup import ContentId, InsertIdDedup, WatermarkDedup, plain_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from processor.inspection.proposal.choose import Proposal
    from processor.inspection.proposal.record_parts import ObservedRecord
    from processor.inspection.simulate.forecast import Simulation
    from schemas.config import Pipeline

_DEDUP: TypeAdapter[InsertIdDedup | WatermarkDedup] = TypeAdapter(InsertIdDedup | WatermarkDedup)
_SHOWN = 5
"""Candidates that are named."""
_HEADERS = 2
"""Whose values have a sequence each."""
_OF_FINGERPRINTS = {"fingerprint", "on_collision", "rename"}


def ways_of(pipeline: Pipeline, observed: Sequence[ObservedRecord], found: Simulation) -> list[JudgingWay]:
    """Return the configured way, and others.

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
        way = _way("proposed", dedup, why)
        if way is not None and not any(_same(way.dedup, each.dedup) for each in ways):
            ways.append(way)
    sequences = [each.dedup for each in ways if each.dedup.mode == "watermark"][:1]
    varied = [*(each for of in sequences for each in _scopes(of, proposal, observed))]
    if pipeline.dedup.mode == "insert-id":
        varied += _by_content(pipeline.dedup, observed, found.changing)
    for dedup, why in varied:
        way = _way("compared", dedup, why)
        if way is not None and all(way.dedup != each.dedup for each in ways):
            ways.append(way)
    return ways


def _scopes(
    dedup: WatermarkDedup, proposal: Proposal, observed: Sequence[ObservedRecord]
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the same sequence with the scopes that the records have."""
    table = dedup_keys(dedup)
    keyed = sum(KEY in record.leaves for record in observed) >= COMMON * len(observed)
    rising = [each.scope for each in proposal.rises.values() if each.scope.startswith("header:")]
    for scope in dict.fromkeys(["partition", *(["key"] if keyed else []), *rising[:_HEADERS]]):
        yield table | {"scope": scope}, f"the same sequence with scope {scope}"


def _by_content(
    dedup: InsertIdDedup, observed: Sequence[ObservedRecord], changing: Sequence[str]
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the content as the id; and the same id, its copies told apart by a fingerprint, or not at all."""
    table = dedup_keys(dedup)
    plain = {key: value for key, value in table.items() if key not in _OF_FINGERPRINTS}
    if any(isinstance(part, ContentId) for part in plain_parts(dedup.id)):
        return
    if any(not record.is_null for record in observed):
        part = content_part(observed)
        yield plain | {"id": [part]}, "the value's content in place of the id"
        if dedup.fingerprint is None:
            exact = {key: value for key, value in table.items() if key not in {"backend", "bloom"}}
            print_: dict[str, Any] = {"of": "bytes"} if "of" in part else {}
            if changing and not print_:
                print_ = {"exclude": [name for name in changing if name]}
            yield exact | {"fingerprint": print_}, "the same id, with a fingerprint"
    if dedup.fingerprint is not None:
        yield plain, "the same id, without a fingerprint"


def _way(name: str, dedup: dict[str, Any], why: str) -> JudgingWay | None:
    try:
        return JudgingWay(name, _DEDUP.validate_python(dedup), why)
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
