"""Makes JSON of rows of plain types, nulls left out: what their fingerprints are of.

Times are whole microseconds, dates days since 1970, decimals and what is no number (NaN, infinities) texts,
bytes base64. The usual types are written by kernels; decimals with many places, bytes, lists, objects and maps
value by value. Either way the bytes are those of orjson.

Decimals of a clean table are written without zeros at their end: a scale that grows changes no fingerprint.
"""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from processor.engine.rest import IdColumn, JsonRows, MemberColumn, json_of_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_PLACES = 6
"""Of a decimal that Python writes without an exponent, whatever its digits are."""
_WORDS = np.frombuffer(b'truefalse"nan""inf""-inf"', np.uint8).copy()
_TRUE, _FALSE, _NAN, _INF, _MINUS_INF = (0, 4), (4, 5), (9, 5), (14, 5), (19, 6)
_COMMA = ord(",")

Spans = tuple["NDArray[np.int64]", "NDArray[np.int64]"]


def json_rows(table: Any, *, scaled: bool = True) -> JsonRows:
    """Return rows of plain types as JSON, without nulls.

    Args:
        table: The rows.
        scaled: Whether decimals have all places of their column, as texts of a stream have them.

    Raises:
        ValueError: A text is no UTF-8.
    """
    members = [_member(each.name, table.column(each.name), scaled=scaled) for each in table.schema]
    return json_of_columns(members, len(table))


def _member(name: str, column: Any, *, scaled: bool) -> MemberColumn:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    valid = np.array(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    kind, types = column.type, pa.types
    text = False
    if types.is_string(kind):
        column.validate(full=True)
        spans, data = _texts(column)
        text = True
    elif types.is_boolean(kind):
        spans, data = _booleans(column), _WORDS
    elif types.is_integer(kind) or types.is_timestamp(kind) or types.is_date(kind):
        spans, data = _numbers(column, valid)
    elif types.is_floating(kind):
        spans, data = _floats(column)
    elif types.is_decimal(kind) and 0 <= kind.scale <= _MOST_PLACES:
        texts = column.cast(pa.string())
        if kind.scale and not scaled:
            texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
        spans, data = _texts(texts)
        text = True
    else:
        spans, data = _by_value(column, scaled=scaled)
    return MemberColumn.of(orjson.dumps(name), valid, spans, data, text=text)


def offsets_and_bytes(column: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each text of a column begins, int64[n + 1], where the last one ends too, and the bytes."""
    _, offsets, data = column.buffers()
    at, count = np.zeros(1, np.int64), len(column)
    if count:
        at = np.frombuffer(offsets, np.int32)[column.offset : column.offset + count + 1].astype(np.int64)
    return at, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _texts(column: Any) -> tuple[Spans, NDArray[np.uint8]]:
    at, raw = offsets_and_bytes(column)
    # Only the part that is asked for: a slice of a few rows may have the data of all.
    return (at[:-1] - at[0], np.diff(at)), raw[at[0] : at[-1]]


def _booleans(column: Any) -> Spans:
    true = np.array(pc.fill_null(column, False).to_numpy(zero_copy_only=False), np.bool_)
    begin, length = (np.where(true, yes, no) for yes, no in zip(_TRUE, _FALSE, strict=True))
    return begin, length


def _numbers(column: Any, valid: NDArray[np.bool_]) -> tuple[Spans, NDArray[np.uint8]]:
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    values = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    made = IdColumn.of_integers(valid, values)
    return (made.offsets[:-1], np.diff(made.offsets)), made.data


def _floats(column: Any) -> tuple[Spans, NDArray[np.uint8]]:
    values = np.array(pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False), np.float64)
    if not values.size:
        nothing = np.zeros(0, np.int64)
        return (nothing, nothing), _WORDS
    # [1.0,2.5,null]: as a list, of which the parts are taken.
    data = np.frombuffer(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY), np.uint8)
    commas = np.flatnonzero(data == _COMMA)
    begin, end = np.append(1, commas + 1), np.append(commas, data.size - 1)
    length = end - begin
    for odd, (at, size) in (
        (np.isnan(values), _NAN),
        (np.isposinf(values), _INF),
        (np.isneginf(values), _MINUS_INF),
    ):
        begin[odd], length[odd] = data.size + at, size
    return (begin, length), np.concatenate([data, _WORDS])


def _by_value(column: Any, *, scaled: bool) -> tuple[Spans, NDArray[np.uint8]]:
    texts = [b"" if each is None else orjson.dumps(_json(each, scaled=scaled)) for each in column.to_pylist()]
    length = np.array([len(each) for each in texts], np.int64)
    return (np.cumsum(length) - length, length), np.frombuffer(b"".join(texts), np.uint8)


def _json(value: Any, *, scaled: bool) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal() | datetime() | date() | time():
            return _trimmed(value) if isinstance(value, Decimal) and not scaled else str(value)
        case dict():
            return {name: _json(each, scaled=scaled) for name, each in value.items() if each is not None}
        case list() | tuple():
            return [_json(each, scaled=scaled) for each in value]
        case _:
            return value


def _trimmed(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
