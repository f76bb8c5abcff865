"""Inflates and compresses the records of a batch within bounded memory.

Invariant: nothing is inflated beyond the buffer it is given, so a 32 KB batch that would make 1 GB
(trap 12) costs an error and no memory. Formats as Kafka's Java client writes and reads them: gzip, the
snappy framing of xerial (raw snappy is read too, librdkafka may send it), LZ4 frames with independent
blocks (trap 10: Kafka refuses linked ones), zstd.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING

import cramjam

from processor.wire import lz4

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""Magic, version 1, compatible with version 1: what snappy-java writes."""
XERIAL_BLOCK_BYTES = 32 * 1024
"""The block size that snappy-java uses by default."""

GZIP_LEVEL = 6
"""The default of zlib, which the Java client uses when nothing is said."""
ZSTD_LEVEL = 3
"""The default of zstd and of the Java client."""
ZSTD_HARDEST_LEVEL = 19
"""The highest one that keeps to the memory of the others, about 100 MB; those above gain little."""
ZSTD_HARD_LEVEL = 9
HARDEST_BYTES = 8 * 1024 * 1024
"""Of more than this level 9 has to do: the hardest one makes 1 MB a second of text, and a transaction's time is
bounded."""


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CodecError(Exception):
    """The bytes do not inflate, or not within the space given."""


def inflate(codec: int, source: NDArray[np.uint8], space: NDArray[np.uint8]) -> int:
    """Inflate ``source`` into the beginning of ``space`` and return how many bytes it made.

    Args:
        codec: The lowest three bits of the batch's attributes.
        source: uint8[n], one batch's compressed records.
        space: uint8[m], the bound: what does not fit is an error.

    Raises:
        CodecError: Unknown codec, bytes that are not of it, or more than ``space`` holds.
    """
    try:
        match codec:
            case Codec.NONE:
                if source.size > space.size:
                    raise CodecError(f"{source.size:,} bytes do not fit {space.size:,}")
                space[: source.size] = source
                return int(source.size)
            case Codec.GZIP:
                return int(cramjam.gzip.decompress_into(source, space))
            case Codec.SNAPPY:
                return _inflate_snappy(source, space)
            case Codec.LZ4:
                return lz4.inflate(source, space)
            case Codec.ZSTD:
                return int(cramjam.zstd.decompress_into(source, space))
            case _:
                raise CodecError(f"codec {codec} is not one that Kafka knows")
    except cramjam.DecompressionError as error:
        raise CodecError(f"{Codec(codec).name.lower()}: {error}") from error


def _inflate_snappy(source: NDArray[np.uint8], space: NDArray[np.uint8]) -> int:
    head = source[: len(XERIAL_HEADER)].tobytes()
    if not head.startswith(XERIAL_MAGIC):
        return _inflate_snappy_block(source, space)
    if len(head) < len(XERIAL_HEADER):
        raise CodecError("snappy: the frame's header is cut")
    at, made = len(XERIAL_HEADER), 0
    while at < source.size:
        if source.size - at < 4:
            raise CodecError("snappy: a block's length is cut")
        (size,) = struct.unpack(">i", source[at : at + 4].tobytes())
        at += 4
        if size < 0 or size > source.size - at:
            raise CodecError("snappy: a block's length leaves the batch")
        made += _inflate_snappy_block(source[at : at + size], space[made:])
        at += size
    return made


def _inflate_snappy_block(block: NDArray[np.uint8], space: NDArray[np.uint8]) -> int:
    # The length a block claims is checked before anything is written.
    claimed = cramjam.snappy.decompress_raw_len(block)
    if claimed > space.size:
        raise CodecError(f"snappy: {claimed:,} bytes do not fit {space.size:,}")
    if claimed == 0:
        return 0
    return int(cramjam.snappy.decompress_raw_into(block, space[:claimed]))


def deflate(codec: int, source: NDArray[np.uint8]) -> bytes:
    """Compress uint8[n] records as a producer would with ``codec``.

    Raises:
        CodecError: Unknown codec.
    """
    match codec:
        case Codec.NONE:
            return source.tobytes()
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(source, level=GZIP_LEVEL))
        case Codec.SNAPPY:
            return _deflate_snappy(source)
        case Codec.LZ4:
            return lz4.deflate(source)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(source, level=ZSTD_LEVEL))
        case _:
            raise CodecError(f"codec {codec} is not one that Kafka knows")


def squeeze(source: NDArray[np.uint8]) -> bytes:
    """Compress with `Codec.ZSTD` into about as little as any producer may have made of it, slowly."""
    level = ZSTD_HARDEST_LEVEL if source.size <= HARDEST_BYTES else ZSTD_HARD_LEVEL
    return bytes(cramjam.zstd.compress(source, level=level))


def _deflate_snappy(source: NDArray[np.uint8]) -> bytes:
    parts = [XERIAL_HEADER]
    for at in range(0, source.size, XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(source[at : at + XERIAL_BLOCK_BYTES]))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)
