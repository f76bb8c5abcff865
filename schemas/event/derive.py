"""Derives the type of each field by one walk over a pydantic model's core schema.

The core schema is what pydantic validates by (`pydantic_core.core_schema`): of a validator that runs around a
type, the type inside is what JSON carries. Faults are collected, each with the field's path, so that a model is
mended once.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import PydanticSerializationError, PydanticUndefined, to_json

from schemas.event.types import (
    INT64_MAX,
    INT64_MIN,
    BoolType,
    DateType,
    DecimalType,
    FieldType,
    FloatType,
    IntType,
    ListType,
    MapType,
    Member,
    ObjectType,
    TextType,
    TimestampType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pydantic import BaseModel

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


Schema = dict[str, Any]

# Where a Decimal says no more: Python's own default context has 28 digits, and ten more for sums make 38, the
# most that Spark has.
_DIGITS = 28
_PLACES = 10
_MOST_DIGITS = 38

_HEX = "[0-9a-fA-F]"
# As pydantic reads them from a string: hyphens or none, in braces, or as a URN.
_UUID = (
    rf"(?:urn:uuid:)?{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}|{_HEX}{{32}}"
    rf"|\{{{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}\}}"
)
_TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})?"

# Schemas around another one, and the key that it stands under.
_AROUND = {
    "default": "schema",
    "function-before": "schema",
    "function-after": "schema",
    "function-wrap": "schema",
    "definitions": "schema",
    "json-or-python": "json_schema",
    "lax-or-strict": "lax_schema",
}
# Objects, which may have a name to be referred to by and a config of their own.
_NAMED = {"model", "dataclass", "typed-dict"}
# Types that are text in JSON and are left as it.
_TEXTS = {
    "str": None,
    "url": None,
    "multi-host-url": None,
    "timedelta": None,
    "uuid": _UUID,
    "time": _TIME,
}
_REFUSED = {
    "any": "has no type of its own: name one",
    "bytes": "is bytes, which JSON cannot carry in one way only: use str, and say how it is encoded",
    "json": "is JSON inside a string: declare what is in it as an object of its own",
    "function-plain": "is read by a function of its own: declare a type that JSON has",
    "complex": "is a complex number, which JSON has not",
    "callable": "cannot be read from JSON",
    "is-instance": "cannot be read from JSON",
    "none": "is always null",
}


class _RefusedError(Exception):
    """A type cannot be read; carries why."""


class Derivation:
    """One walk over one model.

    Attributes:
        faults: What cannot be read, after `run`: a path and why.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self.faults: list[str] = []
        self._model = model
        self._definitions: dict[str, Schema] = {}
        self._open: list[str] = []

    def run(self) -> ObjectType | None:
        """Return the model's type; None where there are faults."""
        self._model.model_rebuild()
        # Documented as an attribute of every model; a mapping of plain values.
        schema = cast("Schema", self._model.__pydantic_core_schema__)
        found = self._type(schema, "")
        if found is not None and not isinstance(found, ObjectType):
            self.faults.append(f"{self._model.__name__} is no object in JSON: declare fields")
        return found if isinstance(found, ObjectType) and not self.faults else None

    def _type(self, schema: Schema, path: str) -> FieldType | None:
        """Return the type of a schema; None where it is refused, which has been noted."""
        try:
            return self._derive(schema, path)
        except _RefusedError as refusal:
            self.faults.append(f"{path or self._model.__name__} {refusal}")
            return None

    def _derive(self, schema: Schema, path: str) -> FieldType | None:
        kind = schema["type"]
        if kind == "definitions":
            self._definitions |= {each["ref"]: each for each in schema["definitions"]}
        if kind == "definition-ref":
            return self._derive(self._definitions[schema["schema_ref"]], path)
        if kind in _NAMED and "ref" in schema:
            return self._guarded(schema, path)
        if kind in _AROUND:
            return self._type(schema[_AROUND[kind]], path)
        if kind in _TEXTS:
            return TextType(pattern=_TEXTS[kind])
        if kind not in _DERIVED:
            raise _RefusedError(_REFUSED.get(kind, f"is of a kind that cannot be read here ({kind})"))
        return _DERIVED[kind](self, schema, path)

    def _guarded(self, schema: Schema, path: str) -> FieldType | None:
        ref = schema["ref"]
        if ref in self._open:
            raise _RefusedError("refers to itself: a column has a depth that is known")
        self._open.append(ref)
        try:
            return self._type({key: each for key, each in schema.items() if key != "ref"}, path)
        finally:
            self._open.pop()

    def _configured(self, schema: Schema, path: str) -> FieldType | None:
        found = self._type(schema["schema"], path)
        config = schema.get("config") or {}
        if isinstance(found, ObjectType) and config.get("extra_fields_behavior") == "forbid":
            return replace(found, closed=True)
        return found

    def _typed_dict(self, schema: Schema, path: str) -> FieldType | None:
        found = self._object(schema, path)
        config = schema.get("config") or {}
        closed = config.get("extra_fields_behavior") == "forbid"
        return replace(found, closed=True) if isinstance(found, ObjectType) and closed else found

    def _object(self, schema: Schema, path: str) -> FieldType | None:
        fields = schema["fields"]
        pairs = fields.items() if isinstance(fields, dict) else ((each["name"], each) for each in fields)
        members: dict[str, Member] = {}
        for field, declared in pairs:
            name = _json_name(field, declared)
            below = f"{path}.{name}" if path else name
            if any(known.lower() == name.lower() for known in members):
                self.faults.append(
                    f"{below} differs from another field by case only: columns are not told apart so"
                )
            if "." in name or "`" in name:
                self.faults.append(
                    f"{below} has a dot or a backtick in its name: a path could not tell it apart"
                )
            member = self._member(declared, below)
            if member is not None:
                members[name] = member
        if not fields:
            raise _RefusedError("has no fields")
        return ObjectType(members=members, closed=schema.get("extra_behavior") == "forbid")

    def _member(self, declared: Schema, path: str) -> Member | None:
        schema: Schema = declared["schema"]
        found = self._type(schema, path)
        if found is None:
            return None
        default = _default(schema, self._definitions)
        if default is None:
            required = declared.get("required", True)
            kept = nullable(found, or_else=not required)
            return Member(type=kept, required=required, null_allowed=found.nullable)
        text = default.text
        absent_null = text is None or text == "null"
        return Member(
            type=nullable(found, or_else=absent_null),
            required=False,
            null_allowed=found.nullable,
            default=None if absent_null else text,
        )

    def _list(self, schema: Schema, path: str) -> FieldType | None:
        element = self._type(schema.get("items_schema", {"type": "any"}), f"{path}[]")
        return element and ListType(element=element)

    def _tuple(self, schema: Schema, path: str) -> FieldType | None:
        items = [self._type(each, f"{path}[]") for each in schema["items_schema"]]
        kinds = [each for each in items if each is not None]
        if len(kinds) < len(items):
            return None
        if any(kind != kinds[0] for kind in kinds) or not kinds:
            raise _RefusedError("is a tuple of several types: declare an object")
        variadic = schema.get("variadic_item_index")
        if variadic is not None and len(kinds) > 1:
            raise _RefusedError("is a tuple with a fixed part and a free one: declare a list")
        return ListType(element=kinds[0], length=None if variadic is not None else len(kinds))

    def _dict(self, schema: Schema, path: str) -> FieldType | None:
        keys = self._type(schema.get("keys_schema", {"type": "any"}), f"{path} (its keys)")
        value = self._type(schema.get("values_schema", {"type": "any"}), f"{path}[]")
        if keys is None or value is None:
            return None
        if keys != TextType():
            raise _RefusedError("is a dict whose keys are no plain strings: use dict[str, ...]")
        return MapType(value=value)

    def _union(self, schema: Schema, path: str) -> FieldType | None:
        choices = schema["choices"]
        each = choices.values() if isinstance(choices, dict) else choices
        # A choice may stand with a label.
        schemas = [choice[0] if isinstance(choice, tuple) else choice for choice in each]
        null = any(choice["type"] == "none" for choice in schemas)
        kinds = [self._type(choice, path) for choice in schemas if choice["type"] != "none"]
        if any(kind is None for kind in kinds):
            return None
        found = one_type([kind for kind in kinds if kind is not None])
        if found is None:
            raise _RefusedError("is a union that no one type reads: declare one type, or a field for each")
        return nullable(found, or_else=null)

    def _nullable(self, schema: Schema, path: str) -> FieldType | None:
        found = self._type(schema["schema"], path)
        return found and nullable(found, or_else=True)


def _json_name(field: str, declared: Schema) -> str:
    alias = declared.get("validation_alias", field)
    if not isinstance(alias, str):
        raise _RefusedError(f"has a field, {field}, whose alias is no single name: give it one")
    return alias


def _int(_: Derivation, schema: Schema, __: str) -> FieldType:
    least, most = INT64_MIN, INT64_MAX
    if "ge" in schema:
        least = max(least, math.ceil(schema["ge"]))
    if "gt" in schema:
        least = max(least, math.floor(schema["gt"]) + 1)
    if "le" in schema:
        most = min(most, math.floor(schema["le"]))
    if "lt" in schema:
        most = min(most, math.ceil(schema["lt"]) - 1)
    return IntType(least=least, most=most)


def _decimal(_: Derivation, schema: Schema, __: str) -> FieldType:
    digits, places = schema.get("max_digits"), schema.get("decimal_places")
    if digits is None:
        scale = _PLACES if places is None else places
        precision = max(_DIGITS, scale)
    elif places is None:
        # All of the digits may stand before the point, or behind it.
        precision, scale = min(2 * digits, _MOST_DIGITS), min(digits, _MOST_DIGITS // 2)
    else:
        precision, scale = max(digits, places), places
    if precision > _MOST_DIGITS:
        raise _RefusedError(f"is a Decimal of more than {_MOST_DIGITS} digits, the most that Spark has")
    return DecimalType(precision=precision, scale=scale)


def _datetime(_: Derivation, schema: Schema, __: str) -> FieldType:
    constraint = schema.get("tz_constraint")
    if constraint == "aware":
        return TimestampType(zone="required")
    return TimestampType(zone="none" if constraint == "naive" else "optional")


def _literal(_: Derivation, schema: Schema, __: str) -> FieldType:
    return _closed([each.value if isinstance(each, Enum) else each for each in schema["expected"]])


def _enum(_: Derivation, schema: Schema, __: str) -> FieldType:
    return _closed([member.value for member in schema["members"]])


def _closed(values: list[Any]) -> FieldType:
    null = None in values
    values = [each for each in values if each is not None]
    if values and all(isinstance(each, str) for each in values):
        return TextType(values=tuple(values), nullable=null)
    if values and all(isinstance(each, bool) for each in values):
        return BoolType(nullable=null)
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in values)
    if values and whole and all(INT64_MIN <= each <= INT64_MAX for each in values):
        return IntType(values=tuple(values), nullable=null)
    raise _RefusedError("has values of several types, or of one that cannot be read: use strings or ints only")


class _Default:
    """What an absent field becomes."""

    def __init__(self, text: str | None) -> None:
        self.text = text


def _default(schema: Schema, definitions: Mapping[str, Schema]) -> _Default | None:
    """Return what an absent field becomes, as JSON; None: it has no default."""
    while schema["type"] != "default":
        key = _AROUND.get(schema["type"])
        if schema["type"] == "nullable":
            key = "schema"
        if schema["type"] == "definition-ref":
            schema = definitions[schema["schema_ref"]]
        elif key is None:
            return None
        else:
            schema = schema[key]
    if "default" in schema:
        value = schema["default"]
    elif schema.get("default_factory") in {list, tuple, set, frozenset, dict}:
        value = schema["default_factory"]()
    else:
        # Another value each time, such as an id: nothing that a reader could know.
        return _Default(None)
    if value is PydanticUndefined:
        return None
    try:
        # JSON has no number for NaN and infinity: readers take their names.
        return _Default(to_json(value, by_alias=True, inf_nan_mode="strings").decode())
    except PydanticSerializationError:
        return _Default(None)


_DERIVED: Mapping[str, Callable[[Derivation, Schema, str], FieldType | None]] = {
    "model-fields": Derivation._object,  # noqa: SLF001 - the table of its own methods
    "model": Derivation._configured,  # noqa: SLF001 - the same
    "dataclass": Derivation._configured,  # noqa: SLF001 - the same
    "typed-dict": Derivation._typed_dict,  # noqa: SLF001 - the same
    "dataclass-args": Derivation._object,  # noqa: SLF001 - the same
    "list": Derivation._list,  # noqa: SLF001 - the same
    "set": Derivation._list,  # noqa: SLF001 - the same
    "frozenset": Derivation._list,  # noqa: SLF001 - the same
    "generator": Derivation._list,  # noqa: SLF001 - the same
    "tuple": Derivation._tuple,  # noqa: SLF001 - the same
    "dict": Derivation._dict,  # noqa: SLF001 - the same
    "union": Derivation._union,  # noqa: SLF001 - the same
    "tagged-union": Derivation._union,  # noqa: SLF001 - the same
    "nullable": Derivation._nullable,  # noqa: SLF001 - the same
    "bool": lambda *_: BoolType(),
    "float": lambda *_: FloatType(),
    "date": lambda *_: DateType(),
    "int": _int,
    "decimal": _decimal,
    "datetime": _datetime,
    "literal": _literal,
    "enum": _enum,
}
