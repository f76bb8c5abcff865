"""Reads what scopes a record's sequence, or says why it has none.

A key or a header alone is a scope as it stands. Other scopes are text: the JSON of their part, or a JSON list
of several, so that no two lists of parts are one scope, and a number and a string are two::

    "gateway-7"        17        ["gateway-7",17,true]        {"base64":"/w=="}   bytes that are no text
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from typing_extensions import override

from processor.engine.bytes.varints import put_bytes
from processor.engine.extract.id_lists import put_part
from processor.engine.extract.json_matches import BARE, JsonRules
from processor.engine.extract.normalise import IdTextForm, Normal, normalised
from processor.engine.extract.parts import pointers_of, pooled, read_parts
from processor.engine.extract.sequence import header_values
from processor.engine.extract.value_walk import PointerWalk, Walked
from processor.engine.jit import Int, kernel
from processor.engine.verdict import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.parts import Part

    Scopes = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]

MOST_SCOPE_BYTES = 64 * 1024
"""A longer scope is a fault of its record: a scope is state, and one record of the changelog has to hold it."""


class ScopeExtractor(Protocol):
    """What scopes a record's sequence."""

    def extract(self, columns: Columns) -> Scopes:
        """Return data uint8[m], begin int64[n] and size int64[n] in it, and fault uint8[n] (`Fault` codes)."""
        ...


@dataclass(frozen=True, slots=True)
class PartitionScope(ScopeExtractor):
    """All records of a partition have one scope: the empty one."""

    @override
    def extract(self, columns: Columns) -> Scopes:
        rows = len(columns)
        return columns.data, np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.uint8)


@dataclass(frozen=True, slots=True)
class KeyScope(ScopeExtractor):
    """The record's key; null, or above `MOST_SCOPE_BYTES`, it cannot be judged; an empty one is a scope."""

    @override
    def extract(self, columns: Columns) -> Scopes:
        fault = np.where(columns.key_length < 0, np.uint8(Fault.KEY_MISSING), np.uint8(0))
        fault[columns.key_length > MOST_SCOPE_BYTES] = Fault.SCOPE_TOO_LARGE
        return columns.data, columns.key, np.maximum(columns.key_length, 0), fault


@dataclass(frozen=True, slots=True)
class HeaderScope(ScopeExtractor):
    """A header's bytes, at most `MOST_SCOPE_BYTES`; of several the last counts, and empty ones are scopes.

    Args:
        name: The header's name, UTF-8 bytes, compared byte for byte.
    """

    name: bytes

    @override
    def extract(self, columns: Columns) -> Scopes:
        at, size, fault = header_values(columns.data, columns.table, np.frombuffer(self.name, np.uint8))
        # Where there is another fault the span is empty.
        fault[size > MOST_SCOPE_BYTES] = Fault.SCOPE_TOO_LARGE
        return columns.data, at, size, fault


@dataclass(frozen=True, slots=True)
class PartsScope(ScopeExtractor):
    """Parts as those of ids, as JSON text of at most `MOST_SCOPE_BYTES`.

    Args:
        parts: At least one; none is content. Where it is one it stands there without a list.
        rules: How values are read.

    Raises:
        ValueError: A pointer that is none, or too many.
    """

    parts: Sequence[Part]
    rules: JsonRules = BARE
    _walk: PointerWalk | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pointers = pointers_of(self.parts)
        object.__setattr__(self, "_walk", PointerWalk(pointers, rules=self.rules) if pointers else None)

    @override
    def extract(self, columns: Columns) -> Scopes:
        walked = Walked(None, [], [])
        if self._walk is not None:
            where = columns.value, columns.value_length
            walked = Walked(*self._walk.read(columns.data, *where), [])
        made = read_parts(self.parts, columns, walked)
        # Without escapes: however a text is written, it is one scope.
        data, form, begin, length = pooled([normalised(each.texts, Normal.NONE) for each in made])
        fault = np.zeros(len(columns), np.uint8)
        for _, wrong, _ in made:
            np.copyto(fault, wrong, where=fault == 0)
        fault[(fault == 0) & (length.sum(axis=0) > MOST_SCOPE_BYTES)] = Fault.SCOPE_TOO_LARGE
        at, size = np.zeros((2, len(columns)), np.int64)
        # Each byte may be a control character; around a part stand quotes, a comma, at most base64's object.
        most = 6 * length[:, fault == 0].sum() + int((fault == 0).sum()) * (2 + 24 * len(made))
        out = np.empty(int(most), np.uint8)
        _write(data, form, begin, length, fault, out, at, size)
        fault[size > MOST_SCOPE_BYTES] = Fault.SCOPE_TOO_LARGE
        return out, at, size, fault


_NUMBER, _BOOLEAN = int(IdTextForm.NUMBER), int(IdTextForm.BOOLEAN)


@kernel
def _write(
    data: NDArray[np.uint8],
    form: NDArray[np.uint8],
    begin: NDArray[np.int64],
    length: NDArray[np.int64],
    fault: NDArray[np.uint8],
    out: NDArray[np.uint8],
    at: NDArray[np.int64],
    size: NDArray[np.int64],
) -> None:
    parts = form.shape[0]
    to: Int = 0
    for row in range(fault.size):
        if fault[row] != 0:
            continue
        at[row] = to
        for k in range(parts):
            if parts > 1:
                out[to] = np.uint8(91) if k == 0 else np.uint8(44)
                to += 1
            if form[k, row] == _NUMBER or form[k, row] == _BOOLEAN:
                to = np.int64(put_bytes(out, to, data, begin[k, row], length[k, row]))
            else:
                to = np.int64(put_part(out, to, data, begin[k, row], length[k, row]))
        if parts > 1:
            out[to] = np.uint8(93)
            to += 1
        size[row] = to - at[row]
