"""Compares, finds and copies several bytes at once inside kernels, by the processor's vectors.

Without compiled kernels the same is done byte by byte. Positions are unsigned; nothing checks a bound: callers
leave `SLACK` bytes behind what they read and write.

Invariant: both say the same (`tests/unit/engine/bytes/test_vectors.py` compares them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from processor.engine.jit import COMPILES

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLACK = 128
"""Bytes that may be read behind the last, and written behind what was asked for."""
_WIDE = 32
"""Bytes of a vector that is compared: one register of AVX2, two of older processors."""
_COPIED = 16


def _vector(context: Any, builder: Any, kind: Any, array: Any, at: Any, lanes: int) -> Any:
    """Return a pointer to ``lanes`` bytes from ``at`` on of an array, or of a borrowed one."""
    data = array if isinstance(kind, types.CPointer) else context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), ir.VectorType(ir.IntType(8), lanes).as_pointer())


def _mask(builder: Any, equal: Any) -> Any:
    return builder.zext(builder.bitcast(equal, ir.IntType(_WIDE)), ir.IntType(64))


@intrinsic
def _same_32(_context, data, i, j):  # type: ignore[no-untyped-def]  # noqa: ARG001 - numba's form
    def generated(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, first, second = arguments
        kind = signature.args[0]
        loads = [
            builder.load(_vector(context, builder, kind, array, at, _WIDE), align=1) for at in (first, second)
        ]
        return _mask(builder, builder.icmp_unsigned("==", *loads))

    return types.uint64(data, types.uint64, types.uint64), generated


@intrinsic
def _is_32(_context, data, i, byte):  # type: ignore[no-untyped-def]  # noqa: ARG001 - numba's form
    def generated(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, at, wanted = arguments
        loaded = builder.load(_vector(context, builder, signature.args[0], array, at, _WIDE), align=1)
        lanes = ir.Constant(loaded.type, ir.Undefined)
        one = builder.insert_element(
            lanes, builder.trunc(wanted, ir.IntType(8)), ir.Constant(ir.IntType(32), 0)
        )
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), _WIDE), [0] * _WIDE)
        return _mask(builder, builder.icmp_unsigned("==", loaded, builder.shuffle_vector(one, lanes, zeros)))

    return types.uint64(data, types.uint64, types.uint64), generated


@intrinsic
def _copy_16(_context, out, at, data, begin):  # type: ignore[no-untyped-def]  # noqa: ARG001 - numba's form
    def generated(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        target, write, source, read = arguments
        taken = builder.load(_vector(context, builder, signature.args[2], source, read, _COPIED), align=1)
        builder.store(taken, _vector(context, builder, signature.args[0], target, write, _COPIED), align=1)
        return context.get_dummy_value()

    return types.void(out, types.uint64, data, types.uint64), generated


@intrinsic
def _trailing_zeros(_context, word):  # type: ignore[no-untyped-def]  # noqa: ARG001 - numba's form
    def generated(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        bits, flag = ir.IntType(64), ir.IntType(1)
        kind = ir.FunctionType(bits, [bits, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.cttz.i64")
        return builder.call(function, [*arguments, ir.Constant(flag, 0)])

    return types.uint64(types.uint64), generated


def same_32_plain(data: NDArray[np.uint8], i: Any, j: Any) -> np.uint64:
    """Return a word with bit k set where ``data[i + k] == data[j + k]``, k below 32."""
    equal = data[int(i) : int(i) + _WIDE] == data[int(j) : int(j) + _WIDE]
    return np.uint64(int.from_bytes(np.packbits(equal, bitorder="little").tobytes(), "little"))


def is_32_plain(data: NDArray[np.uint8], i: Any, byte: Any) -> np.uint64:
    """Return a word with bit k set where ``data[i + k] == byte``, k below 32."""
    equal = data[int(i) : int(i) + _WIDE] == np.uint8(byte)
    return np.uint64(int.from_bytes(np.packbits(equal, bitorder="little").tobytes(), "little"))


def copy_16_plain(out: NDArray[np.uint8], at: Any, data: NDArray[np.uint8], begin: Any) -> None:
    """Copy 16 bytes."""
    out[int(at) : int(at) + _COPIED] = data[int(begin) : int(begin) + _COPIED].copy()


def trailing_zeros_plain(word: Any) -> np.uint64:
    """Return the place of a word's lowest set bit; 64 where none is."""
    given = int(word)
    return np.uint64((given & -given).bit_length() - 1 if given else 64)


same_32 = _same_32 if COMPILES else same_32_plain
is_32 = _is_32 if COMPILES else is_32_plain
copy_16 = _copy_16 if COMPILES else copy_16_plain
trailing_zeros = _trailing_zeros if COMPILES else trailing_zeros_plain
