"""Reads row groups of Parquet files, and makes ids, times and fingerprints of their columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from processor.engine.rest import IdColumn, IdTextForm, RowIds, fingerprints_of, ids_of_columns
from processor.errors import StopError
from spark_sink.batch.rows.constants import with_constants
from spark_sink.batch.rows.row_json import json_rows, offsets_and_bytes
from spark_sink.batch.rows.schema import fitted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from spark_sink.backfill.plan import HistoryPlan
    from spark_sink.batch.plan import RunPlan, Split

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
ROWS_AT_A_TIME = 131_072
"""A few dozen megabytes of rows of 150 B, in Arrow's form and in ours."""
_BYTES_AT_A_TIME = 64 << 20
"""Of long rows, as their file says: 131,072 of 20 kB each would be 2.6 GB in every task."""


def open_parquet(path: str, *, coded: Sequence[str] = ()) -> Any:
    """Return a Parquet file, opened.

    Args:
        path: Of the file.
        coded: Columns of texts that repeat; they come as Arrow's dictionaries.

    Raises:
        StopError: It is cut, or no Parquet file.
    """
    try:
        # Times of 96 bits, Spark's own default, pyarrow would read as nanoseconds; see `input_schema`.
        return pq.ParquetFile(
            path,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
            read_dictionary=list(coded) or None,
        )
    except (pa.ArrowException, OSError) as error:
        raise StopError(f"{path} is cut or corrupt, or no Parquet file ({_short(error)})") from error


def input_schema(file: Any) -> Any:
    """Return an input file's columns, of which times of 96 bits are instants.

    That is what Spark writes for a timestamp, and pyarrow reads it as a time without zone. Spark's own schema,
    where the file has one, tells a column that has none (``timestamp_ntz``).

    Source: Spark's ParquetToSparkSchemaConverter and ParquetReadSupport; its schema stands in the footer.
    """
    leaves = [file.schema.column(at).physical_type for at in range(len(file.schema))]
    if "INT96" not in leaves:
        return file.schema_arrow
    told = (file.metadata.metadata or {}).get(_SPARK_SCHEMA)
    fields = {each["name"]: each["type"] for each in json.loads(told)["fields"]} if told else {}
    made, left = [], iter(leaves)
    for each in file.schema_arrow:
        taken: list[str] = []
        kind = _instants(each.type, left, taken, fields.get(each.name))
        made.append((each.name, kind if "INT96" in taken else each.type))
    return pa.schema(made)


def _instants(kind: Any, left: Iterator[str], taken: list[str], told: Any) -> Any:
    """Return a type whose times of 96 bits are instants.

    Args:
        kind: As Arrow reads it.
        left: Parquet's types, from the first leaf of ``kind`` on.
        taken: Gets those of its leaves.
        told: Spark's type in its JSON form; None: it is not known.
    """
    types, spark = pa.types, told if isinstance(told, dict) else {}
    if isinstance(kind, pa.BaseExtensionType):
        return _instants(kind.storage_type, left, taken, told)
    if types.is_struct(kind):
        known = {each["name"]: each["type"] for each in spark.get("fields", ())}
        return pa.struct(
            [(each.name, _instants(each.type, left, taken, known.get(each.name))) for each in kind]
        )
    if types.is_map(kind):
        key = _instants(kind.key_type, left, taken, spark.get("keyType"))
        return pa.map_(key, _instants(kind.item_type, left, taken, spark.get("valueType")))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        element = _instants(kind.value_type, left, taken, spark.get("elementType"))
        return pa.list_(pa.field("element", element))
    taken.append(next(left))
    return pa.timestamp("us", "UTC") if taken[-1] == "INT96" and told != "timestamp_ntz" else kind


def read_groups(path: str, split: Split, columns: Sequence[str] | None) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a split, some at a time, with the number of their first in the file.

    Args:
        path: Of the file.
        split: Which of its row groups.
        columns: Those that are read; None: all.

    Raises:
        StopError: The file is corrupt.
    """
    number = split.first_row
    # pyarrow takes a dot in a name for a step into an object.
    chosen = None if columns is None or any("." in each for each in columns) else list(columns)
    with open_parquet(path) as file:
        groups = range(split.first_group, split.first_group + split.groups)
        schema = input_schema(file)
        try:
            rows = _rows_at_a_time(file.metadata, groups)
            for batch in file.iter_batches(rows, row_groups=list(groups), columns=chosen, use_threads=False):
                table = pa.Table.from_batches([batch])
                wanted = pa.schema([schema.field(each) for each in table.schema.names])
                yield number, table if table.schema.types == wanted.types else table.cast(wanted)
                number += len(batch)
        except (pa.ArrowException, OSError) as error:
            raise StopError(f"{path} is corrupt ({_short(error)}); nothing of this run counts") from error


def read_rows(
    plan: RunPlan | HistoryPlan, split: Split, columns: Sequence[str] | None
) -> Iterator[tuple[int, Any]]:
    """Yield what `read_groups` does, with the columns that stand beside the file."""
    constants = plan.constants[split.file] if plan.constants else ()
    for first, table in read_groups(plan.files[split.file], split, columns):
        yield first, with_constants(table, constants, columns)


def _rows_at_a_time(metadata: Any, groups: Sequence[int]) -> int:
    """Return how many rows are read together: fewer where they are long."""
    found = [metadata.row_group(each) for each in groups]
    rows: int = sum(each.num_rows for each in found)
    size: int = sum(each.total_byte_size for each in found)
    return min(ROWS_AT_A_TIME, max(1, _BYTES_AT_A_TIME * rows // max(size, 1)))


def _short(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def table_ids(table: Any, plan: RunPlan, schema: Any, file: str) -> RowIds:
    """Return the ids of rows; those of nulls have a fault, fingerprints are not among them."""
    parts = fitted(table, pa.schema([schema.field(each) for each in plan.id]), file)
    columns = [id_column(column.combine_chunks()) for column in parts.columns]
    return ids_of_columns(columns, plan.key, plan.normal)


def id_column(column: Any) -> IdColumn:
    """Return a column of plain type, of texts, whole numbers, booleans or bytes, as a part of ids.

    Raises:
        ValueError: A decimal is not a whole number of 64 bits.
    """
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    valid = np.array(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if pa.types.is_integer(column.type):
        return IdColumn.of_integers(valid, np.array(pc.fill_null(column, 0).to_numpy(zero_copy_only=False)))
    if pa.types.is_decimal(column.type):  # what was uint64
        return IdColumn.of_integers(valid, _whole(column))
    if pa.types.is_boolean(column.type):
        return IdColumn.of_booleans(valid, np.array(pc.fill_null(column, False).to_numpy(zero_copy_only=False)))
    form = IdTextForm.STRING if pa.types.is_string(column.type) else IdTextForm.BYTES
    return IdColumn.of_text(form, valid, *offsets_and_bytes(column))


def _whole(column: Any) -> NDArray[Any]:
    values = [0 if each is None else int(each) for each in column.to_pylist()]
    if column.type.scale == 0:
        for kind in (np.uint64, np.int64):
            if not values or np.iinfo(kind).min <= min(values) <= max(values) <= np.iinfo(kind).max:
                return np.array(values, kind)
    raise ValueError(f"{column.type} has values that are no whole numbers of 64 bits")


def table_fingerprints(table: Any, plan: RunPlan, schema: Any, file: str) -> NDArray[np.uint64]:
    """Return the fingerprints of rows: of their columns that count, as JSON without nulls."""
    excluded = set(plan.exclude or ())
    counted = pa.schema([each for each in schema if each.name not in excluded])
    return row_fingerprints(fitted(table, counted, file), plan.key)


def row_fingerprints(table: Any, key: bytes) -> NDArray[np.uint64]:
    """Return the fingerprints of rows, of which all columns count."""
    return fingerprints_of(json_rows(table, scaled=False), (), key)[0]
