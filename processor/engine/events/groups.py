"""Finds the group of each event: a hash table of keys.

A key is a list of parts, each two integers per row: a text's place and length, or a number and -2, or anything
and -1 for null. In the table's arena a part is its second integer and then its bytes, or the number:

    | length i64 | bytes | length i64 = -2 | number i64 | ...

Invariant: two rows have the same group exactly if all their parts are equal, byte for byte. The hash is seeded,
so that nobody can send texts that all meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.events.key_parts import NULL_PART, NUMBER
from processor.engine.jit import inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.events.key_parts import KeyParts

MOST_GROUPS = 1 << 16
"""What is summed up at a time: with more, what there is so far has to be taken away first."""
_SLOTS = MOST_GROUPS * 4
_ARENA_BYTES = 1 << 20
_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xC2B2AE3D27D4EB4F)
_S1, _S2 = np.uint64(29), np.uint64(32)
_EIGHT = np.uint64(8)


@inlined
def _mix(state, word):  # type: ignore[no-untyped-def]  # inlined kernel
    mixed = (state ^ word) * _K1
    mixed ^= mixed >> _S2
    mixed *= _K2
    mixed ^= mixed >> _S1
    return mixed


@inlined
def _byte_of(data, extra, at, k):  # type: ignore[no-untyped-def]  # inlined kernel
    return data[np.uint64(at + k)] if at >= 0 else extra[np.uint64(-at - 1 + k)]


@kernel
def _assign(
    data: NDArray[np.uint8],
    extra: NDArray[np.uint8],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    wanted: NDArray[np.bool_],
    begin: int,
    seed: np.uint64,
    slots: NDArray[np.int32],
    hashes: NDArray[np.uint64],
    places: NDArray[np.int64],
    arena: NDArray[np.uint8],
    filled: NDArray[np.int64],
    group: NDArray[np.int32],
) -> int:
    """Give each wanted row from ``begin`` on its group; stops where there is no room for another one."""
    parts = first.shape[0]
    last = np.uint64(slots.size - 1)
    for row in range(begin, wanted.size):
        group[row] = -1
        if not wanted[row]:
            continue
        state = seed
        need = np.int64(0)
        for part in range(parts):
            at = first[part, row]
            size = second[part, row]
            state = _mix(state, np.uint64(size))
            need += 8
            if size == NUMBER:
                state = _mix(state, np.uint64(at))
                need += 8
            elif size > 0:
                need += size
                k = np.int64(0)
                while k < size:
                    word = np.uint64(0)
                    for j in range(min(size - k, 8)):
                        word = (word << _EIGHT) | np.uint64(_byte_of(data, extra, at, k + j))
                    state = _mix(state, word)
                    k += 8
        slot = state & last
        while True:
            number = slots[slot] - 1
            if number < 0:
                break
            if hashes[number] == state:
                place = places[number]
                same = True
                for part in range(parts):
                    at = first[part, row]
                    size = second[part, row]
                    for j in range(8):
                        if arena[place + j] != np.uint8((size >> (8 * j)) & 0xFF):
                            same = False
                    place += 8
                    if not same:
                        break
                    if size == NUMBER:
                        for j in range(8):
                            if arena[place + j] != np.uint8((at >> (8 * j)) & 0xFF):
                                same = False
                        place += 8
                    elif size > 0:
                        for j in range(size):
                            if arena[place + j] != _byte_of(data, extra, at, j):
                                same = False
                                break
                        place += size
                    if not same:
                        break
                if same:
                    break
            slot = (slot + np.uint64(1)) & last
        if slots[slot] == 0:
            number = np.int32(filled[0])
            place = places[number]
            if number + 1 >= hashes.size or place + need > arena.size:
                return row
            hashes[number] = state
            for part in range(parts):
                at = first[part, row]
                size = second[part, row]
                for j in range(8):
                    arena[place + j] = np.uint8((size >> (8 * j)) & 0xFF)
                place += 8
                if size == NUMBER:
                    for j in range(8):
                        arena[place + j] = np.uint8((at >> (8 * j)) & 0xFF)
                    place += 8
                elif size > 0:
                    for j in range(size):
                        arena[place + j] = _byte_of(data, extra, at, j)
                    place += size
            places[number + 1] = place
            slots[slot] = number + 1
            filled[0] = number + 1
        group[row] = slots[slot] - 1
    return wanted.size


class GroupTable:
    """The groups met so far, numbered from 0.

    Args:
        seed: Any 64 bits, secret.
    """

    def __init__(self, seed: int) -> None:
        self._seed = np.uint64(seed)
        self._arena = np.empty(_ARENA_BYTES, np.uint8)
        self.clear()

    def clear(self) -> None:
        """Forget all groups."""
        self._slots = np.zeros(_SLOTS, np.int32)
        self._hashes = np.empty(MOST_GROUPS, np.uint64)
        self._places = np.zeros(MOST_GROUPS + 1, np.int64)
        self._filled = np.zeros(1, np.int64)

    @property
    def size(self) -> int:
        """How many groups there are."""
        return int(self._filled[0])

    def assign(self, parts: KeyParts, wanted: NDArray[np.bool_], begin: int, group: NDArray[np.int32]) -> int:
        """Write the group of each row from ``begin`` on; -1 of a row that is not wanted.

        Args:
            parts: The rows' keys.
            wanted: bool[n].
            begin: The first row.
            group: int32[n].

        Returns:
            The first row that there is no room for, after which the groups have to be taken away and cleared;
            or n.
        """
        while True:
            done = _assign(
                parts.data,
                parts.extra,
                parts.first,
                parts.second,
                wanted,
                begin,
                self._seed,
                self._slots,
                self._hashes,
                self._places,
                self._arena,
                self._filled,
                group,
            )
            if done == wanted.size or self.size:
                return int(done)
            # A single key for which an empty table has no room.
            begin = int(done)
            self._arena = np.empty(self._arena.size * 2, np.uint8)

    def keys(self) -> list[list[bytes | int | None]]:
        """Return each group's parts, in the order of the groups' numbers."""
        found = []
        arena = self._arena
        for number in range(self.size):
            at, stop = int(self._places[number]), int(self._places[number + 1])
            raw = arena[at:stop].tobytes()
            found.append(_parts(raw))
        return found


def _parts(raw: bytes) -> list[bytes | int | None]:
    parts: list[bytes | int | None] = []
    at = 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 8], "little", signed=True)
        at += 8
        if size == NULL_PART:
            parts.append(None)
        elif size == NUMBER:
            parts.append(int.from_bytes(raw[at : at + 8], "little", signed=True))
            at += 8
        else:
            parts.append(raw[at : at + size])
            at += size
    return parts
