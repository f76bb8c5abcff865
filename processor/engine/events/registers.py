"""Keeps, per group, the values that fill the registers of Spark's HyperLogLog++: at most 512 of any number.

A value belongs to the register that the first 9 bits of its hash name, and fills it by how many zeros the other
bits begin with. So of the values of a register that with the least hash fills it as all of them do, and Spark
comes from those that are kept to the registers, and the estimate, that it comes to from all.

Invariant: per group and register the value with the least hash is kept, whatever the order they come in; values
that are null belong to none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.xxhash64 import xxhash64, xxhash64_of_int, xxhash64_of_long
from processor.engine.events.key_parts import number_part
from processor.engine.events.rules import FieldKind
from processor.engine.events.texts import gathered_spans
from processor.engine.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.events.reader import EventColumns, FieldColumn
    from processor.engine.events.rules import FieldRule

REGISTER_BITS = 9
"""ceil(2 log2(1.106 / 0.05)): what Spark takes for a standard deviation of 5 %, its own default."""
MOST_VALUES = 1 << 18
"""What is kept at a time, 512 groups with all registers: about 13 MB, texts apart."""
MOST_TEXT_BYTES = 1 << 24
_FEWEST = 1 << 10
_LONG_DIGITS = 18
"""Decimals of no more digits Spark hashes as integers of 64 bits, all others as the fewest bytes they need."""
_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xC2B2AE3D27D4EB4F)
_S1, _S2 = np.uint64(29), np.uint64(32)
_REGISTER_SHIFT = np.uint64(64 - REGISTER_BITS)


@kernel
def _hash_numbers(
    group: NDArray[np.int32],
    valid: NDArray[np.bool_],
    numbers: NDArray[np.int64],
    begin: int,
    end: int,
    of_32_bits: bool,
    out: NDArray[np.uint64],
) -> None:
    for row in range(begin, end):
        if group[row] >= 0 and valid[row]:
            if of_32_bits:
                out[row] = xxhash64_of_int(np.uint64(numbers[row]))
            else:
                out[row] = xxhash64_of_long(np.uint64(numbers[row]))


@kernel
def _hash_wide(
    group: NDArray[np.int32],
    valid: NDArray[np.bool_],
    numbers: NDArray[np.int64],
    begin: int,
    end: int,
    out: NDArray[np.uint64],
) -> None:
    """Hash numbers of 128 bits, low word first, by the fewest bytes of their two's complement, big-endian."""
    written = np.empty(16, np.uint8)
    for row in range(begin, end):
        if group[row] >= 0 and valid[row]:
            low, high = np.uint64(numbers[row, 0]), np.uint64(numbers[row, 1])
            for k in range(8):
                shift = np.uint64(56 - 8 * k)
                written[k] = np.uint8((high >> shift) & np.uint64(255))
                written[8 + k] = np.uint8((low >> shift) & np.uint64(255))
            at = 0
            # A byte that only repeats the sign of the next one is not needed.
            while at < 15 and written[at] == (255 if written[at + 1] >= 128 else 0):
                at += 1
            out[row] = xxhash64(written, at, 16 - at)


@kernel
def _hash_texts(
    group: NDArray[np.int32],
    valid: NDArray[np.bool_],
    data: NDArray[np.uint8],
    extra: NDArray[np.uint8],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    begin: int,
    end: int,
    out: NDArray[np.uint64],
) -> None:
    for row in range(begin, end):
        if group[row] >= 0 and valid[row]:
            at = start[row]
            if at >= 0:
                out[row] = xxhash64(data, at, length[row])
            else:
                out[row] = xxhash64(extra, -at - 1, length[row])


@kernel
def _keep_least(
    group: NDArray[np.int32],
    valid: NDArray[np.bool_],
    hashes: NDArray[np.uint64],
    begin: int,
    end: int,
    seed: np.uint64,
    slots: NDArray[np.int32],
    keys: NDArray[np.int64],
    least: NDArray[np.uint64],
    rows: NDArray[np.int64],
    changed: NDArray[np.int64],
    filled: NDArray[np.int64],
) -> int:
    """Note the row of each value that is kept from now on; return how many of ``changed`` there are.

    ``slots`` has room for a value more per row. ``rows`` are -1 before and say the row of those changed after.
    """
    last = np.uint64(slots.size - 1)
    many = 0
    for row in range(begin, end):
        if group[row] < 0 or not valid[row]:
            continue
        hashed = hashes[row]
        key = (np.int64(group[row]) << REGISTER_BITS) | np.int64(hashed >> _REGISTER_SHIFT)
        mixed = (seed ^ np.uint64(key)) * _K1
        mixed = (mixed ^ (mixed >> _S2)) * _K2
        slot = (mixed ^ (mixed >> _S1)) & last
        while True:
            number = np.int64(slots[slot]) - 1
            if number < 0:
                number = filled[0]
                filled[0] = number + 1
                slots[slot] = number + 1
                keys[number] = key
                least[number] = hashed
                changed[many] = number
                many += 1
                rows[number] = row
                break
            if keys[number] == key:
                if hashed < least[number]:
                    least[number] = hashed
                    if rows[number] < 0:
                        changed[many] = number
                        many += 1
                    rows[number] = row
                break
            slot = (slot + np.uint64(1)) & last
    return many


@kernel
def _place(seed: np.uint64, slots: NDArray[np.int32], keys: NDArray[np.int64], size: int) -> None:
    """Fill an empty table with what is kept."""
    last = np.uint64(slots.size - 1)
    for number in range(size):
        mixed = (seed ^ np.uint64(keys[number])) * _K1
        mixed = (mixed ^ (mixed >> _S2)) * _K2
        slot = (mixed ^ (mixed >> _S1)) & last
        while slots[slot] != 0:
            slot = (slot + np.uint64(1)) & last
        slots[slot] = number + 1


@kernel
def _copy_texts(
    data: NDArray[np.uint8],
    extra: NDArray[np.uint8],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    changed: NDArray[np.int64],
    rows: NDArray[np.int64],
    texts: NDArray[np.int64],
    arena: NDArray[np.uint8],
    used: int,
) -> int:
    """Copy texts out, over a longer one of before; return how much of the arena is used then."""
    for each in range(changed.size):
        number = changed[each]
        row = rows[number]
        at, size = start[row], length[row]
        if size > texts[number, 1]:
            texts[number, 0] = used
            used += size
        texts[number, 1] = size
        place = texts[number, 0]
        if at >= 0:
            for k in range(size):
                arena[place + k] = data[np.uint64(at + k)]
        else:
            for k in range(size):
                arena[place + k] = extra[np.uint64(k - at - 1)]
    return used


def hash_as_spark(
    rule: FieldRule,
    events: EventColumns,
    column: FieldColumn,
    group: NDArray[np.int32],
    rows: tuple[int, int],
    out: NDArray[np.uint64],
) -> NDArray[np.int64]:
    """Hash values as Spark does those of the column's type, where they are there and have a group.

    Returns:
        What stands for the values, per row: numbers, bits of doubles, or where texts begin.
    """
    valid = column.valid
    numbers: NDArray[np.int64] = column.numbers  # type: ignore[assignment]  # but of doubles
    if rule.kind == FieldKind.TEXT:
        _hash_texts(group, valid, events.data, events.extra, numbers, column.length, *rows, out)
    elif rule.kind == FieldKind.DECIMAL and rule.precision > _LONG_DIGITS:
        _hash_wide(group, valid, numbers, *rows, out)
    elif rule.kind == FieldKind.DECIMAL:
        _hash_numbers(group, valid, np.ascontiguousarray(numbers[:, 0]), *rows, False, out)
    else:
        # Spark, too, takes all zeros and all NaNs for one value each.
        numbers, _ = number_part(valid, column.numbers)
        _hash_numbers(group, valid, numbers, *rows, rule.kind in {FieldKind.BOOL, FieldKind.DATE}, out)
    return numbers


class KeptValues(NamedTuple):
    """What is kept of a field, by group.

    Attributes:
        group: int64[n], rising.
        numbers: int64[n, 1] or, of decimals, int64[n, 2], low word first; doubles by their bits; of texts none.
        offsets: int64[n + 1], where texts begin in ``texts``, and the last one ends; of others zeros.
        texts: uint8[m].
    """

    group: NDArray[np.int64]
    numbers: NDArray[np.int64]
    offsets: NDArray[np.int64]
    texts: NDArray[np.uint8]


class Registers:
    """The values of one field that fill the registers of each group.

    Args:
        rule: The field's.
        seed: Any 64 bits, secret.
    """

    def __init__(self, rule: FieldRule, seed: int) -> None:
        self._rule, self._seed = rule, np.uint64(seed)
        self._text = rule.kind == FieldKind.TEXT
        self._width = 2 if self._text or rule.kind == FieldKind.DECIMAL else 1
        self.clear()

    def clear(self) -> None:
        """Forget all groups."""
        self._filled, self._used = np.zeros(1, np.int64), 0
        self._arena = np.empty(_FEWEST if self._text else 0, np.uint8)
        self._slots = np.zeros(_FEWEST * 2, np.int32)
        self._keys, self._rows = np.empty(_FEWEST, np.int64), np.full(_FEWEST, -1, np.int64)
        self._least = np.empty(_FEWEST, np.uint64)
        self._values = self._no_values(_FEWEST)

    def _no_values(self, room: int) -> NDArray[np.int64]:
        # Of a text its place and length: one of any length, even none, is longer than -1.
        return np.full((room, self._width), -1, np.int64)

    @property
    def size(self) -> int:
        """How many values are kept."""
        return int(self._filled[0])

    def has_room(self, column: FieldColumn, wanted: NDArray[np.bool_]) -> bool:
        """Return whether the values of some rows can be taken in; where nothing is kept any number can.

        Args:
            column: Of the field.
            wanted: bool[n], the rows.
        """
        rows, text_bytes = self._needed(column, wanted)
        return not self.size or (self.size + rows <= MOST_VALUES and self._used + text_bytes <= MOST_TEXT_BYTES)

    def _needed(self, column: FieldColumn, wanted: NDArray[np.bool_]) -> tuple[int, int]:
        there = wanted & column.valid
        text_bytes = int(column.length[there].sum()) if self._text else 0
        return int(np.count_nonzero(there)), text_bytes

    def reserve(self, column: FieldColumn, wanted: NDArray[np.bool_]) -> None:
        """Make room for the values of some rows, if each of them were kept."""
        rows, text_bytes = self._needed(column, wanted)
        if self._used + text_bytes > self._arena.size:
            arena = np.empty(max(self._used + text_bytes, self._arena.size * 2), np.uint8)
            arena[: self._used] = self._arena[: self._used]
            self._arena = arena
        room = self._keys.size
        if self.size + rows <= room:
            return
        while room < self.size + rows:
            room *= 2
        size = self.size
        keys, least, values = np.empty(room, np.int64), np.empty(room, np.uint64), self._no_values(room)
        keys[:size], least[:size], values[:size] = self._keys[:size], self._least[:size], self._values[:size]
        self._keys, self._least, self._values = keys, least, values
        self._rows = np.full(room, -1, np.int64)
        self._slots = np.zeros(room * 2, np.int32)
        _place(self._seed, self._slots, keys, size)

    def add(
        self,
        group: NDArray[np.int32],
        events: EventColumns,
        column: FieldColumn,
        begin: int,
        end: int,
    ) -> None:
        """Take in rows ``begin`` to ``end``, for which there is room; group -1 is none."""
        hashes = np.empty(group.size, np.uint64)
        numbers = hash_as_spark(self._rule, events, column, group, (begin, end), hashes)
        changed = np.empty(end - begin, np.int64)
        many = _keep_least(
            group,
            column.valid,
            hashes,
            begin,
            end,
            self._seed,
            self._slots,
            self._keys,
            self._least,
            self._rows,
            changed,
            self._filled,
        )
        changed = changed[:many]
        if self._text:
            self._used = _copy_texts(
                events.data,
                events.extra,
                numbers,
                column.length,
                changed,
                self._rows,
                self._values,
                self._arena,
                self._used,
            )
        else:
            self._values[changed] = numbers[self._rows[changed]].reshape(many, self._width)
        self._rows[changed] = -1

    def kept(self) -> KeptValues:
        """Return what is kept."""
        size = self.size
        group = self._keys[:size] >> REGISTER_BITS
        order = np.argsort(group, kind="stable")
        values, offsets = self._values[:size][order], np.zeros(size + 1, np.int64)
        if not self._text:
            return KeptValues(group[order], values, offsets, np.empty(0, np.uint8))
        np.cumsum(values[:, 1], out=offsets[1:])
        texts = gathered_spans(self._arena, np.ascontiguousarray(values[:, 0]), offsets)
        return KeptValues(group[order], values[:, :0], offsets, texts)
