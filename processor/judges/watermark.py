"""Judges of mode ``watermark``: one sequence per partition, or one per scope with epochs and reordering."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, assert_never

import numpy as np
from typing_extensions import override

from processor.engine.batch.columns import HEADER_BYTES
from processor.engine.extract.sequence import (
    HeaderScope,
    HeaderSequence,
    KeyScope,
    PartitionScope,
    SequenceFormat,
    ValueSequence,
)
from processor.engine.receipts import Grounds
from processor.engine.verdict import Verdict
from processor.engine.watermark import partition
from processor.engine.watermark.scope_table import ScopeTable
from processor.errors import StopError
from processor.judges.committed import ScopeMark, in_scopes
from processor.judges.ids import worker_clock_ms
from processor.judges.judge import Evidence, Judge
from processor.judges.mode import Mode
from processor.state.scope_log import ScopeLog, take_block
from processor.wire.codec import Codec, deflate
from processor.wire.encode import EncodedBatch
from schemas.changelog.values import CorruptStateError
from schemas.changelog.watermark import brought_key, decode_watermark, encode_watermark, watermark_key
from schemas.config import HeaderSource, ValueSource, WatermarkDedup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.sequence import ScopeExtractor, SequenceExtractor
    from processor.engine.watermark.scope_table import ScopeJudgement
    from processor.state.table import Table
    from schemas.config.dedup import DedupTable, SequenceSource

CHANGELOG_BATCH_BYTES = 1024 * 1024
"""Records of scopes are written in batches of at most this, whatever larger ones the changelog takes."""
_NUMBER = {"from": "header", "name": "n", "format": "int64"}


class WatermarkMode(Mode[WatermarkDedup]):
    """Sequences that grow: what is not above the last one seen is dropped."""

    examples: ClassVar[list[dict[str, Any]]] = [
        {"mode": "watermark", "sequence": _NUMBER},
        {"mode": "watermark", "sequence": {"from": "value", "pointer": "/n"}, "scope": "header:id"},
        {"mode": "watermark", "sequence": _NUMBER, "scope": "key", "epoch": _NUMBER},
        {"mode": "watermark", "sequence": _NUMBER, "scope": "partition", "reorder_window": 64},
    ]

    @override
    def judge(self, now_ms: Callable[[], int] = worker_clock_ms) -> PartitionWatermark | ScopedWatermark:
        del now_ms  # nothing expires
        dedup, sequence = self._dedup, make_extractor(self._dedup.sequence)
        if dedup.scope == "partition" and dedup.epoch is None and not dedup.reorder_window:
            return PartitionWatermark(sequence)
        epoch = None if dedup.epoch is None else make_extractor(dedup.epoch)
        changelog = f"the changelog of pipeline {self._pipeline}"
        return ScopedWatermark(_scope(dedup.scope), sequence, epoch, scope_table(dedup), changelog)


def scope_table(dedup: WatermarkDedup) -> ScopeTable:
    """Return a table for the scopes of one partition, empty."""
    # Secret and new for each table: nobody can choose scopes that slow it down.
    return ScopeTable(os.urandom(16), epoch=dedup.epoch is not None, window=dedup.reorder_window)


@dataclass(slots=True)
class SequenceEvidence(Evidence):
    """What mode ``watermark`` judges by.

    Attributes:
        sequence: int64[n].
        epoch: int64[n], where the definition has one.
        scope: Where scopes stand in ``data``, int64[n] begin and int64[n] size, where there are many.
    """

    sequence: NDArray[np.int64]
    epoch: NDArray[np.int64] | None = None
    scope: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    @override
    def part(self, rows: slice) -> SequenceEvidence:
        epoch = None if self.epoch is None else self.epoch[rows]
        scope = None if self.scope is None else (self.scope[0][rows], self.scope[1][rows])
        return SequenceEvidence(self.fault[rows], self.data, self.sequence[rows], epoch, scope)


class PartitionWatermark(Judge[SequenceEvidence]):
    """Scope ``partition``: one sequence for the whole partition."""

    def __init__(self, extractor: SequenceExtractor) -> None:
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
        return SequenceEvidence(fault, columns.data, sequence)

    @override
    def judge(self, evidence: SequenceEvidence) -> Grounds:
        verdict, before, self._staged = partition.judge(self._staged, evidence.sequence, evidence.fault)
        if self._brought is not None:
            by_it = _is_dropped(verdict) & (before == self._brought)
            self._dropped_by_brought += int(np.count_nonzero(by_it))
        return Grounds(verdict, evidence.sequence, before)

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


class ScopedWatermark(Judge[SequenceEvidence]):
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
        epoch: SequenceExtractor | None,
        table: ScopeTable,
        changelog: str = "the changelog",
    ) -> None:
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
        at, size, fault = self._scope.extract(columns)
        sequence, more = self._sequence.extract(columns)
        np.copyto(fault, more, where=fault == 0)
        epoch = None
        if self._epoch is not None:
            epoch, more = self._epoch.extract(columns)
            np.copyto(fault, more, where=fault == 0)
        return SequenceEvidence(fault, columns.data, sequence, epoch, (at, size))

    @override
    def judge(self, evidence: SequenceEvidence) -> Grounds:
        assert evidence.scope is not None  # noqa: S101 - `extract` gave it
        epoch = evidence.sequence if evidence.epoch is None else evidence.epoch
        judged = self._table.judge(evidence.data, *evidence.scope, evidence.sequence, epoch, evidence.fault)
        if self._brought is not None:
            self._dropped_by_brought += _dropped_by(self._brought, evidence, judged)
        return Grounds(judged.verdict, evidence.sequence, judged.watermark, evidence.epoch)

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
    def scope_mark(self, scope: bytes) -> ScopeMark | None:
        return in_scopes(self._table, scope)

    @override
    def size(self) -> tuple[int, int]:
        return len(self._table), self._table.size_bytes


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


def make_extractor(source: SequenceSource) -> SequenceExtractor:
    """Return what reads a sequence, or an epoch, from where the config says."""
    match source:
        case HeaderSource():
            return HeaderSequence(source.name.encode(), SequenceFormat[source.format.upper()])
        case ValueSource():
            return ValueSequence(source.pointer, text=source.format == "text")
        case other:
            assert_never(other)


def _scope(scope: str) -> ScopeExtractor:
    if scope == "partition":
        return PartitionScope()
    return KeyScope() if scope == "key" else HeaderScope(scope.removeprefix("header:").encode())
