"""Says what a field of an event has to be."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


class FieldKind(IntEnum):
    """What a field's column holds."""

    TEXT = 0
    BOOL = 1
    INT = 2
    FLOAT = 3
    DECIMAL = 4
    """A number times ten to the power of its places, 128 bits."""
    DATE = 5
    """Days since 1970."""
    TIMESTAMP = 6
    """Microseconds since 1970."""


class FieldRule(NamedTuple):
    """A member of the value's outermost object.

    Attributes:
        name: Its name in JSON.
        kind: What the column holds.
        required: It must be there.
        null_allowed: It may be null. Absent and null differ where there is a default.
        default: What an absent one is read as, as JSON; None: as null.
        values: The only texts or ints there are; None: any.
        pattern: What the whole text must match.
        least: Of an int.
        most: Of an int.
        precision: Digits of a decimal, at most 38.
        scale: Of them behind the point.
        zone: Of a time: whether its text has to say a zone (``required``), may (``optional``: UTC where it does
            not) or must not (``none``).
    """

    name: str
    kind: FieldKind
    required: bool = True
    null_allowed: bool = False
    default: str | None = None
    values: tuple[str, ...] | tuple[int, ...] | None = None
    pattern: str | None = None
    least: int = INT64_MIN
    most: int = INT64_MAX
    precision: int = 38
    scale: int = 0
    zone: str = "required"
