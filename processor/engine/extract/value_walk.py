"""Reads of values what an id and a fingerprint are made of, in as few walks over them as can be.

Pointers are followed and content is hashed in one walk. A second walk is made only for content that leaves out
something else; none at all where nothing but bytes is hashed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.extract.json_content import Content, content_key, hash_bytes
from processor.engine.extract.json_scan import look_up
from processor.engine.extract.pointers import Pointers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.engine.extract.json_matches import JsonMatches


class ContentOf(NamedTuple):
    """What of a value counts as its content.

    Attributes:
        exclude: JSON pointers (RFC 6901) to what does not, with all below it.
        as_bytes: The value as it stands counts, which need not be JSON.
    """

    exclude: tuple[str, ...] = ()
    as_bytes: bool = False


WHOLE = ContentOf()


class ValueWalk:
    """Reads values.

    Args:
        pointers: What is looked up.
        contents: What is hashed.
        secret: uint64[2], the key of the ids' hash.

    Raises:
        ValueError: A pointer that is none, or too many for one walk.
    """

    def __init__(
        self, pointers: Sequence[str], contents: Sequence[ContentOf], secret: NDArray[np.uint64]
    ) -> None:
        self.key = content_key(secret)
        self._contents = tuple(contents)
        parsed = list(dict.fromkeys(each for each in contents if not each.as_bytes))
        # By walk: what it hashes, if anything; its pointers, those that are looked up first.
        first = [*pointers, *(parsed[0].exclude if parsed else ())]
        self._walks = (
            [(parsed[0] if parsed else None, len(pointers), Pointers.of(first))] if first or parsed else []
        )
        self._walks += [(each, 0, Pointers.of(each.exclude)) for each in parsed[1:]]

    def read(self, columns: Columns) -> tuple[JsonMatches | None, list[NDArray[np.uint64]]]:
        """Return what the pointers lead to, and of each content its hashes.

        Returns:
            None where no value has to be JSON; uint64[n, 2] each, zeros where there is no value, or not JSON.
        """
        data, value, length = columns.data, columns.value, columns.value_length
        hashes = {each: np.zeros((len(columns), 2), np.uint64) for each in self._contents}
        found = None
        for content, looked_up, pointers in reversed(self._walks):
            into = None if content is None else Content(looked_up, self.key, hashes[content])
            found = look_up(data, value, length, pointers, into)
        for content, out in hashes.items():
            if content.as_bytes:
                hash_bytes(data, value, length, Content(0, self.key, out))
        return found, [hashes[each] for each in self._contents]
