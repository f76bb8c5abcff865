"""Computes CRC-32C inside kernels, word by word.

By the processor's own instruction where there is one: x86 has it since 2008 (SSE 4.2), 64-bit Arm in most since
2013 (CRC). Elsewhere, and where kernels run as plain Python, by tables, eight bytes at a time.

Invariant: both say the same (`tests/unit/engine/bytes/test_checksums.py` compares them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from processor.engine.bytes.loads import get_le
from processor.engine.jit import Int, inlined, kernel
from processor.engine.shipped import can_use

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_CRC32C = 0x82F63B78
"""Castagnoli's polynomial, bits reversed (RFC 3720, appendix B.4)."""


class _Instruction(NamedTuple):
    """What LLVM calls the instruction, and the width of the checksum that it takes."""

    name: str
    width: int


_OF_WORDS = {
    "sse4.2": _Instruction("llvm.x86.sse42.crc32.64.64", 64),
    "crc": _Instruction("llvm.aarch64.crc32cx", 32),
}
"""By the feature that LLVM finds in the processor."""


def _crc_tables() -> NDArray[np.uint32]:
    """Return uint32[8, 256] for slicing by 8 (Kounavis and Berry, 2005)."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC32C if crc & 1 else 0)
        tables[0, byte] = crc
    for k in range(1, 8):
        tables[k] = tables[0][tables[k - 1] & 255] ^ (tables[k - 1] >> 8)
    return tables


_TABLES = _crc_tables()


@inlined
def crc_byte(crc, byte):  # type: ignore[no-untyped-def]  # inlined kernel
    """Go on by one byte; all are uint64, and the checksum is not inverted."""
    return np.uint64(_TABLES[0, (crc ^ byte) & np.uint64(255)]) ^ (crc >> np.uint64(8))


@inlined
def crc_word_by_tables(crc, word):  # type: ignore[no-untyped-def]  # inlined kernel
    """Go on by eight bytes, the first one lowest."""
    mixed = word ^ crc
    low = np.uint64(255)
    return np.uint64(
        _TABLES[7, mixed & low]
        ^ _TABLES[6, (mixed >> np.uint64(8)) & low]
        ^ _TABLES[5, (mixed >> np.uint64(16)) & low]
        ^ _TABLES[4, (mixed >> np.uint64(24)) & low]
        ^ _TABLES[3, (mixed >> np.uint64(32)) & low]
        ^ _TABLES[2, (mixed >> np.uint64(40)) & low]
        ^ _TABLES[1, (mixed >> np.uint64(48)) & low]
        ^ _TABLES[0, mixed >> np.uint64(56)]
    )


def _by_instruction(instruction: _Instruction) -> Callable[..., Any]:
    """Return the same by the processor's instruction, for use inside kernels only."""

    @intrinsic
    def crc_word(_context, crc, word):  # type: ignore[no-untyped-def]  # noqa: ARG001 - numba's form
        def generated(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
            given, word = arguments
            checksum, words = ir.IntType(instruction.width), ir.IntType(64)
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(checksum, [checksum, words]), instruction.name
            )
            narrow = given if instruction.width == 64 else builder.trunc(given, checksum)
            after = builder.call(function, [narrow, word])
            return after if instruction.width == 64 else builder.zext(after, words)

        return types.uint64(types.uint64, types.uint64), generated

    return crc_word


def _instruction() -> _Instruction | None:
    """Return this processor's; None where there is none, or kernels are not compiled for this processor."""
    return next((each for feature, each in _OF_WORDS.items() if can_use(feature)), None)


_FOUND = _instruction()
crc_word = crc_word_by_tables if _FOUND is None else _by_instruction(_FOUND)
"""Go on by eight bytes, as fast as this machine can."""


@kernel
def crc32c(data: NDArray[np.uint8], at: Int, size: Int, before: Int) -> Int:
    """Return the CRC-32C of ``data[at:at + size]`` behind bytes whose CRC-32C is ``before`` (0: none)."""
    crc = np.uint64(before) ^ np.uint64(0xFFFFFFFF)
    whole = size >> 3
    for k in range(whole):
        crc = crc_word(crc, get_le(data, at + 8 * k, 8))
    for k in range(8 * whole, size):
        crc = crc_byte(crc, np.uint64(data[at + k]))
    return crc ^ np.uint64(0xFFFFFFFF)
