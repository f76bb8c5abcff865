"""Makes new ids of ids and fingerprints: the same in every replay.

A new id is a UUID of version 8 (RFC 9562, section 5.8), as text in lower case. Its bytes are SipHash-2-4-128,
under a key of its own from the partition's secret, of the id's hash and the fingerprint, three little-endian
words, with the bits of version and variant set::

    | 48 bits of the hash | version, 4 bits: 8 | 12 bits | variant, 2 bits: 10 | 62 bits |

Whoever does not know the secret can neither choose an id that gets a certain new one nor foretell one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.siphash import absorb, begin, derived_key, end, words_of_key
from processor.engine.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

UUID_BYTES = 36
_PURPOSE = b"seqmark new id"
_LAST_WORD = 24 << 56
"""SipHash's: nothing is left of 24 bytes."""
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()


def new_ids(secret: bytes, hashes: NDArray[np.uint64], fingerprints: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return uint8[k, 36]: new ids as text, in lower case.

    Args:
        secret: 16 bytes, the partition's.
        hashes: uint64[k, 2], of the ids.
        fingerprints: uint64[k].

    Raises:
        ValueError: The secret has another size.
    """
    out = np.empty((fingerprints.size, UUID_BYTES), np.uint8)
    _new_ids(derived_key(words_of_key(secret), _PURPOSE), hashes, fingerprints, out)
    return out


@kernel
def _new_ids(
    key: NDArray[np.uint64],
    hashes: NDArray[np.uint64],
    fingerprints: NDArray[np.uint64],
    out: NDArray[np.uint8],
) -> None:
    for row in range(out.shape[0]):
        v0, v1, v2, v3 = begin(key)
        v0, v1, v2, v3 = absorb(v0, v1, v2, v3, hashes[row, 0])
        v0, v1, v2, v3 = absorb(v0, v1, v2, v3, hashes[row, 1])
        v0, v1, v2, v3 = absorb(v0, v1, v2, v3, fingerprints[row])
        v0, v1, v2, v3 = absorb(v0, v1, v2, v3, np.uint64(_LAST_WORD))
        low, high = end(v0, v1, v2, v3)
        to = 0
        for j in range(16):
            word = low if j < 8 else high
            byte = np.int64((word >> np.uint64(8 * (j & 7))) & np.uint64(255))
            if j == 6:
                byte = (byte & 0x0F) | 0x80
            elif j == 8:
                byte = (byte & 0x3F) | 0x80
            if j in (4, 6, 8, 10):
                out[row, to] = np.uint8(45)
                to += 1
            out[row, to] = _HEX[byte >> 4]
            out[row, to + 1] = _HEX[byte & 15]
            to += 2
