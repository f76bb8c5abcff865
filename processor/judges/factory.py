"""How is one partition judged by sequences, and which judge is a pipeline's?

The judges of mode watermark, and the choice among all of them; those of ids are in `processor.judges.ids` and
`processor.judges.bloom`.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, assert_never

import numpy as np
import orjson

from processor.engine.batch.columns import HEADER_BYTES
from processor.engine.extract.sequence import (
    HeaderScope,
    HeaderSequence,
    KeyScope,
    PartitionScope,
    SequenceFormat,
    ValueSequence,
)
from processor.engine.watermark import partition
from processor.engine.watermark.scope_table import ScopeTable
from processor.errors import StopError
from processor.judges.bloom import BloomIds
from processor.judges.ids import InsertIds
from processor.judges.judge import Evidence, Judgement
from processor.state.scope_log import ScopeLog
from processor.wire.codec import Codec, deflate
from processor.wire.encode import EncodedBatch
from schemas.changelog.values import WATERMARK_KIND, decode_watermark, encode_watermark, watermark_key
from schemas.config import HeaderSource, InsertIdDedup, ValueSource, WatermarkDedup

if TYPE_CHECKING:
    from collections.abc import Iterable

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.sequence import ScopeExtractor, SequenceExtractor
    from processor.judges.judge import Judge
    from processor.state.table import Table
    from schemas.config import Pipeline
    from schemas.config.dedup import SequenceSource

CHANGELOG_BATCH_BYTES = 1024 * 1024
"""Records of scopes are written in batches of at most this, whatever larger ones the changelog takes."""


class PartitionWatermark:
    """Mode ``watermark``, scope ``partition``: one sequence for the whole partition."""

    def __init__(self, extractor: SequenceExtractor) -> None:
        self._extractor = extractor
        self._committed = self._staged = partition.WatermarkState()

    @property
    def log(self) -> None:
        """See `Judge.log`."""
        return

    def load(self, table: Table) -> None:
        """See `Judge.load`."""
        key = watermark_key()
        for found, value in table.items(WATERMARK_KIND):
            if found == key:
                state = partition.WatermarkState(decode_watermark(key, value))
                self._committed = self._staged = state

    def extract(self, columns: Columns) -> Evidence:
        """See `Judge.extract`."""
        return Evidence(*self._extractor.extract(columns))

    def judge(self, evidence: Evidence) -> Judgement:
        """See `Judge.judge`."""
        judged = partition.judge(self._staged, evidence.sequence, evidence.fault)
        self._staged = judged.state
        return Judgement(judged.verdict, judged.watermark)

    def changes(self) -> dict[bytes, bytes | None]:
        """See `Judge.changes`."""
        if self._staged == self._committed or self._staged.watermark is None:
            return {}
        key = watermark_key()
        return {key: encode_watermark(key, self._staged.watermark)}

    def changelog_batches(self, limit_bytes: int) -> list[EncodedBatch]:
        """See `Judge.changelog_batches`."""
        del limit_bytes
        return []

    def restate(self) -> None:
        """See `Judge.restate`."""
        self._committed = partition.WatermarkState()

    def committed(self) -> None:
        """See `Judge.committed`."""
        self._committed = self._staged

    def size(self) -> tuple[int, int]:
        """See `Judge.size`."""
        return int(self._committed.watermark is not None), 8

    def times(self) -> None:
        """See `Judge.times`."""

    def watermarks(self) -> Iterable[int]:
        """See `Judge.watermarks`."""
        return () if self._committed.watermark is None else (self._committed.watermark,)


class ScopedWatermark:
    """Mode ``watermark`` with any scope, epoch and reorder window.

    Args:
        scope: What scopes a record.
        sequence: Where its sequence stands.
        epoch: Where its epoch stands, if there is one.
        table: Empty, and made for that: what is staged and what is committed is one (see there).
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
        self._log = ScopeLog(table)
        self._restated = False
        # Bitmaps are mostly runs of equal bits, and up to 8 KiB each.
        self._codec = Codec.LZ4 if table.window else Codec.NONE

    @property
    def log(self) -> ScopeLog:
        """See `Judge.log`."""
        return self._log

    def load(self, table: Table) -> None:
        """See `Judge.load`: the restore has put everything into the log's scopes already."""

    def extract(self, columns: Columns) -> Evidence:
        """See `Judge.extract`. Of several faults the first of scope, sequence and epoch counts."""
        at, size, fault = self._scope.extract(columns)
        sequence, more = self._sequence.extract(columns)
        np.copyto(fault, more, where=fault == 0)
        epoch = None
        if self._epoch is not None:
            epoch, more = self._epoch.extract(columns)
            np.copyto(fault, more, where=fault == 0)
        return Evidence(sequence, fault, epoch, (at, size), columns.data)

    def judge(self, evidence: Evidence) -> Judgement:
        """See `Judge.judge`."""
        assert evidence.scope is not None and evidence.data is not None  # noqa: S101, PT018 - `extract` gave them
        epoch = evidence.sequence if evidence.epoch is None else evidence.epoch
        judged = self._table.judge(evidence.data, *evidence.scope, evidence.sequence, epoch, evidence.fault)
        before = None if evidence.epoch is None else judged.epoch
        return Judgement(judged.verdict, judged.watermark, judged.known, before)

    def changes(self) -> dict[bytes, bytes | None]:
        """See `Judge.changes`: all of it goes in bulk."""
        return {}

    def changelog_batches(self, limit_bytes: int) -> list[EncodedBatch]:
        """See `Judge.changelog_batches`."""
        most = min(limit_bytes, CHANGELOG_BATCH_BYTES) - HEADER_BYTES
        if self._codec is not Codec.NONE:
            most -= most // 128 + 64  # what LZ4 adds to what it cannot compress
        now_ms = int(time.time() * 1000)
        batches = []
        try:
            which = self._table.all() if self._restated else self._table.changed()
            for payload, count in self._table.encode(which, most):
                data = payload
                if self._codec is not Codec.NONE:
                    data = deflate(self._codec, np.frombuffer(payload, np.uint8))
                batches.append(EncodedBatch(self._codec, now_ms, now_ms, count, data))
        except ValueError as error:
            raise StopError(
                f"{self._changelog}: {error}, which a batch of it takes: raise its max.message.bytes "
                "(at most 1 MiB is used), or choose a shorter scope"
            ) from error
        return batches

    def restate(self) -> None:
        """See `Judge.restate`."""
        self._restated = True

    def committed(self) -> None:
        """See `Judge.committed`."""
        self._table.committed()
        self._restated = False

    def times(self) -> None:
        """See `Judge.times`."""

    def watermarks(self) -> Iterable[int]:
        """See `Judge.watermarks`: never a series a scope."""
        return ()

    def size(self) -> tuple[int, int]:
        """See `Judge.size`."""
        return len(self._table), self._table.size_bytes


def make_judge(pipeline: Pipeline) -> Judge:
    """Return a judge for one partition of ``pipeline``, with no state yet.

    The config has been checked: what this version cannot do was refused before.
    """
    match pipeline.dedup:
        case WatermarkDedup(scope="partition", epoch=None, reorder_window=0) as dedup:
            return PartitionWatermark(make_extractor(dedup.sequence))
        case WatermarkDedup() as dedup:
            epoch = None if dedup.epoch is None else make_extractor(dedup.epoch)
            # Secret and new for each table: nobody can choose scopes that slow it down.
            table = ScopeTable(os.urandom(16), epoch=epoch is not None, window=dedup.reorder_window)
            changelog = f"the changelog of pipeline {pipeline.name}"
            return ScopedWatermark(_scope(dedup.scope), make_extractor(dedup.sequence), epoch, table, changelog)
        case InsertIdDedup(backend="exact") as dedup:
            return InsertIds(dedup)
        case InsertIdDedup(backend="bloom") as dedup:
            return BloomIds(dedup)
        case other:
            raise NotImplementedError(f"{other!r} was not refused")


def make_reset_judge(pipeline: Pipeline) -> Judge:
    """Return a judge by which a state is recomputed, with no state yet.

    Ids are judged by the exact backend whichever the worker has: the changelog of all is one, and a filter does
    not know whose ids it holds, which are to be written anew.
    """
    return InsertIds(pipeline.dedup) if isinstance(pipeline.dedup, InsertIdDedup) else make_judge(pipeline)


def renewals_said(pipeline: Pipeline) -> bool:
    """Whether the stored state says of each id when it was last renewed."""
    dedup = pipeline.dedup
    if not isinstance(dedup, InsertIdDedup) or dedup.backend == "exact" or not dedup.refresh:
        return True
    return dedup.bloom_options.confirm


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


FREE_KEYS = frozenset({"max_ahead"})
"""Keys of ``dedup`` that may change over an existing state: what is remembered means the same, and what the
clock read before is written down (`schemas.changelog.clock`)."""


def judged_by(pipeline: Pipeline) -> list[str]:
    """Return the keys of ``dedup`` that the stored state is bound to."""
    return [key for key in type(pipeline.dedup).model_fields if key not in FREE_KEYS]


def definition(pipeline: Pipeline) -> bytes:
    """Return 16 bytes that change when the meaning of the stored state changes."""
    # Without defaults: a field that a later version adds must not make old state foreign.
    fields = pipeline.dedup.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude=set(FREE_KEYS)
    )
    if isinstance(pipeline.dedup, InsertIdDedup) and pipeline.dedup.backend == "bloom":
        # As it is meant, however much of it is written down.
        options = pipeline.dedup.bloom_options.model_dump(mode="json", exclude_defaults=True)
        fields.pop("bloom", None)
        fields |= {"bloom": options} if options else {}
    canonical = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(canonical, digest_size=16, person=b"seqmark").digest()
