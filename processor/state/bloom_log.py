"""How do the ids of Bloom filters survive a restart?

In the changelog as blocks, as those of the exact backend do, whose places, numbers and checks are used here
(`processor.state.id_log`). Locally there are no pages of them. There are snapshots of the filters, which lag
what has been taken in and name the changelog offset from which on the ids have to be put in once more; and
with ``confirm`` an entry for each id of the living buckets, written with its commit, by which hits are looked
up. Without ``confirm`` no id is kept locally.

Invariant: with ``confirm`` every committed id of a bucket that lives is an entry whenever the table is settled.
What is read of the changelog a second time changes filters only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from processor.engine import id_entries
from processor.engine.bloom_snapshot import Reader, UnreadableSnapshotError
from processor.engine.clock import NEVER
from processor.state.bloom_snapshots import Snapshots
from processor.state.id_log import IdLog
from schemas.bloom_state import PIECE_KIND, SNAPSHOT_KEY, Snapshot
from schemas.changelog import CorruptStateError
from schemas.id_changelog import (
    ID_PLACE_KIND,
    IDS_KEY,
    ORIGIN_COPY_KEY,
    IdState,
    decode_place,
    page_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from processor.engine.blocks import Pages, Rows
    from processor.engine.bloom_index import BloomIndex
    from processor.engine.records import Columns

PIECES_A_STEP = 4
"""Pieces of filters that are read in one go: 4 MiB, some 10 ms."""


class BloomLog(IdLog):
    """The ids of one partition, see `IdLog`.

    Args:
        filters: Empty.
    """

    def __init__(self, filters: BloomIndex) -> None:
        self._filters = filters
        super().__init__(filters)

    def _forget(self) -> None:
        super()._forget()
        self._snapshots = Snapshots(self._filters)
        self._entries: dict[bytes, bytes] = {}
        self._erased_bucket: int | None = None
        self._reached = 0
        # What was found on the disk: how far the changelog was taken in, from where it is to be read again (and
        # whether that goes on), and the number below which all ids are entries.
        self._taken_to = self._from = 0
        self._again = False
        self._entered_to = 0

    # ---------------------------------------------------------------- what is committed

    def committed(self, blocks: Sequence[tuple[bytes, Pages]], clock_ms: int, records: int) -> None:
        """See `IdLog.committed`."""
        rows = self._filters.staged()
        super().committed(blocks, clock_ms, records)
        self._enter(rows)

    def reached(self, changelog_offset: int) -> None:
        """See `Bulk.reached`."""
        super().reached(changelog_offset)
        self._reached = changelog_offset

    def due(self, waited_s: float) -> bool:
        """See `Bulk.due`: always, but while that is read again which is known."""
        return super().due(waited_s) and not self._again

    def _keep(self, block: bytes, pages: Pages) -> None:
        """Keep no pages."""

    def _enter(self, rows: Rows) -> None:
        """Make entries of those ids that have none and are of a bucket that lives."""
        window = self._filters.window
        if not window.confirm or not len(rows):
            return
        bucket = rows.reading_ms // window.bucket_ms
        number = rows.first + np.arange(len(rows))
        new = np.flatnonzero((number >= self._entered_to) & (bucket >= window.first_live(self.clock_ms)))
        if new.size:
            entries = id_entries.encode(bucket[new], rows.hash[new], rows.owner[new], rows.reading_ms[new])
            self._entries.update(entries)

    # ---------------------------------------------------------------- what is taken over

    def take(self, columns: Columns) -> list[tuple[bytes, bytes | None]]:
        """See `Bulk.take`."""
        rest = super().take(columns)
        if len(columns) and int(columns.offset[-1]) >= self._taken_to:
            self._again = False
        return rest

    def check(self) -> None:
        """See `Bulk.check`."""
        super().check()
        self._again = False

    def _note(self, number: int, offset: int, *, inside: bool) -> None:
        if offset >= self._taken_to:
            super()._note(number, offset, inside=inside)
        else:
            self._inside = inside  # its place is known

    def _take_rows(self, rows: Rows, pages: Pages) -> None:
        super()._take_rows(rows, pages)
        self._enter(rows)

    def load(self, items: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        """See `Bulk.load`. Entries are not read: each says by itself whether it is whole."""
        state: IdState | None = None
        snapshot: Snapshot | None = None
        reader, count = Reader(), 0
        for key, value in items:
            if key.startswith(id_entries.KIND):
                break  # they are the last
            if key == IDS_KEY:
                state = IdState.decode(value)
            elif key == SNAPSHOT_KEY:
                snapshot = Snapshot.decode(value)
            elif key.startswith(PIECE_KIND):
                _take_piece(reader, value)
                count += 1
                if count % PIECES_A_STEP == 0:
                    yield
            else:
                self._load_other(key, value)
        yield
        if state is None:
            raise CorruptStateError("there is no record of ids")
        self.secret, self.clock_ms = state.secret, state.clock_ms
        self.trace = replace(state.trace, limits=())
        self._said, self._floor, self._entered_to = state, state.floor, state.next_number
        self._snapshots.found(reader.pieces())
        # Without a snapshot the filters are made again from all of the changelog.
        if snapshot is not None:
            self._adopt(snapshot, reader, state)
        self._unsaved = False

    def _load_other(self, key: bytes, value: bytes) -> None:
        if key == ORIGIN_COPY_KEY:
            self._origin = value
        elif key.startswith(ID_PLACE_KIND):
            self._places.load(page_number(key), decode_place(key, value))

    def _adopt(self, snapshot: Snapshot, reader: Reader, state: IdState) -> None:
        """Take the snapshot's filters over, as far as they live."""
        window = self._filters.window
        filters, begun = [], {}
        for kept in snapshot.filters:
            if window.ends_ms(kept.bucket) <= state.clock_ms:
                continue
            try:
                each = reader.filter(kept.bucket, kept.order)
            except UnreadableSnapshotError as error:
                raise CorruptStateError(str(error)) from error
            # Later pieces of it may have more. Where all that is read again counts, that is counted then; with
            # refresh what is in it already does not, and would be given its room a second time.
            each.ids = max(each.ids, kept.ids) if window.refresh else kept.ids
            filters.append(each)
            begun[kept.bucket] = kept.first
        self._filters.adopt(filters, begun, snapshot.next_number, state.clock_ms)
        self._snapshots.taken_over(snapshot)
        self._begins, self._from = state.floor, snapshot.changelog_offset

    def resumes(self, changelog_offset: int) -> int:
        """See `Bulk.resumes`: from where the snapshot was begun."""
        self._taken_to = self._reached = changelog_offset
        self._again = self._from < changelog_offset
        return min(changelog_offset, self._from)

    # ---------------------------------------------------------------- what is written locally

    def write(self, *, sweeping: bool = True) -> dict[bytes, bytes | None]:
        """See `Bulk.write`; filters only together with a mark."""
        changes = super().write(sweeping=sweeping)
        changes.update(self._entries)
        self._entries = {}
        if sweeping:
            changes |= self._snapshots.changes(self._reached)
        return changes

    def erased(self) -> tuple[bytes, bytes] | None:
        """See `Bulk.erased`: the entries of buckets that are dropped."""
        if self.clock_ms == NEVER or not self._filters.window.confirm:
            return None
        live = self._filters.window.first_live(self.clock_ms)
        if self._erased_bucket is not None and live <= self._erased_bucket:
            return None
        self._erased_bucket = live
        after = id_entries.bucket_key(live)
        self._entries = {key: value for key, value in self._entries.items() if key >= after}
        return id_entries.KIND, after


def _take_piece(reader: Reader, piece: bytes) -> None:
    try:
        reader.take(piece)
    except UnreadableSnapshotError as error:
        raise CorruptStateError(str(error)) from error
