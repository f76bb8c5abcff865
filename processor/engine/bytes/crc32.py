"""Computes CRC-32 (that of zlib and of Parquet's pages) of long spans, by carry-less multiplication.

zlib takes eight bytes at a time through tables. x86 has had an instruction since 2010 (PCLMULQDQ) by which 64
are folded at a time: 128 bits that stand for all bytes so far are multiplied so that they stand for the same,
512 bits further on, and the next bytes are added. The last 128 bits and the rest are zlib's again. Source:
Gopal and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction (Intel, 2009).

Invariant: it is what zlib says (`tests/unit/engine/bytes/test_checksums.py` compares them). Where there is no
such instruction, or kernels run as plain Python, zlib does all of it.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from processor.engine.bytes.loads import get_le
from processor.engine.jit import Int, inlined, kernel
from processor.engine.shipped import can_use

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FOLDED = 64
"""Bytes at a time: four chains that do not wait for each other."""
_FAR_LOW, _FAR_HIGH = 0x0154442BD4, 0x01C6E41596
"""Powers of x modulo the polynomial, bits reversed, that move 128 bits on by 512 (k1 and k2 of the paper)."""
_NEAR_LOW, _NEAR_HIGH = 0x01751997D0, 0x00CCAA009E
"""The same by 128 (k3 and k4)."""
_LEAST = 512
"""Bytes below which zlib is as fast as a kernel's call."""


@intrinsic
def _multiplied(_context, left, right):  # type: ignore[no-untyped-def]  # noqa: ARG001 - numba's form
    """Multiply two uint64 without carries; a tuple of the low and the high word. x86 only."""

    def generated(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        pair, index = ir.VectorType(ir.IntType(64), 2), ir.IntType(32)
        name = "llvm.x86.pclmulqdq"
        kind = ir.FunctionType(pair, [pair, pair, ir.IntType(8)])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        given = [
            builder.insert_element(ir.Constant(pair, [0, 0]), each, ir.Constant(index, 0)) for each in arguments
        ]
        made = builder.call(function, [*given, ir.Constant(ir.IntType(8), 0)])
        words = [builder.extract_element(made, ir.Constant(index, at)) for at in (0, 1)]
        return cgutils.pack_array(builder, words)

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), generated


_FOLDS = can_use("pclmul")


@inlined
def _moved(low, high, by_low, by_high):  # type: ignore[no-untyped-def]  # inlined kernel
    """Move 128 bits on, see `_FAR_LOW`."""
    first_low, first_high = _multiplied(low, np.uint64(by_low))
    last_low, last_high = _multiplied(high, np.uint64(by_high))
    return first_low ^ last_low, first_high ^ last_high


@kernel
def _fold(data: NDArray[np.uint8], at: Int, count: Int, found: NDArray[np.uint64]) -> None:
    """Write two words whose checksum, begun with 0, is that of ``count`` times 64 bytes, begun with ones."""
    low0, high0 = get_le(data, at, 8) ^ np.uint64(0xFFFFFFFF), get_le(data, at + 8, 8)
    low1, high1 = get_le(data, at + 16, 8), get_le(data, at + 24, 8)
    low2, high2 = get_le(data, at + 32, 8), get_le(data, at + 40, 8)
    low3, high3 = get_le(data, at + 48, 8), get_le(data, at + 56, 8)
    for _ in range(1, count):
        at += 64
        low0, high0 = _moved(low0, high0, _FAR_LOW, _FAR_HIGH)
        low1, high1 = _moved(low1, high1, _FAR_LOW, _FAR_HIGH)
        low2, high2 = _moved(low2, high2, _FAR_LOW, _FAR_HIGH)
        low3, high3 = _moved(low3, high3, _FAR_LOW, _FAR_HIGH)
        low0, high0 = low0 ^ get_le(data, at, 8), high0 ^ get_le(data, at + 8, 8)
        low1, high1 = low1 ^ get_le(data, at + 16, 8), high1 ^ get_le(data, at + 24, 8)
        low2, high2 = low2 ^ get_le(data, at + 32, 8), high2 ^ get_le(data, at + 40, 8)
        low3, high3 = low3 ^ get_le(data, at + 48, 8), high3 ^ get_le(data, at + 56, 8)
    low0, high0 = _moved(low0, high0, _NEAR_LOW, _NEAR_HIGH)
    low0, high0 = _moved(low0 ^ low1, high0 ^ high1, _NEAR_LOW, _NEAR_HIGH)
    low0, high0 = _moved(low0 ^ low2, high0 ^ high2, _NEAR_LOW, _NEAR_HIGH)
    found[0], found[1] = low0 ^ low3, high0 ^ high3


def crc32(data: NDArray[Any]) -> int:
    """Return the CRC-32 of bytes.

    Args:
        data: uint8[n], contiguous and writable.
    """
    if not _FOLDS or data.size < _LEAST:
        return zlib.crc32(data.data)
    count = data.size // _FOLDED
    found = np.empty(2, np.uint64)
    _fold(data, 0, count, found)
    # zlib inverts what it is given: all ones begin with 0.
    return zlib.crc32(data[count * _FOLDED :].data, zlib.crc32(found.astype("<u8").tobytes(), 0xFFFFFFFF))
