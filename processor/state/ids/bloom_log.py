"""Keeps the ids of Bloom filters locally.

In the changelog they are blocks, as those of the exact backend, whose numbers, offsets and checks are used here
(`processor.state.ids.id_log`). Locally there are no pages of blocks. There are snapshots of the filters, which
lag what has been applied and name the changelog offset from which on the ids have to be put in once more; and
with ``confirm`` runs of ids, by which hits are looked up (`processor.state.ids.runs`). They lag too. A start
reads the changelog from where the one or the other lacks something. Without ``confirm`` no id is kept locally.

Invariant: with ``confirm`` every committed id of a bucket that lives is in a run or in memory. What is read of
the changelog a second time changes filters, and what is in memory of ids, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from processor.engine.ids.block import decode_pages
from processor.engine.ids.bloom.numbering import BloomNumbering
from processor.engine.ids.bloom.snapshot import SnapshotReader
from processor.engine.ids.clock import NEVER
from processor.state.ids.id_log import IdLog, taking_over
from processor.state.ids.runs import Runs
from processor.state.ids.snapshots import Snapshots
from processor.state.state_log import ForeignStateError
from schemas.changelog.bloom import (
    ENTRY_KIND,
    PIECE_KIND,
    RUN_KIND,
    RUN_PAGE_KIND,
    SNAPSHOT_KEY,
    BloomSnapshot,
    run_pages_before,
)
from schemas.changelog.ids import ID_PAGE_KIND, page_number
from schemas.changelog.values import CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.ids.block import IdRows
    from processor.engine.ids.page import Pages
    from schemas.changelog.ids import IdState

PIECES_A_STEP = 4
"""Pieces of filters that are read in one go, or runs: 4 MiB, about 10 ms."""


class BloomLog(IdLog[BloomNumbering]):
    """The ids of one partition, see `IdLog`."""

    earlier = ENTRY_KIND, "its ids are not in runs: it is of an earlier build"

    @override
    def _forget(self) -> None:
        super()._forget()
        self._snapshots = Snapshots(self.index)
        self.runs = Runs(self.index.window.expected, fingerprints=self.fingerprints)
        self._erased_bucket: int | None = None
        self._reached = 0
        # What was found on the disk: how far the changelog was applied, from where it is to be read again (and
        # whether that goes on), and up to which number ids have been read or need not be.
        self._applied_to = self._from = 0
        self._again = False
        self._read_to: int | None = None

    # ---------------------------------------------------------------- what is committed

    @override
    def committed(self, blocks: Sequence[tuple[bytes, Pages]], clock_ms: int, records: int) -> None:
        rows = self.index.staged()
        super().committed(blocks, clock_ms, records)
        self._enter(rows)

    @override
    def reached(self, changelog_offset: int) -> None:
        super().reached(changelog_offset)
        self._reached = changelog_offset

    @override
    def due(self, waited_s: float) -> bool:
        # Not while that is read again which is known.
        return super().due(waited_s) and not self._again

    @override
    def _kept(self, pages: Pages) -> NDArray[np.int64]:
        # Of variants: no hit of a filter leads to them.
        return np.flatnonzero(pages.collision)

    def _enter(self, rows: IdRows) -> None:
        """Keep the ids of buckets that live so that hits can be looked up."""
        window = self.index.window
        if not window.confirm:
            return
        for run in rows.runs():
            if len(run) and not run.collision[:1].any():
                self.runs.take(run, run.reading_ms // window.bucket_ms, window.first_live(self.clock_ms))

    # ---------------------------------------------------------------- what is taken over

    @override
    def apply(self, columns: Columns) -> list[tuple[bytes, bytes | None]]:
        rest = super().apply(columns)
        if len(columns) and int(columns.offset[-1]) >= self._applied_to:
            self._again = False
        return rest

    @override
    def check(self) -> None:
        if self._read_to is not None and self._read_to < self.index.next_number:
            raise CorruptStateError(
                f"ids from number {self._read_to} on are in no run, and were not found in the changelog"
            )
        super().check()
        self._again = False

    @override
    def _note(self, number: int, offset: int, *, inside: bool) -> None:
        if offset >= self._applied_to:
            super()._note(number, offset, inside=inside)
        else:
            self._inside = inside  # where it stands is known

    @override
    def _take_state(self, state: IdState) -> None:
        if self._again and state.next_number < self.index.next_number and state.secret == self.secret:
            return  # it is known
        super()._take_state(state)

    @override
    def _take_rows(self, rows: IdRows, pages: Pages) -> None:
        if not self._again or rows.first >= self.index.next_number:
            super()._take_rows(rows, pages)
        # Else they are in the filters.
        if self._read_to is not None:
            if rows.first > self._read_to:
                raise ForeignStateError(
                    f"ids from number {self._read_to} to {rows.first - 1} are in no run, nor in the changelog"
                )
            self._read_to = max(self._read_to, rows.first + len(rows))
        self._enter(rows)

    @override
    def load(self, items: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        # The pages of runs are not read: each says by itself whether it is whole.
        snapshot: BloomSnapshot | None = None
        reader, count = SnapshotReader(), 0
        variants: list[IdRows] = []
        for key, value in items:
            if key.startswith(RUN_PAGE_KIND):
                break  # they are the last
            if key == SNAPSHOT_KEY:
                snapshot = BloomSnapshot.decode(value)
            elif key.startswith((PIECE_KIND, RUN_KIND, ID_PAGE_KIND)):
                self._load_large(key, value, reader, variants)
                count += 1
                if count % PIECES_A_STEP == 0:
                    yield
            else:
                self._load_other(key, value)
        yield
        state = self._loaded_state()
        self.secret, self.clock_ms, self._floor = state.secret, state.clock_ms, state.floor
        self.backfill = state.backfill
        self.trace = replace(state.trace, limits=())
        self._snapshots.found(reader.pieces())
        # Without a snapshot the filters are made again from all of the changelog.
        if snapshot is not None:
            self._adopt(snapshot, reader, state)
        for rows in variants:
            self.index.take_variants(rows)
        if self.index.window.confirm:
            self._read_to = max(self.runs.since, state.floor)
            if self._read_to < state.next_number:
                self._from = min(self._from, self._offsets.of(self._read_to) or 0)
        self._unsaved = False

    def _load_large(self, key: bytes, value: bytes, reader: SnapshotReader, variants: list[IdRows]) -> None:
        if key.startswith(RUN_KIND):
            self.runs.load(key, value)
            return
        with taking_over():
            if key.startswith(PIECE_KIND):
                reader.take(value)
            else:
                variants.append(decode_pages([value], page_number(key), fingerprints=True)[0])

    def _adopt(self, snapshot: BloomSnapshot, reader: SnapshotReader, state: IdState) -> None:
        """Take the snapshot's filters over, as far as they live."""
        window = self.index.window
        filters, begun = [], {}
        for kept in snapshot.filters:
            if window.ends_ms(kept.bucket) <= state.clock_ms:
                continue
            with taking_over():
                each = reader.filter(kept.bucket, kept.order)
            # Later pieces of it may have more. Where all that is read again counts, that is counted then; with
            # refresh what is in it already does not, and would be given its room a second time.
            each.ids = max(each.ids, kept.ids) if window.refresh else kept.ids
            filters.append(each)
            begun[kept.bucket] = kept.first
        self.index.adopt(filters, begun, snapshot.next_number, state.clock_ms)
        self._snapshots.taken_over(snapshot)
        self._begins, self._from = state.floor, snapshot.changelog_offset

    @override
    def resumes(self, changelog_offset: int) -> int:
        # From where the snapshot was begun, or the first id lies that is in no run.
        self._applied_to = self._reached = changelog_offset
        self._again = self._from < changelog_offset
        return min(changelog_offset, self._from)

    # ---------------------------------------------------------------- what is written locally

    @override
    def write(self, *, sweeping: bool = True) -> dict[bytes, bytes | None]:
        changes = super().write(sweeping=sweeping)
        changes |= self.runs.changes()
        if sweeping:  # filters only together with a mark
            changes |= self._snapshots.changes(self._reached)
        return changes

    @override
    def erased(self) -> tuple[bytes, bytes] | None:
        # The pages of variants that are expired, and of buckets that are dropped.
        pages = self._expired_pages() if self.fingerprints else None
        if pages is not None:
            return pages
        if self.clock_ms == NEVER or not self.index.window.confirm:
            return None
        live = self.index.window.first_live(self.clock_ms)
        if self._erased_bucket is not None and live <= self._erased_bucket:
            return None
        self._erased_bucket = live
        self.runs.drop(live)
        return run_pages_before(live)
