"""Owns the scopes of one partition, and makes room for them.

A `ScopeTable` owns the arrays that the kernels of `processor.engine.watermark.scope_kernels` and
`processor.engine.watermark.scope_codec` work on, and grows them when a kernel asks. Nothing else happens here.

Invariant: no view of an array that is resized outlives a call: `ndarray.resize` moves pages instead of
copying them, and a view of the old place would read freed memory.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.arrays import grown
from processor.engine.watermark import scope_arrays, scope_codec, scope_kernels
from processor.engine.watermark.dropped import raise_floors
from processor.engine.watermark.left_epochs import LEFT_WORDS
from processor.engine.watermark.reorder_window import ring_bits
from processor.engine.watermark.scope_arrays import (
    COUNT,
    DIRTIED,
    LIMIT,
    MOVED,
    UNSAVED_COUNT,
    USED,
    WANT,
    ScopeArrays,
)
from processor.engine.watermark.scope_codec import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.jit import Int

FIRST_WORDS = 512
FIRST_SLOTS = 256
FIRST_ROWS = 4
GROWTH = 16
"""Arrays grow by a sixteenth: what is not used yet, zeroed all the same, is at most that share."""
FULL = 0.7
"""Share of used slots from which on probes get long: 2.2 slots a hit, 6 a miss (Knuth, linear probing)."""
NEARLY = 0.9
"""Share of the limit from which on the next slots are zeroed. That is what costs when 128 MiB are taken into
use, so it is done ahead, `ZEROES` slots a record: 2 / (0.7 * 0.1) = 29 would do."""
ZEROES = 32
FLOORS = 1_024
"""16 KB. More scopes share them, and less of what is dropped is looked at after a start."""
MOST_WORDS = 2**32 - 2
"""A slot has 32 bits for a word's number: 32 GiB of scopes a partition."""


class UnreadableScopeError(Exception):
    """A record of a scope cannot be taken over.

    Attributes:
        key: Of the record.
        reason: What is wrong.
    """

    def __init__(self, key: bytes, reason: Unreadable) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"the value under {key!r}: {reason.text}")


@dataclass(frozen=True, slots=True)
class ScopeJudgement:
    """Verdicts, and what stood in the scopes before each record.

    Attributes:
        verdict: uint8[n], `Verdict` values.
        known: bool[n]; False where the record was the first of its scope, or not judged.
        watermark: int64[n]; 0 where not known.
        epoch: int64[n]; 0 where not known, or where the definition has none; of a hash the first word.
        tag: uint32[n], hashes of their scopes; 0 where not judged.
    """

    verdict: NDArray[np.uint8]
    known: NDArray[np.bool_]
    watermark: NDArray[np.int64]
    epoch: NDArray[np.int64]
    tag: NDArray[np.uint32]


class ScopeTable:
    """The scopes of one partition.

    Args:
        seed: 16 bytes for the hash; secret, new in each process: nobody can choose keys that collide.
        epoch: Whether scopes have one.
        changes: Whether epochs have no order, and only differ.
        window: Numbers below the watermark that are remembered one by one.
        wraps: Where numbers begin again, above twice the window; 0: nowhere.
        hash_bits: For tests: with 0 all scopes collide.
    """

    def __init__(
        self,
        seed: bytes,
        *,
        epoch: bool,
        window: int,
        changes: bool = False,
        wraps: int = 0,
        hash_bits: int = 32,
    ) -> None:
        if sys.byteorder != "little":
            raise NotImplementedError("scopes are kept as little-endian words")
        self._key = np.append(np.frombuffer(seed, np.uint64), np.uint64((1 << hash_bits) - 1))
        window_at = 2 + epoch + 2 * changes
        self._layout = np.array(
            [
                window_at + bool(window),
                2 if epoch else 0,
                4 if changes else 0,
                window_at if window else 0,
                window,
                wraps,
            ],
            np.int64,
        )
        self.window, self.wraps, self.unordered = window, wraps, changes
        self._row_words = max(1 + int(ring_bits(window)) // 64 if window else 0, LEFT_WORDS if changes else 0)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._meta = np.zeros(scope_arrays.META, np.int64)
        self._words: NDArray[np.int64] = np.zeros(FIRST_WORDS, np.int64)
        self._slots: NDArray[np.uint64] = np.zeros(FIRST_SLOTS, np.uint64)
        self._old: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._next: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._zeroed = 0
        self._dirty: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._unsaved: NDArray[np.uint32] = np.zeros(0, np.uint32)
        rows = FIRST_ROWS if self._row_words else 0
        self._pool = np.zeros((rows, self._row_words), np.uint64)
        self._free = np.zeros(rows, np.int64)
        self._meta[LIMIT] = int(FULL * FIRST_SLOTS)

    def __len__(self) -> int:
        return int(self._meta[COUNT])

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays, the room not used yet included."""
        sizes = [self._words.nbytes, self._slots.nbytes, self._old.nbytes, self._next.nbytes]
        sizes += [self._dirty.nbytes, self._unsaved.nbytes, self._pool.nbytes, self._free.nbytes]
        return sum(sizes)

    @property
    def unsaved(self) -> int:
        """How many scopes have changed since `saved`; what is not committed yet does not count."""
        return int(self._meta[UNSAVED_COUNT])

    @property
    def used(self) -> int:
        """How many words of the arena are used: what `sweep` has to go through."""
        return int(self._meta[USED])

    def judge(
        self,
        data: NDArray[np.uint8],
        at: NDArray[np.int64],
        size: NDArray[np.int64],
        sequence: NDArray[np.int64],
        epoch: NDArray[np.int64],
        fault: NDArray[np.uint8],
    ) -> ScopeJudgement:
        """Judge records in order, each in its scope.

        Args:
            data: uint8[m], where scopes stand.
            at: int64[n], where each begins.
            size: int64[n], its bytes.
            sequence: int64[n].
            epoch: int64[n], or of those that only differ int64[n, 2], their hashes; any array where scopes have
                none.
            fault: uint8[n], `Fault` codes; a record with one changes nothing.
        """
        rows = int(sequence.size)
        judged = ScopeJudgement(
            np.empty(rows, np.uint8),
            np.empty(rows, np.bool_),
            np.empty(rows, np.int64),
            np.empty(rows, np.int64),
            np.empty(rows, np.uint32),
        )
        self._dirty = grown(self._dirty, int(self._meta[DIRTIED]) + rows, GROWTH)
        self._move(rows)
        row: Int = 0
        # Integers wrap on purpose; only uncompiled kernels would warn of it.
        with np.errstate(over="ignore"):
            while row < rows:
                row = scope_kernels.judge_scopes(
                    self._arrays(),
                    self._dirty,
                    data,
                    at,
                    size,
                    sequence,
                    epoch if epoch.ndim == 2 else epoch[:, None],
                    fault,
                    row,
                    judged.verdict,
                    judged.known,
                    judged.watermark,
                    judged.epoch,
                    judged.tag,
                )
                if row < rows:
                    self._make_room(int(size[row]), rows - row)
        return judged

    def apply(self, columns: Columns, *, track: bool) -> NDArray[np.int64]:
        """Take scopes over from changelog records; the last of a scope counts.

        Args:
            columns: The records.
            track: Whether they are `unsaved` from now on. If not, they come from local blocks: the block's
                checksum has been looked at, and theirs are not.

        Returns:
            int64[k], rows of records of another kind, not looked at.

        Raises:
            UnreadableScopeError: A record cannot be taken over; those before it have been.
        """
        rows = len(columns)
        other = np.empty(rows, np.bool_)
        if track:
            self._unsaved = grown(self._unsaved, int(self._meta[UNSAVED_COUNT]) + rows, GROWTH)
        self._move(rows)
        row: Int = 0
        with np.errstate(over="ignore"):
            while row < rows:
                row, wrong = scope_codec.apply(
                    self._arrays(), self._unsaved, columns.data, columns.table, row, track, other
                )
                if wrong:
                    at, size = int(columns.key[row]), int(columns.key_length[row])
                    raise UnreadableScopeError(columns.data[at : at + size].tobytes(), Unreadable(int(wrong)))
                if row < rows:
                    self._make_room(int(columns.key_length[row]), rows - row)
        return np.flatnonzero(other)

    def _arrays(self) -> ScopeArrays:
        """Return what kernels work on: until an array is resized."""
        return ScopeArrays(
            self._words, self._slots, self._old, self._meta, self._pool, self._free, self._key, self._layout
        )

    def _move(self, rows: int) -> None:
        """Do a share of what growing takes: zero the slots to come, move the old ones."""
        if self._meta[COUNT] >= NEARLY * self._meta[LIMIT]:
            if not self._next.size:
                self._next, self._zeroed = np.empty(2 * self._slots.size, np.uint64), 0
            stop = self._zeroed + max(ZEROES * rows, FIRST_SLOTS)
            self._next[self._zeroed : stop] = 0
            self._zeroed = min(stop, self._next.size)
        if self._old.size:
            scope_arrays.move(self._slots, self._old, self._meta, max(scope_arrays.MOVES * rows, FIRST_SLOTS))
            if self._meta[MOVED] == self._old.size:
                self._old = np.zeros(0, np.uint64)
                self._meta[MOVED] = 0

    def _make_room(self, size: int, rows: int) -> None:
        """Give a kernel what it asked for in ``meta[WANT]``."""
        match int(self._meta[WANT]):
            case scope_arrays.ARENA:
                self._words = grown(
                    self._words, self.used + int(self._layout[scope_arrays.HEAD]) + (size + 7) // 8, GROWTH
                )
                if self._words.size > MOST_WORDS:
                    raise MemoryError("the scopes of one partition need more than 32 GiB: use more partitions")
            case scope_arrays.SLOTS:
                while self._old.size:
                    self._move(rows)
                while self._zeroed < self._next.size or not self._next.size:
                    self._move(rows)
                self._old, self._slots, self._next = self._slots, self._next, np.zeros(0, np.uint64)
                self._meta[LIMIT] = int(FULL * self._slots.size)
                self._move(rows)
            case scope_arrays.POOL:
                count = self._pool.shape[0] + max(FIRST_ROWS, self._pool.shape[0] // GROWTH)
                self._pool.resize((count, self._row_words), refcheck=False)
                self._free.resize(count, refcheck=False)
            case other:
                raise AssertionError(f"a kernel stopped and wants {other}")

    # ---------------------------------------------------------------- what has changed

    def changed(self) -> NDArray[np.uint32]:
        """Return the scopes that changed since `committed`, each once, for `encode`."""
        return self._dirty[: int(self._meta[DIRTIED])].copy()

    def committed(self) -> None:
        """Note that what has changed is committed; from now on it is unsaved."""
        self._unsaved = grown(self._unsaved, self.unsaved + int(self._meta[DIRTIED]), GROWTH)
        scope_kernels.commit(self._words, self._meta, self._dirty, self._unsaved)
        # One chunk in a million may be large: its room is given back.
        if self._dirty.size > 8 * FIRST_SLOTS:
            self._dirty = np.zeros(0, np.uint32)

    def to_save(self) -> NDArray[np.uint32]:
        """Return the unsaved scopes, each once, for `encode`.

        Raises:
            RuntimeError: Something is not committed: what is written locally would lead.
        """
        if self._meta[DIRTIED]:
            raise RuntimeError("scopes would be written locally before they are committed")
        return self._unsaved[: self.unsaved].copy()

    def saved(self) -> None:
        """Note that all unsaved scopes are written locally."""
        scope_kernels.saved(self._words, self._meta, self._unsaved)
        self._unsaved = np.zeros(0, np.uint32)

    def sweep(self, start: int, stop: int, most: int) -> tuple[NDArray[np.uint32], int]:
        """Return up to ``most`` scopes between two words of the arena, and the word after them."""
        out = np.empty(most, np.uint32)
        count, after = scope_kernels.sweep(self._words, start, stop, int(self._layout[scope_arrays.HEAD]), out)
        return out[:count], int(after)

    def floors(self) -> NDArray[np.int64]:
        """Return up to where numbers have passed, as `processor.engine.watermark.dropped` has it."""
        found = np.full((FLOORS if len(self) else 0, 2), np.iinfo(np.int64).min)
        for slots in (self._slots, self._old):
            raise_floors(found, self._words, slots, self._layout)
        return found

    def all(self) -> NDArray[np.uint32]:
        """Return all scopes, for `encode`."""
        return self.sweep(0, self.used, len(self))[0]

    def encode(self, which: NDArray[np.uint32], limit_bytes: int) -> Iterator[tuple[bytes, int]]:
        """Yield payloads of record batches, at most ``limit_bytes`` each, and how many records they hold.

        Raises:
            ValueError: One scope alone needs more.
        """
        out = np.empty(limit_bytes, np.uint8)
        at = 0
        while at < which.size:
            with np.errstate(over="ignore"):
                used, after = scope_codec.encode_scopes(
                    self._words, self._words.view(np.uint8), self._pool, self._layout, which, at, out
                )
            if after == at:
                size = int(self._words[which[at]]) & scope_arrays.SIZE_MASK
                raise ValueError(f"a scope of {size:,} bytes does not fit {limit_bytes:,}")
            yield out[:used].tobytes(), int(after - at)
            at = int(after)
