"""Writes what the workers of a pipeline tell each other of their samples: a record's value.

All integers little-endian; the broker's batches have a checksum. Hashes are keyed, so no id can be read
from them; who may look at the topic may test guesses, as with the changelog::

    version u8 = 1 | sender 8 bytes | statements: count u16
        partition i32 | level u8 | from i64 | to i64 | rows u32
    of each statement: rows of (key u64, at i64)

A statement: these are all passes of the level's sample while the partition's clock went from ``from``
to ``to`` (ms). 128 is added to its level where something was left out before it. See
`processor.engine.ids.passes` for the rows.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.ids.passes import Passes, PassKind
from processor.judges.escapes.gauge import MOST_LEVEL
from processor.judges.escapes.statements import Covered, joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSION = 1
SENDER_BYTES = 8
MOST_ROWS = 16_384
"""Of one message, 256 KiB: a topic with Kafka's defaults takes four times as much."""
MOST_STATEMENTS = 1_024
"""Of one message: each takes 15 us to take in."""
EARLIEST_MS = -(2**48)
_ANEW = 128
_HEAD = struct.Struct("<B8sH")
_STATEMENT = struct.Struct("<iBqqI")
_MOST_BYTES = _HEAD.size + MOST_STATEMENTS * _STATEMENT.size + MOST_ROWS * 16
_ROW = np.dtype([("key", "<u8"), ("at", "<i8")])


def messages(sender: bytes, said: Sequence[Covered]) -> Iterator[bytes]:
    """Yield the messages that say all of it; what stands behind each other of one partition becomes one."""
    statements: list[bytes] = []
    rows: list[bytes] = []
    count = 0
    for covered in _cut(joined(said)):
        size = covered.passes.key.size
        if statements and (count + size > MOST_ROWS or len(statements) == MOST_STATEMENTS):
            yield _message(sender, statements, rows)
            statements, rows, count = [], [], 0
        partition, level, from_ms, to_ms, passes, anew = covered
        statements.append(_STATEMENT.pack(partition, level | _ANEW * anew, from_ms, to_ms, size))
        some = np.empty(size, _ROW)
        some["key"], some["at"] = passes.key, passes.at
        rows.append(some.tobytes())
        count += size
    if statements:
        yield _message(sender, statements, rows)


def _message(sender: bytes, statements: list[bytes], rows: list[bytes]) -> bytes:
    return b"".join([_HEAD.pack(VERSION, sender, len(statements)), *statements, *rows])


def _cut(said: Iterator[Covered]) -> Iterator[Covered]:
    for covered in said:
        yield from covered.parts(MOST_ROWS)


def read_message(value: bytes, partitions: int, latest_ms: int) -> tuple[bytes, list[Covered]]:
    """Return the sender of a message and what it says.

    Args:
        value: Of a record; anybody may have written it.
        partitions: So many there are.
        latest_ms: No partition's clock can be later.

    Raises:
        ValueError: It is none of this version, was cut, or says what no worker says.
    """
    if len(value) > _MOST_BYTES:
        raise ValueError(f"a sample's message of {len(value)} bytes is too long")
    try:
        version, sender, count = _HEAD.unpack_from(value)
        if version != VERSION:
            raise ValueError(f"version {version} of a sample's message")
        if count > MOST_STATEMENTS:
            raise ValueError(f"a sample's message of {count} statements is too long")
        heads = [_STATEMENT.unpack_from(value, _HEAD.size + _STATEMENT.size * n) for n in range(count)]
    except struct.error as error:
        raise ValueError(f"a sample's message of {len(value)} bytes is cut") from error
    at = _HEAD.size + _STATEMENT.size * count
    if at + _ROW.itemsize * sum(head[-1] for head in heads) != len(value):
        raise ValueError(f"a sample's message of {len(value)} bytes is cut")
    said = []
    for partition, level_and_anew, from_ms, to_ms, size in heads:
        level, anew = level_and_anew % _ANEW, level_and_anew >= _ANEW
        if not 0 <= partition < partitions or level > MOST_LEVEL:
            raise ValueError(f"a sample's message says partition {partition}, level {level}")
        rows = np.frombuffer(value, _ROW, size, at)
        at += _ROW.itemsize * size
        within = not size or max(from_ms, EARLIEST_MS) <= rows["at"].min() <= rows["at"].max() <= to_ms
        if not (within and from_ms <= to_ms <= latest_ms):
            raise ValueError(f"a sample's message says times from {from_ms} to {to_ms}")
        passes = Passes(
            rows["key"].astype(np.uint64),
            rows["at"].astype(np.int64),
            np.full(size, partition, np.int64),
            np.full(size, PassKind.HEARD, np.uint8),
        )
        said.append(Covered(partition, level, from_ms, to_ms, passes, anew))
    return sender, said
