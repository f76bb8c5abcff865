"""Looks the new ids up in files of the table: step 5.

The low words of the new ids are put aside once, sorted; a file's column of low words is compared with them, and
of the rows that match the rest is read. So memory goes by the new ids, and not by the table.

Times of rows are read where they can matter. Where the whole date of a file is less than a window away from all
new rows, a new row with an id of it has come before, whatever the time of the remembered row. Only which of
several rows owns the id goes by their times, and only receipts and tags say that.

Pages have checksums, and a footer has none. pyarrow reads the fewest rows where its counts differ, words as
booleans where it says so, and times by whatever unit it has, without a word. So counts and types are compared,
and times with the file's date: a row that is read otherwise is an id that is forgotten.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from processor.engine.rest import LowProbe
from processor.errors import StopError
from spark_sink.batch.rows.own_columns import TIME as TIME_TYPE
from spark_sink.batch.rows.parquet_rows import open_parquet
from spark_sink.batch.staging import KEYS, LOW, OLD, OLD_NAME, TIME, read_all, staged, write_parted
from spark_sink.batch.table.layout import DAY_US, DUPLICATES, day_number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from spark_sink.batch.plan import RunPlan
    from spark_sink.batch.staging import Name
    from spark_sink.batch.table.commits import DataFile

_LOWS = "lows.npy"
_PARTS_PER_CORE = 4
"""So that a long one does not keep the others waiting; each part is a file to write, and to read."""
_TEXTS = ("seqmark_file", "seqmark_run")
_NUMBERS = ["seqmark_low", "seqmark_high", "seqmark_fingerprint", "seqmark_time", "seqmark_row"]


class ProbedFile(NamedTuple):
    """A file of the table.

    Attributes:
        path: Of the file.
        day: The date of its rows, as a day number.
        timed: Whether their times matter; otherwise the date's begin stands for them.
    """

    path: str
    day: int
    timed: bool


class ProbedFiles(NamedTuple):
    """Files of the table that are looked at by one task.

    Attributes:
        number: Of the task's part, from 0 on.
        files: They.
    """

    number: int
    files: list[ProbedFile]


def probed_parts(files: Sequence[ProbedFile], cores: int) -> list[ProbedFiles]:
    """Deal files out: each part writes one file, and each bucket reads one of each part."""
    parts = min(len(files), _PARTS_PER_CORE * cores)
    return [ProbedFiles(number, list(files[number::parts])) for number in range(parts)]


def times_matter(day: int, days: Collection[int], plan: RunPlan) -> bool:
    """Return whether the times of a date's rows can matter to new rows of some dates, given as day numbers."""
    apart = max(max(days) + 1 - day, day + 1 - min(days))
    return _owners(plan) or apart * DAY_US > plan.window_us


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
    """Put the low words of all new ids aside, sorted, each once.

    Args:
        plan: Of the run.
        splits: How many its input has.
    """
    words = [read_all(staged(plan.staging, KEYS, split))[:, LOW] for split in range(splits)]
    # np.unique hashes before it sorts, which takes ten times as long where nearly all words differ.
    found = np.sort(np.concatenate([np.zeros(0, np.int64), *words]).view(np.uint64))
    fresh = np.ones(found.size, np.bool_)
    fresh[1:] = found[1:] != found[:-1]
    np.save(_file_of_lows(plan), found[fresh])


def _file_of_lows(plan: RunPlan) -> Path:
    return Path(plan.staging) / _LOWS


@lru_cache(maxsize=1)
def _lows(file: Path) -> LowProbe:
    return LowProbe(np.load(file))


def probe(plan: RunPlan, part: ProbedFiles) -> int:
    """Put aside the rows of some files that may have an id of a new row; return their number.

    Raises:
        StopError: A file cannot be read.
    """
    lows = _lows(_file_of_lows(plan))
    found: list[NDArray[np.int64]] = [np.zeros((0, 6), np.int64)]
    names: dict[Name, int] = {}
    for file in part.files:
        try:
            found += matching(file, plan, lows, names)
        except (StopError, pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise StopError(
                f"{file.path}, which is part of the table, cannot be read ({error}); restore it from a backup"
            ) from error
    rows = np.concatenate(found)
    bucket = rows[:, LOW] & (plan.buckets - 1)
    write_parted(staged(plan.staging, OLD, part.number), rows, bucket, plan.buckets, list(names))
    return len(rows)


def _wanted(plan: RunPlan) -> list[str]:
    """Return the columns of numbers that are read of rows that match, beside the low word."""
    wanted = ["seqmark_high", "seqmark_time"]
    wanted += ["seqmark_fingerprint"] if plan.exclude is not None else []
    return [*wanted, "seqmark_row"] if _owners(plan) else wanted


def _owners(plan: RunPlan) -> bool:
    return plan.folders[DUPLICATES] is not None or plan.on_collision == "tag"


def matching(
    file: ProbedFile, plan: RunPlan, lows: LowProbe, names: dict[Name, int]
) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of a file that match, by row group; what nobody asks for is left 0.

    Raises:
        StopError: It is cut or corrupt, or no Parquet file, or what it has is not what a batch has written.
        pa.ArrowException: A page of it is corrupt, or not all of its rows can be read.
        KeyError: It has not all columns.
        ValueError: The name of a column is corrupt.
    """
    owners = _owners(plan)
    wanted = [each for each in _wanted(plan) if each != "seqmark_time" or file.timed]
    with open_parquet(file.path, coded=_TEXTS if owners else ()) as parquet:
        rows = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
        _require_all(parquet.metadata.num_rows, sum(rows))
        for group, count in enumerate(rows):
            words = _numbers(_read(parquet, group, ["seqmark_low"], count), "seqmark_low")
            at = lows.matches(words)
            if not at.size:
                continue
            table = _read(parquet, group, [*wanted, *_TEXTS] if owners else wanted, count).take(pa.array(at))
            found = np.zeros((at.size, 6), np.int64)
            found[:, LOW], found[:, TIME] = words[at], file.day * DAY_US
            for name in wanted:
                found[:, _NUMBERS.index(name)] = _numbers(table, name)
            if (found[:, TIME] // DAY_US != file.day).any():
                raise StopError("it has times of another date than its own")
            found[:, OLD_NAME] = _numbers_of_names(table, names) if owners else names.setdefault(("", ""), 0)
            yield found


def _read(parquet: Any, group: int, columns: list[str], count: int) -> pa.Table:
    """Return columns of a row group that has so many rows."""
    # The other cores have tasks of their own.
    table = parquet.read_row_group(group, columns=columns, use_threads=False)
    _require_all(count, len(table))
    return table


def _require_all(told: int, found: int) -> None:
    if told != found:
        raise pa.ArrowInvalid(f"it tells of {told} rows, and {found} can be read")


def _numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    column = table.column(name)
    if name == "seqmark_time":
        # Files that others have merged may have them in another unit, or without the zone.
        column = column.cast(TIME_TYPE).cast(pa.int64())
    if column.type != pa.int64() or (column.null_count and name != "seqmark_fingerprint"):
        raise StopError(f"{name} is of {column.type}, or null in some rows, which no batch has written")
    return np.array(column.fill_null(0).to_numpy())


def _numbers_of_names(table: pa.Table, names: dict[Name, int]) -> NDArray[np.int64]:
    """Return the number of each row's file and run; a file of the table has rows of a few.

    Raises:
        StopError: They are not texts.
    """
    if any(table.column(name).type != pa.dictionary(pa.int32(), pa.string()) for name in _TEXTS):
        raise StopError("it names files or runs by other than texts, which no batch has written")
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
