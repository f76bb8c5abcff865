"""How is one partition judged by ids, from columns to changelog values?

What the judges of mode ``insert-id`` have in common, and that of the exact backend (that of the bloom backend
is in `processor.judges.bloom`). Ids are hashed with the partition's secret; the index lists which committed ids
a record's could be, by the few bits that are in memory, and the pages in the local store say which it is.
Whatever is wrong with a page is found by its checksum or its number, and never judged by: the local state is
thrown away then, and the slot built anew from the changelog.

Ids of the open transaction are staged in the index. They become blocks of the changelog with the commit, and
pages of the local store after it.
"""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.batch.columns import HEADER_BYTES
from processor.engine.extract.ids import HeaderPart, IdExtractor, KeyPart, ValuePart
from processor.engine.ids import clock
from processor.engine.ids.block import (
    CandidateRows,
    IdRows,
    UnreadableBlockError,
    confirm,
    decode_pages,
    encode,
    ids_within,
)
from processor.engine.ids.exact.index import ExactIndex
from processor.engine.ids.exact.renewed_index import RenewedIndex
from processor.engine.ids.recorded_clock import NOT_KNOWN, WorkerClock
from processor.engine.verdict import Verdict
from processor.errors import RebuildError, StopError
from processor.judges.judge import ClockStats, Evidence, Judgement
from processor.state.ids.exact_log import PAGES_A_STEP, ExactLog
from processor.state.ids.id_log import refusing_too_many
from processor.state.kv.store import CorruptStoreError, StoreError
from processor.wire.encode import plain_batch
from schemas.changelog.clock import ClockTrace
from schemas.changelog.ids import ID_PAGE_KIND, SECRET_BYTES, id_block_key, id_page_key, page_number
from schemas.config.dedup import HeaderId, KeyId, ValueId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.ids import Ids, Part
    from processor.engine.ids.block import Pages
    from processor.engine.ids.exact.index import Candidates
    from processor.engine.ids.judgement import IdJudgement
    from processor.engine.ids.recorded_clock import PartitionClock
    from processor.state.ids.id_log import IdLog
    from processor.state.table import Table
    from processor.wire.encode import EncodedBatch
    from schemas.config import InsertIdDedup
    from schemas.config.dedup import IdPart

log = logging.getLogger(__name__)

BLOCK_BYTES = 1024 * 1024
"""A block is at most this large, whatever larger ones the changelog takes."""
_RECORD_BYTES = 64
"""More than a block's key takes as a record, with all lengths and deltas."""
MOST_LIMITS = 20_000
"""What one commit says of the clock, 100 to 400 KB: more is not told. A commit has some ten pieces at most; a
reset says at once what has been noted since the beginning."""
_NOTHING = np.zeros(0, np.int64)


def worker_clock_ms() -> int:
    """Return the worker's clock."""
    return time.time_ns() // 1_000_000


class IdJudge(ABC):
    """Mode ``insert-id``, whatever the backend: see `processor.judges.judge.Judge`.

    Args:
        dedup: What the records are judged by.
        log: Where their ids are kept; empty.
        now_ms: The worker's clock.
        recorded: Reads the partition's clock in place of a worker, where records are judged again.
    """

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
        self._log = log
        self._table: Table | None = None
        self._extractor: IdExtractor | None = None
        self._clock_ms = clock.NEVER
        self._judged = self._behind = self._ahead = 0
        self._blocks: list[tuple[bytes, Pages]] = []

    @property
    def log(self) -> IdLog:
        """See `Judge.log`."""
        return self._log

    def load(self, table: Table) -> None:
        """See `Judge.load`: the restore has put everything into the log; a new partition gets its secret.

        Raises:
            StopError: There is a position, but nothing of ids.
        """
        if self._log.secret is None:
            if table.position() is not None:
                raise StopError("the changelog has a position, and no record of ids: restore it from a copy")
            # Secret: nobody can choose ids that meet others.
            self._log.begin(os.urandom(SECRET_BYTES))
        assert self._log.secret is not None  # noqa: S101 - just seen to
        self._table = table
        self._extractor = make_id_extractor(self._dedup, self._log.secret)
        self._clock_ms = self._log.clock_ms
        self._clock.begin(self._log.trace.since, self._log.trace.before_ms)

    def extract(self, columns: Columns) -> Evidence:
        """See `Judge.extract`."""
        assert self._extractor is not None  # noqa: S101 - `load` has made it
        ids = self._extractor.extract(columns)
        return Evidence(
            _NOTHING,
            ids.fault,
            data=columns.data,
            ids=ids,
            offset=columns.offset,
            timestamp=columns.timestamp,
        )

    def judge(self, evidence: Evidence) -> Judgement:
        """See `Judge.judge`.

        Raises:
            RebuildError: The local state is not what the index says; it has been thrown away.
            StopError: More ids than one partition can have.
        """
        ids, offset, owner = evidence.ids, evidence.offset, evidence.owner
        assert ids is not None and offset is not None and owner is not None and evidence.timestamp is not None  # noqa: S101, PT018 - `extract` gave them
        readings = self._reader.read(self._clock_ms, offset, evidence.timestamp, evidence.fault)
        judged = self._decided(ids, owner, readings.reading_ms)
        # A record that meets its own trace is a replay, and passes: that must not happen, and would lose it.
        verdict = judged.verdict
        replayed = judged.owner == owner
        if replayed.any():
            log.error("%s records met themselves and pass", np.count_nonzero(replayed))
            verdict[replayed] = Verdict.PASS
        self._clock_ms = readings.clock_ms
        self._behind += readings.late
        self._ahead += readings.future
        self._judged += verdict.size
        return Judgement(verdict, _NOTHING, owner=judged.owner, expires_ms=judged.expires_ms)

    @abstractmethod
    def _decided(self, ids: Ids, offset: NDArray[np.int64], reading_ms: NDArray[np.int64]) -> IdJudgement:
        """Judge a chunk's records in order, and stage what is remembered."""

    @abstractmethod
    def _staged(self) -> IdRows:
        """Return what the next commit remembers."""

    @abstractmethod
    def size(self) -> tuple[int, int]:
        """See `Judge.size`."""

    def _corrupt(self, error: Exception) -> RebuildError:
        """Throw the local state away, and return what has the slot built anew.

        Raises:
            StoreError: It is not corrupt, it cannot be read.
        """
        if isinstance(error, StoreError) and not isinstance(error, CorruptStoreError):
            raise error
        log.error("the local state is corrupt, reading it anew from the changelog", exc_info=error)
        assert self._table is not None  # noqa: S101 - `load` has given it
        self._table.clear()
        return RebuildError("local", f"local state: {error}")

    def changes(self) -> dict[bytes, bytes | None]:
        """See `Judge.changes`: the blocks go in bulk."""
        return self._log.changes(self._clock_ms, self._trace())

    def _trace(self) -> ClockTrace:
        """Return how the clock came to what it reads, as far as a commit says that."""
        limits = self._limits()
        if limits is None or len(limits) > MOST_LIMITS:
            return ClockTrace(NOT_KNOWN)
        return ClockTrace(self._clock.since, self._clock.before_ms, tuple(limits))

    def _limits(self) -> list[tuple[int, int]] | None:
        """Return where the worker's clock has held the partition's; None: that is not known."""
        return self._clock.limits

    def changelog_batches(self, limit_bytes: int) -> list[EncodedBatch]:
        """See `Judge.changelog_batches`: one record a block."""
        self._blocks = []
        return self._batches(self._staged(), limit_bytes)

    def _batches(self, rows: IdRows, limit_bytes: int) -> list[EncodedBatch]:
        now_ms = worker_clock_ms()
        batches = []
        while len(rows):
            most = ids_within(rows, min(limit_bytes, BLOCK_BYTES) - HEADER_BYTES - _RECORD_BYTES)
            if not most:
                raise StopError(
                    f"the changelog takes batches of {limit_bytes} bytes: raise its max.message.bytes (at most "
                    "1 MiB is used)"
                )
            some, rows = _cut(rows, most)
            key = id_block_key(some.first)
            block, pages = encode(some, self._clock_ms, key)
            self._blocks.append((block, pages))
            batches.append(plain_batch([(key, block, now_ms, ())]))
        return batches

    def restate(self) -> None:
        """See `Judge.restate`: a reset judges by `InsertIds`, whose changelog is that of all backends."""
        raise NotImplementedError("a reset has not judged by the exact backend")

    def committed(self) -> None:
        """See `Judge.committed`."""
        self._clock.forget()
        self._log.committed(self._blocks, self._clock_ms, self._judged)
        self._blocks = []
        self._judged = 0

    def times(self) -> ClockStats:
        """See `Judge.times`."""
        committed = self._log.clock_ms
        times = ClockStats(None if committed == clock.NEVER else committed, self._behind, self._ahead)
        self._behind = self._ahead = 0
        return times

    def watermarks(self) -> Iterable[int]:
        """See `Judge.watermarks`."""
        return ()


class InsertIds(IdJudge):
    """Mode ``insert-id`` with the exact backend: see `processor.judges.judge.Judge`.

    Certificates and resets judge by it whatever the backend.

    Args:
        dedup: What the records are judged by.
        now_ms: The worker's clock.
        recorded: Reads the partition's clock in place of a worker, where records are judged again.
    """

    def __init__(
        self,
        dedup: InsertIdDedup,
        now_ms: Callable[[], int] = worker_clock_ms,
        recorded: PartitionClock | None = None,
    ) -> None:
        # What filters have written of renewed ids is read by a reset.
        kind = RenewedIndex if dedup.refresh and dedup.backend == "bloom" else ExactIndex
        self._index = kind(dedup.window, refresh=dedup.refresh)
        super().__init__(dedup, ExactLog(self._index), now_ms, recorded)
        self._restated = False
        self._recalled: list[tuple[int, int]] | None = []

    def _decided(self, ids: Ids, offset: NDArray[np.int64], reading_ms: NDArray[np.int64]) -> IdJudgement:
        """Judge a chunk's records in order, and stage what is remembered."""
        wanted = self._index.look_up(ids, reading_ms)
        confirmed = self._confirmed(wanted)
        with refusing_too_many():
            return self._index.judge(ids, offset, reading_ms, wanted, confirmed)

    def _confirmed(self, wanted: Candidates) -> CandidateRows:
        """Read the candidates' pages. All that is committed is in the store, see `IdLog.due`."""
        if not wanted.page.size:
            return CandidateRows.none()
        table = self._table
        assert table is not None  # noqa: S101 - `load` has given it
        try:
            pages = table.get_many([id_page_key(first) for first in wanted.page.tolist()])
            # A page that is missing is an empty one, which is cut.
            return confirm([page or b"" for page in pages], wanted.page, wanted.which, wanted.at)
        except (CorruptStoreError, UnreadableBlockError) as error:
            raise self._corrupt(error) from error

    def _staged(self) -> IdRows:
        return self._index.staged()

    def _limits(self) -> list[tuple[int, int]] | None:
        if not self._restated:
            return self._clock.limits
        return None if self._recalled is None else self._recalled + self._clock.limits

    def changelog_batches(self, limit_bytes: int) -> list[EncodedBatch]:
        """See `Judge.changelog_batches`; after `restate` everything."""
        if not self._restated:
            return super().changelog_batches(limit_bytes)
        return [batch for rows in self._everything() for batch in self._batches(rows, limit_bytes)]

    def _everything(self) -> Iterator[IdRows]:
        """Read all living ids from the local store, some 45,000 at a time."""
        assert self._table is not None  # noqa: S101 - `load` has given it
        some: list[tuple[int, bytes]] = []
        for key, page in self._table.items(ID_PAGE_KIND):
            if page_number(key) >= self._index.floor:
                some.append((page_number(key), page))
            if len(some) == PAGES_A_STEP:
                yield decode_pages([each for _, each in some], some[0][0])[0]
                some = []
        if some:
            yield decode_pages([each for _, each in some], some[0][0])[0]

    def recall(self, limits: list[tuple[int, int]] | None) -> None:
        """Take over what an earlier changelog says of the clock; None: not all of it is there any more."""
        self._recalled = limits

    def restate(self) -> None:
        """See `Judge.restate`: with it what has been noted of the clock since the beginning."""
        self.absorb()
        self._log.restated()
        self._restated = True

    def set_clock(self, clock_ms: int) -> None:
        """Let the partition's clock read this before the next record."""
        self._clock_ms = self._log.clock_ms = clock_ms

    def pass_over(self, evidence: Evidence) -> int:
        """Let records move the clock, and nothing else; returns what it reads then."""
        assert evidence.offset is not None and evidence.timestamp is not None  # noqa: S101, PT018 - `extract` gave them
        readings = self._reader.read(self._clock_ms, evidence.offset, evidence.timestamp, evidence.fault)
        self.set_clock(readings.clock_ms)
        return readings.clock_ms

    def undo(self) -> None:
        """Forget what was judged since it was last taken as committed."""
        self._index.drop()
        self._clock_ms = self._log.clock_ms
        self._judged = 0

    def absorb(self, at_least: int = 0) -> None:
        """Take what is staged as committed, where there is no changelog: its pages go to the local store.

        Args:
            at_least: Only where so many records have been judged since.
        """
        assert self._table is not None  # noqa: S101 - `load` has given it
        if self._judged < at_least:
            return
        limits = self._clock.limits
        self.changelog_batches(BLOCK_BYTES)
        self.committed()
        self._clock.limits = limits
        self._table.stage()

    def size(self) -> tuple[int, int]:
        """See `Judge.size`: ids, those included that are expired and not yet swept."""
        return len(self._index), self._index.size_bytes


def make_id_extractor(dedup: InsertIdDedup, key: bytes) -> IdExtractor:
    """Return what reads ids as the config says, and hashes them with a key of 16 bytes."""
    return IdExtractor([_part(each) for each in dedup.id], key, pass_missing=dedup.on_missing == "pass")


def _part(part: IdPart) -> Part:
    match part:
        case HeaderId():
            return HeaderPart(part.name.encode())
        case KeyId():
            return KeyPart()
        case ValueId():
            return ValuePart(part.pointer)


def _cut(rows: IdRows, count: int) -> tuple[IdRows, IdRows]:
    """Return the first ``count`` rows, and the others."""

    def part(cut: slice, first: int) -> IdRows:
        columns: list[NDArray[np.int64]] = [rows.owner[cut], rows.reading_ms[cut], rows.supersedes[cut]]
        return IdRows(first, rows.hash[cut], *columns)

    return part(slice(count), rows.first), part(slice(count, None), rows.first + count)
