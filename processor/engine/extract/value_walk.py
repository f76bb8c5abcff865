"""Reads of values what an id and a fingerprint are made of, in as few walks over them as can be.

Pointers are followed and content is hashed in one walk. A second walk is made only for content that leaves out
something else; none at all where nothing but bytes is hashed. What pointers through strings lead to is found in
a walk over the text of each such string, which is written down for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.extract.json_content import Content, content_key, hash_bytes
from processor.engine.extract.json_matches import BARE, NONE, JsonKind
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.json_text import plain_texts
from processor.engine.extract.pointers import Pointers, through_strings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.json_matches import JsonRules


class ContentOf(NamedTuple):
    """What of a value counts as its content.

    Attributes:
        exclude: JSON pointers (RFC 6901) to what does not, with all below it.
        as_bytes: The value as it stands counts, which need not be JSON.
    """

    exclude: tuple[str, ...] = ()
    as_bytes: bool = False


WHOLE = ContentOf()


class PointerMatch(NamedTuple):
    """What one pointer found in n values, as `JsonMatches` says it, and uint8[m], what it stands in."""

    data: NDArray[np.uint8]
    fault: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    start: NDArray[np.int64]
    length: NDArray[np.int64]


class PointerWalk:
    """Follows pointers, also through JSON in strings.

    Args:
        pointers: Several may be equal.
        beside: Further ones, which lead to what content leaves out; through no string.
        rules: How values are read; what stands in a string has nothing before it.

    Raises:
        ValueError: A pointer that is none, or too many for one walk.
    """

    def __init__(self, pointers: Sequence[str], beside: Sequence[str] = (), rules: JsonRules = BARE) -> None:
        self._rules = rules
        steps = [through_strings(each) for each in pointers]
        heads = list(dict.fromkeys(head for head, *_ in steps))
        self.looked_up = len(heads)
        self._compiled = Pointers.of([*heads, *beside])
        self._head = [heads.index(head) for head, *_ in steps]
        inside: dict[int, list[int]] = {}
        for number, (_, *inner) in enumerate(steps):
            if inner:
                inside.setdefault(self._head[number], []).append(number)
        within = rules._replace(framing=NONE)
        self._inside = [
            (head, which, PointerWalk(["|".join(steps[number][1:]) for number in which], (), within))
            for head, which in inside.items()
        ]

    def read(
        self,
        data: NDArray[np.uint8],
        value: NDArray[np.int64],
        value_length: NDArray[np.int64],
        content: Content | None = None,
    ) -> tuple[NDArray[np.uint8], list[PointerMatch]]:
        """Return uint8[n], the `Fault` codes of values, and what each pointer found; as `look_up`."""
        fault, kinds, starts, lengths = look_up(data, value, value_length, self._compiled, content, self._rules)
        found = [PointerMatch(data, fault, kinds[head], starts[head], lengths[head]) for head in self._head]
        for head, which, walk in self._inside:
            kind = kinds[head]
            # What of a text is not UTF-8 may be beside what is looked for.
            escaped = (kind == JsonKind.ESCAPED) | (kind == JsonKind.NOT_UTF8)
            there = escaped | (kind == JsonKind.STRING)
            wrong, below = walk.read(*plain_texts(data, starts[head], lengths[head], there, escaped))
            # Missing and null stay what they are.
            odd = np.where(kind <= JsonKind.NULL, kind, np.uint8(JsonKind.NOT_JSON))
            for number, each in zip(which, below, strict=True):
                found[number] = each._replace(fault=fault, kind=np.where(wrong == 0, each.kind, odd))
        return fault, found


class Walked(NamedTuple):
    """What was read of n values.

    Attributes:
        fault: uint8[n], of those that are not JSON; None where they need not be.
        found: By pointer.
        hashes: By content, uint64[n, 2]; zeros where there is no value, or it is not JSON.
    """

    fault: NDArray[np.uint8] | None
    found: list[PointerMatch]
    hashes: list[NDArray[np.uint64]]


class ValueWalk:
    """Reads values.

    Args:
        pointers: What is looked up.
        contents: What is hashed.
        secret: uint64[2], the key of the ids' hash.
        rules: How the values are read.

    Raises:
        ValueError: A pointer that is none, or too many for one walk.
    """

    def __init__(
        self,
        pointers: Sequence[str],
        contents: Sequence[ContentOf],
        secret: NDArray[np.uint64],
        rules: JsonRules = BARE,
    ) -> None:
        self.key, self._rules = content_key(secret), rules
        self._contents = tuple(contents)
        parsed = list(dict.fromkeys(each for each in contents if not each.as_bytes))
        # By walk: what it hashes, if anything; the first one follows the pointers.
        first = parsed[0] if parsed else None
        self._walks: list[tuple[ContentOf | None, PointerWalk]] = []
        if pointers or parsed:
            self._walks.append((first, PointerWalk(pointers, first.exclude if first else (), rules)))
        self._walks += [(each, PointerWalk([], each.exclude, rules)) for each in parsed[1:]]

    def read(self, columns: Columns) -> Walked:
        """Return what the pointers lead to, and of each content its hashes."""
        data, value, length = columns.data, columns.value, columns.value_length
        hashes = {each: np.zeros((len(columns), 2), np.uint64) for each in self._contents}
        fault, found = None, list[PointerMatch]()
        before = np.zeros(len(columns), np.uint8)
        for content, walk in reversed(self._walks):
            into = None if content is None else Content(walk.looked_up, self.key, hashes[content])
            fault, found = walk.read(data, value, length, into)
            # What is not UTF-8 and left out of one content counts in another.
            before = np.maximum(before, fault, out=fault)
        for content, out in hashes.items():
            if content.as_bytes:
                hash_bytes(data, value, length, Content(0, self.key, out))
        return Walked(fault, found, [hashes[each] for each in self._contents])
