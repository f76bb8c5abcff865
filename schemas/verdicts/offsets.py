"""Encodes rising offsets of a range as gaps, runs or a bitmap, whichever is smallest; reads them within bounds.

All three are of ``count`` offsets, rising, from ``base`` on, below ``end``; the count stands elsewhere::

    gaps     count varints: how many offsets lie between each and the one before, the first counted from base
    runs     varint number of runs, then for each how many offsets lie before it, and its length less one
    bitmap   ceil((end - base) / 8) bytes; offset base + i is bit i % 8, the lowest first, of byte i / 8

A varint is an unsigned LEB128: 7 bits per byte, the low ones first, the top bit set where another byte follows;
at most `MOST_VARINT_BYTES`.

Invariant: what a reader makes room for is bounded by the bytes that are there, or by `MOST_OFFSETS`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_VARINT_BYTES = 9
"""63 bits: every distance of two offsets."""
MOST_OFFSETS = 1 << 20
"""Offsets of one list: 8 MiB once they are read. A commit has about 280,000 records at most."""


class OffsetForm(IntEnum):
    """How the offsets stand there."""

    GAPS = 0
    RUNS = 1
    BITMAP = 2


class CorruptOffsetsError(ValueError):
    """The bytes are no such list."""


def encode(offsets: NDArray[np.int64], base: int, end: int) -> tuple[OffsetForm, bytes]:
    """Return the smallest form of some rising offsets, and its bytes."""
    gaps = gaps_of(offsets, base)
    if not offsets.size:
        return OffsetForm.GAPS, b""
    starts = np.flatnonzero(gaps > 0)
    if not starts.size or starts[0] != 0:
        starts = np.concatenate(([0], starts))
    lengths = np.diff(starts, append=offsets.size) - 1
    runs = varints(np.concatenate(([starts.size], np.stack((gaps[starts], lengths), axis=1).reshape(-1))))
    form, found = OffsetForm.GAPS, varints(gaps)
    if len(runs) < len(found):
        form, found = OffsetForm.RUNS, runs
    if (end - base + 7) // 8 < len(found):
        bits = np.zeros(end - base, np.uint8)
        bits[offsets - base] = 1
        form, found = OffsetForm.BITMAP, np.packbits(bits, bitorder="little").tobytes()
    return form, found


def decode(
    form: int, data: NDArray[np.uint8], count: int, base: int, end: int
) -> tuple[NDArray[np.int64], int]:
    """Read ``count`` offsets at the start of ``data``, uint8[n]; returns them, and how many bytes they took.

    Raises:
        CorruptOffsetsError: It is no such list.
    """
    if count > min(MOST_OFFSETS, end - base):
        raise CorruptOffsetsError(f"{count:,} offsets are too many")
    if form == OffsetForm.GAPS:
        return read_gaps(data, count, base, end)
    if form == OffsetForm.RUNS:
        return _read_runs(data, count, base, end)
    if form != OffsetForm.BITMAP:
        raise CorruptOffsetsError(f"there is no form {form}")
    size = (end - base + 7) // 8
    if size > data.size:
        raise CorruptOffsetsError("the bitmap is cut")
    found = np.flatnonzero(np.unpackbits(data[:size], bitorder="little"))
    if found.size != count or (count and found[-1] >= end - base):
        raise CorruptOffsetsError(f"the bitmap has {found.size:,} offsets, and not {count:,} in the range")
    return found + base, size


def gaps_of(offsets: NDArray[np.int64], base: int) -> NDArray[np.int64]:
    """Return how many offsets lie between each and the one before it."""
    return np.diff(offsets, prepend=base - 1) - 1


def read_gaps(data: NDArray[np.uint8], count: int, base: int, end: int) -> tuple[NDArray[np.int64], int]:
    """Read offsets that stand as gaps, as `decode` does."""
    gaps, size = read_varints(data, count)
    offsets = np.cumsum(gaps + 1) + (base - 1)
    _require_rising(offsets, base, end)
    return offsets, size


def _read_runs(data: NDArray[np.uint8], count: int, base: int, end: int) -> tuple[NDArray[np.int64], int]:
    number, used = read_varints(data, 1)
    runs = int(number[0])
    if runs > count:
        raise CorruptOffsetsError(f"{runs:,} runs are too many for {count:,} offsets")
    numbers, size = read_varints(data[used:], 2 * runs)
    before, lengths = numbers[0::2], numbers[1::2]
    if (lengths >= count).any() or int((lengths + 1).sum()) != count:
        raise CorruptOffsetsError(f"the runs do not have {count:,} offsets")
    gaps = np.zeros(count, np.int64)
    gaps[np.cumsum(lengths + 1) - lengths - 1] = before
    offsets = np.cumsum(gaps + 1) + (base - 1)
    _require_rising(offsets, base, end)
    return offsets, used + size


def _require_rising(offsets: NDArray[np.int64], base: int, end: int) -> None:
    # A sum that has left 63 bits is below the one before it.
    if offsets.size and (offsets[0] < base or offsets[-1] >= end or (offsets[1:] <= offsets[:-1]).any()):
        raise CorruptOffsetsError(f"an offset lies outside of {base} to {end}")


def varints(numbers: NDArray[np.int64]) -> bytes:
    """Return numbers, none below 0, as varints."""
    sizes = np.ones(numbers.size, np.int64)
    for bits in range(7, 7 * MOST_VARINT_BYTES, 7):
        more = numbers >= (1 << bits)
        if not more.any():
            break
        sizes += more
    ends = np.cumsum(sizes)
    data = np.zeros(int(ends[-1]) if ends.size else 0, np.uint8)
    starts = ends - sizes
    for index in range(int(sizes.max(initial=0))):
        some = sizes > index
        septet = (numbers[some] >> (7 * index)) & 0x7F
        data[starts[some] + index] = septet | np.where(sizes[some] > index + 1, 0x80, 0)
    return data.tobytes()


def read_varints(data: NDArray[np.uint8], count: int) -> tuple[NDArray[np.int64], int]:
    """Read ``count`` varints at the start of ``data``; returns them, and how many bytes they took.

    Raises:
        CorruptOffsetsError: They are cut, or one is too long.
    """
    if not count:
        return np.zeros(0, np.int64), 0
    ends = np.flatnonzero(data[: count * MOST_VARINT_BYTES] < 0x80)[:count] + 1
    if ends.size < count:
        raise CorruptOffsetsError("the varints are cut, or one is too long")
    starts = np.concatenate(([0], ends[:-1]))
    sizes = ends - starts
    if sizes.max() > MOST_VARINT_BYTES:
        raise CorruptOffsetsError(f"a varint has more than {MOST_VARINT_BYTES} bytes")
    used = int(ends[-1])
    septets = data[:used].astype(np.int64) & 0x7F
    septets <<= 7 * (np.arange(used) - np.repeat(starts, sizes))
    return np.add.reduceat(septets, starts), used
