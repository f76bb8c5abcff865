r"""Local state of Bloom filters, byte for byte.

Beside what `schemas.changelog.ids` says of mode insert-id, and by the same rules. The changelog of the bloom
backend is that of the exact one; without confirmation all owners in its blocks are 0, since nobody asks for
them::

    key       b"\x00E"                    which filters there are, and what they know
              b"\x00F" u64 u16 u32        a piece of a filter: bucket with 2^63 added, order, which piece

With confirmation the ids too, in runs::

    key       b"\x00R" u64 u64            a run: bucket with 2^63 added, the run's number
              b"\xffR" u64 u64 u32        a page of a run: the same, which page

    snapshot  | version u8 = 1 | changelog offset i64 | next number u64 | filter | filter | ... | crc u32 |

    filter    | bucket i64 | order u16 | ids u64 | first number u64 |

    run       | version u8 = 1 | below u64 | since u64 | ids u64 | pages u32 | bits of an id u16 | bits u64
              | fence 16 B | fence 16 B | ... | start u32 | start u32 | ... | word u64 | ... | crc u32 |

Pieces are drawn in `processor.engine.ids.bloom.snapshot`. The filters of a snapshot hold every id that a
changelog reader has met before ``changelog offset``, all of which are below ``next number``, and may hold later
ones; ``ids`` is how many each had there, and none of its bucket's ids is below ``first number``. Pieces of a
filter that the snapshot does not name are of one that is not finished: they say nothing.

The pages of a run are drawn in `processor.engine.ids.bloom.sorted_run`; they lie behind all other keys, so that
a start need not read them, and by bucket, so that all of one go as one range. The run itself is written last:
pages of one that is not there say nothing. All ids of its bucket below ``below`` are in it or in runs with
lower numbers, and so are all ids whatever below ``since``. Of each page there is the first hash, its fence, and
the place of that id in the run; the words are those of the run's filter.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from schemas.changelog.values import CRC, CorruptStateError, opened, sealed

if TYPE_CHECKING:
    from numpy.typing import NDArray

SNAPSHOT_KEY = b"\x00E"
PIECE_KIND = b"\x00F"
RUN_KIND = b"\x00R"
RUN_PAGE_KIND = b"\xffR"
ENTRY_KIND = b"\xffI"
"""Of builds before runs: a value for each id. Nobody would delete them."""
_PIECE = struct.Struct(">QHI")
_SNAPSHOT = struct.Struct(">BqQ")
_FILTER = struct.Struct(">qHQQ")
_RUN = struct.Struct(">BQQQIHQ")
_RUN_NAME = struct.Struct(">QQ")
_RUN_PAGE = struct.Struct(">QQI")
_FENCE_BYTES, _START_BYTES = 16, 4
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


class KeptRun(NamedTuple):
    """A run as it is written down.

    Attributes:
        below: All ids of its bucket with lower numbers are in it or in those before it.
        since: All ids with lower numbers are.
        ids: How many it has.
        each: Bits of an id in its filter.
        bits: Size of its filter.
        fences: First hash of each page, 16 bytes per page.
        starts: Place of that id in the run, 4 bytes per page.
        words: Its filter.
    """

    below: int
    since: int
    ids: int
    each: int
    bits: int
    fences: bytes
    starts: bytes
    words: bytes

    def encode(self, key: bytes) -> bytes:
        """Return the value under ``key``."""
        pages = len(self.starts) // _START_BYTES
        head = _RUN.pack(_VERSION, self.below, self.since, self.ids, pages, self.each, self.bits)
        return sealed(key, head + self.fences + self.starts + self.words)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> KeptRun:
        """Read a value.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        size = len(value) - CRC.size
        if size < _RUN.size:
            raise CorruptStateError(f"the value under {key!r} has {len(value)} bytes, and is cut")
        body = opened(key, value, size)
        _, below, since, ids, pages, each, bits = _RUN.unpack_from(body)
        starts = _RUN.size + _FENCE_BYTES * pages
        words = starts + _START_BYTES * pages
        if not pages or size != words + -(-bits // 64) * 8:
            raise CorruptStateError(f"the value under {key!r} has {len(value)} bytes, which it does not say")
        return cls(below, since, ids, each, bits, body[_RUN.size : starts], body[starts:words], body[words:])


def run_key(bucket: int, number: int) -> bytes:
    """Return the key of a run."""
    return RUN_KIND + _RUN_NAME.pack(bucket + _BIAS, number)


def run_name(key: bytes) -> tuple[int, int]:
    """Return bucket and number from the key of a run.

    Raises:
        CorruptStateError: It is no such value, or not whole.
    """
    if len(key) != len(RUN_KIND) + _RUN_NAME.size:
        raise CorruptStateError(f"the key {key!r} is not that of a run")
    bucket, number = _RUN_NAME.unpack_from(key, len(RUN_KIND))
    return bucket - _BIAS, number


def run_page_key(bucket: int, number: int, page: int) -> bytes:
    """Return the key of a page of a run."""
    return RUN_PAGE_KIND + _RUN_PAGE.pack(bucket + _BIAS, number, page)


def run_page_keys(bucket: NDArray[np.int64], number: NDArray[np.int64], page: NDArray[np.int64]) -> list[bytes]:
    """Return the keys of several pages, as `run_page_key` does of one."""
    names = np.empty(bucket.size, [("kind", "S2"), ("bucket", ">u8"), ("number", ">u8"), ("page", ">u4")])
    names["kind"], names["bucket"] = RUN_PAGE_KIND, bucket.astype(np.uint64) + np.uint64(_BIAS)
    names["number"], names["page"] = number, page
    data, size = names.tobytes(), names.itemsize
    return [data[at : at + size] for at in range(0, len(data), size)]


def run_pages_before(bucket: int) -> tuple[bytes, bytes]:
    """Return a range of keys: the pages of all runs of the buckets below one."""
    return RUN_PAGE_KIND, RUN_PAGE_KIND + (bucket + _BIAS).to_bytes(8, "big")
