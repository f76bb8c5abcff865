"""Reads a record's sequence, or says why it has none.

An extractor turns columns into arrays: what the engine judges by, and a `Fault` code a record where it cannot
be judged. Extractors are the seam for other sources: a header, a value's field (JSON pointer), a column of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np
from typing_extensions import override

from processor.engine.bytes.loads import get_be
from processor.engine.bytes.varints import VARINT_BYTES, varint
from processor.engine.extract.json_matches import BARE, JsonMatches, JsonRules
from processor.engine.extract.json_text import unescape
from processor.engine.extract.value_walk import PointerWalk
from processor.engine.jit import inlined, kernel
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns, RecordTable

    Sequences = tuple[NDArray[np.int64], NDArray[np.uint8]]
    Spans = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]


class SequenceFormat(IntEnum):
    """How a sequence stands in a header's bytes."""

    INT64 = 0
    INT32 = 1
    TEXT = 2


class SequenceExtractor(Protocol):
    """Where sequences come from."""

    def extract(self, columns: Columns) -> Sequences:
        """Return sequence int64[n] (0 where faulty) and fault uint8[n] (`Fault` codes)."""
        ...


@dataclass(frozen=True, slots=True)
class HeaderSequence(SequenceExtractor):
    """The sequence stands in a record header; of several of one name the last counts.

    Args:
        name: The header's name, UTF-8 bytes, compared byte for byte.
        format: Its form; int64 and int32 are big-endian and exactly 8 and 4 bytes wide.
    """

    name: bytes
    format: SequenceFormat

    @override
    def extract(self, columns: Columns) -> Sequences:
        begin, length, fault = header_values(columns.data, columns.table, np.frombuffer(self.name, np.uint8))
        return header_sequence(columns.data, begin, length, int(self.format), fault), fault


@dataclass(frozen=True, slots=True)
class ValueSequence(SequenceExtractor):
    """The sequence stands in the JSON value, where a pointer leads.

    A JSON integer, or a string of the form ``-?[0-9]+``.

    Args:
        pointer: JSON pointer (RFC 6901), also through JSON in strings.
        text: Whether it is a string.
        rules: How values are read.

    Raises:
        ValueError: The pointer is none; the config refuses it before.
    """

    pointer: str
    text: bool
    rules: JsonRules = BARE
    _walk: PointerWalk = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_walk", PointerWalk([self.pointer], rules=self.rules))

    @override
    def extract(self, columns: Columns) -> Sequences:
        _, (found,) = self._walk.read(columns.data, columns.value, columns.value_length)
        one = found.kind[np.newaxis], found.start[np.newaxis], found.length[np.newaxis]
        return sequence_of(found.data, JsonMatches(found.fault, *one), 0, self.text)


@dataclass(frozen=True, slots=True)
class WrappingSequence(SequenceExtractor):
    """A sequence from 0 to N - 1, that begins again then; any other number is a fault.

    Args:
        numbers: Reads it.
        wraps: N.
    """

    numbers: SequenceExtractor
    wraps: int

    @override
    def extract(self, columns: Columns) -> Sequences:
        sequence, fault = self.numbers.extract(columns)
        beyond = (sequence < 0) | (sequence >= self.wraps)  # not what is faulty: it is 0
        sequence[beyond], fault[beyond] = 0, Fault.OUT_OF_RANGE
        return sequence, fault


@dataclass(frozen=True, slots=True)
class ColumnSequence(SequenceExtractor):
    """The sequence stands in a column of delimited text, of the form ``-?[0-9]+``.

    Args:
        number: Which column, from 1.
        separator: What stands between columns.
    """

    number: int
    separator: bytes

    @override
    def extract(self, columns: Columns) -> Sequences:
        between = np.frombuffer(self.separator, np.uint8)
        where = columns.value, columns.value_length
        begin, length, fault = column_values(columns.data, *where, self.number, between)
        there = fault == 0
        sequence = header_sequence(columns.data, begin, length, int(SequenceFormat.TEXT), fault)
        # What is not of the form is here a field of another type.
        fault[there & (fault == Fault.HEADER_MALFORMED)] = Fault.FIELD_TYPE
        return sequence, fault


@kernel
def header_values(data: NDArray[np.uint8], table: RecordTable, name: NDArray[np.uint8]) -> Spans:
    """Find the value of each record's last header called ``name``.

    Args:
        data: uint8[m], as `scan` read it: all bounds of headers have been checked there.
        table: The records.
        name: uint8[k].

    Returns:
        begin int64[n] and length int64[n], both 0 where faulty, and fault uint8[n] (`Fault` codes).
    """
    headers, end = table.headers, table.end
    begin, length = np.zeros(headers.size, np.int64), np.zeros(headers.size, np.int64)
    fault = np.zeros(headers.size, np.uint8)
    for row in range(headers.size):
        stop = end[row]
        fields, at = varint(data, headers[row], stop, VARINT_BYTES)
        found = np.int64(-1)
        found_size = np.int64(-1)
        for _ in range(fields):
            size, at = varint(data, at, stop, VARINT_BYTES)
            same = size == name.size
            if same:
                for j in range(size):
                    if data[np.uint64(at + j)] != name[np.uint64(j)]:
                        same = False
                        break
            at += size
            size, at = varint(data, at, stop, VARINT_BYTES)
            if same:
                found = at
                found_size = size
            at += max(size, 0)
        if found < 0:
            fault[row] = 2
        elif found_size < 0:
            fault[row] = 3
        else:
            begin[row] = found
            length[row] = found_size
    return begin, length, fault


@kernel
def column_values(
    data: NDArray[np.uint8],
    value: NDArray[np.int64],
    value_length: NDArray[np.int64],
    number: int,
    separator: NDArray[np.uint8],
) -> Spans:
    """Find a column of each value.

    Args:
        data: uint8[m].
        value: int64[n], where each value begins.
        value_length: int64[n], bytes; -1: a tombstone.
        number: Which column, from 1.
        separator: uint8[k], k > 0; where two overlap the first one counts.

    Returns:
        begin int64[n] and length int64[n], both 0 where faulty, and fault uint8[n] (`Fault` codes).
    """
    begin, length = np.zeros(value.size, np.int64), np.zeros(value.size, np.int64)
    fault = np.zeros(value.size, np.uint8)
    first, more = separator[0], separator.size - 1
    for row in range(value.size):
        if value_length[row] < 0:
            fault[row] = 5
            continue
        at = value[row]
        stop = at + value_length[row]
        start, column = at, 1
        while at < stop:
            if data[np.uint64(at)] == first and at + more < stop:
                same = True
                for j in range(1, more + 1):
                    if data[np.uint64(at + j)] != separator[j]:
                        same = False
                        break
                if same:
                    if column == number:
                        break
                    column += 1
                    at += more
                    start = at + 1
            at += 1
        if column == number:
            begin[row] = start
            length[row] = at - start
        else:
            fault[row] = 7
    return begin, length, fault


@inlined
def _parse_text(data, at, size):  # type: ignore[no-untyped-def]  # inlined kernel
    """Read ``-?[0-9]+``; returns (value, fault): 0 good, 3 not of the form, 9 beyond 64 bits."""
    position = at
    stop = at + size
    negative = size > 0 and data[position] == 45
    if negative:
        position += 1
    fault = 3 if position == stop else 0
    beyond = False
    magnitude = np.uint64(0)
    # 2^63 for negative numbers, 2^63 - 1 for the others: the magnitudes that int64 holds.
    most = np.uint64(9223372036854775808) if negative else np.uint64(9223372036854775807)
    while position < stop:
        digit = np.uint64(data[position]) - np.uint64(48)
        if data[position] < 48 or data[position] > 57:
            fault = 3
            break
        if magnitude > (most - digit) // np.uint64(10):
            beyond = True
            magnitude = np.uint64(0)
        magnitude = magnitude * np.uint64(10) + digit
        position += 1
    value = np.int64(0)
    if fault == 0 and beyond:
        fault = 9
    if fault == 0:
        # Negating in uint64 keeps -2^63 right.
        value = np.int64(~magnitude + np.uint64(1)) if negative else np.int64(magnitude)
    return value, fault


@kernel
def header_sequence(
    data: NDArray[np.uint8],
    begin: NDArray[np.int64],
    length: NDArray[np.int64],
    form: int,
    fault: NDArray[np.uint8],
) -> NDArray[np.int64]:
    """Return sequences, 0 where faulty, from what `header_values` found; more faults are written."""
    sequence = np.zeros(begin.size, np.int64)
    for row in range(begin.size):
        if fault[row] != 0:
            continue
        wrong = 3
        if form == 2:
            sequence[row], wrong = _parse_text(data, begin[row], length[row])
        elif form == 0 and length[row] == 8:
            sequence[row], wrong = np.int64(get_be(data, begin[row], 8)), 0
        elif form == 1 and length[row] == 4:
            sequence[row], wrong = np.int64(np.int32(np.uint32(get_be(data, begin[row], 4)))), 0
        fault[row] = np.uint8(wrong)
    return sequence


@kernel
def sequence_of(data: NDArray[np.uint8], found: JsonMatches, which: int, text: bool) -> Sequences:
    """Read a number from what the pointer ``which`` found in each value.

    Args:
        data: What was looked up in.
        found: What `look_up` returned.
        which: Index of the pointer.
        text: Whether a string is wanted, of the form ``-?[0-9]+``; otherwise a JSON integer.

    Returns:
        sequence int64[n] (0 where faulty) and fault uint8[n] (`Fault` codes).
    """
    kind, start, length = found.kind[which], found.start[which], found.length[which]
    sequence, fault = np.zeros(kind.size, np.int64), found.fault.copy()
    # Text of strings with escapes; grows with the longest one, so that no value costs an allocation.
    scratch = np.empty(0, np.uint8)
    for row in range(kind.size):
        if fault[row] != 0:
            continue  # where the value has a fault of its own, nothing was found in it
        wrong = 8
        what = kind[row]
        if what == 0:
            wrong = 7
        elif what == 11:
            wrong = 6
        elif what == (6 if text else 4):
            # A JSON integer is -?[0-9]+ too; -0 is 0.
            sequence[row], wrong = _parse_text(data, start[row], length[row])
        elif what == 7 and text:
            if length[row] > scratch.size:
                scratch = np.empty(2 * length[row], np.uint8)
            size = unescape(data, start[row], length[row], scratch)
            sequence[row], wrong = _parse_text(scratch, 0, size)
        # `_parse_text` speaks of headers: what is not of the form is here a field of another type.
        fault[row] = np.uint8(8 if wrong == 3 else wrong)
    return sequence, fault
