r"""Writes down where pages lie.

A page's key is a front and its last eight bytes, as a number: the pages of a front are a series, sorted by it.
What a write changes is one record, and so are many writes once they are merged::

    record    | version u8 = 1 | file u32 | end u32 | erased u32 | deleted u32 | series u32
              | ranges erased, first and after | keys deleted | series | series | ... | crc u32 |

    range, key, front   each | bytes u16 | as many bytes |

    series    | front | bytes of a number u8 | pages u32 | number u64 each | offset u32 each | bytes u32 each |

All is big-endian, and the CRC-32C is over the record's key too. The ranges of a record are erased first, then
its keys are deleted, of what earlier records say; then its pages are put in place of those with the same keys.
They lie in ``file``, whose last byte so far is before ``end``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from schemas.changelog.values import CRC, CorruptStateError, opened, sealed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Name = tuple[bytes, int]

FILE_SHIFT = 32
OFFSET_MASK = (1 << FILE_SHIFT) - 1
NUMBER_BYTES = 8
_HEAD = struct.Struct(">BIIIII")
_TEXT = struct.Struct(">H")
_SERIES = struct.Struct(">BI")
_VERSION = 1


class PageColumns(NamedTuple):
    """Where pages lie.

    Attributes:
        number: uint64[n], the last bytes of each one's key.
        place: uint64[n], ``file << 32 | offset``.
        size: uint32[n], bytes.
    """

    number: NDArray[np.uint64]
    place: NDArray[np.uint64]
    size: NDArray[np.uint32]

    def part(self, rows: slice | NDArray[np.int64] | NDArray[np.bool_]) -> PageColumns:
        """Return some of them."""
        return PageColumns(self.number[rows], self.place[rows], self.size[rows])


@dataclass(slots=True)
class PageRecord:
    """What one write changes, or several.

    Attributes:
        file: The file that its pages lie in.
        end: Where that ends then.
        erased: Ranges of keys, from the first up to the second, which is not one of them.
        deleted: Keys.
        pages: By front, and the bytes of a number.
    """

    file: int
    end: int
    erased: list[tuple[bytes, bytes]] = field(default_factory=list)
    deleted: list[bytes] = field(default_factory=list)
    pages: dict[Name, PageColumns] = field(default_factory=dict)

    def encode(self, key: bytes) -> bytes:
        """Return the value under ``key``."""
        counts = (len(self.erased), len(self.deleted), len(self.pages))
        parts = [_HEAD.pack(_VERSION, self.file, self.end, *counts)]
        parts += [_text(each) for both in self.erased for each in both]
        parts += [_text(each) for each in self.deleted]
        for (front, width), (number, place, size) in self.pages.items():
            parts += [_text(front), _SERIES.pack(width, number.size), number.astype(">u8").tobytes()]
            parts += [(place & np.uint64(OFFSET_MASK)).astype(">u4").tobytes(), size.astype(">u4").tobytes()]
        return sealed(key, b"".join(parts))

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> PageRecord:
        """Read a value.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        body = opened(key, value, max(_HEAD.size, len(value) - CRC.size))
        _, file, end, erased, deleted, series = _HEAD.unpack_from(body)
        reader = _Reader(body, _HEAD.size)
        record = cls(file, end)
        record.erased = [(reader.text(), reader.text()) for _ in range(erased)]
        record.deleted = [reader.text() for _ in range(deleted)]
        for _ in range(series):
            front = reader.text()
            width, pages = _SERIES.unpack(reader.some(_SERIES.size))
            number = np.frombuffer(reader.some(8 * pages), ">u8").astype(np.uint64)
            place = np.frombuffer(reader.some(4 * pages), ">u4").astype(np.uint64)
            size = np.frombuffer(reader.some(4 * pages), ">u4").astype(np.uint32)
            record.pages[front, width] = PageColumns(number, place | np.uint64(file << FILE_SHIFT), size)
        return record


class _Reader:
    """Reads one thing after the other of a record, whose checksum is right."""

    def __init__(self, body: bytes, at: int) -> None:
        self._body, self._at = body, at

    def some(self, size: int) -> bytes:
        begin, self._at = self._at, self._at + size
        if self._at > len(self._body):
            raise CorruptStateError("a record of pages is cut")
        return self._body[begin : self._at]

    def text(self) -> bytes:
        (size,) = _TEXT.unpack(self.some(_TEXT.size))
        return self.some(size)


def sorted_pages(
    keys: Iterable[bytes], sizes: Iterable[int], file: int, offset: int
) -> dict[Name, PageColumns]:
    """Return as sorted series pages that lie one behind the other, in whatever order."""
    series: dict[Name, list[tuple[int, int, int]]] = {}
    place = file << FILE_SHIFT | offset
    for key, size in zip(keys, sizes, strict=True):
        name, number = split(key)
        series.setdefault(name, []).append((number, place, size))
        place += size
    found = {}
    for name, rows in series.items():
        columns = np.array(sorted(rows), np.uint64)
        found[name] = PageColumns(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].astype(np.uint32))
    return found


def split(key: bytes) -> tuple[Name, int]:
    """Return the series of a key, and its number."""
    front = max(0, len(key) - NUMBER_BYTES)
    return (key[:front], len(key) - front), int.from_bytes(key[front:], "big")


def _text(text: bytes) -> bytes:
    return _TEXT.pack(len(text)) + text
