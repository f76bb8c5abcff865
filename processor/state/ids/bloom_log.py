"""Keeps the ids of Bloom filters locally.

In the changelog they are blocks, as those of the exact backend, whose numbers, offsets and checks are used here
(`processor.state.ids.id_log`). Locally no id is kept. There are snapshots of the filters, which lag what has
been applied and name the changelog offset from which on the ids have to be put in once more: a start reads the
changelog from there.

Invariant: what is read of the changelog a second time changes filters, and nothing else.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from processor.engine.ids.bloom import snapshot as bloom_snapshot
from processor.engine.ids.bloom.numbering import BloomNumbering
from processor.engine.ids.bloom.snapshot import SnapshotReader
from processor.state.ids.id_log import IdLog, taking_over
from schemas.changelog.bloom import PIECE_KIND, SNAPSHOT_KEY, BloomSnapshot, KeptFilter, piece_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from processor.engine.batch.columns import Columns
    from processor.engine.ids.block import IdRows
    from processor.engine.ids.bloom.filter import Filter
    from processor.engine.ids.page import Pages
    from schemas.changelog.ids import IdState

# They are written in pieces of 1 MiB, a few with each commit, of those filters that have grown since they
# were last written; that is mostly one, for only the present bucket's grow. When the last piece is there, a
# record says which filters there are and from which changelog offset on the changelog has to be read again
# (`processor.engine.ids.bloom.snapshot` says why that is enough). So a crash at any time leaves the last
# snapshot that was finished, some pieces newer than it says.
#
# Invariant: a piece is written in the same step as a state that has all of its ids committed.

BYTES_AN_ID = 64
"""Written for each new id at most. A restart puts the ids since the last snapshot in once more, about 0.8 us
each: with a filter of 120 MB 1.9 million ids, 1.5 s."""
LEAST_IDS = int(os.environ.get("SEQMARK_TEST_SNAPSHOT_IDS", "262144"))
"""Since the last snapshot, before a new one is made of filters that have only grown: 0.2 s of a restart. Small
ones, of 2 MB, would be written every 33,000 ids otherwise, which is dearer than putting ids into them."""
BYTES_A_COMMIT = 2 * 1024 * 1024
"""Written with a commit, a few ms: small filters at once, those of 120 MB with 60 commits."""
FEW_RECORDS = 1_000
"""Changelog records since the last snapshot that make a new one worth while that costs nothing."""
MANY_RECORDS = 100_000
"""Changelog records that make one worth its cost whatever it is: reading them takes a second."""

UNKNOWN = -1
"""Ids of a filter of which nothing that is on the disk counts."""


class Snapshots:
    """What of one partition's filters is on the disk."""

    def __init__(self, index: BloomNumbering) -> None:
        self._index = index
        self._last: BloomSnapshot | None = None
        self._todo: Iterator[tuple[bytes, bytes]] | None = None
        # By bucket and order: ids that are certainly in what was written, and how many pieces that are.
        self._stored: dict[tuple[int, int], tuple[int, int]] = {}

    def found(self, pieces: dict[tuple[int, int], int]) -> None:
        """Take note of how many pieces of a filter lie on the disk: of no use unless a snapshot names it."""
        self._stored = {name: (UNKNOWN, count) for name, count in pieces.items()}

    def taken_over(self, snapshot: BloomSnapshot) -> None:
        """Take note of a snapshot that was read; all of its filters that live are in the index."""
        self._last = snapshot
        self._stored |= {(each.bucket, each.order): _stored(each) for each in self._index.window.filters}

    def changes(self, changelog_offset: int) -> dict[bytes, bytes | None]:
        """Return what is to be written now, the changelog being taken in up to this offset."""
        changes = self._dropped()
        if self._todo is None and self._due(changelog_offset):
            self._todo = self._written(changelog_offset)
        written = 0
        while self._todo is not None and written < BYTES_A_COMMIT:
            key, value = next(self._todo)
            changes[key] = value
            written += len(value)
        return changes

    def _dropped(self) -> dict[bytes, bytes | None]:
        """Delete the pieces of filters that are no more."""
        live = {(each.bucket, each.order) for each in self._index.window.filters}
        gone = [name for name in self._stored if name not in live]
        pieces = {name: self._stored.pop(name)[1] for name in gone}
        return {piece_key(*name, number): None for name, count in pieces.items() for number in range(count)}

    def _grown(self) -> list[Filter]:
        """Return the filters that have ids which are not in what was written."""
        return [
            each
            for each in self._index.window.filters
            if self._stored.get((each.bucket, each.order), (UNKNOWN, 0))[0] != each.ids
        ]

    def _due(self, changelog_offset: int) -> bool:
        last = self._last
        if last is None:
            return True
        records = changelog_offset - last.changelog_offset
        grown = self._grown()
        if not grown:
            return records >= FEW_RECORDS
        size = sum(each.words.nbytes for each in grown)
        ids = self._index.next_number - last.next_number
        begun = {each.bucket for each in grown} - {each.bucket for each in last.filters}
        many = ids >= LEAST_IDS and ids * BYTES_AN_ID >= size
        return many or records >= MANY_RECORDS or bool(begun)

    def _written(self, changelog_offset: int) -> Iterator[tuple[bytes, bytes]]:
        """Write what a snapshot has that is begun now: pieces, and at the end the record of it."""
        index = self._index
        filters = sorted(index.window.filters, key=lambda each: (each.bucket, each.order))
        kept = [KeptFilter(each.bucket, each.order, each.ids, index.begun[each.bucket]) for each in filters]
        snapshot = BloomSnapshot(changelog_offset, index.next_number, tuple(kept))
        for each in self._grown():
            if not self._lives(each):
                continue
            self._stored[each.bucket, each.order] = _stored(each)
            for number, piece in enumerate(bloom_snapshot.write(each)):
                if not self._lives(each):  # its words may be another's by now
                    break
                yield piece_key(each.bucket, each.order, number), piece
        self._last, self._todo = snapshot, None
        yield SNAPSHOT_KEY, snapshot.encode()

    def _lives(self, one: Filter) -> bool:
        return any(one is each for each in self._index.window.filters)


def _stored(each: Filter) -> tuple[int, int]:
    return each.ids, -(-each.words.size // bloom_snapshot.PIECE_WORDS)


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
