"""Judges of mode ``watermark``: one sequence per partition, or one per scope with epochs and reordering."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, assert_never

import numpy as np
from typing_extensions import override

from processor.engine.batch.columns import HEADER_BYTES
from processor.engine.extract.ids import IdExtractor
from processor.engine.extract.parts import ColumnPart, HeaderPart, ValuePart
from processor.engine.extract.scopes import HeaderScope, KeyScope, PartitionScope, PartsScope
from processor.engine.extract.sequence import (
    ColumnSequence,
    HeaderSequence,
    SequenceFormat,
    ValueSequence,
    WrappingSequence,
)
from processor.engine.receipts import Grounds
from processor.engine.verdict import Verdict
from processor.engine.watermark import partition
from processor.engine.watermark.scope_table import ScopeTable
from processor.errors import StopError
from processor.judges.committed import ScopeMark, in_scopes
from processor.judges.dropped import DropCheck
from processor.judges.ids import json_rules_of, part_of, worker_clock_ms
from processor.judges.judge import Evidence, Judge
from processor.judges.mode import Mode
from processor.state.scope_log import ScopeLog, take_block
from processor.wire.codec import Codec, deflate
from processor.wire.encode import EncodedBatch
from schemas.changelog.values import CorruptStateError
from schemas.changelog.watermark import brought_key, decode_watermark, encode_watermark, watermark_key
from schemas.config import ColumnNumber, HeaderId, HeaderNumber, KeyId, ValueNumber, WatermarkDedup

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.ids import Ids
    from processor.engine.extract.json_matches import JsonRules
    from processor.engine.extract.parts import Part
    from processor.engine.extract.scopes import ScopeExtractor
    from processor.engine.extract.sequence import SequenceExtractor
    from processor.engine.watermark.scope_table import ScopeJudgement
    from processor.judges.dropped import ComparedDrops, PassedContents
    from processor.judges.redriving import Redriving
    from processor.state.table import Table
    from schemas.config.dedup import DedupTable, EpochSource, NumberSource

CHANGELOG_BATCH_BYTES = 1024 * 1024
"""Records of scopes are written in batches of at most this, whatever larger ones the changelog takes."""
EPOCH_KEY = b"seqmark's epochs"
"""The key of the hash by which epochs are told apart that have no order. It is no secret, and need not be: who
makes two epochs of one hash has records of his own scope dropped, which a high number does as well."""
_SEED = os.urandom(16)
"""Secret: nobody can choose scopes that slow a table down. A later table has the tags of an earlier one."""
_NUMBER = {"from": "header", "name": "n", "format": "int64"}


class WatermarkMode(Mode[WatermarkDedup]):
    """Sequences that grow: what is not above the last one seen is dropped."""

    examples: ClassVar[list[dict[str, Any]]] = [
        {"mode": "watermark", "sequence": _NUMBER},
        {"mode": "watermark", "sequence": {"from": "value", "pointer": "/n"}, "scope": "header:id"},
        {"mode": "watermark", "sequence": _NUMBER, "scope": "key", "epoch": _NUMBER},
        {"mode": "watermark", "sequence": _NUMBER, "scope": "partition", "reorder_window": 64},
        {
            "mode": "watermark",
            "sequence": _NUMBER,
            "epoch": {"from": "header", "name": "id", "order": "change"},
        },
        {"mode": "watermark", "sequence": {"from": "column", "number": 1}, "scope": ["key", "value:/s|/n"]},
    ]

    @override
    def judge(self, now_ms: Callable[[], int] = worker_clock_ms) -> PartitionWatermark | ScopedWatermark:
        del now_ms  # nothing expires
        dedup, rules = self._dedup, json_rules_of(self._dedup)
        sequence = make_extractor(dedup.sequence, rules)
        if dedup.scope == "partition" and dedup.epoch is None and not dedup.reorder_window:
            return PartitionWatermark(sequence, dedup.wraps)
        epoch = None if dedup.epoch is None else _epoch(dedup.epoch, rules)
        changelog = f"the changelog of pipeline {self._pipeline}"
        return ScopedWatermark(_scope(dedup, rules), sequence, epoch, scope_table(dedup), changelog)


def scope_table(dedup: WatermarkDedup) -> ScopeTable:
    """Return a table for the scopes of one partition, empty."""
    return ScopeTable(
        _SEED,
        epoch=dedup.epoch is not None,
        changes=dedup.changes,
        window=dedup.reorder_window,
        wraps=dedup.wraps,
    )


@dataclass(slots=True)
class SequenceEvidence(Evidence):
    """What mode ``watermark`` judges by.

    Attributes:
        sequence: int64[n].
        epoch: int64[n], where the definition has one.
        scope: Where scopes stand in ``data``, int64[n] begin and int64[n] size, where there are many.
        epoch_id: In place of ``epoch`` where epochs have no order: each as an id of one part.
        columns: The records, whose contents are compared.
    """

    sequence: NDArray[np.int64]
    epoch: NDArray[np.int64] | None = None
    scope: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    epoch_id: Ids | None = None
    columns: Columns | None = None

    @property
    def epochs(self) -> NDArray[np.int64]:
        """What they are compared by: int64[n], or of those that have no order int64[n, 2]; zeros without."""
        if self.epoch_id is not None:
            return self.epoch_id.hash.view(np.int64)
        return np.zeros(self.sequence.size, np.int64) if self.epoch is None else self.epoch

    @override
    def part(self, rows: slice) -> SequenceEvidence:
        epoch = None if self.epoch is None else self.epoch[rows]
        scope = None if self.scope is None else (self.scope[0][rows], self.scope[1][rows])
        epoch_id = None if self.epoch_id is None else self.epoch_id.part(rows)
        columns = None if self.columns is None else self.columns.rows(*rows.indices(len(self.columns))[:2])
        own = self.sequence[rows], epoch, scope, epoch_id, columns
        return SequenceEvidence(self.fault[rows], self.data, *own)


class SequenceJudge(Judge[SequenceEvidence]):
    """What both judges have in common.

    Attributes:
        wraps: Where numbers begin again; 0: nowhere.
        unordered: Whether epochs have no order.
    """

    def __init__(self, wraps: int = 0, *, unordered: bool = False) -> None:
        self.wraps, self.unordered = wraps, unordered

    _drops: DropCheck | None = None

    @override
    def compare_drops(self, passed: PassedContents, partition: int) -> None:
        again = bool(self.wraps) or self.unordered
        self._drops = DropCheck(passed, partition, self._floors(), again=again)

    @override
    def take_compared(self) -> ComparedDrops | None:
        return None if self._drops is None else self._drops.take()

    @override
    def judge(self, evidence: SequenceEvidence) -> Grounds:
        return self._compared(evidence, *self._judged(evidence))

    @override
    def judge_again(self, evidence: SequenceEvidence, redriving: Redriving) -> Grounds:
        if not self.wraps and not self.unordered:
            judged, tag = self._judged(evidence)
            return self._compared(evidence, redriving.by_number(judged, self.numbers(evidence)), tag)
        # Out of its order a number may be of any round, and an epoch one that is over: it passes, and must not
        # move a state by which new records would be old.
        marks = [self._mark(scope) for scope in _scopes(evidence)]
        given = evidence.sequence, np.array(marks, np.int64), evidence.epoch, evidence.epoch_id
        verdict = np.full(evidence.sequence.size, Verdict.PASS if self.wraps else Verdict.LATE, np.uint8)
        if self._drops is not None:
            self._drops.begin_anew()
        return redriving.by_number(Grounds(verdict, *given), self.numbers(evidence))

    @abstractmethod
    def _mark(self, scope: bytes) -> int:
        """Return the watermark of a scope as it is staged; 0: it has none."""

    def _compared(self, evidence: SequenceEvidence, judged: Grounds, tag: NDArray[np.uint32] | None) -> Grounds:
        if self._drops is not None and evidence.columns is not None:
            epoch = evidence.epoch if evidence.epoch_id is None else evidence.epochs[:, 0]
            self._drops.saw(evidence.columns, tag, evidence.sequence, epoch, judged.verdict)
        return judged

    def _unordered_floors(self, floors: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return floors above all numbers where these have no order, and a scope has any."""
        if self.wraps or self.unordered:
            floors[floors[:, 0] > np.iinfo(np.int64).min] = np.iinfo(np.int64).max
        return floors

    @override
    def numbers(self, evidence: SequenceEvidence) -> Sequence[Hashable]:
        """Return scope, epoch and sequence of each; none where numbers wrap, and the same is another."""
        rows = evidence.sequence.tolist()
        if self.wraps:
            return ()
        epochs = (tuple(each) if isinstance(each, list) else each for each in evidence.epochs.tolist())
        return list(zip(_scopes(evidence), epochs, rows, strict=True))

    @abstractmethod
    def _judged(self, evidence: SequenceEvidence) -> tuple[Grounds, NDArray[np.uint32] | None]:
        """Judge as `judge` does; return tags of the records' scopes, too, where there are many."""

    @abstractmethod
    def _floors(self) -> NDArray[np.int64]:
        """Return up to where numbers have passed, see `processor.engine.watermark.dropped`."""


class PartitionWatermark(SequenceJudge):
    """Scope ``partition``: one sequence for the whole partition."""

    def __init__(self, extractor: SequenceExtractor, wraps: int = 0) -> None:
        super().__init__(wraps)
        self._extractor = extractor
        self._committed: int | None = None
        self._staged: int | None = None
        self._brought: int | None = None
        self._dropped_by_brought = 0

    @override
    def load(self, table: Table) -> None:
        key, first = watermark_key(), brought_key(0)
        value, brought = table.store.get_many([key, first])
        if value is not None:
            self._committed = self._staged = decode_watermark(key, value)
        elif brought is not None:
            self._committed = self._staged = _only_sequence(first, brought)

    @override
    def begin_with(self, blocks: Iterable[tuple[bytes, bytes]]) -> None:
        for key, value in blocks:
            self._committed = self._staged = self._brought = _only_sequence(key, value)

    @override
    def take_brought(self) -> int:
        count, self._dropped_by_brought = self._dropped_by_brought, 0
        return count

    @override
    def extract(self, columns: Columns) -> SequenceEvidence:
        sequence, fault = self._extractor.extract(columns)
        return SequenceEvidence(fault, columns.data, sequence, columns=columns)

    @override
    def _judged(self, evidence: SequenceEvidence) -> tuple[Grounds, None]:
        verdict, before, self._staged = partition.judge(
            self._staged, evidence.sequence, evidence.fault, self.wraps
        )
        if self._brought is not None:
            by_it = _is_dropped(verdict) & (before == self._brought)
            self._dropped_by_brought += int(np.count_nonzero(by_it))
        return Grounds(verdict, evidence.sequence, before), None

    @override
    def _floors(self) -> NDArray[np.int64]:
        floors = np.array([] if self._staged is None else [0, self._staged], np.int64).reshape(-1, 2)
        return self._unordered_floors(floors)

    @override
    def _mark(self, scope: bytes) -> int:
        return self._staged or 0

    @override
    def changes(self) -> dict[bytes, bytes | None]:
        if self._staged == self._committed or self._staged is None:
            return {}
        key = watermark_key()
        return {key: encode_watermark(key, self._staged)}

    @override
    def restate(self) -> None:
        self._committed = None

    @override
    def committed(self) -> None:
        self._committed = self._staged

    @override
    def size(self) -> tuple[int, int]:
        return int(self._committed is not None), 8

    @override
    def scope_mark(self, scope: bytes) -> ScopeMark | None:
        known = self._committed is not None and not scope
        return ScopeMark(self._committed or 0, None, committed=True) if known else None

    @override
    def watermarks(self) -> Iterable[int]:
        return () if self._committed is None else (self._committed,)


class ScopedWatermark(SequenceJudge):
    """Any scope, epoch and reorder window.

    Args:
        scope: Reads what scopes a record.
        sequence: Reads its sequence.
        epoch: Reads its epoch, if there is one.
        table: Empty, and only for this judge: it holds what is staged and what is committed at once.
        changelog: The changelog topic, for messages.
    """

    def __init__(
        self,
        scope: ScopeExtractor,
        sequence: SequenceExtractor,
        epoch: SequenceExtractor | IdExtractor | None,
        table: ScopeTable,
        changelog: str = "the changelog",
    ) -> None:
        super().__init__(table.wraps, unordered=table.unordered)
        self._scope = scope
        self._sequence = sequence
        self._epoch = epoch
        self._table = table
        self._changelog = changelog
        self._brought: ScopeTable | None = None
        self._dropped_by_brought = 0
        self.log = ScopeLog(table)
        self._restated = False
        # Bitmaps are mostly runs of equal bits, and up to 8 KiB each.
        self._codec = Codec.LZ4 if table.window else Codec.NONE

    @override
    def extract(self, columns: Columns) -> SequenceEvidence:
        # Of several faults the first of scope, sequence and epoch counts.
        data, at, size, fault = self._scope.extract(columns)
        sequence, more = self._sequence.extract(columns)
        np.copyto(fault, more, where=fault == 0)
        epoch = epoch_id = None
        if isinstance(self._epoch, IdExtractor):
            epoch_id = self._epoch.extract(columns)
            np.copyto(fault, epoch_id.fault, where=fault == 0)
        elif self._epoch is not None:
            epoch, more = self._epoch.extract(columns)
            np.copyto(fault, more, where=fault == 0)
        own = sequence, epoch, (at, size), epoch_id, columns
        return SequenceEvidence(fault, data, *own)

    @override
    def _judged(self, evidence: SequenceEvidence) -> tuple[Grounds, NDArray[np.uint32]]:
        assert evidence.scope is not None  # noqa: S101 - `extract` gave it
        own = evidence.sequence, evidence.epochs
        judged = self._table.judge(evidence.data, *evidence.scope, *own, evidence.fault)
        if self._brought is not None:
            self._dropped_by_brought += _dropped_by(self._brought, evidence, judged)
        numbers = evidence.sequence, judged.watermark, evidence.epoch
        return Grounds(judged.verdict, *numbers, evidence.epoch_id), judged.tag

    @override
    def _floors(self) -> NDArray[np.int64]:
        return self._unordered_floors(self._table.floors())

    @override
    def begin_with(self, blocks: Iterable[tuple[bytes, bytes]]) -> None:
        self._brought = ScopeTable(os.urandom(16), epoch=self._epoch is not None, window=self._table.window)
        for key, value in blocks:
            for table in (self._table, self._brought):
                take_block(table, key, value, track=False)

    @override
    def take_brought(self) -> int:
        count, self._dropped_by_brought = self._dropped_by_brought, 0
        return count

    @override
    def changelog_batches(self, limit_bytes: int) -> list[EncodedBatch]:
        most = min(limit_bytes, CHANGELOG_BATCH_BYTES) - HEADER_BYTES
        if self._codec is not Codec.NONE:
            most -= most // 128 + 64  # what LZ4 adds to what it cannot compress
        now_ms = int(time.time() * 1000)
        batches = []
        try:
            which = self._table.all() if self._restated else self._table.changed()
            for payload, count in self._table.encode(which, most):
                data = deflate(self._codec, np.frombuffer(payload, np.uint8))
                batches.append(EncodedBatch(self._codec, now_ms, now_ms, count, data))
        except ValueError as error:
            raise StopError(
                f"{self._changelog}: {error}, which a batch of it takes: raise its max.message.bytes "
                "(at most 1 MiB is used), or choose a shorter scope"
            ) from error
        return batches

    @override
    def restate(self) -> None:
        self._restated = True

    @override
    def committed(self) -> None:
        self._table.committed()
        self._restated = False

    @override
    def absorb(self, at_least: int = 0) -> None:
        super().absorb(at_least)
        self._table.saved()

    @override
    def _mark(self, scope: bytes) -> int:
        mark = in_scopes(self._table, scope)
        return 0 if mark is None else mark.sequence

    @override
    def scope_mark(self, scope: bytes) -> ScopeMark | None:
        return in_scopes(self._table, scope)

    @override
    def size(self) -> tuple[int, int]:
        return len(self._table), self._table.size_bytes


def _scopes(evidence: SequenceEvidence) -> list[bytes]:
    """Return the scope of each."""
    if evidence.scope is None:
        return [b""] * evidence.sequence.size
    spans = zip(evidence.scope[0].tolist(), evidence.scope[1].tolist(), strict=True)
    return [evidence.data[at : at + size].tobytes() for at, size in spans]


def _is_dropped(verdict: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return bool[n]: whether the record was dropped."""
    dropped: NDArray[np.bool_] = (verdict == Verdict.DUPLICATE) | (verdict == Verdict.LATE)
    return dropped


def brought_mark(dedup: DedupTable, scope: bytes, key: bytes, block: bytes) -> ScopeMark | None:
    """Return what a block that a backfill has brought has of a scope; None: nothing.

    Raises:
        CorruptStateError: It is not whole, or of another definition.
    """
    assert isinstance(dedup, WatermarkDedup)  # noqa: S101 - no other mode has such blocks
    table = scope_table(dedup)
    take_block(table, key, block, track=False)
    return in_scopes(table, scope)


def _only_sequence(key: bytes, block: bytes) -> int:
    """Return what a block of scope ``partition`` alone says."""
    table = ScopeTable(os.urandom(16), epoch=False, window=0)
    take_block(table, key, block, track=False)
    mark = in_scopes(table, b"")
    if mark is None or len(table) != 1:
        raise CorruptStateError(f"block {key!r} has scopes, and there is one sequence per partition")
    return mark.sequence


def _dropped_by(brought: ScopeTable, evidence: SequenceEvidence, judged: ScopeJudgement) -> int:
    """Count the records that were dropped by a watermark which stands as ``brought`` has it."""
    assert evidence.scope is not None  # noqa: S101 - `extract` gave it
    dropped = _is_dropped(judged.verdict)
    # The least number of the least epoch moves no watermark: so it only asks.
    least = np.full(dropped.size, np.iinfo(np.int64).min)
    fault = (~dropped).astype(np.uint8)
    held = brought.judge(evidence.data, *evidence.scope, least, least, fault)
    brought.committed()
    brought.saved()
    same = held.known & (held.watermark == judged.watermark) & (held.epoch == judged.epoch)
    return int(np.count_nonzero(dropped & same))


def make_extractor(source: NumberSource, rules: JsonRules) -> SequenceExtractor:
    """Return what reads a sequence, or an epoch, from where the config says."""
    match source:
        case HeaderNumber():
            numbers: SequenceExtractor = HeaderSequence(
                source.name.encode(), SequenceFormat[source.format.upper()]
            )
        case ValueNumber():
            numbers = ValueSequence(source.pointer, text=source.format == "text", rules=rules)
        case ColumnNumber():
            numbers = ColumnSequence(source.number, source.separator.encode())
        case other:
            assert_never(other)
    wraps: int | None = getattr(source, "wraps", None)
    return numbers if wraps is None else WrappingSequence(numbers, wraps)


def _epoch(source: EpochSource, rules: JsonRules) -> SequenceExtractor | IdExtractor:
    if source.order == "rising":
        return make_extractor(source, rules)
    part: Part
    match source:
        case HeaderNumber():
            part = HeaderPart(source.name.encode())
        case ValueNumber():
            part = ValuePart(source.pointer)
        case ColumnNumber():
            part = ColumnPart(source.number, source.separator.encode())
        case other:
            assert_never(other)
    return IdExtractor([part], EPOCH_KEY, rules=rules)


def _scope(dedup: WatermarkDedup, rules: JsonRules) -> ScopeExtractor:
    match dedup.scope_parts:
        case []:
            return PartitionScope()
        case [KeyId(normalise=None)]:
            return KeyScope()
        case [HeaderId(normalise=None) as part]:
            return HeaderScope(part.name.encode())
        case parts:
            return PartsScope([part_of(each) for each in parts], rules)
