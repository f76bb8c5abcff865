"""Writes Bloom filters of hundreds of megabytes to the disk while they are used.

They are written in pieces of 1 MiB, a few with each commit, of those filters that have grown since they were
last written; that is mostly one, for only the present bucket's grow. When the last piece is there, a record
says which filters there are and from which changelog offset on the changelog has to be read again
(`processor.engine.ids.bloom.snapshot` says why that is enough). So a crash at any time leaves the last snapshot
that was finished, some pieces newer than it says.

Invariant: a piece is written in the same step as a state that has all of its ids committed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from processor.engine.ids.bloom import snapshot as bloom_snapshot
from schemas.changelog.bloom import SNAPSHOT_KEY, BloomSnapshot, KeptFilter, piece_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from processor.engine.ids.bloom.filter import Filter
    from processor.engine.ids.bloom.numbering import BloomNumbering

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
