"""Reads and hashes a record's id, or says why it has none.

An id has one or more parts (`processor.engine.extract.parts`): bytes, a JSON string by its unescaped text, a
JSON number by its text as written, a JSON boolean, the value's content by its keyed hash. Of it only the keyed
hash is kept
(`processor.engine.bytes.siphash`), over all parts one behind the other, each with what it is and its length
before it and zeros behind it up to whole words, all little-endian::

    part | tag u8 | length u56 | content | 0 to 7 zeros |

    tag: 1 bytes, 2 JSON string, 3 JSON number, 5 the 16 bytes of a content's hash, 6 JSON boolean

The length says where the content ends, so no two lists of parts give the same bytes: ``a|bc`` is not ``ab|c``,
and the string ``"1"`` is not the number ``1``. Whole words spare the kernel any copying.

Invariant: a record has either a `Fault`, or passes unjudged, or has a hash. The first fault of the parts as
listed counts, and a fault counts before a part that is only missing.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.siphash import absorb, absorb_part_drawn, begin, draw, end, words_of_key
from processor.engine.extract.fingerprint import fingerprints
from processor.engine.extract.json_matches import BARE, JsonRules
from processor.engine.extract.json_text import unescape
from processor.engine.extract.normalise import IdTextForm
from processor.engine.extract.parts import ContentPart, plain_parts, pointers_of, pooled, read_parts
from processor.engine.extract.value_walk import ValueWalk
from processor.engine.jit import Int, borrowed, kernel
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.fingerprint import FingerprintOf
    from processor.engine.extract.parts import Part
    from processor.engine.extract.value_walk import Walked


Text = str | dict[str, str | int]
MOST_PART_BYTES = 4 * 1024
"""A part that is longer is shown by its digest: a receipt must not outgrow its topic by what was sent twice."""
NO_CONTENT = np.zeros((0, 2), np.uint64)
NO_FINGERPRINT = np.zeros(0, np.uint64)
NO_LOT = np.uint64(2**64 - 1)
"""Of a record without a hash."""
_MULTIPLIER = np.uint64(0xC2B2AE3D27D4EB4F)
_SPREAD = np.uint64(0xD6E8FEB86659FD93)
"""Odd numbers with no pattern in their bits, of xxHash and of Murmur's kind."""


class Ids(NamedTuple):
    """The ids of n records, of K parts each.

    Attributes:
        hash: uint64[n, 2], little-endian words of the keyed hash; zeros where there is none.
        fault: uint8[n], `Fault` codes.
        unjudged: bool[n], where the record passes without being judged.
        form: uint8[K, n], `IdTextForm` values, for `texts`.
        begin: int64[K, n], where each part begins in the data.
        length: int64[K, n], its bytes there.
        content: uint64[n, 2], little-endian words of the content's hash; uint64[0, 2] where it is no part.
        fingerprint: uint64[n]; uint64[0] where nobody asks for them.
        lot: uint64[n], by which ids are drawn into samples: equal for equal ids, in every partition and worker.
            Of content it is the partition's own; `NO_LOT` where there is no hash. It has no key: who
            chooses ids may choose their lots.
        data: uint8[m]: the columns', or where parts were written down for the id.
    """

    hash: NDArray[np.uint64]
    fault: NDArray[np.uint8]
    unjudged: NDArray[np.bool_]
    form: NDArray[np.uint8]
    begin: NDArray[np.int64]
    length: NDArray[np.int64]
    content: NDArray[np.uint64]
    fingerprint: NDArray[np.uint64]
    lot: NDArray[np.uint64]
    data: NDArray[np.uint8]

    def part(self, rows: slice) -> Ids:
        """Return those of some of the records."""
        spans = self.form[:, rows], self.begin[:, rows], self.length[:, rows]
        hashes = self.content[rows], self.fingerprint[rows], self.lot[rows]
        return Ids(self.hash[rows], self.fault[rows], self.unjudged[rows], *spans, *hashes, self.data)


@dataclass(frozen=True, slots=True)
class IdExtractor:
    """Reads ids from columns.

    Args:
        parts: At least one, in the order in which they make the id.
        secret: 16 bytes, the hash's key.
        pass_missing: Where a part is missing or null (a tombstone's fields, and a header without value,
            included) the record passes unjudged; otherwise it has a fault.
        fingerprint_of: What fingerprints are of; None: there are none.
        rules: How values are read.

    Raises:
        ValueError: No part, content twice, a pointer that is none, or a secret of another size.
    """

    parts: Sequence[Part]
    secret: bytes = field(repr=False)
    pass_missing: bool = False
    fingerprint_of: FingerprintOf | None = None
    rules: JsonRules = BARE
    _key: NDArray[np.uint64] = field(init=False, repr=False, compare=False)
    _walk: ValueWalk = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("an id has at least one part")
        contents = [part.of for part in plain_parts(self.parts) if isinstance(part, ContentPart)]
        if len(contents) > 1:
            raise ValueError("content is a part of an id once")
        if self.fingerprint_of is not None:
            contents.append(self.fingerprint_of.content)
        object.__setattr__(self, "_key", words_of_key(self.secret))
        walk = ValueWalk(pointers_of(self.parts), contents, self._key, self.rules)
        object.__setattr__(self, "_walk", walk)

    def extract(self, columns: Columns) -> Ids:
        """Return the ids of all records of ``columns``."""
        rows = len(columns)
        walked = self._walk.read(columns)
        made = read_parts(self.parts, columns, walked)
        data, form, at, length = pooled([each.texts for each in made])
        fault, missing = np.zeros(rows, np.uint8), np.zeros(rows, np.bool_)
        for _, wrong, absent in made:
            if self.pass_missing:
                missing |= absent
                np.copyto(fault, wrong, where=(fault == 0) & ~absent)
            else:
                np.copyto(fault, wrong, where=fault == 0)
        prints = self._fingerprints(columns, walked, fault, missing)
        missing &= fault == 0
        has_content = any(isinstance(part, ContentPart) for part in plain_parts(self.parts))
        content = walked.hashes[0] if has_content else NO_CONTENT
        hashed, lot = np.zeros((rows, 2), np.uint64), np.full(rows, NO_LOT, np.uint64)
        ids = Ids(hashed, fault, missing, form, at, length, content, prints, lot, data)
        hash_ids(ids, self._key)
        return ids

    def _fingerprints(
        self,
        columns: Columns,
        walked: Walked,
        fault: NDArray[np.uint8],
        missing: NDArray[np.bool_],
    ) -> NDArray[np.uint64]:
        """Return the fingerprints; a fault of one is written where the id has none, and is not missing."""
        if self.fingerprint_of is None:
            return NO_FINGERPRINT
        prints, wrong = fingerprints(columns, self.fingerprint_of, walked.hashes[-1], self._walk.key)
        if walked.fault is not None and not self.fingerprint_of.content.as_bytes:
            wrong = np.where(walked.fault != 0, walked.fault, wrong)
        # What is no JSON is told also where nothing is judged, as of an id.
        wrong[missing & (wrong != Fault.VALUE_NOT_JSON) & (wrong != Fault.VALUE_MALFORMED)] = 0
        np.copyto(fault, wrong, where=fault == 0)
        return prints


def texts(ids: Ids, row: int, most_bytes: int = MOST_PART_BYTES) -> list[Text]:
    """Return the parts of one id as a receipt shows them.

    Bytes that are not UTF-8 are ``{"base64": ...}``; a part of more than ``most_bytes`` is
    ``{"sha256": ..., "bytes": N}``, both of its bytes: of a JSON string those of its unescaped text, as UTF-8.
    Content is ``{"content": ...}``, its hash in 32 hexadecimal digits.

    Args:
        ids: Of some records.
        row: One that has a hash.
        most_bytes: A longer part is cut to its digest.
    """
    found: list[Text] = []
    for form, at, length in zip(ids.form[:, row], ids.begin[:, row], ids.length[:, row], strict=True):
        if form == IdTextForm.CONTENT:
            found.append({"content": ids.content[row].astype("<u8").tobytes().hex()})
            continue
        content = ids.data[at : at + length]
        if form == IdTextForm.ESCAPED:
            out = np.empty(int(length), np.uint8)
            content = out[: unescape(ids.data, int(at), int(length), out)]
        raw = content.tobytes()
        if len(raw) > most_bytes:
            found.append({"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)})
            continue
        try:
            found.append(raw.decode())
        except UnicodeDecodeError:
            found.append({"base64": base64.b64encode(raw).decode()})
    return found


def hash_ids(ids: Ids, key: NDArray[np.uint64]) -> None:
    """Write the hashes and lots of those ids that have neither a fault nor a part missing.

    Raises:
        ValueError: There is no room for one of each per id: the kernel would write elsewhere.
    """
    if not ids.hash.shape[0] == ids.lot.size == ids.fault.size == ids.unjudged.size == ids.form.shape[1]:
        raise ValueError("hashes, lots, faults and parts are of different numbers of ids")
    _hash(ids, key)


@kernel
def _hash(ids: Ids, key: NDArray[np.uint64]) -> None:
    """See `hash_ids`."""
    out, fault, unjudged, form, begins, length, content, _, lots, data = ids
    # Text of strings with escapes: room for the longest, so that no record costs an allocation.
    scratch = np.empty(length.max() if length.size > 0 else 0, np.uint8)
    lent, unescaped = borrowed(data), borrowed(scratch)
    b0, b1, b2, b3 = begin(key)
    for row in range(fault.size):
        if fault[row] != 0 or unjudged[row]:
            continue
        v0, v1, v2, v3 = b0, b1, b2, b3
        lot, times = np.uint64(0), _MULTIPLIER
        total: Int = 0
        for k in range(form.shape[0]):
            size = length[k, row]
            if form[k, row] == 4:
                size = np.int64(unescape(data, begins[k, row], size, scratch))
                v0, v1, v2, v3, lot, times = absorb_part_drawn(
                    v0, v1, v2, v3, unescaped, np.int64(0), size, 2, lot, times
                )
            elif form[k, row] == 5:
                size = np.int64(16)
                v0, v1, v2, v3 = absorb(v0, v1, v2, v3, np.uint64(5 | 16 << 8))
                v0, v1, v2, v3 = absorb(v0, v1, v2, v3, content[row, 0])
                v0, v1, v2, v3 = absorb(v0, v1, v2, v3, content[row, 1])
                lot, times = draw(lot, times, content[row, 0])
            else:
                v0, v1, v2, v3, lot, times = absorb_part_drawn(
                    v0, v1, v2, v3, lent, begins[k, row], size, form[k, row], lot, times
                )
            total += 8 + ((size + 7) & ~7)
        v0, v1, v2, v3 = absorb(v0, v1, v2, v3, np.uint64(total & 255) << np.uint64(56))
        out[row, 0], out[row, 1] = end(v0, v1, v2, v3)
        lots[row] = (lot ^ (lot >> np.uint64(32))) * _SPREAD
