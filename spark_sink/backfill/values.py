"""Reads times and whole numbers out of columns of a history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_sink.batch.rows.times import LEAST_US, MOST_US, read_times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.engine.rest import IdColumn


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


def read_whole(column: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return int64[n] whole numbers, and bool[n], where there is none.

    Raises:
        ValueError: The column has others, or too large ones.
    """
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    try:
        column = column.cast(pa.int64())
    except pa.ArrowException as error:
        raise ValueError(f"no whole number ({error})") from error
    null = np.array(column.is_null().to_numpy(zero_copy_only=False), np.bool_)
    return np.array(pc.fill_null(column, 0).to_numpy(zero_copy_only=False), np.int64), null


def text_array(column: IdColumn) -> Any:
    """Return texts that were gathered from JSON as an array of Arrow's."""
    offsets = pa.py_buffer(np.ascontiguousarray(column.offsets, np.int64))
    valid = pa.py_buffer(np.packbits(column.valid, bitorder="little"))
    made = pa.Array.from_buffers(
        pa.large_string(), column.valid.size, [valid, offsets, pa.py_buffer(column.data)]
    )
    return made.cast(pa.string())
