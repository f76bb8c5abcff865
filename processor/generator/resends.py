"""Writes the values of copies in another way than their originals: content is the same, bytes are not.

A producer that makes its JSON again when it sends again may turn members round, escape strings, put spaces, and
has another time of sending. By a fingerprint of the value all of these are resends.

Invariant: what is written of a record follows from its place in the partition alone, however it is read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.generator.marks import Record

# A style's bits; with neither of the first two a copy is its original byte for byte.
_TURNED, _SENT_LATER, _ESCAPED, _SPACED, _LEFT_OUT = 1, 2, 4, 8, 16
_STYLES = 64


class Resends:
    """How each record of a partition is written.

    Args:
        rng: Drawn from.
        again: bool[n], which records are copies whose value may be written otherwise.
        excluded: JSON pointers to what does not count, and stands in each of these values.
    """

    def __init__(self, rng: np.random.Generator, again: NDArray[np.bool_], excluded: Sequence[str]) -> None:
        may = _STYLES - 1 if excluded else _STYLES - 1 - _SENT_LATER
        self._style = np.where(again, rng.integers(0, _STYLES, again.size) & may, 0).astype(np.uint8)
        self._excluded = [
            [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]
            for pointer in excluded
        ]

    def written(self, records: list[Record], start: int) -> list[Record]:
        """Return records as they are sent, from record ``start`` of the partition on."""
        for at, style in enumerate(self._style[start : start + len(records)].tolist()):
            if style & (_TURNED | _SENT_LATER):
                value = self._value(records[at].value or b"", style, start + at)
                records[at] = records[at]._replace(value=value)
        return records

    def _value(self, value: bytes, style: int, row: int) -> bytes:
        tree = json.loads(value)
        if style & _SENT_LATER:
            for steps in self._excluded:
                _send_later(tree, steps, None if style & _LEFT_OUT else f"resent, {row}")
        if not style & _TURNED:
            return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
        separators = (" ,\n", "\t: ") if style & _SPACED else (", ", ": ")
        written = json.dumps(_turned(tree, row), ensure_ascii=bool(style & _ESCAPED), separators=separators)
        return written.encode()


def _send_later(tree: Any, steps: Sequence[str], text: str | None) -> None:
    """Put another text where pointers lead; None: leave the member out."""
    for step in steps[:-1]:
        tree = tree[int(step)] if isinstance(tree, list) else tree[step]
    if isinstance(tree, list):
        tree[int(steps[-1])] = text
    elif text is None:
        del tree[steps[-1]]
    else:
        tree[steps[-1]] = text


def _turned(tree: Any, by: int) -> Any:
    """Return the same with the members of each object in another order."""
    if isinstance(tree, list):
        return [_turned(each, by) for each in tree]
    if not isinstance(tree, dict):
        return tree
    items = [(name, _turned(each, by)) for name, each in tree.items()]
    first = 1 + by % max(1, len(items) - 1)
    return dict([*items[first:], *items[:first]])
