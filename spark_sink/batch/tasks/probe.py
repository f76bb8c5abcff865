"""Looks the new ids up in one file of the table: step 5.

The low words of the new ids are put aside once, sorted; a file's column of low words is compared with them, and
of the rows that match the rest is read. So memory goes by the new ids, and not by the table.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from processor.engine.rest import LowProbe
from processor.errors import StopError
from spark_sink.batch.rows.own_columns import TIME
from spark_sink.batch.rows.parquet_rows import open_parquet
from spark_sink.batch.staging import KEYS, LOW, OLD, read_all, staged, write_parted
from spark_sink.batch.table.layout import DAY_US, day_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from spark_sink.batch.plan import RunPlan
    from spark_sink.batch.staging import Name
    from spark_sink.batch.table.commits import DataFile

_LOWS = "lows.npy"
_NUMBERS = ["seqmark_low", "seqmark_high", "seqmark_fingerprint", "seqmark_time", "seqmark_row"]


class ProbedFile(NamedTuple):
    """A file of the table that is looked at.

    Attributes:
        number: From 0 on.
        path: It.
    """

    number: int
    path: str


def near_files(files: Sequence[DataFile], days: set[int], window_us: int) -> list[DataFile]:
    """Return the files whose dates the window reaches from one of some dates, given as day numbers."""
    # Two times are less than a window apart: their dates at most so many days, rounded up.
    reach = -(-window_us // DAY_US)
    ordered = sorted(days)

    def near(day: int) -> bool:
        at = bisect_left(ordered, day - reach)
        return at < len(ordered) and ordered[at] <= day + reach

    return [each for each in files if near(day_number(each.date))]


def put_lows(plan: RunPlan, splits: int) -> None:
    """Put the low words of all new ids aside, sorted, each once."""
    lows = [read_all(staged(plan.staging, KEYS, split))[:, LOW] for split in range(splits)]
    found = np.unique(np.concatenate([np.zeros(0, np.int64), *lows]).view(np.uint64))
    np.save(staged(plan.staging, "lows", 0).with_name(_LOWS), found)


@lru_cache(maxsize=1)
def _lows(path: str) -> LowProbe:
    return LowProbe(np.load(path))


def probe(plan: RunPlan, file: ProbedFile) -> int:
    """Put aside the rows of a file that may have an id of a new row; return their number.

    Raises:
        StopError: The file cannot be read.
    """
    lows = _lows(str(staged(plan.staging, "lows", 0).with_name(_LOWS)))
    found: list[NDArray[np.int64]] = [np.zeros((0, 6), np.int64)]
    names: dict[Name, int] = {}
    try:
        with open_parquet(file.path) as parquet:
            for group in range(parquet.metadata.num_row_groups):
                low = parquet.read_row_group(group, columns=["seqmark_low"]).column(0)
                rows = lows.matches(_words(low))
                if rows.size:
                    columns = [*_NUMBERS, "seqmark_file", "seqmark_run"]
                    matching = parquet.read_row_group(group, columns=columns).take(pa.array(rows))
                    found.append(_numbered(matching, names))
    except (StopError, pa.ArrowException, OSError, KeyError) as error:
        raise StopError(
            f"{file.path}, which is part of the table, cannot be read ({error}); restore it from a backup"
        ) from error
    rows = np.concatenate(found)
    part = rows[:, LOW] & (plan.buckets - 1)
    write_parted(staged(plan.staging, OLD, file.number), rows, part, plan.buckets, list(names))
    return len(rows)


def _words(low: Any) -> NDArray[np.int64]:
    """Return a column's values.

    Raises:
        StopError: Some are null.
    """
    if low.null_count:
        raise StopError("it has rows without seqmark_low, which no batch has written")
    return np.concatenate([np.zeros(0, np.int64), *(each.to_numpy() for each in low.chunks)])


def _numbered(table: pa.Table, names: dict[Name, int]) -> NDArray[np.int64]:
    at = table.schema.get_field_index("seqmark_time")
    # Files that others have merged may have them in another unit, or without the zone.
    table = table.set_column(at, "seqmark_time", table.column(at).cast(TIME))
    columns = [table.column(name).cast(pa.int64()).fill_null(0).to_numpy() for name in _NUMBERS]
    pairs = zip(table.column("seqmark_file").to_pylist(), table.column("seqmark_run").to_pylist(), strict=True)
    columns.append(np.array([names.setdefault(pair, len(names)) for pair in pairs], np.int64))
    return np.stack(columns, axis=1).astype(np.int64)
