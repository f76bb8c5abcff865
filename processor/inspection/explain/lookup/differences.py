"""Says in which fields two records differ: by JSON pointer, or as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from processor.inspection.explain.story import ShownRecord

MOST_NAMED = 20
"""Fields; of more it is said how many there are."""
MOST_COMPARED_BYTES = 4 * 1024 * 1024
_MOST_LEAVES = 100_000
_ABSENT = object()


def differences(one: ShownRecord, other: ShownRecord) -> tuple[str, ...]:
    """Return in what two records differ, their timestamps aside; empty: they have the same bytes."""
    found = ["key"] if one.key != other.key else []
    if one.value != other.value:
        found += _of_values(one.value, other.value)
    if one.headers != other.headers:
        found += _of_headers(dict(one.headers), dict(other.headers))
    if len(found) > MOST_NAMED:
        found = [*found[:MOST_NAMED], f"and {len(found) - MOST_NAMED:,} more"]
    return tuple(found)


def _of_headers(one: dict[bytes, bytes | None], other: dict[bytes, bytes | None]) -> list[str]:
    """Return the headers that differ; of several of one name the last counts."""
    names = [
        name for name in dict.fromkeys([*one, *other]) if one.get(name, _ABSENT) != other.get(name, _ABSENT)
    ]
    return [f"header {name.decode(errors='backslashreplace')}" for name in names] or [
        "order or number of headers"
    ]


def _of_values(one: bytes | None, other: bytes | None) -> list[str]:
    if one is None or other is None or max(len(one), len(other)) > MOST_COMPARED_BYTES:
        return ["value"]
    try:
        left, right = _leaves(orjson.loads(one)), _leaves(orjson.loads(other))
    except (orjson.JSONDecodeError, ValueError, RecursionError):
        return ["value"]
    names = [at for at in dict.fromkeys([*left, *right]) if left.get(at, _ABSENT) != right.get(at, _ABSENT)]
    return names or ["value (the order of its members, or its spaces)"]


def _leaves(value: Any) -> dict[str, Any]:
    """Return the leaves of a value by their pointers; of numbers and booleans also of which type they are."""
    found: dict[str, Any] = {}
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        at, each = left.pop()
        if isinstance(each, dict) and each:
            left += [(f"{at}/{_escaped(name)}", below) for name, below in reversed(each.items())]
        elif isinstance(each, list) and each:
            left += [(f"{at}/{number}", below) for number, below in reversed(list(enumerate(each)))]
        else:
            found[at or "value"] = type(each), each
        if len(found) + len(left) > _MOST_LEAVES:
            raise ValueError
    return found


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
