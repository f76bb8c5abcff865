"""Says what type a table has for values of JSON, and makes columns of that type of them.

JSON has no schema, so a run looks at its rows first. A shape is a word or a tuple::

    "null"  "bool"  "int"  "fraction"  "text"  ("list", shape)  ("object", {name: shape})

A fraction is a decimal, with all its digits; whole numbers and fractions together are decimals. Whatever else
differs is kept as text, what is no text by its JSON. So are objects that all have no members, or members whose
names differ by case alone, which Spark cannot read; what lies deeper than 30 levels; and a whole number beyond
64 bits signed. Shapes join to the same shape in whatever order.
"""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from processor.errors import StopError
from spark_sink.batch.rows.json_values import FRACTION, LEAST, MOST, UnfitValueError, made

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Shape = str | tuple[str, Any]
NULL: Shape = "null"
_KINDS: dict[type, Shape] = {type(None): NULL, bool: "bool", int: "int", Decimal: "fraction", str: "text"}
_NUMBERS = ("int", "fraction")
_MOST_LEVELS = 30
"""Of lists and objects, that have columns of their own. A list is two levels of Parquet; Arrow reads 100."""
_PLAIN = {"bool": pa.bool_(), "int": pa.int64(), "fraction": FRACTION, "text": pa.string()}


def shape_of(value: Any, levels: int = _MOST_LEVELS) -> Shape:
    """Return the shape of one value, as JSON's reader gives it, of so many levels."""
    if isinstance(value, list | dict) and not levels:
        return "text"
    if isinstance(value, list):
        return ("list", joined_shape(shape_of(each, levels - 1) for each in value))
    if isinstance(value, dict):
        return ("object", {name: shape_of(each, levels - 1) for name, each in value.items()})
    kind = _KINDS[type(value)]
    return "text" if kind == "int" and not LEAST <= value <= MOST else kind


def joined_shape(shapes: Iterable[Shape]) -> Shape:
    """Return the shape that has room for all of them."""
    whole: Shape = NULL
    for each in shapes:
        whole = _both(whole, each)
    return whole


def _both(one: Shape, other: Shape) -> Shape:
    if NULL in (one, other):
        return other if one == NULL else one
    if one == other:
        return one
    if isinstance(one, tuple) and isinstance(other, tuple) and one[0] == other[0]:
        if one[0] == "list":
            return ("list", _both(one[1], other[1]))
        names = dict.fromkeys([*one[1], *other[1]])
        return ("object", {name: _both(one[1].get(name, NULL), other[1].get(name, NULL)) for name in names})
    return "fraction" if one in _NUMBERS and other in _NUMBERS else "text"


def schema_of_shape(shape: Shape) -> Any:
    """Return the schema of rows of this shape; columns of nulls alone are left out."""
    if not isinstance(shape, tuple):
        return pa.schema([])
    found = [(name, _type(each)) for name, each in shape[1].items()]
    return pa.schema([(name, kind) for name, kind in found if kind is not None])


def _type(shape: Shape) -> Any:
    """Return a shape's type; None: it has none, being null."""
    if not isinstance(shape, tuple):
        return _PLAIN.get(shape)
    if shape[0] == "list":
        return pa.list_(pa.field("element", _type(shape[1]) or pa.string()))
    found = [(name, _type(each)) for name, each in shape[1].items()]
    members = [(name, kind) for name, kind in found if kind is not None]
    differ = len({name.lower() for name, _ in members}) == len(members)
    return pa.struct(members) if members and differ else pa.string()


def widened(schema: Any, table: Any | None) -> Any:
    """Return the schema of a run's rows with the table's types where their values have room there.

    What has none is left as it is, and refused where the two are joined.
    """
    if table is None:
        return schema
    known = {each.name: each.type for each in table}
    return pa.schema(
        [
            (each.name, _widened(each.type, known[each.name]) if each.name in known else each.type)
            for each in schema
        ]
    )


def _widened(kind: Any, table: Any) -> Any:
    if _fits(kind, table):
        return table
    if pa.types.is_list(kind) and pa.types.is_list(table):
        return pa.list_(pa.field("element", _widened(kind.value_type, table.value_type)))
    if pa.types.is_struct(kind) and pa.types.is_struct(table):
        known = {each.name: each.type for each in table}
        members = [
            (each.name, _widened(each.type, known[each.name]) if each.name in known else each.type)
            for each in kind
        ]
        return pa.struct(members)
    return kind


def with_members(said: Any, found: Any) -> Any:
    """Return a type that the config says with the members that were found beside its own, at any depth."""
    types = pa.types
    if types.is_list(said) and types.is_list(found):
        return pa.list_(pa.field("element", with_members(said.value_type, found.value_type)))
    if types.is_map(said) and types.is_map(found):
        return pa.map_(said.key_type, with_members(said.item_type, found.item_type))
    if types.is_map(said) and types.is_struct(found):
        return pa.map_(said.key_type, reduce(with_members, (each.type for each in found), said.item_type))
    if not (types.is_struct(said) and types.is_struct(found)):
        return said
    others = {each.name: each.type for each in found}
    own = {each.name: with_members(each.type, others.get(each.name, each.type)) for each in said}
    return pa.struct(list((own | others | own).items()))


def _fits(kind: Any, table: Any) -> bool:
    if kind == table or table == pa.string():
        return True
    if kind in {pa.int64(), FRACTION} and (pa.types.is_floating(table) or pa.types.is_decimal(table)):
        return True  # which values have room there was looked at one by one
    if pa.types.is_list(kind) and pa.types.is_list(table):
        return _fits(kind.value_type, table.value_type)
    if pa.types.is_struct(kind) and pa.types.is_struct(table):
        known = {each.name: each.type for each in table}
        return all(each.name in known and _fits(each.type, known[each.name]) for each in kind)
    return False


def table_of(values: Sequence[dict[str, Any]], schema: Any, file: str, declared: Mapping[str, Any]) -> Any:
    """Return rows as a table of this schema.

    Args:
        values: The rows.
        schema: Of the table.
        file: Named where a value does not fit.
        declared: Types that the config gives, by whose rules times are read.

    Raises:
        StopError: A value does not fit into its column: it has changed since it was judged.
    """
    columns = []
    rules = {
        name: with_members(kind, schema.field(name).type)
        for name, kind in declared.items()
        if pa.types.is_nested(kind) or pa.types.is_timestamp(kind)
    }
    for each in schema:
        rule = rules.get(each.name, each.type)
        try:
            columns.append(pa.array([made(value.get(each.name), rule) for value in values], each.type))
        except (UnfitValueError, OverflowError, pa.ArrowException, TypeError) as error:
            raise StopError(
                f"{file}: column {each.name}: a value does not fit into {each.type} ({error})"
            ) from error
    return pa.table(columns, schema=schema)
