"""Finds the verdict record that speaks of a source offset, by a few small fetches.

Ranges rise from record to record of one state. A reset begins another one, with ranges that may lie before: the
records of the state of now are those that are not older than it, by their timestamps. Among them the offsets of
the topic are halved; what a state before has said is looked for in all that is retained of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.verdict import Fault
from processor.errors import StopError
from processor.inspection.explain.lookup.eras import REPLACED
from processor.kafka.client import Client, TopicPartition
from processor.wire.receipt_values import RecordRef
from schemas.changelog.topic_ids import TopicId
from schemas.verdicts.record import UNKNOWN_TOPIC, Action, CorruptVerdictError, VerdictRecord, base_of, begun_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from processor.inspection.explain.case import SourceCase
    from processor.inspection.explain.lookup.log import LogReader, LogStretch


class DamagedVerdictError(StopError):
    """The verdict record that speaks of an offset is not right."""


class SaidVerdict(NamedTuple):
    """A verdict record, and where it stands."""

    ref: RecordRef
    verdict: VerdictRecord

    def passes(self, offset: int) -> bool:
        """Whether a source offset of its range is in the clean stream."""
        return offset not in self.verdict.skipped

    def fault(self, offset: int) -> Fault:
        """Return why a source offset of its range is in quarantine."""
        at = np.flatnonzero(self.verdict.quarantined == offset)
        return Fault(int(self.verdict.faults[at[0]])) if at.size else Fault.NONE

    def action(self, offset: int) -> str | None:
        """Return what has become of a collision, in the config's word; None: it is none."""
        at = np.flatnonzero(self.verdict.collided == offset)
        return Action(int(self.verdict.actions[at[0]])).name.lower() if at.size else None


class _Stored(NamedTuple):
    """A verdict record of which only the head is read."""

    offset: int
    timestamp_ms: int
    base: int
    value: bytes


@dataclass(frozen=True)
class VerdictLookup:
    """The topics of verdicts.

    Attributes:
        client: Knows topic ids.
        log: Reads records.
    """

    client: Client
    log: LogReader

    async def covering(self, case: SourceCase) -> SaidVerdict | None:
        """Return the newest record whose range has a source offset; None: there is none.

        Raises:
            DamagedVerdictError: The record is not right.
            StopError: Something cannot be read.
        """
        tp = self._partition(case)
        if tp not in case.facts.bounds:
            return None
        found = await (self._now(case, tp) if case.is_judged else self._before(case, tp))
        return None if found is None else self._read(case, tp, found)

    async def clean(self, case: SourceCase) -> RecordRef | None:
        """Return where a record stands in the clean stream, which is where it stands in the source."""
        if case.record is None or case.offset >= case.high:
            return None
        said = await self.covering(case)
        source = RecordRef(case.source.topic, case.source.partition, case.offset)
        return source if said is not None and said.passes(case.offset) else None

    async def untold(self, case: SourceCase) -> str:
        """Return why nothing need speak of a record that the run of now has judged; empty: something must."""
        tp = self._partition(case)
        limits = case.facts.bounds.get(tp)
        if limits is None:
            return f"there is no {tp.topic}:{tp.partition}"
        if (last := case.facts.last) is not None:
            now = TopicId.of(tp.topic, self.client.ids.get(tp.topic, UNKNOWN_TOPIC))
            if last.verdicts.made_anew(now):
                return f"the verdict record of that time was in a topic {REPLACED}"
            if last.verdicts.name_crc != now.name_crc:
                return "the pipeline wrote no verdicts to this topic then"
        before = await self._now(case, tp)
        if before is None and limits.start:
            return "the verdict record of that time is not retained any more"
        start = limits.start if before is None else before.offset + 1
        after = next(iter(await self._some_from(tp, start, limits.stable)), None)
        begins = after is not None and begun_at(after.value) is not None
        return "the pipeline wrote no verdicts then" if begins else ""

    @staticmethod
    def _partition(case: SourceCase) -> TopicPartition:
        return TopicPartition(case.pipeline.verdicts or "", case.source.partition)

    def _read(self, case: SourceCase, tp: TopicPartition, found: _Stored) -> SaidVerdict | None:
        ref = RecordRef(tp.topic, tp.partition, found.offset)
        try:
            verdict = VerdictRecord.decode(found.value)
        except CorruptVerdictError as error:
            raise DamagedVerdictError(f"{ref}: the verdict record: {error}") from error
        now = self.client.ids.get(case.source.topic, UNKNOWN_TOPIC)
        other = UNKNOWN_TOPIC not in {verdict.topic_id, now} and verdict.topic_id != now
        return SaidVerdict(ref, verdict) if verdict.base <= case.offset < verdict.end and not other else None

    async def _now(self, case: SourceCase, tp: TopicPartition) -> _Stored | None:
        """Return the last record of the state of now that begins at an offset or before it."""
        limits, since_ms = case.facts.bounds[tp], case.facts.since_ms
        low, high, best = limits.start, limits.stable, None
        while low < high:
            middle = (low + high) // 2
            some = await self._some_from(tp, middle, limits.stable)
            # Of a state before: all of its ranges are before those of now.
            beyond = [each.timestamp_ms >= since_ms and each.base > case.offset for each in some]
            if not some or beyond[0]:
                high = middle
            elif True in beyond:
                best = some[beyond.index(True) - 1]
                break
            else:
                low, best = some[-1].offset + 1, some[-1]
        return best if best is not None and best.timestamp_ms >= since_ms else None

    async def _before(self, case: SourceCase, tp: TopicPartition) -> _Stored | None:
        """Return the last record of a state before that of now that has an offset."""
        limits, best = case.facts.bounds[tp], None
        async for stretch in self.log.stretches(tp, limits.start, limits.stable):
            for each in _records(stretch, limits.start, limits.stable):
                if each.timestamp_ms >= case.facts.since_ms:
                    return best
                # Its end stands in the head too, and is looked at when it is read.
                if each.base <= case.offset and self._read(case, tp, each) is not None:
                    best = each
        return best

    async def _some_from(self, tp: TopicPartition, offset: int, stop: int) -> list[_Stored]:
        """Return some records, from the first at or behind ``offset`` on; none: none is before ``stop``."""
        while offset < stop:
            stretch = await self.log.stretch(tp, offset, stop)
            if found := list(_records(stretch, offset, stop)):
                return found
            offset = stretch.stop
        return []


def _records(stretch: LogStretch, start: int, stop: int) -> Iterator[_Stored]:
    """Yield the verdict records of a stretch; what is none was written by somebody else."""
    columns = stretch.columns
    for row in range(len(columns)):
        offset = int(columns.offset[row])
        at, size = int(columns.value[row]), max(0, int(columns.value_length[row]))
        value = columns.data[at : at + size].tobytes()
        if start <= offset < stop and (base := base_of(value)) is not None:
            yield _Stored(offset, int(columns.timestamp[row]), base, value)
