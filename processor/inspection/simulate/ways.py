"""Simulates a pipeline: one pass over its source for the config's way of judging, and for others.

The others are those that the records propose (another id, or the other mode), and the config's varied: with
other scopes, by content, with a fingerprint and without one. They take a part of the records only.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from processor.engine.ids.sink_clocks import MOST_CELLS
from processor.errors import StopError
from processor.inspection.audit.read import opened
from processor.inspection.audit.trial import DEDUP
from processor.inspection.proposal.candidates import COMMON, content_part
from processor.inspection.proposal.choose import proposals
from processor.inspection.proposal.observed import observe
from processor.inspection.proposal.record_parts import KEY
from processor.inspection.proposal.toml_text import dedup_keys
from processor.inspection.simulate.forecast import JudgingWay, Simulation
from processor.inspection.simulate.judging import MOST_SCOPE_BYTES, IdWay, SequenceWay
from processor.inspection.simulate.windows import MOST_ROWS
from processor.kafka.topics.plan import changelog_topic, repartition_topic
from schemas.config.dedup import ContentId, InsertIdDedup, WatermarkDedup, plain_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from processor.engine.batch.columns import Columns
    from processor.inspection.audit.read import Progress, ReadExtent
    from processor.inspection.proposal.choose import Proposal
    from processor.inspection.proposal.record_parts import ObservedRecord
    from schemas.config import Pipeline, Settings

OTHER_RECORDS, _FEWEST_OTHER, _OTHER_SHARE = 1_000_000, 500_000, 20
"""Records that the ways beside the configured one take, all of them together: at most, at least (if so many are
there), and in between a 20th of what is read. The configured one takes all."""
_OTHER_SCOPE_BYTES = MOST_SCOPE_BYTES // 2
"""What scopes of all ways beside the configured one may take."""
_SHOWN = 5
"""Candidates that are named."""
_HEADERS = 2
"""Whose values have a sequence each."""
_OF_FINGERPRINTS = {"fingerprint", "on_collision", "rename"}


async def simulate(
    settings: Settings,
    pipeline: Pipeline,
    windows_ms: Sequence[int],
    extent: ReadExtent,
    progress: Progress,
    most_rows: int = MOST_ROWS,
) -> Simulation:
    """Predict what one pipeline would do.

    Args:
        settings: The config.
        pipeline: One of it.
        windows_ms: For mode insert-id.
        extent: What to read.
        progress: Shows the pass.
        most_rows: The bound of the sample of ids, for each way.

    Raises:
        StopError: The broker cannot be reached, the topic is not there or has no records in the extent.
    """
    internal = repartition_topic(settings, pipeline), changelog_topic(settings, pipeline)
    # The first of these that is there says how many partitions the sink has.
    clean = [topic for topic in (pipeline.sink, *internal) if topic] if pipeline.routed else []
    async with opened(settings.kafka, "seqmark-simulate", pipeline.source, clean) as reader:
        found = Simulation(pipeline.name, pipeline.source, reader.partitions, notes=reader.notes)
        sink = next((reader.existing[topic] for topic in clean if topic in reader.existing), reader.partitions)
        ways = ways_of(pipeline, observe(reader.sample), found)
        taking = WayTaker(ways, windows_ms, (reader.partitions, sink), most_rows)
        plan, _ = await reader.plan(extent)
        began = time.process_time()
        offsets = sum(each.stop - each.start for each in plan)
        others = min(OTHER_RECORDS, max(_FEWEST_OTHER, offsets // _OTHER_SHARE)) // max(1, len(ways) - 1)
        await reader.run(plan, taking, others, progress)
    found.forecasts = [each.forecast() for each in taking.judging]
    found.cpu_s = time.process_time() - began
    if not found.forecasts[0].judged.records:
        raise StopError(f"{pipeline.source} has no records there")
    return found


class WayTaker:
    """Has ways take records: the first, which is the configured one, all of them, the others the first of them.

    Attributes:
        judging: Who judges, way by way; the first may keep more than all others.

    Args:
        ways: At least one.
        windows_ms: For mode insert-id.
        partitions: How many the source has, and the sink with a route.
        most_rows: The bound of the sample of ids, for each way.
    """

    def __init__(
        self, ways: Sequence[JudgingWay], windows_ms: Sequence[int], partitions: tuple[int, int], most_rows: int
    ) -> None:
        now_ms, beside = time.time_ns() // 1_000_000, max(1, len(ways) - 1)
        self.judging: list[IdWay | SequenceWay] = []
        for n, way in enumerate(ways):
            if way.dedup.mode == "insert-id":
                rows = most_rows if n == 0 else min(most_rows, OTHER_RECORDS // beside)
                cells = MOST_CELLS if n == 0 else MOST_CELLS // beside
                self.judging.append(IdWay(way, windows_ms, now_ms, partitions, rows, cells))
            else:
                most_bytes = MOST_SCOPE_BYTES if n == 0 else _OTHER_SCOPE_BYTES // beside
                self.judging.append(SequenceWay(way, most_bytes))

    def begin(self, partition: int, some: int) -> None:
        """Begin a partition, of which the first ``some`` records are for all ways."""
        self._partition, self._left = partition, some

    def take(self, columns: Columns) -> None:
        """Have the next records be taken.

        The first way notes which ones all have taken: what is compared is compared over the same records.
        """
        some = min(self._left, len(columns))
        self._left -= some
        if some:
            for each in self.judging:
                each.take(self._partition, columns.rows(0, some), shared=True)
        if some < len(columns):
            self.judging[0].take(self._partition, columns.rows(some, len(columns)))


def ways_of(pipeline: Pipeline, observed: Sequence[ObservedRecord], found: Simulation) -> list[JudgingWay]:
    """Return the configured way, and others.

    Args:
        pipeline: With the configured way.
        observed: Some records.
        found: Gets notes, and which members differ between copies.
    """
    ways = [JudgingWay("configured", pipeline.dedup, "as the config has it")]
    if not (proposed := proposals(observed)):
        return ways
    proposal, *more = proposed
    found.changing = sorted({name for each in proposal.candidates for name in each.changing})
    found.notes += proposal.notes
    found.candidates = _candidates(proposal)
    _add(ways, "proposed", proposal.dedup, proposal.reasons["mode"])
    ids = (each for each in more if each.dedup["mode"] == "insert-id" and not each.by_content)
    if proposal.dedup["mode"] == "watermark" and (other := next(ids, None)) is not None:
        _add(ways, "proposed", other.dedup, "the other way: the id of each record, within a window of time")
    sequences = [each.dedup for each in ways if each.dedup.mode == "watermark"][:1]
    varied = [*(each for of in sequences for each in _scopes(of, proposal, observed))]
    if pipeline.dedup.mode == "insert-id":
        varied += _by_content(pipeline.dedup, observed, found.changing)
    for dedup, why in varied:
        _add(ways, "compared", dedup, why)
    return ways


def _add(ways: list[JudgingWay], name: str, dedup: dict[str, Any], why: str) -> None:
    """Add a way of a name that a config takes, unless it is there; a proposed one that reads the same is."""
    try:
        way = JudgingWay(name, DEDUP.validate_python(dedup), why)
    except ValidationError:
        return
    of = _read if name == "proposed" else _whole
    if all(of(way.dedup) != of(each.dedup) for each in ways):
        ways.append(way)


def _whole(dedup: InsertIdDedup | WatermarkDedup) -> Any:
    return dedup


def _read(dedup: Any) -> Any:
    """Return the places that a way of judging reads."""
    return (dedup.id,) if dedup.mode == "insert-id" else (dedup.sequence, dedup.scope, dedup.epoch)


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


def _candidates(proposal: Proposal) -> list[dict[str, Any]]:
    """Return what nearly tells the records apart, or rises, the likeliest first."""
    found: list[dict[str, Any]] = []
    for each in proposal.candidates:
        rises = proposal.rises.get(each.places[0])
        if (each.common and each.unique) or rises is not None:
            counted = {name: getattr(each, name) for name in ("present", "distinct", "copies", "crossing")}
            risen = (None, 0, 0) if rises is None else (rises.scope, rises.reach, rises.reorder_window)
            names = "rising", "out_of_order", "reorder_window"
            found.append({"place": str(each), **counted, **dict(zip(names, risen, strict=True))})
    return found[:_SHOWN]
