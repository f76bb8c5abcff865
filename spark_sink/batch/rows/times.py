"""Reads event times, in microseconds since 1970 in UTC.

A timestamp or date column, an integer column of milliseconds, or texts after ISO 8601. What has no zone is UTC.
Times are those of the years 1 to 9999, which is what a date can be written of.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from processor.engine.rest import Fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_US = -62_135_596_800_000_000
MOST_US = 253_402_300_799_999_999
NO_TIME = -(2**63)
"""Of a row without a time that can be read."""
_ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[Tt ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:[Zz]|[+-]\d{2}(?::?\d{2})?)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEYOND_MICROSECONDS = re.compile(r"(\.\d{6})\d+")


def can_be_time(kind: Any) -> bool:
    """Return whether times can be read from a column of this type."""
    types = pa.types
    return bool(
        types.is_timestamp(kind) or types.is_date(kind) or types.is_integer(kind) or types.is_string(kind)
    )


def read_times(column: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return int64[n] times, and uint8[n] `Fault` codes.

    Args:
        column: Of plain types, with as many rows as are asked for.
    """
    count = len(column)
    fault = np.zeros(count, np.uint8)
    null = np.array(column.is_null().to_numpy(zero_copy_only=False), np.bool_)
    if pa.types.is_string(column.type):
        read = [text_time(each) for each in column.to_pylist()]
        wrong = np.array([each is None for each in read], np.bool_) & ~null
        found = np.array([NO_TIME if each is None else each for each in read], np.int64)
        fault[wrong] = Fault.FIELD_TYPE
    else:
        found = _numbers(column)
        fault[(found < LEAST_US) | (found > MOST_US)] = Fault.OUT_OF_RANGE
    fault[null] = Fault.FIELD_MISSING
    found[fault != 0] = NO_TIME
    return found, fault


def read_time_ms(column: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return int64[n] times in ms, rounded down, and uint8[n] `Fault` codes; as `read_times`, only faster.

    Args:
        column: Of a plain type that can be a time.
    """
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_string(column.type):
        column = _instants(column)
    times, fault = read_times(column)
    # Of what cannot be read the number says nothing.
    return np.where(fault == 0, times, 0) // 1000, fault


def _instants(texts: Any) -> Any:
    """Return texts as instants where all of them are of one form, which Arrow reads at once."""
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")):
        try:
            found = texts.cast(kind)
        except pa.ArrowException:
            continue
        numbers = pc.fill_null(found.cast(pa.int64()), 0)
        least, most = pc.min_max(numbers).values() if len(numbers) else (pa.scalar(0), pa.scalar(0))
        if least.as_py() >= LEAST_US and most.as_py() <= MOST_US:
            return found
    return texts


def _numbers(column: Any) -> NDArray[np.int64]:
    types = pa.types
    if types.is_timestamp(column.type) or types.is_date(column.type):
        column = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)))
        return np.array(pc.fill_null(column.cast(pa.int64()), NO_TIME).to_numpy(zero_copy_only=False), np.int64)
    values = np.array(pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False), np.int64)
    return np.clip(values, LEAST_US // 1000 - 1, MOST_US // 1000 + 1) * 1000


def text_time(text: str | None) -> int | None:
    """Return the time that a text says; None: it says none."""
    if text is None or not _ISO.fullmatch(text):
        return None
    try:
        at = datetime.fromisoformat(_BEYOND_MICROSECONDS.sub(r"\1", text))
    except ValueError:
        return None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
    time_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return time_us if LEAST_US <= time_us <= MOST_US else None
