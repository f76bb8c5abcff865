"""The judge of mode ``insert-id`` with the exact backend.

The index lists which committed ids a record's could be, by the few bits that are in memory; the pages in the
local store say which it is.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from processor.engine.ids.block import UnreadableBlockError, confirm, decode_pages
from processor.engine.ids.exact.index import LINE_BITS, ExactIndex
from processor.engine.ids.exact.renewed_index import RenewedIndex
from processor.engine.verdict import Fault
from processor.judges.committed import in_exact
from processor.judges.ids import BLOCK_BYTES, IdJudge, worker_clock_ms
from processor.state.ids.exact_log import PAGES_A_STEP, ExactLog
from processor.state.ids.id_log import taking_over
from processor.state.kv.store import CorruptStoreError
from schemas.changelog.ids import ID_PAGE_KIND, id_page_key, page_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from processor.engine.ids.block import IdRows
    from processor.engine.ids.clock import PartitionClock
    from processor.engine.ids.collisions import Fingerprints
    from processor.engine.ids.exact.kernels import Candidates
    from processor.engine.ids.judgement import IdColumns, IdJudgement
    from processor.engine.ids.page import CandidateRows
    from processor.engine.receipts import IdGrounds
    from processor.judges.committed import RememberedRecord
    from processor.judges.ids import IdEvidence
    from processor.wire.encode import EncodedBatch
    from schemas.config import InsertIdDedup

SEGMENT_BITS = int(os.environ.get("SEQMARK_TEST_SEGMENT_BITS", str(LINE_BITS)))
"""Lines of a segment of the index, as a power of two."""


class ExactIds(IdJudge):
    """Judges by an exact index; certificates and resets judge by it whatever the backend; see `IdJudge`."""

    def __init__(
        self,
        dedup: InsertIdDedup,
        now_ms: Callable[[], int] = worker_clock_ms,
        recorded: PartitionClock | None = None,
    ) -> None:
        # What filters have written of renewed ids is read by a reset.
        kind = RenewedIndex if dedup.refresh and dedup.backend == "bloom" else ExactIndex
        self._index = kind(
            dedup.window,
            refresh=dedup.refresh,
            fingerprints=dedup.fingerprint is not None,
            line_bits=SEGMENT_BITS,
        )
        super().__init__(dedup, ExactLog(self._index), now_ms, recorded)
        self._restated = False
        self._recalled: list[tuple[int, int]] | None = []

    @override
    def _decided(self, records: IdColumns, prints: Fingerprints | None) -> IdJudgement:
        wanted = self._index.look_up(records)
        confirmed = self._confirmed(wanted)
        with taking_over():
            return self._index.judge(records, wanted, confirmed, prints)

    def _confirmed(self, wanted: Candidates) -> CandidateRows:
        """Read the candidates' pages. All that is committed is in the store, see `IdLog.due`."""
        try:
            pages = self._table.store.get_many([id_page_key(first) for first in wanted.page.tolist()])
            # A page that is missing is an empty one, which is cut.
            some = [page or b"" for page in pages]
            return confirm(some, wanted.page, wanted.which, wanted.at, fingerprints=self.log.fingerprints)
        except (CorruptStoreError, UnreadableBlockError) as error:
            raise self._corrupt(error) from error

    @override
    def _in_index(self, hashes: NDArray[np.uint64], clock_ms: int) -> list[RememberedRecord]:
        return in_exact(self._index, hashes, clock_ms, self._table.store.get_many)

    @override
    def _limits(self) -> list[tuple[int, int]] | None:
        if not self._restated:
            return self._clock.limits
        return None if self._recalled is None else self._recalled + self._clock.limits

    @override
    def changelog_batches(self, limit_bytes: int) -> list[EncodedBatch]:
        if not self._restated:
            return super().changelog_batches(limit_bytes)
        return [batch for rows in self._everything() for batch in self._batches(rows, limit_bytes)]

    def _everything(self) -> Iterator[IdRows]:
        """Read all living ids from the local store, about 45,000 at a time."""
        pages = ((page_number(key), page) for key, page in self._table.store.items(ID_PAGE_KIND))
        alive = ((number, page) for number, page in pages if number >= self._index.floor)
        while some := list(itertools.islice(alive, PAGES_A_STEP)):
            pages_of = [page for _, page in some]
            yield decode_pages(pages_of, some[0][0], fingerprints=self.log.fingerprints)[0]

    def recall(self, limits: list[tuple[int, int]] | None) -> None:
        """Take over what an earlier changelog says of the clock; None: not all of it is there any more."""
        self._recalled = limits

    @override
    def restate(self) -> None:
        self.absorb()
        self.log.restated()
        self._restated = True

    def set_clock(self, clock_ms: int) -> None:
        """Let the partition's clock read this before the next record."""
        self._clock_ms = self.log.clock_ms = clock_ms

    def pass_over(self, evidence: IdEvidence) -> int:
        """Let records move the clock, and nothing else; returns what it reads then."""
        readings = self._reader.read(self._clock_ms, evidence.offset, evidence.timestamp, evidence.fault)
        self.set_clock(readings.clock_ms)
        return readings.clock_ms

    @override
    def learn(self, evidence: IdEvidence, too_large: NDArray[np.int64]) -> None:
        # Each by itself that an edit may have made too large: only judging what comes before it tells.
        alone = too_large if self.editor("") is not None else too_large[:0]
        cuts = np.unique(np.concatenate(([0], alone, alone + 1, [evidence.fault.size])))
        for start, stop in itertools.pairwise(cuts.tolist()):
            part = evidence.part(slice(start, stop))
            if start not in alone or self.judge_edited(part) is None:
                named = too_large[(too_large >= start) & (too_large < stop)]
                super().learn(part, named - start)

    def judge_edited(self, evidence: IdEvidence) -> IdGrounds | None:
        """Judge a record that the sink may not have taken with its edit; None: it was too large as it came.

        What collides then was judged, and has moved the clock. A record that collides and was too large as it
        came cannot be distinguished from that.
        """
        self.absorb()
        evidence.kept[:] = False
        judged = self.judge(evidence)
        if evidence.fault[0] == Fault.TOO_LARGE:
            return judged
        self.undo()
        return None

    @override
    def undo(self) -> None:
        self._index.drop()
        self._clock_ms = self.log.clock_ms
        self._judged = 0

    @override
    def absorb(self, at_least: int = 0) -> None:
        # Its pages go to the local store.
        if self._judged < at_least:
            return
        limits = self._clock.limits
        self.changelog_batches(BLOCK_BYTES)
        self.committed()
        self._clock.limits = limits
        self._table.stage()

    @override
    def size(self) -> tuple[int, int]:
        # Those included that are expired and not yet swept.
        return len(self._index), self._index.size_bytes
