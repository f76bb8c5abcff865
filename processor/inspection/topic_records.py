"""Gives the committed records of a partition as objects, for what is written for people.

No more is held than a chunk of at most 1 MiB (or one batch that is larger), opened a few MiB at a time.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.batch.columns import ATTRIBUTES, LOG_APPEND_TIME
from processor.wire.encode import batches_of
from processor.wire.quarantine import read_record

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.kafka.client import TopicPartition
    from processor.kafka.reader import PartitionReader
    from processor.wire.decode import Piece
    from processor.wire.quarantine import Header

RECORDS = 256
"""Given out at once: few enough that a small limit copies little, enough that a call each costs nothing."""


class TopicRecord(NamedTuple):
    """One record of a topic, with bytes of its own."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """ms; below 0: it has none."""
    append_time: bool
    """Whether the broker set the timestamp (LogAppendTime), not the producer."""
    key: bytes | None
    value: bytes | None
    headers: list[Header]


async def records(
    reader: PartitionReader, tp: TopicPartition, start: int, stop: int, key: bytes | None = None
) -> AsyncGenerator[list[TopicRecord]]:
    """Yield the records from offset ``start`` to before ``stop``, never none, and never many at once.

    Args:
        reader: Of the partition.
        tp: The partition.
        start: The first offset.
        stop: The offset behind the last.
        key: The only key that is wanted; None: all.

    Raises:
        StopError: As the reader's policy says.
        RebuildError: Nothing comes any more.
    """
    async with aclosing(reader.pieces(start, stop)) as pieces:
        async for piece in pieces:
            rows = _wanted(piece.columns, key, stop)
            for begin in range(0, rows.size, RECORDS):
                yield list(_opened(tp, piece, rows[begin : begin + RECORDS]))


def _opened(tp: TopicPartition, piece: Piece, rows: NDArray[np.int64]) -> Iterable[TopicRecord]:
    columns = piece.columns
    appended = (piece.batches[batches_of(piece, rows), ATTRIBUTES] & LOG_APPEND_TIME) > 0
    for row, append_time in zip(rows.tolist(), appended.tolist(), strict=True):
        key, value, timestamp, headers = read_record(columns, row)
        where = tp.topic, tp.partition, int(columns.offset[row])
        yield TopicRecord(*where, timestamp, append_time, key, value, headers)


def _wanted(columns: Columns, key: bytes | None, stop: int) -> NDArray[np.int64]:
    """Return int64[k]: the rows before offset ``stop``, of one key where one is wanted."""
    before = columns.offset < stop
    if key is None:
        return np.flatnonzero(before)
    rows = np.flatnonzero(before & (columns.key_length == len(key)))
    at = columns.key[rows, np.newaxis] + np.arange(len(key))
    found: NDArray[np.int64] = rows[(columns.data[at] == np.frombuffer(key, np.uint8)).all(axis=1)]
    return found
