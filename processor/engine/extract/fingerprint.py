"""Makes the fingerprints of values, by which equal ids with other content are told apart.

A fingerprint is 64 bits of a keyed hash: of the value's content (`processor.engine.extract.json_content`), or
of its bytes as they stand, and of the headers that count. It is SipHash-2-4-128's first word over them, under
the content's key, in whole little-endian words::

    8 u8 | 16 u56 | content hash 16 B |                    a value
    9 u8 | 0 u56 |                                         no value, where bytes count
    1 u8 | bytes u56 | value, zeros up to whole words |    each header that is there
    9 u8 | 0 u56 |                                         each that is not

What begins a part says what it is and how long, and all records of a pipeline have the same parts: the length
of all, which SipHash itself ends with, says nothing more and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.siphash import absorb, absorb_part, begin, end
from processor.engine.extract.sequence import header_values
from processor.engine.extract.value_walk import WHOLE
from processor.engine.jit import borrowed, kernel
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.value_walk import ContentOf


@dataclass(frozen=True, slots=True)
class FingerprintOf:
    """What a record's fingerprint is of.

    Attributes:
        content: Of the value; where it is bytes, none at all is a value of its own.
        headers: Names of headers whose values count, too; of several of one name the last.
    """

    content: ContentOf = WHOLE
    headers: tuple[bytes, ...] = ()


def fingerprints(
    columns: Columns, of: FingerprintOf, content: NDArray[np.uint64], key: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Return uint64[n] fingerprints, and uint8[n] `Fault` codes of headers that count.

    Args:
        columns: The records.
        of: What counts.
        content: uint64[n, 2], hashes of the values' content.
        key: uint64[2], of the hash.
    """
    rows, count = len(columns), len(of.headers)
    fault = np.zeros(rows, np.uint8)
    at, length = np.zeros((2, count, rows), np.int64)
    for k, name in enumerate(of.headers):
        at[k], length[k], wrong = header_values(columns.data, columns.table, np.frombuffer(name, np.uint8))
        length[k, wrong == Fault.HEADER_MISSING] = -1
        fault[wrong == Fault.HEADER_MALFORMED] = Fault.HEADER_MALFORMED
    found = np.zeros(rows, np.uint64)
    _hash(columns.data, columns.value_length < 0, content, at, length, key, found)
    return found, fault


@kernel
def _hash(
    data: NDArray[np.uint8],
    null: NDArray[np.bool_],
    content: NDArray[np.uint64],
    at: NDArray[np.int64],
    length: NDArray[np.int64],
    key: NDArray[np.uint64],
    found: NDArray[np.uint64],
) -> None:
    lent = borrowed(data)
    b0, b1, b2, b3 = begin(key)
    for row in range(found.size):
        v0, v1, v2, v3 = b0, b1, b2, b3
        if null[row]:
            v0, v1, v2, v3 = absorb(v0, v1, v2, v3, np.uint64(9))
        else:
            v0, v1, v2, v3 = absorb(v0, v1, v2, v3, np.uint64(8 | 16 << 8))
            v0, v1, v2, v3 = absorb(v0, v1, v2, v3, content[row, 0])
            v0, v1, v2, v3 = absorb(v0, v1, v2, v3, content[row, 1])
        for k in range(at.shape[0]):
            if length[k, row] < 0:
                v0, v1, v2, v3 = absorb(v0, v1, v2, v3, np.uint64(9))
            else:
                v0, v1, v2, v3 = absorb_part(v0, v1, v2, v3, lent, at[k, row], length[k, row], 1)
        found[row] = end(v0, v1, v2, v3)[0]
