"""Reads the sequences of a history's rows, and keeps in files those that may count, until they are folded.

::

    | rows i64 | scope bytes i64 | partition i64[rows] | sequence i64[rows] | epoch i64[rows] |
    | scope ends i64[rows] | scope bytes | ...

Little-endian, a block for the rows that a task reads at a time. Of these only some are written: per partition
and scope the highest sequence of the highest epoch, and what lies inside the reorder window below it.

Invariant: what is left out changes nothing of the fold of all rows: the highest sequence of some is not above
that of all, so what lies below the window of some lies below that of all.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from processor.engine.rest import Fault, sequences_of_json, sequences_of_texts
from spark_sink.backfill.hashed import merged_fault
from spark_sink.backfill.values import read_whole
from spark_sink.batch.rows.parquet_rows import id_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from processor.engine.rest import IdColumn, JsonMatches, JsonRows
    from spark_sink.backfill.plan import NumberSource, SequenceSources

_HEAD = struct.Struct("<qq")
MOST_SCOPE_BYTES = 64 * 1024
"""What the stream takes; the config's page says it."""


class StoredSequences(NamedTuple):
    """Rows that were put aside.

    Attributes:
        partition: int64[n], of the source.
        sequence: int64[n].
        epoch: int64[n]; 0 where the definition has none.
        ends: int64[n], where each row's scope ends in ``data``; it begins where the one before ends.
        data: uint8[m], the scopes' bytes.
    """

    partition: NDArray[np.int64]
    sequence: NDArray[np.int64]
    epoch: NDArray[np.int64]
    ends: NDArray[np.int64]
    data: NDArray[np.uint8]


class ReadSequences(NamedTuple):
    """What rows say of their sequences.

    Attributes:
        sequence: int64[n].
        epoch: int64[n]; 0 where the definition has none.
        scope: The scopes' bytes; None: there is one per partition.
        fault: uint8[n], `Fault` codes.
        window: Numbers below the highest sequence that count one by one.
    """

    sequence: NDArray[np.int64]
    epoch: NDArray[np.int64]
    scope: IdColumn | None
    fault: NDArray[np.uint8]
    window: int

    def encoded(self, some: NDArray[np.int64], partition: NDArray[np.int64]) -> bytes:
        """Return the block of some rows, without those that cannot count."""
        group = partition[some]
        if self.scope is not None:
            codes, count = _numbered(self.scope)
            group = group * count + codes[some]
        kept = some[_needed(group, self.epoch[some], self.sequence[some], self.window)]
        ends, data = _gathered(self.scope, kept)
        columns = partition[kept], self.sequence[kept], self.epoch[kept], ends
        head = _HEAD.pack(kept.size, data.size)
        return b"".join([head, *(np.asarray(each, "<i8").tobytes() for each in columns), data.tobytes()])


def read_sequences(files: Sequence[Path]) -> Iterator[StoredSequences]:
    """Yield the rows of files, a block at a time; a file is removed once it is read."""
    for file in files:
        with file.open("rb") as stream:
            while head := stream.read(_HEAD.size):
                rows, size = _HEAD.unpack(head)
                partition, sequence, epoch, ends = (np.fromfile(stream, "<i8", rows) for _ in range(4))
                yield StoredSequences(partition, sequence, epoch, ends, np.fromfile(stream, np.uint8, size))
        file.unlink()


def sequences_of_table(sources: SequenceSources, column: Any, count: int) -> ReadSequences:
    """Read rows of a table; ``column`` gives the column of a name, with a plain type."""
    sequence, fault = _numbers(column(sources.sequence.column), sources.sequence)
    epoch = np.zeros(count, np.int64)
    if sources.epoch is not None:
        epoch, more = _numbers(column(sources.epoch.column), sources.epoch)
        fault = merged_fault(fault, more)
    scope = None if sources.scope is None else id_column(column(sources.scope))
    return _read(sources, sequence, epoch, scope, fault)


def pointers_of(sources: SequenceSources) -> list[str]:
    """Return what `sequences_of_lines` wants to have looked up, in this order and before all else."""
    more = (None if sources.epoch is None else sources.epoch.column, sources.scope)
    return [sources.sequence.column, *(each for each in more if each is not None)]


def sequences_of_lines(sources: SequenceSources, text: JsonRows, found: JsonMatches) -> ReadSequences:
    """Read rows of JSON text, in which `pointers_of` were looked up."""
    sequence, fault = _of_json(sources.sequence, text, found, 0)
    epoch, at = np.zeros(sequence.size, np.int64), 1
    if sources.epoch is not None:
        epoch, more = _of_json(sources.epoch, text, found, at)
        fault, at = merged_fault(fault, more), at + 1
    scope = None if sources.scope is None else text.texts(found, at)
    return _read(sources, sequence, epoch, scope, fault)


def _read(
    sources: SequenceSources,
    sequence: NDArray[np.int64],
    epoch: NDArray[np.int64],
    scope: IdColumn | None,
    fault: NDArray[np.uint8],
) -> ReadSequences:
    if scope is not None:
        wrong = np.where(scope.valid, np.uint8(Fault.NONE), np.uint8(Fault.FIELD_MISSING))
        wrong[np.diff(scope.offsets) > MOST_SCOPE_BYTES] = Fault.SCOPE_TOO_LARGE
        fault = merged_fault(fault, wrong)
    return ReadSequences(sequence, epoch, scope, fault, sources.window)


def _numbers(column: Any, source: NumberSource) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    # What is decimal was uint64: half of these are out of range.
    if pa.types.is_string(column.type) or pa.types.is_decimal(column.type):
        return _within(source, *sequences_of_texts(id_column(column)))
    sequence, absent = read_whole(column)
    fault = np.where(absent, np.uint8(Fault.FIELD_MISSING), np.uint8(Fault.NONE))
    return _within(source, sequence, fault)


def _of_json(
    source: NumberSource, text: JsonRows, found: JsonMatches, at: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    sequence, fault = sequences_of_json(text, found, at, texts=source.texts, numbers=source.numbers)
    return _within(source, sequence, fault)


def _within(
    source: NumberSource, sequence: NDArray[np.int64], fault: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return them with a fault where the stream's format has no such number."""
    if source.narrow:
        beyond = (fault == Fault.NONE) & (sequence != sequence.astype(np.int32))
        fault[beyond] = Fault.OUT_OF_RANGE
    return sequence, fault


def _needed(
    group: NDArray[np.int64], epoch: NDArray[np.int64], sequence: NDArray[np.int64], window: int
) -> NDArray[np.int64]:
    """Return the rows that may count: of each group what lies inside the window of its highest epoch."""
    order = np.lexsort((sequence, epoch, group))
    group, epoch, sequence = group[order], epoch[order], sequence[order]
    last = np.flatnonzero(np.append(group[1:] != group[:-1], np.ones(min(group.size, 1), np.bool_)))
    top = np.repeat(last, np.diff(last, prepend=-1))
    # The difference of two numbers of 64 bits may need 64 bits without a sign.
    below = sequence[top].view(np.uint64) - sequence.view(np.uint64)
    kept = (epoch == epoch[top]) & (below <= np.uint64(window))
    same = (group[1:] == group[:-1]) & (epoch[1:] == epoch[:-1]) & (sequence[1:] == sequence[:-1])
    kept[:-1] &= ~same
    needed: NDArray[np.int64] = order[kept]
    return needed


def _numbered(scope: IdColumn) -> tuple[NDArray[np.int64], int]:
    """Return a number per row, equal where the scopes are, and how many there are."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(scope.offsets, np.int64)), pa.py_buffer(scope.data)]
    array = pa.Array.from_buffers(pa.large_binary(), scope.valid.size, buffers)
    made = array.dictionary_encode()
    numbers: NDArray[np.int64] = np.array(made.indices.to_numpy(), np.int64)
    return numbers, max(1, len(made.dictionary))


def _gathered(scope: IdColumn | None, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each row's scope ends, and the bytes of all, one behind the other."""
    if scope is None:
        return np.zeros(rows.size, np.int64), np.zeros(0, np.uint8)
    begin, size = scope.offsets[rows], np.diff(scope.offsets)[rows]
    ends = np.cumsum(size)
    at = np.repeat(begin - (ends - size), size) + np.arange(ends[-1] if rows.size else 0)
    return ends, scope.data[at]
