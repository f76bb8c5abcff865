"""Writes fields into a JSON value so that pointers lead to them.

    pointer /meta/seq          {...the click..., "meta": {"seq": 17}}
    pointer /meta/counts/2     {...the click..., "meta": {"counts": [null, null, 17]}}
    pointer /a~1b              {...the click..., "a/b": 17}
    pointer /data|/seq         {...the click..., "data": "a JSON text with seq"}

The click's own members stay as they are, so a pointer may not begin with one of their names. A step that is a
number makes an array where it is small and nothing else stands beside it; an object's member of that name
answers to the same pointer (RFC 6901).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from processor.errors import ConfigError, Problem
from schemas.events import ClickEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_ELEMENTS = 16
"""Of an array: the elements before the wanted one are filled with null, in every record."""
DEEPEST = 128
"""Nested objects and arrays that the contract allows in a value; the pointer's steps make as many."""
_INDICES = frozenset(map(str, range(MOST_ELEMENTS)))
_OWN = tuple(ClickEvent.model_fields)

_Node = dict[str, "_Node | int"]


class Fields:
    """The text behind a click's members in which each pointer finds its field.

    Args:
        pointers: As the config has them, with the keys they stand under there, for messages.

    Raises:
        ConfigError: A pointer cannot be made to fit.
    """

    def __init__(self, pointers: Sequence[tuple[str, str]]) -> None:
        tree: _Node = {}
        inside: dict[str, list[int]] = {}
        for slot, (_, pointer) in enumerate(pointers):
            if "|/" in pointer:
                inside.setdefault(pointer.partition("|/")[0], []).append(slot)
        # The JSON of a string is a field of its own, behind all others.
        self._inside = []
        outside = [(*each, slot) for slot, each in enumerate(pointers) if "|/" not in each[1]]
        for number, (head, slots) in enumerate(inside.items()):
            outside.append((pointers[slots[0]][0], head, len(pointers) + number))
            within = [(pointers[slot][0], "/" + pointers[slot][1].partition("|/")[2]) for slot in slots]
            self._inside.append((slots, Fields(within)))
        for key, pointer, slot in outside:
            taken = f"{pointer} and another pointer of this pipeline lead to or through the same field"
            _place(tree, _steps(key, pointer), slot, Problem(key, taken))
        written: list[bytes | int] = []
        for name, below in tree.items():
            written += [b"," + orjson.dumps(name) + b":", *_written(below)]
        self._slots = [part for part in written if isinstance(part, int)]
        texts = (b"%b" if isinstance(part, int) else part.replace(b"%", b"%%") for part in written)
        self._text = b"".join(texts) + b"}"

    def put(self, value: bytes, shown: Sequence[bytes]) -> bytes:
        """Return a click's ``value`` with ``shown``, one JSON text per pointer, where the pointers lead."""
        inside = (fields.put(b'{"json":1}', [shown[slot] for slot in slots]) for slots, fields in self._inside)
        every = [*shown, *(orjson.dumps(each.decode()) for each in inside)]
        return value[:-1] + self._text % tuple(every[slot] for slot in self._slots)


def _steps(key: str, pointer: str) -> list[str]:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]
    wrong = ""
    if not pointer:
        wrong = "is the whole value: it would be no click any more; name a field of it"
    elif len(steps) > DEEPEST:
        wrong = f"has {len(steps)} steps, a value may be nested {DEEPEST} deep"
    elif steps[0] in _OWN:
        wrong = (
            f"{pointer} leads into {steps[0]}, which generated clicks fill themselves; for generated streams a "
            f"pointer begins with another name than {', '.join(_OWN)}"
        )
    if wrong:
        raise ConfigError([Problem(key, wrong)])
    return steps


def _place(tree: _Node, steps: list[str], slot: int, taken: Problem) -> None:
    node = tree
    for step in steps[:-1]:
        below = node.setdefault(step, {})
        if isinstance(below, int):
            raise ConfigError([taken])
        node = below
    if steps[-1] in node:
        raise ConfigError([taken])
    node[steps[-1]] = slot


def _written(node: _Node | int) -> list[bytes | int]:
    """Return JSON with a slot's number in its place."""
    if isinstance(node, int):
        return [node]
    written: list[bytes | int] = []
    if node.keys() <= _INDICES:
        by_index = {int(step): below for step, below in node.items()}
        for index in range(max(by_index) + 1):
            written.append(b"," if index else b"[")
            written += _written(by_index[index]) if index in by_index else [b"null"]
        return [*written, b"]"]
    for step, below in node.items():
        written.append((b"," if written else b"{") + orjson.dumps(step) + b":")
        written += _written(below)
    return [*written, b"}"]
