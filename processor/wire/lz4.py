"""Reads and writes LZ4 frames a block at a time.

The frame format (lz4_Frame_format.md 1.6.3), of which Kafka's clients use the smallest part::

    magic u32 = 0x184D2204 | FLG u8 | BD u8 | [content size u64] | HC u8
    block*      size u32, its highest bit: stored, not compressed | bytes | [checksum u32]
    end         u32 = 0    | [content checksum u32]

The codec library reads and writes whole frames too, at half as much again for a large batch and five times as
much for a batch of one record: it makes a context for each. What is not of the plain kind is left to it: blocks
that need the one before them (trap 10), a dictionary, a checksum over the content. The frame's own checks
(header, blocks, content size) are skipped: the batch's CRC-32C, which covers them, has been made.

Invariant: nothing is written beyond the space given, nothing is read beyond the frame.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import cramjam

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC = 0x184D2204
VERSION_MASK, VERSION = 0xC0, 0x40
INDEPENDENT, BLOCK_CHECKSUM, CONTENT_SIZE, CONTENT_CHECKSUM, DICTIONARY = 0x20, 0x10, 0x08, 0x04, 0x01
STORED = 1 << 31

BLOCK_BYTES = 256 * 1024
"""What one run of records makes is one block; 2 % smaller and 10 % faster than with blocks of 64 KiB."""
_SIZE_OF = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
"""Largest inflated block by bits 4 to 6 of BD."""

HEADER = struct.pack("<IBBB", MAGIC, VERSION | INDEPENDENT, 5 << 4, 0xFB)
"""HC, the second byte of XXH32 over FLG and BD, is a constant here; the tests compute it."""
_HEADER_BYTES = len(HEADER)
_WORD = struct.Struct("<I")
END = _WORD.pack(0)


def inflate(source: NDArray[np.uint8], space: NDArray[np.uint8]) -> int:
    """Inflate one frame into the beginning of ``space`` and return how many bytes it made.

    Args:
        source: uint8[n], the frame.
        space: uint8[m], the bound.

    Raises:
        cramjam.DecompressionError: It is no such frame, or makes more than ``space`` holds.
    """
    made = _inflate_plain(source, space)
    return int(cramjam.lz4.decompress_into(source, space)) if made is None else made


def _inflate_plain(source: NDArray[np.uint8], space: NDArray[np.uint8]) -> int | None:
    """Inflate a frame of the plain kind; None where it is another, or is not whole."""
    data = source.data
    if len(data) < _HEADER_BYTES + len(END) or _WORD.unpack_from(data)[0] != MAGIC:
        return None
    flags, largest = data[4], _SIZE_OF.get(data[5] >> 4)
    plain = flags & (VERSION_MASK | INDEPENDENT | CONTENT_CHECKSUM | DICTIONARY) == VERSION | INDEPENDENT
    if not plain or largest is None:
        return None
    at = _HEADER_BYTES + (8 if flags & CONTENT_SIZE else 0)
    after = 4 if flags & BLOCK_CHECKSUM else 0
    made = 0
    while at + 4 <= len(data):
        (word,) = _WORD.unpack_from(data, at)
        at += 4
        if word == 0:
            return made if at == len(data) else None
        size = word & ~STORED
        if size > len(data) - at - after:
            return None
        room = space[made : made + largest]
        if word & STORED:
            if size > room.size:
                return None
            room[:size] = source[at : at + size]
            made += size
        else:
            made += cramjam.lz4.decompress_block_into(source[at : at + size], room, output_len=room.size)
        at += size + after
    return None


def deflate(source: NDArray[np.uint8]) -> bytes:
    """Compress uint8[n] into a frame of independent blocks, as Kafka wants it (trap 10)."""
    parts: list[bytes] = [HEADER]
    for start in range(0, source.size, BLOCK_BYTES):
        block = source[start : start + BLOCK_BYTES]
        packed = cramjam.lz4.compress_block(block, store_size=False)
        if len(packed) < block.size:
            parts += [_WORD.pack(len(packed)), bytes(packed)]
        else:
            parts += [_WORD.pack(block.size | STORED), block.tobytes()]
    parts.append(END)
    return b"".join(parts)
