"""Reads the footer of one input file: step 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from processor.errors import StopError
from spark_sink.batch.plan import Split
from spark_sink.batch.rows.constants import schema_with
from spark_sink.batch.rows.parquet_rows import input_schema, open_parquet
from spark_sink.batch.rows.schema import plain_schema, schema_text
from spark_sink.batch.rows.times import can_be_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_sink.batch.rows.constants import Constant

_SPLIT_BYTES = 128 << 20
"""Of a Parquet file's columns, inflated: a task holds a few of its rows at a time, not all."""


class Footer(NamedTuple):
    """What a Parquet file says of itself.

    Attributes:
        schema: Its columns as a table has them.
        rows: Of each row group.
        bytes: Of each row group.
    """

    schema: str
    rows: list[int]
    bytes: list[int]


def read_footer(
    ids: list[str], event_time: str, renamed: str | None, file_of: tuple[str, Sequence[Constant]]
) -> Footer:
    """Return the footer of a file, by its path and the columns that stand beside it.

    Raises:
        StopError: The file is cut, or has a column that no table can have or no id or time can be read from.
    """
    path, constants = file_of
    with open_parquet(path) as file:
        schema, metadata = schema_with(_with_fine_times(file, input_schema(file)), constants), file.metadata
        plain = plain_schema(schema, path)
        for name in ids:
            _require_id(schema, plain, name, path, renamed=name == renamed)
        if event_time in plain.names and not can_be_time(plain.field(event_time).type):
            raise StopError(
                f"{path}: column {event_time} has the type {schema.field(event_time).type}: event_time is a "
                "timestamp, a date, an ISO 8601 text or whole milliseconds"
            )
        groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        return Footer(
            schema_text(plain), [each.num_rows for each in groups], [each.total_byte_size for each in groups]
        )


def _with_fine_times(file: Any, schema: Any) -> Any:
    """Return a schema in which times are texts that have nanoseconds, for which a timestamp has no room."""
    made = []
    for each in schema:
        kind = each.type
        if pa.types.is_timestamp(kind) and kind.unit == "ns" and "." not in each.name:
            groups = range(file.metadata.num_row_groups)
            columns = (file.read_row_group(at, columns=[each.name]).column(0) for at in groups)
            # None below a microsecond: divided and multiplied it is what it was.
            if any(not _is_whole(column.cast(pa.int64())) for column in columns):
                kind = pa.string()
        made.append((each.name, kind))
    return pa.schema(made)


def _is_whole(nanoseconds: Any) -> bool:
    whole = pc.multiply(pc.divide(nanoseconds, 1000), 1000)
    return bool(pc.all(pc.equal(whole, nanoseconds), min_count=0).as_py())


def _require_id(schema: pa.Schema, plain: pa.Schema, name: str, path: str, *, renamed: bool) -> None:
    if name not in plain.names:
        return
    given, kind = schema.field(name).type, plain.field(name).type
    whole = pa.types.is_integer(given) or pa.types.is_integer(kind)
    if renamed and not pa.types.is_string(kind):
        raise StopError(f"{path}: column {name} has the type {given}: only a column of texts can be renamed")
    if not (whole or pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_boolean(kind)):
        raise StopError(
            f"{path}: column {name} has the type {given}: an id is made of texts, whole numbers, booleans or "
            "bytes"
        )


def splits_of(footers: Sequence[Footer]) -> list[Split]:
    """Return what tasks read: row groups that follow each other, by their files' order."""
    made: list[Split] = []
    for file, footer in enumerate(footers):
        first, row, held, row_of_first = 0, 0, 0, 0
        for group, (rows, size) in enumerate(zip(footer.rows, footer.bytes, strict=True)):
            if held and held + size > _SPLIT_BYTES:
                made.append(Split(len(made), file, row_of_first, first, group - first))
                first, held, row_of_first = group, 0, row
            row, held = row + rows, held + size
        if len(footer.rows) > first:
            made.append(Split(len(made), file, row_of_first, first, len(footer.rows) - first))
    return made
