"""Keeps millions of scopes locally, of which a few thousand change with each commit.

They are a log of blocks beside the other local values: each write appends one block or more with the scopes
that changed since the last, encoded by the kernel that writes the changelog, and the same kernel reads them: a
key per scope would cost RocksDB some microseconds each, on both ways. So that the log does not grow for ever,
writes sweep over a share of all scopes once it holds `LONG` entries per scope; when a sweep has been around,
what lies before its beginning says nothing new and is deleted. With `SWEEP` scopes swept for each that changed,
the log holds 1 to 3 entries per scope, 1.8 on average, and 2.3 are written for each that changed.

Rejected: pages by hash or number. Few changes, evenly spread, make every page dirty: 10,000 changed scopes of
10 million would write 160 MB.

Invariant: what a write appends is committed; with the mark in the same write the blocks hold everything below
the mark. Blocks without a mark say nothing (see `processor.state.restore`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from processor.engine.batch.scan import scan_run
from processor.engine.watermark.scope_table import UnreadableScopeError
from processor.state.changelog import brought_rows
from processor.state.state_log import StateLog
from schemas.changelog.values import BLOCK_KIND, BLOCKS_KEY, CorruptStateError
from schemas.changelog.watermark import block_key, decode_blocks, encode_block, encode_blocks, open_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from processor.engine.batch.columns import Columns
    from processor.engine.watermark.scope_table import ScopeTable

BLOCK_BYTES = 1024 * 1024
"""25,000 scopes of 16 bytes: enough that what a key costs does not count."""
LONG = 1.75
SWEEP = 4
"""After a sweep over N scopes N / 4 have changed: 1.25 entries per scope are left, 3 are there just before."""
MOST_UNSAVED = 65_536
"""Changed scopes that make a local write due: 330,000 entries with the sweep, about 30 ms."""
WRITE_EVERY_S = float(os.environ.get("SEQMARK_TEST_LOCAL_WRITE_S", "5"))
"""A scope that changes all the time is written once in this time. It is what a crash makes a restart read
again of the changelog: at 300,000 scopes a second less than a second's work. Kill tests choose it: they ask
for a local write with each commit, or for none."""


class ScopeLog(StateLog):
    """The blocks of one partition's scopes, which are read into a table and written from there."""

    def __init__(self, scopes: ScopeTable) -> None:
        self.scopes = scopes
        self._clear()

    def _clear(self) -> None:
        self._first = self._next = self._sweep_first = 0
        self._at = self._until = 0
        self._entries = self._newer = 0

    @property
    @override
    def unsaved(self) -> bool:
        return bool(self.scopes.unsaved)

    @override
    def clear(self) -> None:
        self.scopes.clear()
        self._clear()

    @override
    def due(self, waited_s: float) -> bool:
        return waited_s >= WRITE_EVERY_S or self.scopes.unsaved >= MOST_UNSAVED

    @override
    def apply(self, columns: Columns) -> list[tuple[bytes, bytes | None]]:
        # What a backfill has brought stands before all that has changed since.
        brought = brought_rows(columns)
        for key, value in columns.items(brought):
            take_block(self.scopes, key, value or b"", track=True)
        try:
            rest = self.scopes.apply(columns, track=True)
        except UnreadableScopeError as error:
            raise CorruptStateError(str(error)) from error
        return columns.items(np.setdiff1d(rest, brought, assume_unique=True))

    @override
    def load(self, items: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        # One block per step: it is about 10 ms of work.
        found: tuple[int, int] | None = None
        said: tuple[int, int] | None = None
        for key, value in items:
            if key == BLOCKS_KEY:
                said = decode_blocks(value)
            if not key.startswith(BLOCK_KIND):
                continue
            number = int.from_bytes(key[len(BLOCK_KIND) :], "big")
            first, wanted = found or (number, number)
            if number != wanted:
                raise CorruptStateError(f"block {wanted} is missing")
            found = first, number + 1
            self._entries += take_block(self.scopes, key, value, track=False)
            yield
        if said is None:
            raise CorruptStateError("there is no record of blocks")
        if found != said and (found is not None or said[0] != said[1]):
            raise CorruptStateError(f"blocks {said[0]} to {said[1] - 1} are said to be there, and are not")
        self._first, self._next = said

    @override
    def write(self, *, sweeping: bool = True) -> dict[bytes, bytes | None]:
        changed = self.scopes.to_save()
        changes: dict[bytes, bytes | None] = {}
        if self._at >= self._until and self._entries > LONG * len(self.scopes):
            self._sweep_first, self._at, self._until, self._newer = self._next, 0, self.scopes.used, 0
        self._append(changed, changes)
        if sweeping and self._at < self._until:
            swept, self._at = self.scopes.sweep(self._at, self._until, SWEEP * changed.size)
            self._append(swept, changes)
            if self._at >= self._until:
                for number in range(self._first, self._sweep_first):
                    changes[block_key(number)] = None
                self._first = self._sweep_first
                self._entries = self._newer
        self.scopes.saved()
        changes[BLOCKS_KEY] = encode_blocks(self._first, self._next)
        return changes

    def _append(
        self, which: np.ndarray[tuple[int], np.dtype[np.uint32]], to: dict[bytes, bytes | None]
    ) -> None:
        longest = BLOCK_BYTES
        while which.size:
            try:
                for payload, count in self.scopes.encode(which, longest):
                    key = block_key(self._next)
                    to[key] = encode_block(key, payload, count)
                    self._next += 1
                    self._entries += count
                    self._newer += count
                    which = which[count:]
            except ValueError:
                longest *= 2  # a scope that is longer than a block makes a block of its own


def take_block(scopes: ScopeTable, key: bytes, value: bytes, *, track: bool) -> int:
    """Take over the scopes of a block; returns how many it has.

    Args:
        scopes: Where to.
        key: Of the block.
        value: Of the block.
        track: Whether the local store lacks them, see `ScopeTable.apply`.

    Raises:
        CorruptStateError: It is not whole, or of scopes of another definition.
    """
    payload, count = open_block(key, value)
    # Kernels are compiled for writable bytes, as the decoder's are.
    data = np.array(payload, np.uint8)
    columns, wrong = scan_run(data, data.size, count)
    try:
        if wrong or scopes.apply(columns, track=track).size:
            raise CorruptStateError(f"block {key!r} holds what is no scope")
    except UnreadableScopeError as error:
        raise CorruptStateError(f"block {key!r}: {error}") from error
    return count
