"""Looks the new ids up in files of the table: step 5.

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
from spark_sink.batch.table.layout import DAY_US, DUPLICATES, day_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from spark_sink.batch.plan import RunPlan
    from spark_sink.batch.staging import Name
    from spark_sink.batch.table.commits import DataFile

_LOWS = "lows.npy"
_PARTS_PER_CORE = 4
"""So that a long one does not keep the others waiting; each part is a file to write, and to read."""
_TEXTS = ("seqmark_file", "seqmark_run")
_NUMBERS = ["seqmark_low", "seqmark_high", "seqmark_fingerprint", "seqmark_time", "seqmark_row"]


class ProbedFiles(NamedTuple):
    """Files of the table that are looked at by one task.

    Attributes:
        number: Of the task's part, from 0 on.
        paths: Of the files.
    """

    number: int
    paths: list[str]


def probed_parts(paths: Sequence[str], cores: int) -> list[ProbedFiles]:
    """Deal files out: each part writes one file, and each bucket reads one of each part."""
    parts = min(len(paths), _PARTS_PER_CORE * cores)
    return [ProbedFiles(number, list(paths[number::parts])) for number in range(parts)]


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
    # np.unique hashes before it sorts, which takes ten times as long where nearly all words differ.
    found = np.sort(np.concatenate([np.zeros(0, np.int64), *lows]).view(np.uint64))
    fresh = np.ones(found.size, np.bool_)
    fresh[1:] = found[1:] != found[:-1]
    np.save(staged(plan.staging, "lows", 0).with_name(_LOWS), found[fresh])


@lru_cache(maxsize=1)
def _lows(path: str) -> LowProbe:
    return LowProbe(np.load(path))


def probe(plan: RunPlan, part: ProbedFiles) -> int:
    """Put aside the rows of some files that may have an id of a new row; return their number.

    Raises:
        StopError: A file cannot be read.
    """
    lows = _lows(str(staged(plan.staging, "lows", 0).with_name(_LOWS)))
    found: list[NDArray[np.int64]] = [np.zeros((0, 6), np.int64)]
    names: dict[Name, int] = {}
    for path in part.paths:
        try:
            with open_parquet(path, coded=_TEXTS) as parquet:
                found += _matching(parquet, plan, lows, names)
        except (StopError, pa.ArrowException, OSError, KeyError) as error:
            raise StopError(
                f"{path}, which is part of the table, cannot be read ({error}); restore it from a backup"
            ) from error
    rows = np.concatenate(found)
    bucket = rows[:, LOW] & (plan.buckets - 1)
    write_parted(staged(plan.staging, OLD, part.number), rows, bucket, plan.buckets, list(names))
    return len(rows)


def _words(low: Any) -> NDArray[np.int64]:
    """Return a column's values.

    Raises:
        StopError: Some are null.
    """
    if low.null_count:
        raise StopError("it has rows without seqmark_low, which no batch has written")
    return np.concatenate([np.zeros(0, np.int64), *(each.to_numpy() for each in low.chunks)])


def _matching(
    parquet: Any, plan: RunPlan, lows: LowProbe, names: dict[Name, int]
) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of a file that match, by row group; what nobody asks for is left 0."""
    wanted = ["seqmark_high", "seqmark_time"]
    wanted += ["seqmark_fingerprint"] if plan.exclude is not None else []
    owners = plan.folders[DUPLICATES] is not None or plan.on_collision == "tag"
    wanted += ["seqmark_row", *_TEXTS] if owners else []
    # The other cores have tasks of their own.
    for group in range(parquet.metadata.num_row_groups):
        low = parquet.read_row_group(group, columns=["seqmark_low"], use_threads=False).column(0)
        words = _words(low)
        rows = lows.matches(words)
        if rows.size:
            found = parquet.read_row_group(group, columns=wanted, use_threads=False).take(pa.array(rows))
            at = found.schema.get_field_index("seqmark_time")
            # Files that others have merged may have them in another unit, or without the zone.
            found = found.set_column(at, "seqmark_time", found.column(at).cast(TIME))
            columns = [words[rows]]
            for name in _NUMBERS[1:]:
                column = found.column(name).cast(pa.int64()).fill_null(0).to_numpy() if name in wanted else 0
                columns.append(np.broadcast_to(column, rows.shape))
            columns.append(_numbers_of_names(found, names) if owners else _nobody(rows, names))
            yield np.stack(columns, axis=1).astype(np.int64)


def _nobody(rows: NDArray[np.int64], names: dict[Name, int]) -> NDArray[np.int64]:
    return np.full(rows.shape, names.setdefault(("", ""), len(names)))


def _numbers_of_names(table: pa.Table, names: dict[Name, int]) -> NDArray[np.int64]:
    """Return the number of each row's file and run; a file of the table has rows of a few."""
    files, runs = (table.column(name).combine_chunks() for name in _TEXTS)
    files, runs = (each.chunk(0) if isinstance(each, pa.ChunkedArray) else each for each in (files, runs))
    pairs = files.indices.to_numpy().astype(np.int64) * len(runs.dictionary) + runs.indices.to_numpy()
    number = np.zeros(len(files.dictionary) * len(runs.dictionary), np.int64)
    for pair in np.flatnonzero(np.bincount(pairs, minlength=number.size)).tolist():
        file, run = divmod(pair, len(runs.dictionary))
        name = files.dictionary[file].as_py(), runs.dictionary[run].as_py()
        number[pair] = names.setdefault(name, len(names))
    found: NDArray[np.int64] = number[pairs]
    return found
