"""Writes a filter in pieces while it grows, and reads it again.

A filter can have hundreds of megabytes, and nothing may stop the flow for so long as that takes to be written.
So a snapshot is pieces of at most 1 MiB, a millisecond each, between which the filter may grow. Integers are
big-endian::

    piece | version u8 = 1 | bucket i64 | order u16 | bits of an id u16 | capacity u64 | bits u64 | ids u64
          | first word u64 | words u32 | crc u32 | word u64 | word u64 | ...

The CRC-32C is over all but itself. Of ``ids`` the highest of a filter's pieces counts.

Bits are only ever set, and only for committed ids. So a snapshot that was taken while ids were added lacks none
of those that were there when it was begun, and has none that is not committed: whoever adds the ids since then
once more has the filter.

Invariant: a filter of which a piece is missing, or is not whole, is refused.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.crc32c import crc32c
from processor.engine.ids.bloom.filter import Filter

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE_WORDS = 131_072
"""1 MiB less the head."""
_HEAD = struct.Struct(">BqHHQQQQI")
_CRC = struct.Struct(">I")
_VERSION = 1


class UnreadableSnapshotError(Exception):
    """A snapshot cannot be read: a piece is missing, cut, corrupt, or of another version."""


def write(each: Filter) -> Iterator[bytes]:
    """Yield the pieces of a filter, in order."""
    for first in range(0, each.words.size, PIECE_WORDS):
        words = each.words[first : first + PIECE_WORDS]
        numbers = each.bucket, each.order, each.each, each.capacity, each.bits, each.ids, first, words.size
        head, content = _HEAD.pack(_VERSION, *numbers), words.astype(">u8").tobytes()
        yield head + _CRC.pack(_crc(head, content)) + content


class SnapshotReader:
    """Puts filters together from their pieces, in whatever order these come."""

    def __init__(self) -> None:
        self._filters: dict[tuple[int, int], Filter] = {}
        self._missing: dict[tuple[int, int], set[int]] = {}

    def take(self, piece: bytes) -> None:
        """Take one piece; at most 1 MiB, so a millisecond or two.

        Raises:
            UnreadableSnapshotError: See there.
        """
        start = _HEAD.size + _CRC.size
        if len(piece) < start or piece[0] != _VERSION:
            raise UnreadableSnapshotError("a piece is cut, or of a version that this Seqmark does not know")
        head, content = piece[: _HEAD.size], piece[start:]
        if _CRC.unpack_from(piece, _HEAD.size)[0] != _crc(head, content):
            raise UnreadableSnapshotError("a piece fails its checksum")
        _, bucket, order, count, capacity, bits, ids, first, words = _HEAD.unpack(head)
        name = bucket, order
        if name not in self._filters:
            size = -(-bits // 64)
            filled = np.zeros(size, np.uint64)
            self._filters[name] = Filter(bucket, order, capacity, bits, count, words=filled)
            self._missing[name] = set(range(0, size, PIECE_WORDS))
        each = self._filters[name]
        if (each.capacity, each.bits, each.each) != (capacity, bits, count) or first not in self._missing[name]:
            raise UnreadableSnapshotError(f"filter {order} of bucket {bucket} has a piece that is not its own")
        each.ids = max(each.ids, ids)
        each.words[first : first + words] = np.frombuffer(content, ">u8")
        each.set += int(np.bitwise_count(each.words[first : first + words]).sum())
        self._missing[name].remove(first)

    def pieces(self) -> dict[tuple[int, int], int]:
        """Return how many pieces each filter has of which there is one, by bucket and order."""
        return {name: -(-each.words.size // PIECE_WORDS) for name, each in sorted(self._filters.items())}

    def filter(self, bucket: int, order: int) -> Filter:
        """Return one that is whole.

        Raises:
            UnreadableSnapshotError: Pieces of it are missing.
        """
        missing = self._missing.get((bucket, order))
        if missing is None or missing:
            count = "all" if missing is None else len(missing)
            raise UnreadableSnapshotError(f"filter {order} of bucket {bucket} lacks {count} pieces")
        return self._filters[bucket, order]


def _crc(head: bytes, content: bytes) -> int:
    whole = np.frombuffer(head + content, np.uint8)
    return int(crc32c(whole, 0, whole.size, np.uint64(0)))
