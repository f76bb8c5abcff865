"""Writes ids as JSON lists, for receipts.

Ids are text of many forms, written as Python's ``json.dumps`` does, without spaces and with characters above
ASCII as they are; what is not UTF-8 stands there in base64. A part above 4 KiB is cut to a digest, in Python:
there are few in as many bytes as are judged at a time.
"""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.bytes.varints import put_bytes
from processor.engine.extract.ids import MOST_PART_BYTES, Ids, texts
from processor.engine.extract.json_text import put_text, unescape
from processor.engine.extract.normalise import IdTextForm
from processor.engine.jit import Int, kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_ESCAPED = int(IdTextForm.ESCAPED)
_CONTENT = int(IdTextForm.CONTENT)
_CONTENT_TEXT = np.frombuffer(b'{"content":"', np.uint8).copy()
_CONTENT_BYTES = 46
"""Of a content's part, its 32 digits among them."""
_AROUND_BYTES = 24
"""More than stands around a part: a comma, two quotes, ``{"base64":"`` and its end, what fills up fours."""
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_BASE64 = np.frombuffer(b'{"base64":"', np.uint8).copy()
_BASE64_BYTES = _BASE64.size
_DIGITS = np.frombuffer(
    (string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/").encode(), np.uint8
).copy()


class IdLists(NamedTuple):
    """The ids of some records as JSON.

    Attributes:
        data: uint8[m].
        at: int64[k], where each begins.
        size: int64[k], its bytes.
    """

    data: NDArray[np.uint8]
    at: NDArray[np.int64]
    size: NDArray[np.int64]

    def part(self, start: int, stop: int) -> IdLists:
        """Return those from ``start`` to ``stop``."""
        return IdLists(self.data, self.at[start:stop], self.size[start:stop])

    def longer(self, which: NDArray[np.int64], more: Sequence[bytes]) -> IdLists:
        """Return them with more bytes behind some, int64[c]."""
        old = [self.data[self.at[k] : self.at[k] + self.size[k]].tobytes() for k in which.tolist()]
        written = [text + behind for text, behind in zip(old, more, strict=True)]
        at, size = self.at.copy(), self.size.copy()
        size[which] = [len(each) for each in written]
        at[which] = self.data.size + np.cumsum(size[which]) - size[which]
        return IdLists(np.concatenate((self.data, np.frombuffer(b"".join(written), np.uint8))), at, size)


def id_lists(ids: Ids, rows: NDArray[np.int64], most_bytes: int = MOST_PART_BYTES) -> IdLists:
    """Write the ids of some records as JSON lists, see `processor.engine.extract.ids.texts`.

    Args:
        ids: Of all.
        rows: int64[k], records that have an id.
        most_bytes: A longer part is cut to its digest.
    """
    form = np.ascontiguousarray(ids.form[:, rows])
    begin = np.ascontiguousarray(ids.begin[:, rows])
    length = np.ascontiguousarray(ids.length[:, rows])
    # Each byte may be a control character, where it is not escaped already. With escapes text is a sixth of its
    # span at least, and is not looked at where even that is too long.
    longest = np.minimum(np.where(form == _ESCAPED, length, 6 * length), 6 * most_bytes)
    longest[form == _CONTENT] = _CONTENT_BYTES
    content = ids.content[rows] if ids.content.size else ids.content
    out = np.empty(int(longest.sum()) + (_AROUND_BYTES * len(form) + 2) * rows.size, np.uint8)
    at, size = np.zeros((2, rows.size), np.int64)
    used = int(_lists(ids.data, form, begin, length, content, np.int64(most_bytes), out, at, size))
    odd = np.flatnonzero(size == 0)
    if not odd.size:
        return IdLists(out, at, size)
    written = [
        json.dumps(texts(ids, int(rows[k]), most_bytes), ensure_ascii=False, separators=(",", ":")).encode()
        for k in odd
    ]
    return IdLists(out[:used], at, size).longer(odd, written)


@kernel
def _lists(
    data: NDArray[np.uint8],
    form: NDArray[np.uint8],
    begin: NDArray[np.int64],
    length: NDArray[np.int64],
    content: NDArray[np.uint64],
    most: Int,
    out: NDArray[np.uint8],
    at: NDArray[np.int64],
    size: NDArray[np.int64],
) -> Int:
    """Write the ids of which no part is to be cut; the size of others stays 0. Returns the bytes written."""
    used: Int = 0
    scratch = np.empty(6 * most, np.uint8)
    for row in range(at.size):
        to = used
        for k in range(form.shape[0]):
            start, count = begin[k, row], length[k, row]
            escaped = form[k, row] == _ESCAPED
            if escaped and count <= 6 * most:
                count = np.int64(unescape(data, start, count, scratch))
            if count > most:
                to = np.int64(-1)
                break
            out[to] = np.uint8(91) if k == 0 else np.uint8(44)
            if form[k, row] == _CONTENT:
                to = put_bytes(out, to + 1, _CONTENT_TEXT, 0, _CONTENT_TEXT.size)
                for j in range(32):
                    digit = content[row, j >> 4] >> np.uint64(8 * ((j >> 1) & 7) + (0 if j & 1 else 4))
                    out[to + j] = _HEX[np.int64(digit) & 15]
                out[to + 32], out[to + 33] = np.uint8(34), np.uint8(125)
                to += 34
            elif escaped:
                to = put_part(out, to + 1, scratch, np.int64(0), count)
            else:
                to = put_part(out, to + 1, data, start, count)
        if to >= 0:
            out[to] = np.uint8(93)
            at[row] = used
            size[row] = to + 1 - used
            used = to + 1
    return used


@kernel
def put_part(out: NDArray[np.uint8], begin: Int, data: NDArray[np.uint8], start: Int, count: Int) -> Int:
    """Write a part as a JSON string, or as an object with its base64; returns the place behind it."""
    to = put_text(out, begin, data, start, count)
    return _put_base64(out, begin, data, start, count) if to < 0 else to


@kernel
def _put_base64(out: NDArray[np.uint8], begin: Int, data: NDArray[np.uint8], start: Int, count: Int) -> Int:
    """Write bytes as ``{"base64":"..."}``; returns the place behind it."""
    to = put_bytes(out, begin, _BASE64, 0, _BASE64_BYTES)
    for j in range(0, count, 3):
        left = count - j
        word = np.int64(data[start + j]) << 16
        if left > 1:
            word |= np.int64(data[start + j + 1]) << 8
        if left > 2:
            word |= np.int64(data[start + j + 2])
        out[to] = _DIGITS[word >> 18]
        out[to + 1] = _DIGITS[(word >> 12) & 63]
        out[to + 2] = _DIGITS[(word >> 6) & 63] if left > 1 else np.uint8(61)
        out[to + 3] = _DIGITS[word & 63] if left > 2 else np.uint8(61)
        to += 4
    out[to] = np.uint8(34)
    out[to + 1] = np.uint8(125)
    return to + 2
