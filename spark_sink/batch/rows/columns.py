"""Decides which columns, of which types, the rows of a run have.

What the config says comes first, then what the table has, then what files say of themselves, and of JSON what
its values are like. Where two differ a column widens, if no value changes by that, or the run is refused.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from processor.errors import StopError
from schemas.event.types import ListType, MapType, ObjectType, TimestampType
from spark_sink.batch.rows.constants import column_type
from spark_sink.batch.rows.json_shapes import joined_shape, schema_of_shape, widened, with_members
from spark_sink.batch.rows.json_values import MODEL_TIMES
from spark_sink.batch.rows.schema import joined, plain_schema, schema_of, schema_text
from spark_sink.batch.topic.staged import with_topic_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from schemas.config import FileBatch
    from schemas.event.types import FieldType
    from spark_sink.batch.plan import RunPlan
    from spark_sink.batch.rows.json_shapes import Shape


def declared_columns(batch: FileBatch) -> str:
    """Return the columns whose types the config gives, in Arrow's form; empty: there are none.

    Raises:
        StopError: The model cannot be loaded, or has a type that no table has.
    """
    found: dict[str, Any] = {}
    if batch.model is not None:
        from schemas.event.model import EventModel, EventModelError  # noqa: PLC0415 - pydantic's inside

        try:
            fields = EventModel.load(batch.model).fields
        except EventModelError as error:
            raise StopError(f"batches.{batch.name}.schema: {error}") from error
        model = pa.schema([(name, _model_type(each)) for name, each in fields.items()])
        plain_schema(model, f"model {batch.model}")  # refuses what no table has
        found = {each.name: each.type for each in model}
    found |= {name: column_type(text) for name, text in batch.columns.items()}
    return schema_text(pa.schema(list(found.items()))) if found else ""


def _model_type(kind: FieldType) -> Any:
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - pyspark is slow to import

    from spark_sink.values.schema import spark_type  # noqa: PLC0415 - as above

    match kind:
        case TimestampType(zone=zone):
            return MODEL_TIMES[zone]
        case ListType(element=element):
            return pa.list_(pa.field("element", _model_type(element)))
        case MapType(value=value):
            return pa.map_(pa.string(), _model_type(value))
        case ObjectType(members=members):
            return pa.struct([(name, _model_type(each.type)) for name, each in members.items()])
        case _:
            return to_arrow_type(spark_type(kind))


def columns_of_values(shapes: Iterable[Shape], known: Any | None, declared: str, *, of_topic: bool) -> str:
    """Return the columns of rows of JSON, in Arrow's form.

    Args:
        shapes: Of the rows.
        known: The schema of the table that is there; None: there is none.
        declared: From `declared_columns`.
        of_topic: Whether they have the columns beside a topic's values.

    Raises:
        StopError: A column has another type than before.
    """
    found = plain_schema(widened(schema_of_shape(joined_shape(shapes)), known), "the input")
    if declared:
        kinds = {each.name: each.type for each in found}
        said = {
            each.name: with_members(each.type, kinds.get(each.name, each.type)) for each in schema_of(declared)
        }
        found = plain_schema(pa.schema(list((said | kinds | said).items())), "the input")
    if of_topic:
        found = with_topic_columns(found)
    return schema_text(joined([*([] if known is None else [("the table", known)]), ("the input", found)]))


def columns_of_files(
    files: Sequence[tuple[str, str]], known: Any | None, logged: Any | None, needed: Mapping[str, str]
) -> str:
    """Return the columns of rows of Parquet files, in Arrow's form.

    Args:
        files: Paths, and what their footers say.
        known: The schema of the table that is there; None: there is none.
        logged: What the log of the files' own table says, which then counts in place of footers.
        needed: Columns that there have to be, and what for.

    Raises:
        StopError: A column has two types, or is missing.
    """
    schemas = [] if known is None else [("the table", known)]
    if logged is None:
        schemas += [(path, schema_of(each)) for path, each in files]
    else:
        schemas.append(("the log of the input", plain_schema(logged, "the log of the input")))
    whole = joined(schemas)
    for column, what in needed.items():
        if column not in whole.names:
            raise StopError(f"no input file has a column {column}, which {what} is to read")
    return schema_text(whole)


def advice(misfit: str) -> str:
    """Say what can be done where a value has no room in a column; nothing for none."""
    if not misfit:
        return ""
    return (
        f"; or say what column {misfit} is, in which a value has no room: "
        f'columns = {{ {misfit} = "decimal(38,10)" }}, "double" or "string"'
    )


def misfit_rows(misfits: Iterable[Mapping[str, int]]) -> Iterator[str]:
    """Say how many rows are in quarantine for want of room, by column."""
    for name, count in sum(map(Counter, misfits), Counter[str]()).items():
        yield f"{count:,} rows are in quarantine{advice(name)}"


def unified_ids(numbers: Iterable[Mapping[str, int]], plan: RunPlan) -> Iterator[str]:
    """Say which ids look alike in the table though they are told apart: numbers in a column of texts."""
    found: Counter[str] = sum(map(Counter, numbers), Counter())
    columns = schema_of(plan.schema)
    for name, count in found.items():
        if pa.types.is_string(columns.field(name).type):
            yield (
                f"{count:,} ids in column {name} are numbers, and texts in the table, which has texts too: 1 "
                'and "1" are two ids, and look alike there'
            )
