"""What JSON pointers find in values.

Says what of a value is JSON: how strictly it is read, and what stands before it.

    | 0 u8 | schema id u32 | JSON |      framing: five bytes, as the serializers of a schema registry write them
    | EF BB BF | JSON | NUL, spaces |    lenient: a byte order mark, and what was meant to be nothing

Lenient values may hold NaN, Infinity and -Infinity, and strings may hold bytes that are not UTF-8. Nothing is
judged by either: as an id or a sequence the former are numbers that cannot be compared, and two of the latter
that look alike need not be meant alike. Invariant: what is read begins later or ends earlier than the value,
and is its own bytes: positions stay those of the record, which is forwarded as it came.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NONE, AUTO, REGISTRY = range(3)
"""Framing: never; where a value begins with byte 0, which JSON does not; always."""
PREFIX_BYTES = 5
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonRules(NamedTuple):
    """How values are read.

    Attributes:
        lenient: Whether what is no JSON by RFC 8259 is forgiven, as far as it says nothing that is judged.
        framing: What stands before the JSON.
    """

    lenient: bool = False
    framing: int = NONE

    def text(self, value: bytes) -> str:
        """Return a value's JSON for a parser of Python's, which takes NaN and Infinity where `lenient` does.

        Bytes that are not UTF-8 are there as half surrogates.

        Raises:
            ValueError: They are not forgiven, or a value lacks the five bytes.
        """
        if self.framing != NONE and len(value) >= PREFIX_BYTES and value[0] == 0:
            value = value[PREFIX_BYTES:]
        elif self.framing == REGISTRY:
            raise ValueError("the five bytes of a schema registry are missing")
        if not self.lenient:
            return value.decode()
        return value.removeprefix(BYTE_ORDER_MARK).rstrip(b"\0 \t\n\r").decode(errors="surrogateescape")


def unframed(value: bytes) -> bytes:
    """Return a JSON object without the five bytes that stand before it; anything else as it is."""
    body = value[PREFIX_BYTES:] if value[:1] == b"\0" else b""
    return body if body.lstrip()[:1] == b"{" else value


BARE = JsonRules()
"""Strict, with nothing before it: what we write ourselves, and rows at rest."""


class JsonKind(IntEnum):
    """What a pointer leads to; values of the ``kind`` columns (uint8)."""

    MISSING = 0
    NULL = 1
    FALSE = 2
    TRUE = 3
    INTEGER = 4
    """A number without fraction and exponent."""
    DECIMAL = 5
    """Any other number."""
    STRING = 6
    """A string whose bytes are its text."""
    ESCAPED = 7
    """A string with escapes: `json_text.unescape` gives its text."""
    OBJECT = 8
    ARRAY = 9
    NOT_FINITE = 10
    """NaN, Infinity or -Infinity: a number that cannot be compared. Of lenient values only, as the next one."""
    NOT_UTF8 = 11
    """A string with bytes that are not UTF-8, maybe with escapes."""
    NOT_JSON = 12
    """Of a pointer through a string: what is there is no string, or holds no JSON."""


class JsonMatches(NamedTuple):
    """What K pointers found in n values.

    A string's span is what stands between its quotes, escapes as written; all others are whole tokens. Where
    nothing was found, start and length are 0.

    Attributes:
        fault: uint8[n], a `Fault` code: none, ``value_missing``, ``value_malformed`` or ``value_not_json``.
        kind: uint8[K, n], `JsonKind` values; all missing where there is a fault.
        start: int64[K, n], positions in the data.
        length: int64[K, n], bytes.
    """

    fault: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
