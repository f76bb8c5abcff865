"""The parts that judges of ids share: from columns to the changelog's blocks, whatever the backend.

Ids are hashed with the partition's secret. Ids of the open transaction are staged in the backend's index. They
become blocks of the changelog with the commit. What is wrong with the local state is found by a checksum or a
number, and never judged by: the local state is thrown away, and the slot restored from the changelog.
"""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from processor.engine.batch.columns import HEADER_BYTES
from processor.engine.collision_edits import Renamer, Tagger
from processor.engine.extract import json_matches
from processor.engine.extract.fingerprint import FingerprintOf
from processor.engine.extract.ids import IdExtractor
from processor.engine.extract.json_matches import JsonRules
from processor.engine.extract.normalise import Normal
from processor.engine.extract.parts import (
    AnyPart,
    ColumnPart,
    ContentPart,
    HeaderPart,
    KeyPart,
    TextPart,
    ValuePart,
)
from processor.engine.extract.value_walk import ContentOf
from processor.engine.ids import clock
from processor.engine.ids.block import IdRows, encode, ids_within
from processor.engine.ids.clock import NOT_KNOWN, WorkerClock
from processor.engine.ids.judgement import IdColumns
from processor.engine.ids.new_ids import UUID_BYTES, new_ids
from processor.engine.ids.page import NO_ROUTES
from processor.engine.receipts import PASSING, CollisionNotes, IdGrounds
from processor.engine.verdict import Fault, Verdict
from processor.errors import RebuildError, StopError
from processor.judges.asked_id import hash_of
from processor.judges.committed import in_variants, living
from processor.judges.escapes.sampler import IdSampler
from processor.judges.judge import ClockStats, Evidence, Judge
from processor.judges.redriving import LimitedClock
from processor.state.kv.store import CorruptStoreError, StoreError
from processor.wire.encode import plain_batch
from schemas.changelog.clock import ClockTrace
from schemas.changelog.ids import SECRET_BYTES, id_block_key
from schemas.config.dedup import AnyId, ColumnId, ContentId, HeaderId, KeyId, TextId, ValueId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.collision_edits import CollisionEditor
    from processor.engine.extract.ids import Ids
    from processor.engine.extract.parts import Part, PlainPart
    from processor.engine.ids.clock import PartitionClock
    from processor.engine.ids.collisions import Fingerprints
    from processor.engine.ids.judgement import IdJudgement
    from processor.engine.ids.page import Pages
    from processor.judges.asked_id import AskedId
    from processor.judges.committed import RememberedRecord
    from processor.judges.escapes.gauge import EscapeGauge
    from processor.judges.redriving import Redriving
    from processor.state.ids.id_log import IdLog
    from processor.state.table import Table
    from processor.wire.encode import EncodedBatch
    from schemas.config import InsertIdDedup
    from schemas.config.dedup import Dedup, IdPart
    from schemas.config.dedup import PlainPart as PlainId

log = logging.getLogger(__name__)

BLOCK_BYTES = 1024 * 1024
"""A block is at most this large, whatever larger ones the changelog takes."""
_RECORD_BYTES = 64
"""More than a block's key takes as a record, with all lengths and deltas."""
MOST_LIMITS = 20_000
"""What one commit says of the clock, 100 to 400 KB; of more nothing is written. A commit has about ten pieces
at most; a reset says at once what has been noted since the beginning."""


def worker_clock_ms() -> int:
    """Return the worker's clock."""
    return time.time_ns() // 1_000_000


ID_PIECE_BYTES = 1024 * 1024
"""So many bytes of records are judged at a time: each id that is known is confirmed by a page, which takes up
to 8 us, and 6,000 of them 50 ms, for which the event loop answers nobody."""


@dataclass(slots=True)
class IdEvidence(Evidence):
    """What mode ``insert-id`` judges by.

    Attributes:
        ids: With the faults that ``fault`` has.
        offset: int64[n].
        timestamp: int64[n].
        owner: int64[n], what names each record as the owner of its id: its offset, or its source ref
            (`processor.engine.repartition`).
        kept: bool[n], which records are remembered if they collide; fewer may be before judging.
        route: uint16[n], route words; uint16[0] where they are not known.
    """

    ids: Ids
    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    owner: NDArray[np.int64]
    kept: NDArray[np.bool_]
    route: NDArray[np.uint16] = field(default_factory=lambda: NO_ROUTES)

    @override
    def part(self, rows: slice) -> IdEvidence:
        arrays = self.offset[rows], self.timestamp[rows], self.owner[rows], self.kept[rows], self.route[rows]
        return IdEvidence(self.fault[rows], self.data, self.ids.part(rows), *arrays)


class IdJudge(Judge[IdEvidence]):
    """Mode ``insert-id``, whatever the backend.

    Args:
        dedup: What the records are judged by.
        log: Where their ids are kept; empty.
        now_ms: The worker's clock.
        recorded: Reads the partition's clock in place of a worker, where records are judged again.
    """

    grounds = IdGrounds
    piece_bytes = ID_PIECE_BYTES
    log: IdLog
    # From `load` on.
    _table: Table
    _extractor: IdExtractor

    def __init__(
        self,
        dedup: InsertIdDedup,
        log: IdLog,
        now_ms: Callable[[], int],
        recorded: PartitionClock | None = None,
    ) -> None:
        self._dedup = dedup
        self._clock = WorkerClock(now_ms, None if dedup.time == "arrival" else dedup.max_ahead)
        self._reader = recorded or self._clock
        self.log = log
        self._clock_ms = clock.NEVER
        self._judged = self._behind = self._ahead = 0
        self._blocks: list[tuple[bytes, Pages]] = []
        self._sampler: IdSampler | None = None

    @property
    def window_ms(self) -> int:
        """How long an id is remembered."""
        return self._dedup.window

    @override
    def load(self, table: Table) -> None:
        if self.log.secret is None:
            if table.position() is not None:
                raise StopError("the changelog has a position, and no record of ids: restore it from a copy")
            # Secret: nobody can construct ids that collide.
            self.log.secret = os.urandom(SECRET_BYTES)
        self._table = table
        self._extractor = make_id_extractor(self._dedup, self.log.secret)
        self._clock_ms = self.log.clock_ms
        self._clock.begin(self.log.trace.since, self.log.trace.before_ms)

    @override
    def sample_for(self, gauge: EscapeGauge, partition: int) -> None:
        collisions = self._dedup.on_collision in PASSING
        self._sampler = IdSampler(gauge, partition, collisions=collisions, renews=self._dedup.refresh)

    @override
    def extract(self, columns: Columns) -> IdEvidence:
        return evidence_of(self._extractor, columns, kept=self._dedup.on_collision in PASSING)

    @override
    def judge(self, evidence: IdEvidence) -> IdGrounds:
        ids, owner = evidence.ids, evidence.owner
        variants = self.log.index.collisions
        prints = None if variants is None else variants.prints(ids.fingerprint, evidence.kept, evidence.route)
        readings = self._reader.read(self._clock_ms, evidence.offset, evidence.timestamp, evidence.fault)
        judged = self._decided(IdColumns.of(ids, owner, readings.reading_ms, evidence.route), prints)
        # A record that is its own duplicate is a replay, and passes: that must not happen, and would lose it.
        # One that stood in quarantine may be: a reset has judged it since, by other rules.
        verdict = judged.verdict
        replayed = judged.owner == owner
        if replayed.any():
            if not isinstance(self._reader, LimitedClock):
                log.error("%s records are duplicates of themselves and pass", np.count_nonzero(replayed))
            verdict[replayed] = Verdict.PASS
        self._clock_ms = readings.clock_ms
        self._behind += readings.late
        self._ahead += readings.future
        self._judged += verdict.size
        notes = None if prints is None else self._settle(evidence, verdict, prints)
        if self._sampler is not None:
            self._sampler.saw(ids, verdict, readings.reading_ms)
        return IdGrounds(verdict, ids, judged.owner, judged.expires_ms, notes, self.log.backfill)

    @override
    def judge_again(self, evidence: IdEvidence, redriving: Redriving) -> IdGrounds:
        # They are owned by their own offsets, and read the clock where they come in now.
        evidence.offset = np.full(evidence.owner.size, redriving.position)
        reader, self._reader = self._reader, LimitedClock(redriving.limit_ms, self._dedup.time == "arrival")
        try:
            return self.judge(evidence)
        finally:
            self._reader = reader

    @override
    def limit_ms(self) -> int:
        return self._clock.limit_ms

    def _settle(self, evidence: IdEvidence, verdict: NDArray[np.uint8], prints: Fingerprints) -> CollisionNotes:
        """Give collisions that go into quarantine their codes; return what is noted of all."""
        action = self._dedup.on_collision
        collided = verdict == Verdict.COLLISION
        if action == "quarantine":
            evidence.fault[collided] = Fault.ID_COLLISION
        elif action in PASSING:
            # What the sink does not take with a tag or a new id goes the way of all that it does not take.
            refused = collided & ~evidence.kept
            evidence.fault[refused], verdict[refused] = Fault.TOO_LARGE, Verdict.QUARANTINE
        return CollisionNotes(action, prints.owner, *self._renamed(evidence.ids, np.flatnonzero(collided)))

    def _renamed(self, ids: Ids, collided: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return which collisions get a new id, and what it is."""
        if self._dedup.rename is None or self.log.secret is None:
            return collided[:0], np.zeros((0, UUID_BYTES), np.uint8)
        return collided, new_ids(self.log.secret, ids.hash[collided], ids.fingerprint[collided])

    @override
    def editor(self, topic: str) -> CollisionEditor | None:
        rename = self._dedup.rename
        if self._dedup.on_collision == "tag":
            return Tagger(topic.encode())
        if rename is None or self.log.secret is None:
            return None
        parts = parts_of(self._dedup)
        name = rename.to.removeprefix("header:").encode()
        to = HeaderPart(name) if rename.to.startswith("header:") else ValuePart(rename.to, only_text=True)
        keep = None if rename.keep == "header" else rename.keep
        return Renamer(parts, to, keep, self.log.secret, json_rules_of(self._dedup))

    @abstractmethod
    def _decided(self, records: IdColumns, prints: Fingerprints | None) -> IdJudgement:
        """Judge a chunk's records in order, and stage what is remembered."""

    @property
    @override
    def clock_ms(self) -> int | None:
        return None if self.log.clock_ms == clock.NEVER else self.log.clock_ms

    @property
    @override
    def clock_move(self) -> tuple[int, int | None]:
        ahead_ms = 0 if self._dedup.time == "arrival" else self._dedup.max_ahead
        return self.window_ms, None if self._clock_ms == self.log.clock_ms else self._clock_ms - ahead_ms

    @override
    def remembered(self, asked: Sequence[AskedId]) -> list[list[RememberedRecord]]:
        secret, clock_ms = self.log.secret, self.log.clock_ms
        if secret is None:
            return [[] for _ in asked]
        hashes = [hash_of(each, secret) for each in asked]
        variants = self.log.index.collisions
        return [
            living(self._in_index(each, clock_ms), in_variants(variants, each), clock_ms, self.window_ms)
            for each in hashes
        ]

    @abstractmethod
    def _in_index(self, hashes: NDArray[np.uint64], clock_ms: int) -> list[RememberedRecord]:
        """Return what is committed of an id, uint64[1, 2]."""

    def _corrupt(self, error: Exception) -> RebuildError:
        """Throw the local state away, and return what has the slot restored again.

        Raises:
            StoreError: It is not corrupt, it cannot be read.
        """
        if isinstance(error, StoreError) and not isinstance(error, CorruptStoreError):
            raise error
        log.error("the local state is corrupt, reading it again from the changelog", exc_info=error)
        self._table.clear()
        return RebuildError("local", f"local state: {error}")

    @override
    def changes(self) -> dict[bytes, bytes | None]:
        return self.log.changes(self._clock_ms, self._trace())

    def _trace(self) -> ClockTrace:
        limits = self._limits()
        if limits is None or len(limits) > MOST_LIMITS:
            return ClockTrace(NOT_KNOWN)
        return ClockTrace(self._clock.since, self._clock.before_ms, tuple(limits))

    def _limits(self) -> list[tuple[int, int]] | None:
        """Return where the worker's clock has held the partition's; None: that is not known."""
        return self._clock.limits

    @override
    def changelog_batches(self, limit_bytes: int) -> list[EncodedBatch]:
        self._blocks = []
        return self._batches(self.log.index.staged(), limit_bytes)

    def _batches(self, rows: IdRows, limit_bytes: int) -> list[EncodedBatch]:
        now_ms = worker_clock_ms()
        batches = []
        while len(rows):
            most = ids_within(rows, min(limit_bytes, BLOCK_BYTES) - HEADER_BYTES - _RECORD_BYTES)
            if not most:
                message = f"the changelog takes batches of {limit_bytes} bytes: raise its max.message.bytes "
                raise StopError(f"{message}(at most 1 MiB is used)")
            some, rows = rows.part(0, most), rows.part(most, len(rows))
            key = id_block_key(some.first)
            block, pages = encode(some, self._clock_ms, key)
            self._blocks.append((block, pages))
            batches.append(plain_batch([(key, block, now_ms, ())]))
        return batches

    @override
    def restate(self) -> None:
        # A reset judges by `ExactIds`, whose changelog is that of all backends.
        raise NotImplementedError("a reset has not judged by the exact backend")

    @override
    def committed(self) -> None:
        if self._sampler is not None:
            self._sampler.committed()
        self._clock.forget()
        self.log.committed(self._blocks, self._clock_ms, self._judged)
        self._blocks = []
        self._judged = 0

    @override
    def take_clock_stats(self) -> ClockStats:
        committed = self.log.clock_ms
        variants = self.log.index.collisions
        stats = ClockStats(
            None if committed == clock.NEVER else committed,
            self._behind,
            self._ahead,
            variants=None if variants is None else len(variants),
        )
        self._behind = self._ahead = 0
        return stats


def make_id_extractor(dedup: InsertIdDedup, key: bytes) -> IdExtractor:
    """Return what reads ids as the config says, and hashes them with a key of 16 bytes."""
    counted, of = dedup.fingerprint, None
    if counted is not None:
        content = ContentOf(tuple(counted.exclude), counted.of == "bytes")
        of = FingerprintOf(content, tuple(name.encode() for name in counted.headers))
    parts, passes = parts_of(dedup), dedup.on_missing == "pass"
    return IdExtractor(parts, key, pass_missing=passes, fingerprint_of=of, rules=json_rules_of(dedup))


_FRAMINGS = {"none": json_matches.NONE, "auto": json_matches.AUTO, "registry": json_matches.REGISTRY}


def json_rules_of(dedup: Dedup) -> JsonRules:
    """Return how the values of a pipeline are read."""
    return JsonRules(dedup.json_ == "lenient", _FRAMINGS[dedup.framing])


def evidence_of(extractor: IdExtractor, columns: Columns, *, kept: bool) -> IdEvidence:
    """Return what there is to judge of records; ``kept``: whether those that collide are remembered."""
    ids = extractor.extract(columns)
    places = columns.offset, columns.timestamp, columns.offset
    return IdEvidence(ids.fault, columns.data, ids, *places, np.full(len(columns), kept))


def parts_of(dedup: InsertIdDedup) -> list[Part]:
    """Return the parts of an id; the one that may be given anew has to be text."""
    anew = None if dedup.rename is None else dedup.rename.to
    return [part_of(each, anew) for each in dedup.id]


def part_of(part: IdPart, anew: str | None = None) -> Part:
    """Return what reads a part of the config; ``anew``: the pointer to the one that may be given anew."""
    if isinstance(part, AnyId):
        return AnyPart(tuple(_part(each, None, each_normal(each) or part.normalise) for each in part.any))
    return _part(part, anew, each_normal(part))


def each_normal(part: IdPart) -> str | None:
    """Return what of a part does not count, as the config says it."""
    return None if isinstance(part, ContentId) else part.normalise


def _part(part: PlainId, anew: str | None, how: str | None) -> PlainPart:
    normal = Normal.of(how)
    match part:
        case HeaderId():
            return HeaderPart(part.name.encode(), normal)
        case KeyId():
            return KeyPart(normal)
        case ValueId():
            return ValuePart(part.pointer, part.pointer == anew and not normal, normal)
        case ColumnId():
            return ColumnPart(part.number, part.separator.encode(), normal)
        case TextId():
            return TextPart(normal)
        case ContentId():
            return ContentPart(ContentOf(tuple(part.exclude), part.of == "bytes"))
