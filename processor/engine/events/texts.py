"""Kernels that find texts, and copy them one behind the other.

A text is a span: its bytes lie in the values' data, or, where ``start`` is negative, in a second array at
``-start - 1``: what had escapes, or was read apart. States are those of `processor.engine.events.numbers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.events.numbers import VALUE, unread
from processor.engine.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_UUID_BYTES = 36
_NOTHING = np.empty(0, np.uint8)
_HEX = np.zeros(256, np.uint8)
_HEX[list(b"0123456789abcdefABCDEF")] = 1


@kernel
def read_texts(
    data: NDArray[np.uint8],
    kind: NDArray[np.uint8],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    allowed: NDArray[np.uint8],
    cut: NDArray[np.int64],
    uuid: bool,
    state: NDArray[np.uint8],
) -> None:
    """Tell texts without escapes that are of those allowed (of none: all), or that are UUIDs with hyphens.

    ``allowed`` are texts one behind the other, cut at ``cut``.
    """
    for row in range(kind.size):
        state[row] = unread(kind[row])
        if kind[row] == 6:
            good = True
            at = start[row]
            if uuid:
                good = length[row] == _UUID_BYTES
                for k in range(length[row] if good else 0):
                    byte = data[np.uint64(at + k)]
                    if k in (8, 13, 18, 23):
                        good &= byte == 0x2D
                    else:
                        good &= _HEX[byte] == 1
            elif cut.size > 1:
                good = False
                for each in range(cut.size - 1):
                    if cut[each + 1] - cut[each] == length[row]:
                        same = True
                        for k in range(length[row]):
                            if data[np.uint64(at + k)] != allowed[cut[each] + k]:
                                same = False
                                break
                        if same:
                            good = True
            if good:
                state[row] = VALUE


@kernel
def gather(
    data: NDArray[np.uint8],
    extra: NDArray[np.uint8],
    start: NDArray[np.int64],
    offsets: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Copy spans one behind the other; ``offsets`` (one more than spans) say where each begins."""
    for row in range(start.size):
        begin = offsets[row]
        size = offsets[row + 1] - begin
        at = start[row]
        if at >= 0:
            for k in range(size):
                out[np.uint64(begin + k)] = data[np.uint64(at + k)]
        else:
            at = -at - 1
            for k in range(size):
                out[np.uint64(begin + k)] = extra[np.uint64(at + k)]


def gathered_spans(
    data: NDArray[np.uint8], start: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Return spans of one array, one behind the other; ``offsets`` say where each begins."""
    out = np.empty(int(offsets[-1]), np.uint8)
    gather(data, _NOTHING, start, offsets, out)
    return out
