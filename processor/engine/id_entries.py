"""How is an id kept so that its hash finds it?

With ``confirm`` a hit of a filter is looked up in the local store, where each id is an entry of its own::

    key    | 0xff "I" | bucket u64, 2^63 added | hash 16 B |

    value  | version u8 = 1 | owner i64 | reading i64 | crc u32 |

Integers are big-endian, so keys sort by bucket, and all of a bucket are deleted as one range. They lie behind
all other keys of the local state: who reads that need not walk over them. The CRC-32C is over key and value.

Invariant: an entry that is not whole is refused with `UnreadableEntryError`, never judged by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.block_pages import _get, _put
from processor.engine.jit import Int, kernel
from processor.engine.words import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

KIND = b"\xffI"
KEY_BYTES = 26
VALUE_BYTES = 21
_VERSION = 1
_BIAS = 2**63


class UnreadableEntryError(Exception):
    """An entry is cut, corrupt, or of a version that this Seqmark does not know."""


def bucket_key(bucket: int) -> bytes:
    """Return what the keys of a bucket begin with; those of the buckets before are lower."""
    return KIND + (bucket + _BIAS).to_bytes(8, "big")


def keys(bucket: NDArray[np.int64], hashes: NDArray[np.uint64]) -> list[bytes]:
    """Return the keys of some ids.

    Args:
        bucket: int64[n].
        hashes: uint64[n, 2].
    """
    return _cut(_keys(bucket, hashes), KEY_BYTES)


def encode(
    bucket: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    owner: NDArray[np.int64],
    reading_ms: NDArray[np.int64],
) -> dict[bytes, bytes]:
    """Return the entries of some ids; of several with one key the last counts."""
    named = _keys(bucket, hashes)
    values = np.empty(bucket.size * VALUE_BYTES, np.uint8)
    with np.errstate(over="ignore"):
        _encode(named, owner, reading_ms, values)
    return dict(zip(_cut(named, KEY_BYTES), _cut(values, VALUE_BYTES), strict=True))


def decode(named: Sequence[bytes], values: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read entries: int64[n] owners and int64[n] readings.

    Args:
        named: n keys.
        values: What stands under each.

    Raises:
        UnreadableEntryError: See there.
    """
    owner, reading = np.empty((2, len(values)), np.int64)
    if any(len(value) != VALUE_BYTES for value in values):
        raise UnreadableEntryError("an entry of an id is cut")
    under = np.frombuffer(b"".join(named), np.uint8)
    with np.errstate(over="ignore"):
        wrong = int(_decode(under, np.frombuffer(b"".join(values), np.uint8), owner, reading))
    if wrong:
        raise UnreadableEntryError("an entry of an id fails its checksum, or has a version that is not known")
    return owner, reading


def _keys(bucket: NDArray[np.int64], hashes: NDArray[np.uint64]) -> NDArray[np.uint8]:
    out = np.empty((bucket.size, KEY_BYTES), np.uint8)
    out[:, :2] = np.frombuffer(KIND, np.uint8)
    biased = (bucket.astype(np.uint64) ^ np.uint64(_BIAS)).astype(">u8")
    out[:, 2:10] = biased.view(np.uint8).reshape(-1, 8)
    out[:, 10:] = np.ascontiguousarray(hashes).astype(">u8").view(np.uint8).reshape(-1, 16)
    return out.reshape(-1)


def _cut(joined: NDArray[np.uint8], size: int) -> list[bytes]:
    data = joined.tobytes()
    return [data[at : at + size] for at in range(0, len(data), size)]


@kernel
def _encode(
    named: NDArray[np.uint8], owner: NDArray[np.int64], reading: NDArray[np.int64], out: NDArray[np.uint8]
) -> None:
    for row in range(owner.size):
        start = row * VALUE_BYTES
        out[start] = np.uint8(_VERSION)
        at = _put(out, start + 1, owner[row], 8)
        at = _put(out, at, reading[row], 8)
        crc = crc32c(named, row * KEY_BYTES, KEY_BYTES, np.uint64(0))
        _put(out, at, crc32c(out, start, VALUE_BYTES - 4, np.uint64(crc)), 4)


@kernel
def _decode(
    named: NDArray[np.uint8], values: NDArray[np.uint8], owner: NDArray[np.int64], reading: NDArray[np.int64]
) -> Int:
    for row in range(owner.size):
        start = row * VALUE_BYTES
        crc = crc32c(named, row * KEY_BYTES, KEY_BYTES, np.uint64(0))
        crc = crc32c(values, start, VALUE_BYTES - 4, np.uint64(crc))
        if values[start] != _VERSION or np.uint64(crc) != _get(values, start + VALUE_BYTES - 4, 4):
            return 1
        owner[row] = np.int64(_get(values, start + 1, 8))
        reading[row] = np.int64(_get(values, start + 9, 8))
    return 0
