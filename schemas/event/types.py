"""The kinds of fields that an event can have, in words that are neither pydantic's nor Spark's.

Types are values: frozen, compared by what they hold. ``nullable`` says whether a reader may find null there:
because null is allowed, or because the field may be absent and has no default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """What every type has."""

    nullable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextType(FieldType):
    """A JSON string."""

    values: tuple[str, ...] | None = None
    """The only ones there are, of an enum or a literal; None: any."""
    pattern: str | None = None
    """What the whole text must match, as a regular expression that Java and Python read alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoolType(FieldType):
    """True or false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntType(FieldType):
    """A JSON integer within 64 bits, signed."""

    least: int = INT64_MIN
    most: int = INT64_MAX
    values: tuple[int, ...] | None = None
    """The only ones there are, of an enum or a literal; None: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatType(FieldType):
    """A JSON number, as an IEEE double."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecimalType(FieldType):
    """A number that is kept exactly, as a JSON string or number."""

    precision: int
    """Digits in all, at most 38."""
    scale: int
    """Of them behind the point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampType(FieldType):
    """A point in time, to the microsecond."""

    zone: Literal["required", "optional", "none"] = "required"
    """Whether a text has to say its zone. Where it may and does not, it is taken for UTC; ``none``: a time of
    a wall clock somewhere, no point in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DateType(FieldType):
    """A day of the calendar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListType(FieldType):
    """A JSON array."""

    element: FieldType
    length: int | None = None
    """How many elements there must be; None: any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapType(FieldType):
    """A JSON object whose keys are data."""

    value: FieldType


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A field of an object."""

    type: FieldType
    required: bool = True
    """It must be there."""
    null_allowed: bool = False
    """It may be a JSON null. Absent and null differ where there is a default."""
    default: str | None = None
    """What an absent one is read as, as JSON; None: as null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectType(FieldType):
    """A JSON object whose keys are known."""

    members: Mapping[str, Member]
    """By their name in JSON, in the model's order."""
    closed: bool = False
    """Other keys are an error."""


Scalar = TextType | BoolType | IntType | FloatType | DecimalType | TimestampType | DateType


def describe(kind: FieldType) -> str:
    """Return a type in a word or two, for messages."""
    match kind:
        case DecimalType(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case TimestampType(zone="none"):
            return "time without a zone"
        case ListType(element=element):
            return f"list of {describe(element)}"
        case MapType(value=value):
            return f"dict of {describe(value)}"
        case _:
            return _WORDS[type(kind)]


_WORDS: Mapping[type[FieldType], str] = {
    TextType: "string",
    BoolType: "bool",
    IntType: "int",
    FloatType: "float",
    TimestampType: "timestamp",
    DateType: "date",
    ObjectType: "object",
}
