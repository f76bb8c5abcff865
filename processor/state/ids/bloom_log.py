"""Keeps the ids of Bloom filters locally.

In the changelog they are blocks, as those of the exact backend, whose numbers, offsets and checks are used here
(`processor.state.ids.id_log`). Locally no id is kept. There are snapshots of the filters, which lag what has
been applied and name the changelog offset from which on the ids have to be put in once more: a start reads the
changelog from there.

Invariant: what is read of the changelog a second time changes filters, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from processor.engine.ids.bloom.numbering import BloomNumbering
from processor.engine.ids.bloom.snapshot import SnapshotReader
from processor.state.ids.id_log import IdLog, taking_over
from processor.state.ids.snapshots import Snapshots
from schemas.changelog.bloom import PIECE_KIND, SNAPSHOT_KEY, BloomSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from processor.engine.batch.columns import Columns
    from processor.engine.ids.block import IdRows
    from processor.engine.ids.page import Pages
    from schemas.changelog.ids import IdState

PIECES_A_STEP = 4
"""Pieces of filters that are read in one go: 4 MiB, about 10 ms."""


class BloomLog(IdLog[BloomNumbering]):
    """The ids of one partition, see `IdLog`."""

    @override
    def _forget(self) -> None:
        super()._forget()
        self._snapshots = Snapshots(self.index)
        self._reached = 0
        # What was found on the disk: how far the changelog was applied, and from where it is to be read again
        # (and whether that goes on).
        self._applied_to = self._from = 0
        self._again = False

    # ---------------------------------------------------------------- what is committed

    @override
    def reached(self, changelog_offset: int) -> None:
        super().reached(changelog_offset)
        self._reached = changelog_offset

    @override
    def due(self, waited_s: float) -> bool:
        # Not while that is read again which is known.
        return super().due(waited_s) and not self._again

    # ---------------------------------------------------------------- what is taken over

    @override
    def apply(self, columns: Columns) -> list[tuple[bytes, bytes | None]]:
        rest = super().apply(columns)
        if len(columns) and int(columns.offset[-1]) >= self._applied_to:
            self._again = False
        return rest

    @override
    def check(self) -> None:
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

    @override
    def load(self, items: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        snapshot: BloomSnapshot | None = None
        reader, count = SnapshotReader(), 0
        for key, value in items:
            if key == SNAPSHOT_KEY:
                snapshot = BloomSnapshot.decode(value)
            elif key.startswith(PIECE_KIND):
                with taking_over():
                    reader.take(value)
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
        self._unsaved = False

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
        # From where the snapshot was begun.
        self._applied_to = self._reached = changelog_offset
        self._again = self._from < changelog_offset
        return min(changelog_offset, self._from)

    # ---------------------------------------------------------------- what is written locally

    @override
    def write(self, *, sweeping: bool = True) -> dict[bytes, bytes | None]:
        changes = super().write(sweeping=sweeping)
        if sweeping:  # filters only together with a mark
            changes |= self._snapshots.changes(self._reached)
        return changes
