"""What JSON pointers find in values."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


class JsonMatches(NamedTuple):
    """What K pointers found in n values.

    A string's span is what stands between its quotes, escapes as written; all others are whole tokens. Where
    nothing was found, start and length are 0.

    Attributes:
        fault: uint8[n], a `Fault` code: none, ``value_missing`` or ``value_not_json``.
        kind: uint8[K, n], `JsonKind` values; all missing where there is a fault.
        start: int64[K, n], positions in the data.
        length: int64[K, n], bytes.
    """

    fault: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
