"""Joins several types into one that reads each of them exactly, where nothing has to be guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.event.types import DecimalType, FieldType, FloatType, IntType, TextType

if TYPE_CHECKING:
    from collections.abc import Sequence

# Digits of a 64-bit integer.
_INT_DIGITS = 19


def nullable(kind: FieldType, *, or_else: bool) -> FieldType:
    """Return the type, nullable where it is so already or ``or_else`` says so."""
    return replace(kind, nullable=kind.nullable or or_else)


def one_type(kinds: Sequence[FieldType]) -> FieldType | None:
    """Return the type that reads all of a union's; None: none does without a guess.

    Strings read literals and enums of strings. A double reads ints as other JSON readers do: beyond 2**53 the
    nearest. A decimal reads ints where it has room for 64 bits before the point.
    """
    null = any(kind.nullable for kind in kinds)
    plain = [replace(kind, nullable=False) for kind in kinds]
    if not plain:
        return None
    if all(kind == plain[0] for kind in plain):
        return nullable(plain[0], or_else=null)
    found = _texts(plain) or _ints(plain) or _numbers(plain)
    return found and nullable(found, or_else=null)


def _texts(kinds: Sequence[FieldType]) -> FieldType | None:
    texts = [kind for kind in kinds if isinstance(kind, TextType)]
    if len(texts) < len(kinds):
        return None
    if any(kind.values is None for kind in texts):
        return TextType(pattern=None)
    return TextType(values=tuple(dict.fromkeys(value for kind in texts for value in kind.values or ())))


def _ints(kinds: Sequence[FieldType]) -> FieldType | None:
    ints = [kind for kind in kinds if isinstance(kind, IntType)]
    if len(ints) < len(kinds):
        return None
    if all(kind.values is not None for kind in ints):
        return IntType(values=tuple(dict.fromkeys(value for kind in ints for value in kind.values or ())))
    return IntType(least=min(_least(kind) for kind in ints), most=max(_most(kind) for kind in ints))


def _least(kind: IntType) -> int:
    return min(kind.values) if kind.values else kind.least


def _most(kind: IntType) -> int:
    return max(kind.values) if kind.values else kind.most


def _numbers(kinds: Sequence[FieldType]) -> FieldType | None:
    rest = [kind for kind in kinds if not isinstance(kind, IntType)]
    if not rest or any(kind != rest[0] for kind in rest):
        return None
    if isinstance(rest[0], FloatType):
        return FloatType()
    if isinstance(rest[0], DecimalType):
        return rest[0] if rest[0].precision - rest[0].scale >= _INT_DIGITS else None
    return None
