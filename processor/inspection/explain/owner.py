"""Finds the record that had passed, which a dropped or colliding one was compared with, and how both differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from processor.errors import StopError
from processor.inspection.explain.lookup.eras import noun
from processor.inspection.explain.lookup.evidence import Carrier
from processor.inspection.explain.lookup.log import shown
from processor.inspection.explain.story import Outcome, PassedOwner
from processor.judges.ids import json_rules_of
from processor.pipeline.complaints import parsed
from processor.wire.receipt_values import RecordRef

if TYPE_CHECKING:
    from processor.engine.extract.json_matches import JsonRules
    from processor.inspection.explain.case import SourceCase
    from processor.inspection.explain.records import RecordFinder
    from processor.inspection.explain.story import JudgedBy, ShownRecord, Story
    from processor.kafka.offsets import Bounds
    from processor.wire.receipt_values import ReceiptValue
    from schemas.changelog.position import Origin
    from schemas.config import Pipeline

MOST_NAMED = 20
"""Fields; of more it is said how many there are."""
MOST_COMPARED_BYTES = 4 * 1024 * 1024
_MOST_LEAVES = 100_000
_ABSENT = object()
_COMPARED = {Outcome.DUPLICATE, Outcome.LATE, Outcome.COLLISION}


@dataclass
class OwnerFinder:
    """Finds the owner of one record.

    Attributes:
        records: Finds what there is of records.
    """

    records: RecordFinder

    async def find(self, story: Story, case: SourceCase, receipt: ReceiptValue | None) -> None:
        """Put the owner into a story; ``receipt`` is the record's, None where it has none.

        Raises:
            StopError: Something cannot be read.
        """
        await self._times(story, case)
        if story.outcome not in _COMPARED:
            return
        if receipt is not None and receipt.backfill is not None:
            story.owner = PassedOwner(backfill=receipt.backfill, note="it came before the stream began")
        elif receipt is not None and receipt.owner is not None:
            story.owner = await self._shown(story, case, receipt.owner)
        elif case.pipeline.id_dedup is None:
            story.owner = await self._carrier(story, case)
        elif receipt is None:
            story.owner = await self._same_id(story)
        else:
            story.owner = PassedOwner(note="Bloom filters do not know which record had passed")

    async def _times(self, story: Story, case: SourceCase) -> None:
        """Note what the clock read, as far as it follows."""
        dedup = case.pipeline.id_dedup
        if dedup is None:
            return
        if story.expires_ms is not None:
            story.clock_ms = story.expires_ms - dedup.window
        elif story.outcome is Outcome.PASSED and dedup.time == "record" and case.record is not None:
            timestamp = int(case.record.timestamp[0])
            if timestamp < 0 or story.why:
                return
            ahead = dedup.max_ahead
            if ahead is not None and timestamp > case.facts.since_ms + ahead:
                # It may have been ahead of the clock, which reads less then.
                after_ms = await self.records.judged_after_ms(case)
                if after_ms is None:
                    return
                timestamp = min(timestamp, after_ms + ahead)
            story.expires_ms, story.expires_least = timestamp + dedup.window, True

    async def _same_id(self, story: Story) -> PassedOwner:
        """Return what is known of the owner where there is no receipt."""
        return PassedOwner(
            note="no receipt names it; `seqmark explain --id` finds the records with this id"
            if story.grounds.id
            else "no receipt names it"
        )

    async def _shown(self, story: Story, case: SourceCase, ref: RecordRef) -> PassedOwner:
        """Return an owner that is known by its position."""
        if ref.topic != case.pipeline.source or ref.partition not in self.records.client.partitions(ref.topic):
            return PassedOwner(ref, note=f"{ref.topic}:{ref.partition} is no partition of the source")
        other = await self.records.case(case.pipeline, ref)
        if other.record is None:
            limits = other.facts.bounds[other.source]
            return PassedOwner(
                ref, note=f"it is not retained any more: the partition begins at offset {limits.start}"
            )
        record = shown(other.source, other.record)
        note, clean = "", None
        try:
            clean = await self.records.standing(other)
        except StopError as error:
            note = str(error)
        if clean is None and not note:
            note = await self._elsewhere(other)
        rules = json_rules_of(case.pipeline.dedup)
        differs = None if story.record is None else differences(story.record, record, rules)
        return PassedOwner(ref, record=record, clean=clean, differs=differs, note=note)

    async def _elsewhere(self, case: SourceCase) -> str:
        """Say that an owner passed to a topic that is not that of now; empty: it did not."""
        why = case.elsewhere(case.pipeline.sink)
        if not case.is_judged:
            found = await self.records.eras.before(
                case.pipeline, case.source.partition, case.facts, case.offset
            )
            why = next((each.elsewhere.get("sink", "") for each in found if not each.source), "")
        return f"it passed to {noun('sink', why)}" if why else ""

    async def _was_dropped(self, case: SourceCase) -> bool:
        """Whether a receipt says that a record was dropped, or would have been if nobody had only observed."""
        if case.is_judged:
            return await self.records.receipt(case) is not None
        found = await self.records.earlier(case, surely=True)
        return any(each.outcome in _COMPARED for each, _ in found)

    async def _carrier(self, story: Story, case: SourceCase) -> PassedOwner:
        """Return the record that carried the number which a receipt names, in the same scope."""
        wanted = self._wanted(story.outcome, story.grounds, case.pipeline)
        if case.record is None:
            return PassedOwner(note="the record itself is gone, so that its scope is not known")
        if wanted is None:
            return PassedOwner(note="nothing names the number that it was compared with")
        finder, limits = self.records, case.facts.bounds[case.source]
        origin = case.facts.origin
        # Runs before that of now knew more than it: who sets back makes the state again from there on.
        known = 0 if origin is None or case.offset < case.low else origin.known_from
        begin = max(limits.start, known)

        async def passed(offset: int) -> bool | None:
            said = await finder.passed(case, offset) if offset >= case.low else None
            if said is False:
                return False
            other = await finder.case(
                case.pipeline, RecordRef(case.source.topic, case.source.partition, offset)
            )
            if await self._was_dropped(other):
                return False
            if said is None:
                said = await finder.standing(other) is not None
                if not said and await self._elsewhere(other):
                    return None
            return said

        reader = finder.reader(case.pipeline)
        offset, looked = await reader.newest(finder.log, case.source, wanted, (begin, case.offset), passed)
        if offset is None and origin is not None and origin.backfill and case.offset >= case.low:
            return self._of_backfill(origin, limits, looked, begin)
        if offset is None:
            gone = "retention has removed it, or it is older" if looked <= begin else "it is older"
            return PassedOwner(note=f"not found from offset {looked} on: {gone}")
        return await self._shown(story, case, RecordRef(case.source.topic, case.source.partition, offset))

    @staticmethod
    def _of_backfill(origin: Origin, limits: Bounds, looked: int, begin: int) -> PassedOwner:
        """Say that no record since a state's beginning carried the number: the backfill has brought it."""
        if looked <= begin and limits.start <= origin.known_from:
            return PassedOwner(backfill=origin.backfill, note="it came before the stream began")
        since = f"backfill {origin.backfill} has brought it, or a record that is not retained any more"
        return PassedOwner(note=f"not found from offset {looked} on: {since}")

    @staticmethod
    def _wanted(outcome: Outcome, grounds: JudgedBy, pipeline: Pipeline) -> Carrier | None:
        late = outcome is Outcome.LATE
        number = grounds.watermark if late else grounds.sequence
        if number is not None:
            return Carrier(number, grounds.epoch, late, grounds.scope)
        reorder_window: int = getattr(pipeline.dedup, "reorder_window", 0)
        if grounds.sequence is None or reorder_window:
            return None
        # No receipt names the watermark: without a reorder window the last that passed carried it.
        return Carrier(grounds.sequence, grounds.epoch, late, grounds.scope, above=True)


def differences(one: ShownRecord, other: ShownRecord, rules: JsonRules) -> tuple[str, ...]:
    """Return in what two records differ, their timestamps aside; empty: they have the same bytes."""
    found = ["key"] if one.key != other.key else []
    if one.value != other.value:
        found += _of_values(one.value, other.value, rules)
    if one.headers != other.headers:
        found += _of_headers(dict(one.headers), dict(other.headers))
    if len(found) > MOST_NAMED:
        found = [*found[:MOST_NAMED], f"and {len(found) - MOST_NAMED:,} more"]
    return tuple(found)


def _of_headers(one: dict[bytes, bytes | None], other: dict[bytes, bytes | None]) -> list[str]:
    """Return the headers that differ; of several of one name the last counts."""
    names = [
        name for name in dict.fromkeys([*one, *other]) if one.get(name, _ABSENT) != other.get(name, _ABSENT)
    ]
    return [f"header {name.decode(errors='backslashreplace')}" for name in names] or [
        "order or number of headers"
    ]


def _of_values(one: bytes | None, other: bytes | None, rules: JsonRules) -> list[str]:
    if one is None or other is None or max(len(one), len(other)) > MOST_COMPARED_BYTES:
        return ["value"]
    try:
        left, right = _leaves(parsed(one, rules)), _leaves(parsed(other, rules))
    except (ValueError, RecursionError):
        return ["value"]
    names = [at for at in dict.fromkeys([*left, *right]) if left.get(at, _ABSENT) != right.get(at, _ABSENT)]
    before = "" if one[:1] == other[:1] == b"{" else "what stands before it, "
    return names or [f"value ({before}the order of its members, or its spaces)"]


def _leaves(value: Any) -> dict[str, Any]:
    """Return the leaves of a value by their pointers; of numbers and booleans also of which type they are."""
    found: dict[str, Any] = {}
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        at, each = left.pop()
        if isinstance(each, dict) and each:
            left += [(f"{at}/{_escaped(name)}", below) for name, below in reversed(each.items())]
        elif isinstance(each, list) and each:
            left += [(f"{at}/{number}", below) for number, below in reversed(list(enumerate(each)))]
        else:
            found[at or "value"] = type(each), each
        if len(found) + len(left) > _MOST_LEAVES:
            raise ValueError
    return found


def _escaped(name: str) -> str:
    # What is no UTF-8 is printed, and written as JSON.
    return name.replace("~", "~0").replace("/", "~1").encode(errors="backslashreplace").decode()
