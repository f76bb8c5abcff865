"""Compiles JSON pointers (RFC 6901) for `processor.engine.extract.json_scan`.

A pointer may go through strings that hold JSON, ``|`` before each step into one: ``/data|/uuid``, or ``|/uuid``
where the whole value is such a string. A ``|`` that no ``/`` follows is a letter of a name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MOST_POINTERS = 62
"""A set of pointers is the bits of an int64: all of them together stay positive."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
"""An array index of RFC 6901; 18 digits always fit an int64, and no array has more elements."""

_INTO = re.compile(r"\|(?=\|*/)")


class Pointers(NamedTuple):
    """JSON pointers as kernels read them; K pointers of T tokens in all.

    Attributes:
        text: uint8[m], the tokens' text, unescaped, UTF-8, one after the other.
        cut: int64[T + 1], token t is ``text[cut[t]:cut[t + 1]]``.
        first: int64[K + 1], pointer p has the tokens ``first[p]`` to ``first[p + 1]``.
        element: int64[T], the array index that a token names; -1: none (``-`` included).
    """

    text: NDArray[np.uint8]
    cut: NDArray[np.int64]
    first: NDArray[np.int64]
    element: NDArray[np.int64]

    @classmethod
    def of(cls, pointers: Sequence[str]) -> Pointers:
        """Compile pointers; ``""`` is the whole value.

        Raises:
            ValueError: Too many, or one that is no JSON pointer.
        """
        if len(pointers) > MOST_POINTERS:
            raise ValueError(f"{len(pointers)} JSON pointers for one value, at most {MOST_POINTERS} are read")
        paths = [_tokens(pointer) for pointer in pointers]
        tokens = [token for path in paths for token in path]
        encoded = [token.encode() for token in tokens]
        index = [int(token) if _INDEX.fullmatch(token) else -1 for token in tokens]
        return cls(
            np.frombuffer(b"".join(encoded), np.uint8),
            np.cumsum([0, *map(len, encoded)], dtype=np.int64),
            np.cumsum([0, *map(len, paths)], dtype=np.int64),
            np.array(index, np.int64),
        )


def through_strings(pointer: str) -> tuple[str, ...]:
    """Return the pointers that a pointer through strings is made of, one per JSON text."""
    return tuple(_INTO.split(pointer))


def parent_and_name(pointer: str) -> tuple[str, str]:
    """Return the pointer to what an object's member is in, and the member's name.

    Raises:
        ValueError: It is no JSON pointer, or leads to the whole value, which is no member.
    """
    tokens = _tokens(pointer)
    if not tokens:
        raise ValueError("the whole value is no member of an object")
    return pointer.rpartition("/")[0], tokens[-1]


def _tokens(pointer: str) -> list[str]:
    start, *tokens = pointer.split("/")
    if start or re.search(r"~(?![01])", pointer):
        raise ValueError(f"{pointer!r} is no JSON pointer: / before each step, ~1 for / and ~0 for ~")
    # In this order, so that ~01 is ~1 and not / (RFC 6901, section 4).
    return [token.replace("~1", "/").replace("~0", "~") for token in tokens]
