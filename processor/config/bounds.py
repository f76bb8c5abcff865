"""A config is nested no deeper, and is no longer, than what walks through it can follow."""

from __future__ import annotations

from typing import Any

MOST_BYTES = 1_000_000
"""Of a file; a hundred pipelines with all their keys have a tenth of it."""
MOST_DEPTH = 100
"""Of tables and lists within each other; the deepest key that there is lies at a tenth of it."""
TOO_DEEP = f"is nested too deeply: at most {MOST_DEPTH} tables and lists within each other"


def within_depth(value: Any) -> Any:
    """Return a value that was read.

    Raises:
        RecursionError: It is nested too deeply, as its reader raises where it cannot follow.
    """
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        level = [below for each in level for below in _inside(each)]
        if not level:
            return value
    raise RecursionError


def _inside(value: Any) -> list[Any]:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [each for each in below if isinstance(each, (dict, list))]
