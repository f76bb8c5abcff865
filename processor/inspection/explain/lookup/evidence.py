"""Reads what a record is judged by, and finds the record that carried a number.

A receipt of mode watermark knows a number and no record. The record that carried it stands before the dropped
one in the same partition and scope: it is looked for backwards, the newest first, some thousand at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import orjson

from processor.engine.extract.id_lists import id_lists
from processor.engine.extract.normalise import IdTextForm
from processor.engine.extract.routing import ROUTE_KEY
from processor.engine.repartition import targets
from processor.engine.verdict import Fault
from processor.engine.watermark.serial_numbers import ahead
from processor.inspection.explain.story import JudgedBy
from processor.judges.factory import mode_of
from processor.judges.ids import evidence_of, make_id_extractor

if TYPE_CHECKING:
    from processor.engine.batch.columns import Columns
    from processor.inspection.explain.lookup.clean import Passed
    from processor.inspection.explain.lookup.log import LogReader
    from processor.judges.ids import IdEvidence
    from processor.judges.watermark import SequenceEvidence
    from processor.kafka.client import TopicPartition
    from processor.wire.receipt_values import Epoch
    from schemas.config import Pipeline

MOST_BACK = 2_000_000
"""Offsets that are looked back for a number: about two seconds. What was sent again was sent soon, mostly."""
_FIRST_BACK, _MORE_BACK = 2048, 65_536


@dataclass(frozen=True)
class RecordEvidence:
    """What one record is judged by.

    Attributes:
        fault: Why it cannot be judged; `Fault.NONE`: it can.
        grounds: As far as the record alone says it.
        unjudged: It passes without being judged.
    """

    fault: Fault
    grounds: JudgedBy
    unjudged: bool = False


@dataclass(frozen=True)
class Carrier:
    """Which number is looked for, in which scope.

    Attributes:
        sequence: The number.
        epoch: Of the epoch, where there is one.
        later: Higher epochs count, too; where epochs have no order, any.
        scope: The scope's bytes.
        above: Any higher number of its epoch counts, and all later epochs: which it was nothing says.
    """

    sequence: int
    epoch: Epoch | None
    later: bool
    scope: bytes | None
    above: bool = False


class EvidenceReader:
    """Reads what the records of one pipeline are judged by.

    Args:
        pipeline: Its config.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        dedup = pipeline.id_dedup
        self._ids = None if dedup is None else make_id_extractor(dedup, ROUTE_KEY)
        self._judge = mode_of(pipeline).judge() if dedup is None else None
        sequences = pipeline.sequence_dedup
        self._reorder_window = 0 if sequences is None else sequences.reorder_window
        self._wraps = 0 if sequences is None else sequences.wraps
        self._changes = sequences is not None and sequences.changes

    def of(self, columns: Columns) -> RecordEvidence:
        """Return what a record is judged by; ``columns`` has it alone."""
        if self._ids is not None:
            found = evidence_of(self._ids, columns, kept=True)
            fault = Fault(int(found.fault[0]))
            unjudged = bool(found.ids.unjudged[0])
            return RecordEvidence(fault, JudgedBy(id=None if fault or unjudged else _id(found)), unjudged)
        sequences = self._sequences(columns)
        fault = Fault(int(sequences.fault[0]))
        if fault:
            return RecordEvidence(fault, JudgedBy())
        own = int(sequences.sequence[0]), None, _epoch(sequences, 0), _scope(sequences, 0)
        return RecordEvidence(fault, JudgedBy(*own))

    def target(self, columns: Columns, own: int, partitions: int) -> int:
        """Return the partition that a record is routed to; below 0: it cannot be."""
        assert self._ids is not None  # noqa: S101 - routes are by ids
        found = evidence_of(self._ids, columns, kept=True)
        return int(targets(found.ids, found.fault, own, partitions)[0][0])

    async def newest(
        self, log: LogReader, tp: TopicPartition, wanted: Carrier, span: tuple[int, int], passed: Passed
    ) -> tuple[int | None, int]:
        """Return the newest record in a span that carried a number and passed, and how far back was looked.

        Args:
            log: Reads them.
            tp: The source partition.
            wanted: The number.
            span: Of source offsets; the end is looked at first.
            passed: Says whether a record passed.

        Raises:
            StopError: They cannot be read.
        """
        begin, end = max(span[0], span[1] - MOST_BACK), span[1]
        many = _FIRST_BACK
        while end > begin:
            start = max(begin, end - many)
            found: list[int] = []
            async for some in log.stretches(tp, start, end):
                found += self._carriers(some.columns, wanted, start, end)
            for offset in sorted(set(found), reverse=True):
                if await passed(offset) is not False:
                    return offset, start
            end, many = start, min(many * 4, _MORE_BACK)
        return None, begin

    async def late(
        self, log: LogReader, tp: TopicPartition, own: JudgedBy, span: tuple[int, int], passed: Passed
    ) -> bool | None:
        """Return whether a record that was dropped lies behind all numbers that its scope remembers.

        So it does where a higher epoch came before it, or a number that is higher by more than the reorder
        window. Not, where its own number passed without that; one that was dropped says nothing, and neither
        does a higher one that was, where numbers wrap or epochs have no order. None: neither is found in the
        span, nor as far back as is looked. Arguments are as for `newest`.
        """
        begin, end = max(span[0], span[1] - MOST_BACK), span[1]
        many = _FIRST_BACK
        rises = not self._wraps and not self._changes
        while end > begin:
            start = max(begin, end - many)
            telling: list[tuple[int, bool]] = []
            async for some in log.stretches(tp, start, end):
                found = self._sequences(some.columns)
                inside = (found.fault == 0) & (some.columns.offset >= start) & (some.columns.offset < end)
                for row in np.flatnonzero(inside).tolist():
                    if _scope(found, row) != own.scope:
                        continue
                    beyond = self._beyond(own, _epoch(found, row), int(found.sequence[row]))
                    if beyond and rises:
                        return True
                    if beyond is not None:
                        telling.append((int(some.columns.offset[row]), beyond))
            for offset, beyond in reversed(telling):
                if await passed(offset):
                    return beyond
            end, many = start, min(many * 4, _MORE_BACK)
        return None

    def _beyond(self, own: JudgedBy, epoch: Epoch | None, number: int) -> bool | None:
        """Whether one that comes after such a number is late; False: it is the same one. None: neither."""
        if epoch != own.epoch:
            return self._changes or _later(epoch, own.epoch) or None
        far = ahead(number, own.sequence or 0, self._wraps)
        return True if far > self._reorder_window else False if far == 0 else None

    def _sequences(self, columns: Columns) -> SequenceEvidence:
        assert self._judge is not None  # noqa: S101 - of the other mode
        return cast("SequenceEvidence", self._judge.extract(columns))

    def _carriers(self, columns: Columns, wanted: Carrier, start: int, stop: int) -> list[int]:
        found = self._sequences(columns)
        hit = (found.fault == 0) & (columns.offset >= start) & (columns.offset < stop)
        if not wanted.above:
            hit &= found.sequence == wanted.sequence
        return [
            int(columns.offset[row])
            for row in np.flatnonzero(hit).tolist()
            if _scope(found, row) == wanted.scope
            and self._carries(wanted, _epoch(found, row), int(found.sequence[row]))
        ]

    def _carries(self, wanted: Carrier, epoch: Epoch | None, number: int) -> bool:
        """Whether a record of the scope, with the number if one is wanted, is what is looked for."""
        if epoch == wanted.epoch or wanted.epoch is None:
            return not wanted.above or ahead(number, wanted.sequence, self._wraps) > 0
        return (wanted.later or wanted.above) and (self._changes or _later(epoch, wanted.epoch))


def _later(one: Epoch | None, other: Epoch | None) -> bool:
    return isinstance(one, int) and isinstance(other, int) and one > other


def _epoch(found: SequenceEvidence, row: int) -> Epoch | None:
    """Return an epoch as receipts write it."""
    if found.epoch_id is None:
        return None if found.epoch is None else int(found.epoch[row])
    listed = id_lists(found.epoch_id, np.full(1, row))
    (epoch,) = orjson.loads(listed.data[int(listed.at[0]) :][: int(listed.size[0])].tobytes())
    return cast("Epoch", epoch)


def _scope(found: SequenceEvidence, row: int) -> bytes | None:
    if found.scope is None:
        return None
    at, size = int(found.scope[0][row]), int(found.scope[1][row])
    return found.data[at : at + size].tobytes() if size > 0 else b""


def _id(found: IdEvidence) -> list[object] | None:
    """Return an id as receipts write it; None: what they show of content needs the partition's secret."""
    if (found.ids.form == int(IdTextForm.CONTENT)).any():
        return None
    lists = id_lists(found.ids, np.zeros(1, np.int64))
    at, size = int(lists.at[0]), int(lists.size[0])
    parts: list[object] = orjson.loads(lists.data[at : at + size].tobytes())
    return parts
