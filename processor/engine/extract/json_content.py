"""Hashes the content of JSON values: what `processor.engine.extract.json_scan` adds up in its walk.

Content is equal where the leaves are, whatever their order and however they are written. A leaf is a string (by
its unescaped text), a number (as written), a word or a container, with the path that leads to it. The hash is
the sum, word by word, of the leaves' SipHash-2-4-128 under the partition's secret, so that the order of members
does not count. A leaf is hashed as the steps of its path and what it is, in whole little-endian words, zeros
behind a text's last byte::

    step | 1 u8 | bytes u56 | a member's name ... |      step | 2 u8 | index u56 |

    leaf | 16 + kind u8 | bytes u56 | text ... |         kind: `JsonKind`, all numbers 4; of a container no text

Steps and leaves say how long they are, and a leaf comes last: none is the beginning of another, so SipHash's
own last word, the length, is left out. Of members with one name the last counts: what the earlier ones have
added is taken off again where their object ends.

The sum goes through the hash once more: what receipts show of content says nothing of its leaves' hashes, of
which many together would let somebody choose leaves of equal sums. Whoever does not know the secret can choose
no two values of one hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.siphash import absorb, absorb_part, derived_key, end, siphash128
from processor.engine.jit import Int, inlined, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SUM = 3 | 16 << 8
_PURPOSE = b"seqmark content"
FEW_MEMBERS = 32
"""Of an object with more members the names are sorted to find those that come twice."""


class Content(NamedTuple):
    """Where the hashes of n values' content go.

    Attributes:
        looked_up: Pointers from this number on lead to what does not count, with all below it.
        key: uint64[2], of the hash.
        hash: uint64[n, 2], zeros; they stay where there is a fault.
    """

    looked_up: int
    key: NDArray[np.uint64]
    hash: NDArray[np.uint64]


def content_key(secret: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return uint64[2], the key by which content is hashed, from that of the ids."""
    return derived_key(secret, _PURPOSE)


@kernel
def hash_bytes(
    data: NDArray[np.uint8], value: NDArray[np.int64], value_length: NDArray[np.int64], content: Content
) -> None:
    """Hash values as they stand; a tombstone (length -1) has no hash."""
    for row in range(value.size):
        if value_length[row] >= 0:
            hashed = siphash128(data, value[row], value_length[row], content.key)
            content.hash[row, 0], content.hash[row, 1] = hashed


@inlined
def leaf_hash(v0, v1, v2, v3, data, at, size, kind):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the hash of a leaf, given the state behind its path."""
    leaf_0, leaf_1, leaf_2, leaf_3 = absorb_part(v0, v1, v2, v3, data, at, size, kind + 16)
    return end(leaf_0, leaf_1, leaf_2, leaf_3)


@inlined
def content_hash(v0, v1, v2, v3, sum0, sum1):  # type: ignore[no-untyped-def]  # inlined kernel
    """Return the hash of all leaves, given the state before the first word and the sum of theirs.

    Its first word begins no leaf's.
    """
    all_0, all_1, all_2, all_3 = absorb(v0, v1, v2, v3, np.uint64(_SUM))
    all_0, all_1, all_2, all_3 = absorb(all_0, all_1, all_2, all_3, sum0)
    all_0, all_1, all_2, all_3 = absorb(all_0, all_1, all_2, all_3, sum1)
    return end(all_0, all_1, all_2, all_3)


@kernel
def repeated(seen: NDArray[np.uint64], begin: Int, count: Int) -> tuple[Int, Int]:
    """Return what members have added that are followed by one of the same name in their object.

    Args:
        seen: uint64[m, 3], of members ``begin`` to ``count``: the name's hash, and the sum before each.
        begin: The object's first.
        count: Behind its last.
    """
    less0 = less1 = np.uint64(0)
    if count - begin <= FEW_MEMBERS:
        for k in range(begin, count - 1):
            for j in range(k + 1, count):
                if seen[k, 0] == seen[j, 0]:
                    less0 += seen[k + 1, 1] - seen[k, 1]
                    less1 += seen[k + 1, 2] - seen[k, 2]
                    break
        return less0, less1
    order = np.argsort(seen[begin:count, 0], kind="mergesort")
    for j in range(order.size - 1):
        k = begin + order[j]
        if seen[k, 0] == seen[begin + order[j + 1], 0]:
            # The last of a name stays, and it alone may be the object's last.
            less0 += seen[k + 1, 1] - seen[k, 1]
            less1 += seen[k + 1, 2] - seen[k, 2]
    return less0, less1
