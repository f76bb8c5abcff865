"""Reads a record's sequence and scope, or says why it has none.

An extractor turns columns into two arrays: what the engine judges by, and a `Fault` code a record where
it cannot be judged. Extractors are the seam for other sources: a header, a value's field (JSON pointer).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from processor.engine.bytes.varints import VARINT_BYTES, varint
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.json_text import unescape
from processor.engine.extract.pointers import Pointers
from processor.engine.jit import inlined, kernel
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.json_scan import JsonMatches


MOST_SCOPE_BYTES = 64 * 1024
"""A longer scope is a fault of its record: a scope is state, and one record of the changelog has to hold it."""


class SequenceFormat(IntEnum):
    """How a sequence stands in a header's bytes."""

    INT64 = 0
    INT32 = 1
    TEXT = 2


class SequenceExtractor(Protocol):
    """Where sequences come from."""

    def extract(self, columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return sequence int64[n] (0 where faulty) and fault uint8[n] (`Fault` codes)."""
        ...


@dataclass(frozen=True, slots=True)
class HeaderSequence:
    """The sequence stands in a record header; of several of one name the last counts.

    Args:
        name: The header's name, UTF-8 bytes, compared byte for byte.
        format: Its form; int64 and int32 are big-endian and exactly 8 and 4 bytes wide.
    """

    name: bytes
    format: SequenceFormat

    def extract(self, columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return sequence int64[n] (0 where faulty) and fault uint8[n] (`Fault` codes)."""
        sequence = np.empty(len(columns), np.int64)
        fault = np.empty(len(columns), np.uint8)
        name = np.frombuffer(self.name, np.uint8)
        begin, length = np.empty((2, len(columns)), np.int64)
        header_span(columns.data, columns.headers, columns.end, name, begin, length, fault)
        header_sequence(columns.data, begin, length, int(self.format), sequence, fault)
        return sequence, fault


@dataclass(frozen=True, slots=True)
class ValueSequence:
    """The sequence stands in the JSON value, where a pointer leads.

    A JSON integer, or a string of the form ``-?[0-9]+``. To read several fields of a value in one walk, call
    `look_up` with all pointers and `sequence_of` for each.

    Args:
        pointer: JSON pointer (RFC 6901).
        text: Whether it is a string.

    Raises:
        ValueError: The pointer is none; the config refuses it before.
    """

    pointer: str
    text: bool
    _compiled: Pointers = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_compiled", Pointers.of([self.pointer]))

    def extract(self, columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return sequence int64[n] (0 where faulty) and fault uint8[n] (`Fault` codes)."""
        found = look_up(columns.data, columns.value, columns.value_length, self._compiled)
        return sequence_of(columns.data, found, 0, text=self.text)


def sequence_of(
    data: NDArray[np.uint8], found: JsonMatches, which: int, *, text: bool
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Read a number from what the pointer ``which`` found in each value.

    Args:
        data: What was looked up in.
        found: What `look_up` returned.
        which: Index of the pointer.
        text: Whether a string is wanted, of the form ``-?[0-9]+``; otherwise a JSON integer.

    Returns:
        sequence int64[n] (0 where faulty) and fault uint8[n] (`Fault` codes).
    """
    sequence = np.empty(found.fault.size, np.int64)
    fault = np.empty(found.fault.size, np.uint8)
    value_sequence(
        data, found.fault, found.kind[which], found.start[which], found.length[which], text, sequence, fault
    )
    return sequence, fault


class ScopeExtractor(Protocol):
    """What scopes a record's sequence."""

    def extract(self, columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """Return begin int64[n] and size int64[n] in ``columns.data``, and fault uint8[n] (`Fault` codes)."""
        ...


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """All records of a partition have one scope: the empty one."""

    def extract(self, columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """See `ScopeExtractor.extract`."""
        rows = len(columns)
        return np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.uint8)


@dataclass(frozen=True, slots=True)
class KeyScope:
    """The record's key; null, or above `MOST_SCOPE_BYTES`, it cannot be judged; an empty one is a scope."""

    def extract(self, columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """See `ScopeExtractor.extract`."""
        missing = columns.key_length < 0
        fault = np.where(missing, np.uint8(Fault.KEY_MISSING), np.uint8(0))
        fault[columns.key_length > MOST_SCOPE_BYTES] = Fault.SCOPE_TOO_LARGE
        return columns.key, np.maximum(columns.key_length, 0), fault


@dataclass(frozen=True, slots=True)
class HeaderScope:
    """A header's bytes, at most `MOST_SCOPE_BYTES`; of several the last counts, and empty ones are scopes.

    Args:
        name: The header's name, UTF-8 bytes, compared byte for byte.
    """

    name: bytes

    def extract(self, columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """See `ScopeExtractor.extract`."""
        at, size = np.empty((2, len(columns)), np.int64)
        fault = np.empty(len(columns), np.uint8)
        name = np.frombuffer(self.name, np.uint8)
        header_span(columns.data, columns.headers, columns.end, name, at, size, fault)
        # Where there is another fault the span is empty.
        fault[size > MOST_SCOPE_BYTES] = Fault.SCOPE_TOO_LARGE
        return at, size, fault


@kernel
def header_span(
    data: NDArray[np.uint8],
    headers: NDArray[np.int64],
    end: NDArray[np.int64],
    name: NDArray[np.uint8],
    begin: NDArray[np.int64],
    length: NDArray[np.int64],
    fault: NDArray[np.uint8],
) -> None:
    """Find each record's last header called ``name``.

    Args:
        data: uint8[m], as `scan` read it: all bounds of headers have been checked there.
        headers: int64[n], where each record's header count stands.
        end: int64[n], where each record ends.
        name: uint8[k].
        begin: int64[n], written: where the header's value begins.
        length: int64[n], written: its bytes; 0 where faulty.
        fault: uint8[n], written; `Fault` codes.
    """
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
        begin[row] = 0
        length[row] = 0
        if found < 0:
            fault[row] = 2
        elif found_size < 0:
            fault[row] = 3
        else:
            fault[row] = 0
            begin[row] = found
            length[row] = found_size


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
    sequence: NDArray[np.int64],
    fault: NDArray[np.uint8],
) -> None:
    """Read each record's sequence from the span that `header_span` found.

    Args:
        data: uint8[m].
        begin: int64[n], where a header's value begins.
        length: int64[n], its bytes.
        form: A `SequenceFormat`.
        sequence: int64[n], written; 0 where faulty.
        fault: uint8[n], `Fault` codes as found so far; more are written.
    """
    for row in range(begin.size):
        at = begin[row]
        value = np.int64(0)
        wrong = int(fault[row])
        if wrong == 0 and form == 2:
            wrong = 3
            if length[row] > 0:
                value, wrong = _parse_text(data, at, length[row])
        elif wrong == 0:
            width = 8 if form == 0 else 4
            wrong = 3
            if length[row] == width:
                wrong = 0
                bits = np.uint64(0)
                for j in range(width):
                    bits = (bits << np.uint64(8)) | np.uint64(data[at + j])
                if form == 1 and bits >= np.uint64(0x80000000):
                    bits |= np.uint64(0xFFFFFFFF00000000)
                value = np.int64(bits)
        sequence[row] = value
        fault[row] = np.uint8(wrong)


@kernel
def value_sequence(
    data: NDArray[np.uint8],
    found_fault: NDArray[np.uint8],
    kind: NDArray[np.uint8],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    text: bool,
    sequence: NDArray[np.int64],
    fault: NDArray[np.uint8],
) -> None:
    """Read each value's sequence from the span that a pointer led to; see `sequence_of`.

    Args:
        data: uint8[m].
        found_fault: uint8[n], as in `JsonMatches`.
        kind: uint8[n], one pointer's row of `JsonMatches`.
        start: int64[n], the same.
        length: int64[n], the same.
        text: Whether a string is wanted.
        sequence: int64[n], written; 0 where faulty.
        fault: uint8[n], written; `Fault` codes.
    """
    # Text of strings with escapes; grows with the longest one, so that no value costs an allocation.
    scratch = np.empty(0, np.uint8)
    for row in range(kind.size):
        value = np.int64(0)
        wrong = 0
        what = kind[row]
        if what == 0:
            wrong = 7
        elif what == (6 if text else 4):
            # A JSON integer is -?[0-9]+ too; -0 is 0.
            value, wrong = _parse_text(data, start[row], length[row])
        elif what == 7 and text:
            if length[row] > scratch.size:
                scratch = np.empty(2 * length[row], np.uint8)
            size = unescape(data, start[row], length[row], scratch)
            value, wrong = _parse_text(scratch, 0, size)
        else:
            wrong = 8
        sequence[row] = value
        # `_parse_text` speaks of headers: what is not of the form is here a field of another type.
        fault[row] = np.uint8(8 if wrong == 3 else wrong)
        # Where the value has a fault of its own, nothing was found in it.
        if found_fault[row] != 0:
            fault[row] = found_fault[row]
