"""Inflates small LZ4 frames inside kernels.

For batches of a record or a few, of which a producer that does not wait makes a great many: a call of the
codec library for each costs more than all else that is done with them. The format, and the frames that are left
to the library, are `processor.wire.lz4`'s; a block (lz4_Block_format.md) is a row of sequences::

    token u8: literals (4 bits), match length - 4 (4 bits); 15 goes on in bytes, added up to one below 255
    | [more of the first] | literals | distance u16, little-endian | [more of the second]

The last sequence ends with its literals.

Invariant: every bound is checked before a byte is read or written; what is not right is -1, never a wrong read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.loads import get_le
from processor.engine.bytes.varints import put_bytes
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LENGTH_MORE = 15
_HEADER_BYTES = 7


@kernel
def inflate_block(
    data: NDArray[np.uint8], at: Int, stop: Int, out: NDArray[np.uint8], begin: Int, end: Int
) -> Int:
    """Inflate the block ``data[at:stop]`` into ``out[begin:end]``; return where it ends there, or -1."""
    read, write = np.uint64(at), np.uint64(begin)
    last, bound, first = np.uint64(stop), np.uint64(end), np.uint64(begin)
    one = np.uint64(1)
    while read < last:
        token = np.uint64(data[read])
        read += one
        size = token >> np.uint64(4)
        if size == np.uint64(_LENGTH_MORE):
            more = np.uint64(255)
            while more == np.uint64(255):
                if read >= last:
                    return np.int64(-1)
                more = np.uint64(data[read])
                read += one
                size += more
        if size > last - read or size > bound - write:
            return np.int64(-1)
        for i in range(size):
            out[write + i] = data[read + i]
        read += size
        write += size
        if read == last:
            return np.int64(write)
        if last - read < np.uint64(2):
            return np.int64(-1)
        distance = np.uint64(data[read]) | (np.uint64(data[read + one]) << np.uint64(8))
        read += np.uint64(2)
        if distance == np.uint64(0) or distance > write - first:
            return np.int64(-1)
        size = token & np.uint64(_LENGTH_MORE)
        if size == np.uint64(_LENGTH_MORE):
            more = np.uint64(255)
            while more == np.uint64(255):
                if read >= last:
                    return np.int64(-1)
                more = np.uint64(data[read])
                read += one
                size += more
        size += np.uint64(4)
        if size > bound - write:
            return np.int64(-1)
        # Byte by byte: a match may reach into what it writes.
        for i in range(size):
            out[write + i] = out[write + i - distance]
        write += size
    return np.int64(-1)


@kernel
def inflate_frame(data: NDArray[np.uint8], at: Int, stop: Int, out: NDArray[np.uint8], begin: Int) -> Int:
    """Inflate the frame ``data[at:stop]`` into ``out`` from ``begin`` on.

    Returns:
        Where it ends in ``out``; -1 for a frame that is not of the plain kind, not whole, or does not fit.
    """
    if stop - at < _HEADER_BYTES + 4 or get_le(data, at, 4) != np.uint64(0x184D2204):
        return np.int64(-1)
    flags, largest = np.int64(data[at + 4]), np.int64(data[at + 5]) >> 4
    # Version 1, independent blocks, no checksum over the content, no dictionary.
    if flags & 0xE5 != 0x60 or largest < 4 or largest > 7:
        return np.int64(-1)
    most = np.int64(1) << (np.int64(8) + 2 * largest)
    read = at + _HEADER_BYTES + (8 if flags & 0x08 != 0 else 0)
    behind = 4 if flags & 0x10 != 0 else 0
    write: Int = np.int64(begin)
    while stop - read >= 4:
        word = np.int64(get_le(data, read, 4))
        read += 4
        if word == 0:
            return write if read == stop else np.int64(-1)
        size = word & 0x7FFFFFFF
        if size > stop - read - behind:
            return np.int64(-1)
        bound = min(np.int64(out.size), write + most)
        if word != size:
            if size > bound - write:
                return np.int64(-1)
            write = put_bytes(out, write, data, read, size)
        else:
            write = inflate_block(data, read, read + size, out, write, bound)
            if write < 0:
                return np.int64(-1)
        read += size + behind
    return np.int64(-1)
