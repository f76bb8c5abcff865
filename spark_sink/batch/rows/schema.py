"""Brings the columns of input files to the types that a clean table has, or says why they do not fit.

A table has the types that Spark reads from Parquet: texts and bytes of any size, integers signed (unsigned ones
one size up), times in microseconds, times of day as texts, no dictionaries. A column of nulls alone has no type
yet and is left out. New columns go on at the end, and so do new members of objects; numbers become wider where
that changes no value. What has changed otherwise is refused with both types.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from processor.errors import StopError
from schemas.config.batches import OWN_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}
_PLAIN = (
    ((pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view), pa.string()),
    (
        (
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        ),
        pa.binary(),
    ),
    ((pa.types.is_date,), pa.date32()),
    ((pa.types.is_time,), pa.string()),
)
_MOST_DIGITS = 38
"""Of a decimal, in Spark."""


class UnfitError(Exception):
    """A type that no clean table can have."""


def plain_type(kind: Any) -> Any:
    """Return the type that a table has for this one.

    Raises:
        UnfitError: There is none.
    """
    types = pa.types
    if (nested := _plain_nested(kind)) is not None:
        return nested
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_decimal(kind) and kind.precision <= _MOST_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    for looks, plain in _PLAIN:
        if any(look(kind) for look in looks):
            return plain
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind):
        return _SIGNED.get(kind, kind)
    raise UnfitError(str(kind))


def _plain_nested(kind: Any) -> Any | None:
    types = pa.types
    if types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.value_type if types.is_dictionary(kind) else kind.storage_type)
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type)))
    if types.is_struct(kind) and kind.num_fields:
        if len({each.name.lower() for each in kind}) < kind.num_fields:
            raise UnfitError("members whose names differ by case alone, or not at all")
        return pa.struct([(each.name, plain_type(each.type)) for each in kind])
    return None


def plain_schema(schema: Any, file: str) -> Any:
    """Return a file's columns as a table has them.

    Raises:
        StopError: Names the file and the column that no table can have.
    """
    fields: list[Any] = []
    seen: dict[str, str] = {}
    for each in schema:
        name = str(each.name)
        if name.lower().startswith(OWN_COLUMNS):
            raise StopError(
                f"{file}: column {name}: names that begin with {OWN_COLUMNS} are Seqmark's own; rename "
                f"the column"
            )
        if name.lower() in seen:
            raise StopError(
                f"{file}: columns {seen[name.lower()]} and {name} differ by case alone, which Spark "
                f"cannot read; "
                "rename one"
            )
        seen[name.lower()] = name
        try:
            kind = plain_type(each.type)
        except UnfitError as error:
            raise StopError(
                f"{file}: column {name} has the type {each.type}; Spark has none for {error}: convert it before"
            ) from error
        if not pa.types.is_null(kind):
            fields.append(pa.field(name, kind))
    return pa.schema(fields)


def joined(schemas: Iterable[tuple[str, Any]]) -> Any:
    """Return one schema that has the columns of all, in the order in which they come.

    Args:
        schemas: Names of where they come from, and plain schemas.

    Raises:
        StopError: One column has two types; names both, and who has them.
    """
    found: dict[str, tuple[Any, str]] = {}
    lower: dict[str, str] = {}
    for whose, schema in schemas:
        for each in schema:
            known = found.setdefault(each.name, (each.type, whose))
            if lower.setdefault(each.name.lower(), each.name) != each.name:
                raise StopError(
                    f"{whose}: column {each.name} and column {lower[each.name.lower()]} differ by case "
                    f"alone, which "
                    "Spark cannot read; rename one"
                )
            if known[0] != each.type and (grown := grown_type(known[0], each.type)) is not None:
                found[each.name] = grown, whose
            elif known[0] != each.type:
                raise StopError(
                    f"column {each.name} is {each.type} in {whose} and {known[0]} in {known[1]}: a column "
                    f"keeps its "
                    "type; convert the file, or name another output"
                )
    return pa.schema([pa.field(name, kind) for name, (kind, _) in found.items()])


def grown_type(known: Any, kind: Any) -> Any | None:
    """Return the type that takes the values of both, and has their members; None: there is none.

    Objects may get new members, at any depth and in lists too, which stand behind those of the known one. Whole
    numbers, floats and decimals become as wide as the wider of both. Nothing else of a type may change.
    """
    types = pa.types
    if known == kind:
        return known
    if types.is_list(known) and types.is_list(kind):
        element = grown_type(known.value_type, kind.value_type)
        return None if element is None else pa.list_(pa.field("element", element))
    if not (types.is_struct(known) and types.is_struct(kind)):
        return _wider(known, kind)
    members = {each.name: each.type for each in known}
    for each in kind:
        grown = grown_type(members.setdefault(each.name, each.type), each.type)
        if grown is None:
            return None
        members[each.name] = grown
    differ = len({name.lower() for name in members}) == len(members)
    return pa.struct(list(members.items())) if differ else None


def _wider(known: Any, kind: Any) -> Any | None:
    """Return the type of numbers that takes those of both unchanged; None: there is none."""
    types = pa.types
    for look in (types.is_signed_integer, types.is_floating):
        if look(known) and look(kind):
            return max(known, kind, key=lambda each: int(each.bit_width))
    if not (types.is_decimal(known) and types.is_decimal(kind)):
        return None
    scale = max(known.scale, kind.scale)
    digits = max(known.precision - known.scale, kind.precision - kind.scale) + scale
    return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else None


def fitted(table: Any, schema: Any, file: str) -> Any:
    """Return a file's rows with the table's columns and types; null where the file has no such column.

    Raises:
        StopError: A value does not fit, such as a time with nanoseconds.
    """
    columns = []
    for each in schema:
        at = table.schema.get_field_index(each.name)
        if at < 0:
            columns.append(pa.nulls(len(table), each.type))
            continue
        column = table.column(at)
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
        if column.type != each.type:
            try:
                column = column.cast(each.type)
            except pa.ArrowException as error:
                raise StopError(
                    f"{file}: column {each.name}: a {column.type} does not fit into {each.type} ({error})"
                ) from error
        columns.append(column)
    return pa.table(columns, schema=schema)


def schema_text(schema: Any) -> str:
    """Return a schema as commits keep it."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def schema_of(text: str) -> Any:
    """Return the schema that a commit keeps."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def types_of(text: str) -> dict[str, Any]:
    """Return the types of columns by their names; of no schema there are none."""
    return {each.name: each.type for each in schema_of(text)} if text else {}
