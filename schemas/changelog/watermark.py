"""Watermarks of scopes, and the blocks of them: those of the local state, and those that a backfill brings.

The envelope is that of `schemas.changelog.values`, but a block's checksum stands before its payload::

    watermark | version u8 = 1 | flags u8 | sequence i64 | epoch i64 (flag 1)
              | epoch u8[16], count u8, epochs that were left u8[16 * count] (flag 8) | run u32 (flag 2)
              | window u32, ring u64[max(64, window rounded up to a power of two) / 64] (flag 4) | crc u32 |

    block     | version u8 = 1 | records u32 | crc u32 over key, version, records and payload | payload |

    blocks    | version u8 = 1 | first block u64 | block after the last u64 | crc u32 |

Of an epoch that has no order 16 bytes of its hash are kept, and of up to 16 that were left, the last one first.
With a window one of flags 2 and 4 is set: the ``run`` numbers right below the sequence were
seen and no other, or bit n mod ring size of ``ring`` says whether number n was (bit b is bit b mod 64 of word
b / 64). A block's payload is that of a record batch, watermarks under their keys; of a scope that
stands in several blocks the last counts.

A backfill writes blocks into the changelog, before every watermark that a worker writes. They stay there: the
state is them and what has changed since, and a certificate begins with them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import google_crc32c

from schemas.changelog.values import (
    BLOCK_KIND,
    BLOCKS_KEY,
    BROUGHT_KIND,
    CRC,
    WATERMARK_KIND,
    CorruptStateError,
    opened,
    sealed,
)

_WATERMARK = struct.Struct(">BBq")
_EPOCH = struct.Struct(">q")
_U32 = struct.Struct(">I")
_BLOCK = struct.Struct(">BI")
_BLOCK_NUMBER = struct.Struct(">Q")
_BLOCKS = struct.Struct(">BQQ")
_VERSION = 1
_WITH_EPOCH, _WITH_RUN, _WITH_RING, _WITH_LEFT = 1, 2, 4, 8
_EPOCH_HASH = 16
MOST_LEFT = 16


def watermark_key(scope: bytes = b"") -> bytes:
    """Return the key of a scope's watermark."""
    return WATERMARK_KIND + scope


def encode_watermark(key: bytes, sequence: int) -> bytes:
    """Return the value of a watermark without epoch and window under ``key``."""
    return ScopeValue(sequence).encode(key)


def decode_watermark(key: bytes, value: bytes) -> int:
    """Read a watermark without epoch and window.

    Raises:
        CorruptStateError: It is not one, or not whole.
    """
    _, flags, sequence = _WATERMARK.unpack(opened(key, value, _WATERMARK.size))
    if flags:
        raise CorruptStateError(f"watermark {key!r} has flags {flags:#x}, written by a newer version")
    return int(sequence)


@dataclass(frozen=True, slots=True)
class ScopeValue:
    """A scope's watermark; programs that handle many use the kernels of the engine instead.

    Attributes:
        sequence: The watermark.
        epoch: None where the definition has none, or its epochs have no order.
        run: With a window: how many numbers right below the sequence were seen; None where there is a ring.
        window: With a ring: the reorder window.
        ring: uint64 words; bit n mod ring size is number n.
        epochs: Of epochs without order the hash of the present one, and of those that were left; else empty.
    """

    sequence: int
    epoch: int | None = None
    run: int | None = None
    window: int = 0
    ring: tuple[int, ...] = ()
    epochs: tuple[bytes, ...] = ()

    def encode(self, key: bytes) -> bytes:
        """Return the value under ``key``."""
        flags, rest = 0, b""
        if self.epoch is not None:
            flags, rest = _WITH_EPOCH, _EPOCH.pack(self.epoch)
        if self.epochs:
            present, *left = self.epochs
            flags, rest = _WITH_LEFT, b"".join([present, bytes([len(left)]), *left])
        if self.ring:
            flags |= _WITH_RING
            rest += struct.pack(f">I{len(self.ring)}Q", self.window, *self.ring)
        elif self.run is not None:
            flags |= _WITH_RUN
            rest += _U32.pack(self.run)
        return sealed(key, _WATERMARK.pack(_VERSION, flags, self.sequence) + rest)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> ScopeValue:
        """Read a value.

        Raises:
            CorruptStateError: It is not one, or not whole.
        """
        body = opened(key, value, max(_WATERMARK.size, len(value) - CRC.size))
        _, flags, sequence = _WATERMARK.unpack_from(body)
        rest = body[_WATERMARK.size :]
        if (
            flags & ~(_WITH_EPOCH | _WITH_RUN | _WITH_RING | _WITH_LEFT)
            or flags & (_WITH_EPOCH | _WITH_LEFT) == _WITH_EPOCH | _WITH_LEFT
            or flags & (_WITH_RUN | _WITH_RING) == _WITH_RUN | _WITH_RING
        ):
            raise CorruptStateError(f"watermark {key!r} has flags {flags:#x}, written by a newer version")
        try:
            epoch = run = None
            epochs: tuple[bytes, ...] = ()
            if flags & _WITH_EPOCH:
                (epoch,), rest = _EPOCH.unpack_from(rest), rest[_EPOCH.size :]
            if flags & _WITH_LEFT:
                epochs, rest = _epochs(key, rest)
            if flags & _WITH_RING:
                (window,) = _U32.unpack_from(rest)
                ring = struct.unpack(f">{(len(rest) - 4) // 8}Q", rest[4:])
                if 64 * len(ring) != ring_bits(window):
                    raise CorruptStateError(f"the ring under {key!r} does not fit its window of {window}")
                return cls(sequence, epoch, None, window, ring, epochs)
            if flags & _WITH_RUN:
                (run,), rest = _U32.unpack_from(rest), rest[_U32.size :]
        except struct.error as error:
            raise CorruptStateError(f"the value under {key!r} is cut") from error
        if rest:
            raise CorruptStateError(f"the value under {key!r} has {len(rest)} bytes too many")
        return cls(sequence, epoch, run, epochs=epochs)


def _epochs(key: bytes, rest: bytes) -> tuple[tuple[bytes, ...], bytes]:
    """Return the hash of an epoch and of those that were left, and what stands behind them."""
    left = rest[_EPOCH_HASH] if len(rest) > _EPOCH_HASH else MOST_LEFT + 1
    end = _EPOCH_HASH * (1 + left) + 1
    if left > MOST_LEFT or len(rest) < end:
        raise CorruptStateError(f"the epochs under {key!r} are cut, or more than {MOST_LEFT}")
    hashes = rest[:_EPOCH_HASH] + rest[_EPOCH_HASH + 1 : end]
    return tuple(hashes[at : at + _EPOCH_HASH] for at in range(0, len(hashes), _EPOCH_HASH)), rest[end:]


def ring_bits(window: int) -> int:
    """Return the bits of the ring that remembers ``window`` numbers."""
    return max(64, 1 << max(window - 1, 0).bit_length())


def block_key(number: int) -> bytes:
    """Return the key of a local block; keys sort as their numbers do."""
    return BLOCK_KIND + _BLOCK_NUMBER.pack(number)


def brought_key(number: int) -> bytes:
    """Return the key of a block that a backfill has brought; keys sort as their numbers do."""
    return BROUGHT_KIND + _BLOCK_NUMBER.pack(number)


def encode_block(key: bytes, payload: bytes, records: int) -> bytes:
    """Return the value of a block under ``key``."""
    head = _BLOCK.pack(_VERSION, records)
    return head + CRC.pack(_block_crc(key, head, payload)) + payload


def open_block(key: bytes, value: bytes) -> tuple[memoryview, int]:
    """Return a block's payload and how many records it holds.

    Raises:
        CorruptStateError: It is not a block, or not whole.
    """
    start = _BLOCK.size + CRC.size
    if len(value) < start or value[0] != _VERSION:
        raise CorruptStateError(f"block {key!r} is cut or of a version that this Seqmark does not know")
    head, payload = value[: _BLOCK.size], memoryview(value)[start:]
    if _block_crc(key, head, payload) != CRC.unpack_from(value, _BLOCK.size)[0]:
        raise CorruptStateError(f"block {key!r} fails its checksum")
    return payload, int(_BLOCK.unpack(head)[1])


def _block_crc(key: bytes, head: bytes, payload: bytes | memoryview) -> int:
    crc = google_crc32c.extend(google_crc32c.value(key), head)
    # Its C code takes memory only of types that say they are bytes.
    return int(google_crc32c.extend(crc, bytes(payload)))


def encode_blocks(first: int, after: int) -> bytes:
    """Return the value under `BLOCKS_KEY`: which blocks there are."""
    return sealed(BLOCKS_KEY, _BLOCKS.pack(_VERSION, first, after))


def decode_blocks(value: bytes) -> tuple[int, int]:
    """Return the first block and the one after the last.

    Raises:
        CorruptStateError: It is not that, or not whole.
    """
    _, first, after = _BLOCKS.unpack(opened(BLOCKS_KEY, value, _BLOCKS.size))
    return int(first), int(after)
