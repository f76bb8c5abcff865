"""Keeps millions of ids in the changelog, the same for all backends.

They are one block per commit, or a few. What the local store has of them differs
(`processor.state.ids.exact_log`, `processor.state.ids.bloom_log`).

Numbers have no gaps. So a block that is missing is found, and so is a page: in front by the state's record,
which says from which number on ids are alive, in between and at the end by the numbers themselves.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
from typing_extensions import TypeVar, override

from processor.engine.ids.block import UnreadableBlockError, decode, joined
from processor.engine.ids.bloom.snapshot import UnreadableSnapshotError
from processor.engine.ids.clock import NEVER
from processor.errors import StopError
from processor.state.state_log import ForeignStateError, StateLog
from schemas.changelog.clock import ClockTrace
from schemas.changelog.ids import (
    ID_BLOCK_KIND,
    ID_PLACE_KIND,
    IDS_KEY,
    ORIGIN_COPY_KEY,
    IdState,
    block_number,
    decode_place,
    encode_place,
    id_place_key,
    page_number,
)
from schemas.changelog.values import CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from processor.engine.batch.columns import Columns
    from processor.engine.ids.block import IdRows
    from processor.engine.ids.bloom.numbering import BloomNumbering
    from processor.engine.ids.exact.index import ExactIndex
    from processor.engine.ids.page import Pages

# It is asked to trim what is expired from the head of a changelog, and to find that too much was deleted.
# There is one entry for every so many ids, and for every so many changelog records where ids are rare: that
# of the first commit in each such stretch. So two workers that have restored the same changelog have the
# same entries.
#
# Invariant: every block of ids from an entry's number on lies at its offset or behind it; both rise.

ENTRY_IDS = int(os.environ.get("SEQMARK_TEST_PLACE_IDS", "16384"))
"""Ids from one entry to the next: about 350 KB of changelog. Tests have fewer."""
ENTRY_RECORDS = 100_000
"""Changelog records from one entry to the next: what a commit writes without ids, 12 MB of it."""


class OffsetIndex:
    """The entries of one partition's changelog."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._offsets: list[int] = []
        self._first: int | None = None
        self._changed: dict[int, int | None] = {}

    def note(self, number: int, offset: int) -> None:
        """Take note that a commit, behind those before, says at ``offset`` that its first id has ``number``."""
        if self._numbers:
            last, at = self._numbers[-1], self._offsets[-1]
            if number // ENTRY_IDS == last // ENTRY_IDS and offset // ENTRY_RECORDS == at // ENTRY_RECORDS:
                return
            if number == last:
                self._offsets[-1] = self._changed[number] = offset
                return
        self.load(number, offset)
        self._changed[number] = offset

    def load(self, number: int, offset: int) -> None:
        """Take over an entry that was kept; they come in order."""
        self._numbers.append(number)
        self._offsets.append(offset)
        if self._first is None:
            self._first = offset

    def of(self, number: int) -> int | None:
        """Return the offset from which on all ids from ``number`` on lie; None: that is not known."""
        index = bisect_right(self._numbers, number) - 1
        return self._offsets[index] if index >= 0 else None

    def ahead(self, number: int) -> int | None:
        """Return `of` where it lies behind what the last `forget_before` has left, else None.

        While no ids come, the last entry moves on: then it is ahead of where it was, though it is the first.
        """
        offset = self.of(number)
        return offset if offset is not None and offset != self._first else None

    def forget_before(self, number: int) -> None:
        """Forget the entries that only ids below ``number`` needed."""
        index = max(0, bisect_right(self._numbers, number) - 1)
        for gone in self._numbers[:index]:
            self._changed[gone] = None
        del self._numbers[:index], self._offsets[:index]
        self._first = self._offsets[0] if self._offsets else None

    def changes(self) -> dict[int, int | None]:
        """Return what has changed since the last call: offset by number, None where it is forgotten."""
        changed, self._changed = self._changed, {}
        return changed


Index = TypeVar("Index", bound="ExactIndex | BloomNumbering", default=Any)
NOTHING_BOUND = ClockTrace(0, NEVER)
"""Of a partition that has no state yet: since its first record timestamps alone have moved the clock."""
SWEPT_RECORDS = 2_000
"""The index frees one segment of expired ids per so many (see `ExactIndex.commit`)."""


@contextmanager
def taking_over() -> Iterator[None]:
    """Say it to the operator when more ids are taken over than one partition can have, or none can be read."""
    try:
        yield
    except (UnreadableBlockError, UnreadableSnapshotError) as error:
        raise CorruptStateError(str(error)) from error
    except MemoryError as error:
        raise StopError(f"the ids of one partition do not fit: {error}") from error


class IdLog(StateLog, ABC, Generic[Index]):
    """The ids of one partition: where they are kept, and the index over them.

    Attributes:
        index: In which they are looked up.
        earlier: What keys of an earlier build begin with, and what to say of its state.
        secret: The key of their hash; None before the first commit.
        clock_ms: The partition's clock, as committed.
        trace: How it came to that, as committed, without limits.
        backfill: The name of the backfill that the state began with; empty where there was none.

    Args:
        index: Empty.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self._forget()

    @property
    def fingerprints(self) -> bool:
        """Whether ids have fingerprints."""
        return self.index.collisions is not None

    def _forget(self) -> None:
        self.secret: bytes | None = None
        self.clock_ms = NEVER
        self.trace = NOTHING_BOUND
        self.backfill = ""
        self._unsaved = False
        # Of what was taken over: the first number that there is anything of, and the last state's record.
        self._begins: int | None = None
        self._said: IdState | None = None
        self._floor = 0
        self._inside = False
        # What may be deleted of the changelog, and what the last commit has written.
        self._offsets = OffsetIndex()
        self._origin: bytes | None = None
        self._written = 0
        self._commit: tuple[int, int] | None = None
        self._promised: tuple[int, int] | None = None
        self._trim_offset: int | None = None

    # ---------------------------------------------------------------- what is committed

    def changes(self, clock_ms: int, trace: ClockTrace) -> dict[bytes, bytes | None]:
        """Return what the next commit, of this clock, writes beside its blocks and, last, the position.

        Where something in front can be deleted once that is committed, the origin is among it.
        """
        changes: dict[bytes, bytes | None] = {IDS_KEY: self._state(clock_ms, trace).encode()}
        self.trace = replace(trace, limits=())
        self._promised = None
        at = self._offsets.ahead(self.index.floor)
        if at is not None and self._origin is not None:
            changes[ORIGIN_COPY_KEY] = self._origin
            self._promised = self.index.floor, at
        self._written = len(changes) + 1
        return changes

    def restated(self) -> None:
        """Take note that what is written next is all there is: of the changelog before it nothing counts."""
        self._offsets = OffsetIndex()
        self._origin = None

    def _state(self, clock_ms: int, trace: ClockTrace) -> IdState:
        assert self.secret is not None  # noqa: S101 - the judge or a restore has given it
        return IdState(self.secret, clock_ms, self.index.next_number, self.index.floor, trace, self.backfill)

    def committed(self, blocks: Sequence[tuple[bytes, Pages]], clock_ms: int, records: int) -> None:
        """Take the staged ids as committed.

        Args:
            blocks: What was written of them, in order; none where nothing was staged.
            clock_ms: The clock after the commit's last record.
            records: How many it has judged.
        """
        first = int(blocks[0][1].first[0]) if blocks else self.index.next_number
        self._commit = first, len(blocks) + self._written
        if self._promised is not None:
            floor, self._trim_offset = self._promised
            self._offsets.forget_before(floor)
            self._promised = None
        for block, pages in blocks:
            self._keep(block, pages)
        self.index.commit(joined([pages for _, pages in blocks]), clock_ms, 1 + records // SWEPT_RECORDS)
        self.clock_ms = clock_ms
        self._unsaved = True

    @override
    def reached(self, changelog_offset: int) -> None:
        # A commit's records are the last ones before that, one behind the other.
        if self._commit is not None:
            first, records = self._commit
            self._offsets.note(first, changelog_offset - records)
            self._commit = None

    @override
    def note_origin(self, value: bytes) -> None:
        self._origin = value
        self._unsaved = True

    @override
    def take_trim_offset(self) -> int | None:
        # What lies before the first living ids, the origin being behind it too.
        offset, self._trim_offset = self._trim_offset, None
        return offset

    def _keep(self, block: bytes, pages: Pages) -> None:
        """Keep of a committed block what the local store is to have of it."""

    # ---------------------------------------------------------------- what is taken over

    @property
    @override
    def unsaved(self) -> bool:
        return self._unsaved

    @override
    def clear(self) -> None:
        self.index.clear()
        self._forget()

    @override
    def apply(self, columns: Columns) -> list[tuple[bytes, bytes | None]]:
        rest: list[tuple[bytes, bytes | None]] = []
        items = columns.items(np.arange(len(columns)))
        for offset, (key, value) in zip(columns.offset.tolist(), items, strict=True):
            if value is not None and key == IDS_KEY:
                state = IdState.decode(value)
                self._note(state.next_number, offset, inside=False)
                self._take_state(state)
            elif value is not None and key == ORIGIN_COPY_KEY:
                self._origin = value
            elif value is not None and key.startswith(ID_BLOCK_KIND):
                with taking_over():
                    rows, clock_ms, pages = decode(value, key, fingerprints=self.fingerprints)
                self._note(rows.first, offset, inside=True)
                self._take_rows(rows, pages)
                self._keep(value, pages)
                self._expire(clock_ms, len(rows))
            else:
                rest.append((key, value))
                continue
            self._unsaved = True
        return rest

    def _note(self, number: int, offset: int, *, inside: bool) -> None:
        """Note where a commit's blocks stand, or its state without any; ``inside`` false: its last of ours.

        Each block of it, since a reset writes a whole state as one commit.
        """
        if inside or not self._inside:
            self._offsets.note(number, offset)
        self._inside = inside

    def _take_state(self, state: IdState) -> None:
        if self.secret not in {None, state.secret}:
            raise ForeignStateError("its ids are hashed with another secret than those before")
        if self._begins is None:
            self._begins = state.next_number
            self.index.begin_at(state.next_number)
        elif state.next_number != self.index.next_number:
            raise ForeignStateError(
                f"ids up to number {state.next_number - 1} were remembered, and those from "
                f"{self.index.next_number} on are not there"
            )
        self.secret = state.secret
        self.backfill = state.backfill
        self.trace = replace(state.trace, limits=())
        self._said = state
        self._floor = max(self._floor, state.floor)
        self._expire(state.clock_ms, 0)

    def _take_rows(self, rows: IdRows, pages: Pages) -> None:
        self._goes_on(rows.first)
        with taking_over():
            self.index.restore(rows, pages)

    def _goes_on(self, first: int) -> None:
        """Look whether ids from this number on are the next ones."""
        if self._begins is None:
            self._begins = first
        elif first != self.index.next_number:
            raise ForeignStateError(
                f"ids from number {first} on follow, and {self.index.next_number} should be the next"
            )

    def _expire(self, clock_ms: int, ids: int) -> None:
        self.clock_ms = max(self.clock_ms, clock_ms)
        self.index.commit(None, self.clock_ms, 1 + ids // SWEPT_RECORDS)

    @abstractmethod
    @override
    def load(self, items: Iterable[tuple[bytes, bytes]]) -> Iterator[None]: ...

    def _load_other(self, key: bytes, value: bytes) -> None:
        """Take what the local store keeps of every backend's log beside the ids."""
        if key == IDS_KEY:
            self._said = IdState.decode(value)
        elif key == ORIGIN_COPY_KEY:
            self._origin = value
        elif key.startswith(ID_PLACE_KIND):
            self._offsets.load(page_number(key), decode_place(key, value))

    def _loaded_state(self) -> IdState:
        if self._said is None:
            raise CorruptStateError("there is no record of ids")
        return self._said

    @override
    def check(self) -> None:
        # From the first living id to the last one all must be there.
        if self._begins is None and self.secret is None:
            return
        said = self._said
        if said is None or said.next_number != self.index.next_number:
            raise CorruptStateError("there are ids behind the last record of their state")
        if self._begins is not None and self._begins > self._floor:
            raise CorruptStateError(
                f"ids from number {self._floor} to {self._begins - 1} are gone, which are inside the window: "
                "they were deleted (by retention, DeleteRecords, or another cleanup.policy), and the records "
                "they are of would pass again. Restore the topic from a copy, or see 'Beginning anew' in "
                "docs/operations.md"
            )

    @override
    def begins_late(self, start: int) -> bool:
        # As far as the offset index says, which has few entries.
        needed = self._offsets.of(self._floor)
        return needed is not None and start > needed

    @override
    def require_begun(self, columns: Columns) -> bool:
        # The first block or state there must not be above the first living id.
        for key, value in columns.items(np.arange(len(columns))):
            if value is None or not (key == IDS_KEY or key.startswith(ID_BLOCK_KIND)):
                continue
            number = IdState.decode(value).next_number if key == IDS_KEY else block_number(key)
            if number > self._floor:
                raise StopError(
                    f"the changelog begins with id number {number}, and those from {self._floor} on are inside "
                    "the window: they were deleted (by retention, DeleteRecords, or another cleanup.policy). "
                    "The local state has them, but whoever takes this partition over would pass their "
                    "duplicates. Restore the topic from a copy, or see 'Beginning anew' in docs/operations.md"
                )
            return True
        return False

    # ---------------------------------------------------------------- what is written locally

    @override
    def write(self, *, sweeping: bool = True) -> dict[bytes, bytes | None]:
        # Before a restore has come to a state's record, nothing, or pages alone.
        del sweeping
        changes: dict[bytes, bytes | None] = {}
        if self.secret is not None:
            changes[IDS_KEY] = self._state(self.clock_ms, self.trace).encode()
        if self._origin is not None:
            changes[ORIGIN_COPY_KEY] = self._origin
        for number, offset in self._offsets.changes().items():
            key = id_place_key(number)
            changes[key] = None if offset is None else encode_place(key, offset)
        self._unsaved = False
        return changes
