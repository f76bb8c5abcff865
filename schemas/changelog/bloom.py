r"""Local state of Bloom filters, byte for byte.

Beside what `schemas.changelog.ids` says of mode insert-id, and by the same rules. The changelog of the bloom
backend is that of the exact one, but that all owners in its blocks are 0, since nobody asks for them::

    key       b"\x00E"                    which filters there are, and what they know
              b"\x00F" u64 u16 u32        a piece of a filter: bucket with 2^63 added, order, which piece

    snapshot  | version u8 = 1 | changelog offset i64 | next number u64 | filter | filter | ... | crc u32 |

    filter    | bucket i64 | order u16 | ids u64 | first number u64 |

Pieces are drawn in `processor.engine.ids.bloom.snapshot`. The filters of a snapshot hold every id that a
changelog reader has met before ``changelog offset``, all of which are below ``next number``, and may hold later
ones; ``ids`` is how many each had there, and none of its bucket's ids is below ``first number``. Pieces of a
filter that the snapshot does not name are of one that is not finished: they say nothing.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from schemas.changelog.values import CRC, CorruptStateError, opened, sealed

SNAPSHOT_KEY = b"\x00E"
PIECE_KIND = b"\x00F"
_PIECE = struct.Struct(">QHI")
_SNAPSHOT = struct.Struct(">BqQ")
_FILTER = struct.Struct(">qHQQ")
_VERSION = 1
_BIAS = 2**63


class KeptFilter(NamedTuple):
    """A filter as a snapshot names it.

    Attributes:
        bucket: Which one.
        order: 0 the bucket's first, 1 the one after it and so on.
        ids: How many it had.
        first: A number below which none of its bucket's ids is.
    """

    bucket: int
    order: int
    ids: int
    first: int


class BloomSnapshot(NamedTuple):
    """Which filters there are, and what they know.

    Attributes:
        changelog_offset: All ids before it are in the filters.
        next_number: Number of the first id that need not be.
        filters: The filters that were live, by bucket and order.
    """

    changelog_offset: int
    next_number: int
    filters: tuple[KeptFilter, ...]

    def encode(self) -> bytes:
        """Return the value under `SNAPSHOT_KEY`."""
        head = _SNAPSHOT.pack(_VERSION, self.changelog_offset, self.next_number)
        return sealed(SNAPSHOT_KEY, head + b"".join(_FILTER.pack(*each) for each in self.filters))

    @classmethod
    def decode(cls, value: bytes) -> BloomSnapshot:
        """Read a value.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        size = len(value) - CRC.size
        if size < _SNAPSHOT.size or (size - _SNAPSHOT.size) % _FILTER.size:
            raise CorruptStateError(f"the value under {SNAPSHOT_KEY!r} has {len(value)} bytes, and is cut")
        body = opened(SNAPSHOT_KEY, value, size)
        _, offset, number = _SNAPSHOT.unpack_from(body)
        return cls(offset, number, tuple(map(KeptFilter._make, _FILTER.iter_unpack(body[_SNAPSHOT.size :]))))


def piece_key(bucket: int, order: int, piece: int) -> bytes:
    """Return the key of a piece of a filter."""
    return PIECE_KIND + _PIECE.pack(bucket + _BIAS, order, piece)
