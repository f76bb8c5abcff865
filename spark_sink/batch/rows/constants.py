"""Gives files the columns that stand beside them: in the log of a Delta table, or in the names of folders.

A column has one value in all rows of a file. The table's log says its type; the names of folders are texts, and
what they are is told from all of a run's, as Spark does: whole numbers, dates, otherwise texts. A table that is
there keeps its type, where they fit.
"""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

_NULL = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark write for null."""
_FOLDER = re.compile(r"(?P<name>[^=]+)=(?P<value>.*)")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


class Constant(NamedTuple):
    """A column that has one value in all rows of a file.

    Attributes:
        name: Of the column.
        value: As text; None: null.
        type: Arrow's.
        over: Whether it stands where the file has a column of that name itself.
    """

    name: str
    value: str | None
    type: Any
    over: bool


def constants_of_folders(paths: Sequence[tuple[Path, int]], known: Any | None) -> list[list[Constant]]:
    """Return of each file the columns that the names of its folders, ``col=value``, tell.

    Those above the input say nothing of its files, but for those that the input's own path ends with:
    ``raw/date=2026-01-01`` gives the columns that ``raw`` does.

    Args:
        paths: Absolute, each with how many of its parts lie below the input's folder.
        known: The schema of the table that is there; None: there is none.

    Raises:
        StopError: Two folders of a path name one column.
    """
    told = [_of_folders(path, below) for path, below in paths]
    texts: dict[str, set[str]] = {}
    for each in told:
        for name, text in each.items():
            texts.setdefault(name, set()).update([] if text is None else [text])
    types = {name: _type_of(found, _known(name, known)) for name, found in texts.items()}
    return [[Constant(name, text, types[name], over=False) for name, text in each.items()] for each in told]


def as_texts(constants: Sequence[Constant], names: Collection[str]) -> list[Constant]:
    """Return columns, of which some that names of folders tell are texts, as they are written."""
    return [
        each if each.over or each.name not in names else each._replace(type=pa.string()) for each in constants
    ]


def _of_folders(path: Path, below: int) -> dict[str, str | None]:
    first = len(path.parts) - below
    while first and _FOLDER.fullmatch(path.parts[first - 1]):
        first -= 1
    found: dict[str, str | None] = {}
    for folder in path.parts[first:-1]:
        if (match := _FOLDER.fullmatch(folder)) is None:
            continue
        name, text = unquote(match["name"]), unquote(match["value"])
        if name in found:
            raise StopError(f"{path}: two of its folders name a column {name}; which one counts is not known")
        found[name] = None if match["value"] == _NULL else text
    return found


def _known(name: str, schema: Any | None) -> Any | None:
    return schema.field(name).type if schema is not None and name in schema.names else None


def _type_of(texts: Iterable[str], known: Any | None) -> Any:
    found = list(texts)
    if known is not None and all(_fits(each, known) for each in found):
        return known
    if not found:
        return pa.string()
    if all(_WHOLE.fullmatch(each) for each in found):
        return pa.int64()
    return pa.date32() if all(_is_date(each) for each in found) else pa.string()


def _fits(text: str, kind: Any) -> bool:
    if pa.types.is_integer(kind) and not _WHOLE.fullmatch(text):  # Arrow reads hexadecimal, too
        return False
    try:
        pa.scalar(text).cast(kind)
    except pa.ArrowException:
        return False
    return True


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def constants_of_log(values: Mapping[str, str | None], types: Mapping[str, Any], path: str) -> list[Constant]:
    """Return the columns of a file that a Delta table's log tells.

    Args:
        values: ``partitionValues`` of the file.
        types: Of the columns, as Delta's schema has them.
        path: Of the file.

    Raises:
        StopError: A value is not of its column's type, or a time without zone.
    """
    return [_of_log(name, values.get(name), kind, path) for name, kind in types.items()]


def _of_log(name: str, text: str | None, told: Any, path: str) -> Constant:
    kind = column_type(told)
    if kind is None:
        raise StopError(f"{path}: column {name}, by which the table is parted, has the type {told}: not read")
    if not text:  # Delta's protocol: an empty text is null, whatever the type
        return Constant(name, None, kind, over=True)
    try:
        pa.scalar(text).cast(kind)
    except pa.ArrowException as error:
        zone = "; a time without zone is one of whoever wrote it" if pa.types.is_timestamp(kind) else ""
        raise StopError(f"{path}: column {name}: {text} is no {told} ({error}){zone}") from error
    return Constant(name, text, kind, over=True)


def column_type(told: Any) -> Any | None:
    """Return a plain type by its name in Delta's log or in SQL; None: there is none of this name."""
    if isinstance(told, str) and (match := _DECIMAL.fullmatch(told)):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _TYPES.get(told) if isinstance(told, str) else None


def schema_with(schema: Any, constants: Sequence[Constant]) -> Any:
    """Return a file's schema with these columns at its end."""
    over = {each.name for each in constants if each.over}
    own = [each for each in schema if each.name not in over]
    names = {each.name for each in own}
    return pa.schema([*own, *(pa.field(each.name, each.type) for each in constants if each.name not in names)])


def with_constants(table: Any, constants: Sequence[Constant], wanted: Sequence[str] | None) -> Any:
    """Return a file's rows with these columns.

    Args:
        table: Rows of the file, of the columns that are wanted.
        constants: Of the file.
        wanted: Names of columns; None: all.
    """
    columns = {name: table.column(at) for at, name in enumerate(table.schema.names)}
    for each in constants:
        if (wanted is None or each.name in wanted) and (each.over or each.name not in columns):
            value = pa.scalar(each.value, pa.string()).cast(each.type)
            columns[each.name] = pa.chunked_array([pa.repeat(value, len(table))])
    return pa.table(list(columns.values()), names=list(columns)) if constants else table
