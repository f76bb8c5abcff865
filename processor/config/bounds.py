"""A config is nested no deeper, is no longer and has no more in it than what walks through it can follow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_BYTES = 1_000_000
"""Of a file; a hundred pipelines with all their keys have a tenth of it."""
MOST_DEPTH = 100
"""Of tables and lists within each other; the deepest key that there is lies at a tenth of it."""
TOO_DEEP = f"is nested too deeply: at most {MOST_DEPTH} tables and lists within each other"
MOST_VALUES = 10_000
"""Keys and elements of lists in a file; a hundred pipelines with all their keys have half of it. Each that is
wrong is a problem with its place: so many are looked up in seconds."""
TOO_MANY = f"has too much in it: at most {MOST_VALUES:,} keys and elements of lists"

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
# Where a key may begin: Python's reader takes time by the square of its parts.
_DEEP_KEY = re.compile(rf"(?:^|[\[{{,])[ \t]*(?:{_PART}[ \t]*\.[ \t]*){{{MOST_DEPTH + 1}}}", re.MULTILINE)


class OutOfBoundsError(Exception):
    """A text has more in it, or deeper, than a config has; its message says so of the text."""


def within_bounds(parse: Callable[[str], Any], text: str) -> Any:
    """Return the value of a text.

    Raises:
        OutOfBoundsError: It is nested too deeply, or there is too much in it.
    """
    if _DEEP_KEY.search(text):
        raise OutOfBoundsError(TOO_DEEP)
    try:
        value = parse(text)
    except RecursionError:
        raise OutOfBoundsError(TOO_DEEP) from None
    below, values = [value], 0
    for _ in range(MOST_DEPTH + 1):
        level = [each for each in below if isinstance(each, (dict, list))]
        if not level:
            return value
        below = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
        values += len(below)
        if values > MOST_VALUES:
            raise OutOfBoundsError(TOO_MANY)
    raise OutOfBoundsError(TOO_DEEP)
