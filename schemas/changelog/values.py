r"""Keys of the changelog and of the local state, and the envelope of every value.

Both hold the same keys and values, but for scopes, which the local state keeps in blocks. Keys begin with a
kind; what follows depends on it::

    key       b"P"            the position record, one per partition, written with every commit
              b"O"            the origin: where this state begins; what stands before it is of an earlier one
              b"W" scope      a watermark; scope is empty for scope = "partition"
              b"G" u64        mode watermark: block of scopes that a backfill has brought, of that number
              b"H"            how much of a backfill is there, until a position follows: see
                              `schemas.changelog.backfill`
              b"M"            a mark, in index topics only: see `schemas.changelog.marks`
              b"I", b"B" u64  mode insert-id: see `schemas.changelog.ids`, and
                              `schemas.changelog.bloom` for what else the bloom backend keeps locally
              b"\x00L"        local state only: how far it follows the changelog
              b"\x00B" u64    local state only: block of that number
              b"\x00S"        local state only: which blocks there are

`schemas.changelog.position` draws the values of P, O and L, `schemas.changelog.watermark` those of W, G, B and
S. All integers are big-endian. Every value begins with its version and ends with a CRC-32C over key and value:
it finds a record under a wrong key, a cut one and a flipped bit.

Versions: all are 1. A reader refuses a version that it does not know and says so; it never guesses. A new field
is a new version, and from the first release on old ones stay readable.
"""

from __future__ import annotations

import struct

import google_crc32c

POSITION_KEY = b"P"
ORIGIN_KEY = b"O"
WATERMARK_KIND = b"W"
LOCAL_KEY = b"\x00L"
BLOCK_KIND = b"\x00B"
BLOCKS_KEY = b"\x00S"
BROUGHT_KIND = b"G"
OF_IDS = (b"I", b"B", b"o", b"H", b"\xffP", b"\x00J", b"\x00E", b"\x00F")
"""What keys of mode insert-id begin with."""

CRC = struct.Struct(">I")
"""The end of every value but a block's."""

_VERSION = 1


class CorruptStateError(Exception):
    """A value fails its checksum or has a form or version that is not known."""


def sealed(key: bytes, body: bytes) -> bytes:
    """Return a value: its body and the checksum over key and body."""
    return body + CRC.pack(google_crc32c.extend(google_crc32c.value(key), body))


def opened(key: bytes, value: bytes, size: int) -> bytes:
    """Return the body of ``size`` bytes of a value; raises `CorruptStateError` if it is not that."""
    if not value:
        raise CorruptStateError(f"the value under {key!r} is empty")
    if value[0] != _VERSION:
        raise CorruptStateError(
            f"the value under {key!r} has version {value[0]}, this Seqmark reads {_VERSION}: a newer one has "
            "written it, and has to go on with it, or one of before the first release, which nobody reads"
        )
    if len(value) != size + CRC.size:
        raise CorruptStateError(f"the value under {key!r} has {len(value)} bytes, expected {size + CRC.size}")
    body, crc = value[:size], CRC.unpack(value[size:])[0]
    if google_crc32c.extend(google_crc32c.value(key), body) != crc:
        raise CorruptStateError(f"the value under {key!r} fails its checksum")
    return body


def named(text: str) -> bytes:
    """Return a name with its size before it; topic names, which hold both, have at most 249 bytes."""
    encoded = text.encode()
    return bytes([len(encoded)]) + encoded


def name_at(body: bytes, at: int) -> tuple[str, int]:
    """Return the name that stands at ``at``, and where it ends."""
    end = at + 1 + body[at]
    return body[at + 1 : end].decode(), end


def require_end(key: bytes, body: bytes, at: int) -> None:
    """Raise `CorruptStateError` where a body does not end at ``at``."""
    if at != len(body):
        raise CorruptStateError(f"the value under {key!r} is cut, or too long")
