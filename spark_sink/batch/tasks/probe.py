"""Looks the new ids up in files of the table: step 5.

The low words of the new ids are put aside once, sorted; a file's column of low words is compared with them, and
of the rows that match the rest is read. So memory goes by the new ids, and not by the table. Pages as a batch
writes them are read as they stand; files that others have merged are read by pyarrow.

Times of rows are read where they can matter. Where the whole date of a file is less than a window away from all
new rows, a new row with an id of it has come before, whatever the time of the remembered row. Only which of
several rows owns the id goes by their times, and only receipts and tags say that.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import ExitStack
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from processor.engine.rest import LowProbe
from processor.errors import StopError
from spark_sink.batch.rows.own_columns import TIME as TIME_TYPE
from spark_sink.batch.rows.parquet_rows import open_parquet
from spark_sink.batch.rows.table_pages import TablePages, UnknownPagesError
from spark_sink.batch.staging import HIGH, KEYS, LOW, OLD, OLD_NAME, TIME, read_all, staged, write_parted
from spark_sink.batch.table.layout import DAY_US, DUPLICATES, day_number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from spark_sink.batch.plan import RunPlan
    from spark_sink.batch.staging import Name
    from spark_sink.batch.table.commits import DataFile

_LOWS, _HIGHS = "lows.npy", "highs.npy"
_FEW_OF, _FEW_IDS = 8, 2_000_000
"""New rows of which the high words are put aside, too: at most one to so many of the table, and so many in all.
Of more so many match that whole pages are read, and to sort them costs more than it spares."""
_PARTS_PER_CORE = 4
"""So that a long one does not keep the others waiting; each part is a file to write, and to read."""
_TEXTS = ("seqmark_file", "seqmark_run")
_NUMBERS = ["seqmark_low", "seqmark_high", "seqmark_fingerprint", "seqmark_time", "seqmark_row"]


class ProbedFiles(NamedTuple):
    """Files of the table that are looked at by one task.

    Attributes:
        number: Of the task's part, from 0 on.
        files: Their paths, each with the time that may stand for those of its rows; None: the times matter.
    """

    number: int
    files: list[tuple[str, int | None]]


def probed_parts(files: Sequence[tuple[str, int | None]], cores: int) -> list[ProbedFiles]:
    """Deal files out: each part writes one file, and each bucket reads one of each part."""
    parts = min(len(files), _PARTS_PER_CORE * cores)
    return [ProbedFiles(number, list(files[number::parts])) for number in range(parts)]


def any_time(date: str, days: Collection[int], plan: RunPlan) -> int | None:
    """Return the time that may stand for those of all rows of a date; None: the times matter.

    Args:
        date: Of the rows.
        days: The dates of the new rows, as day numbers.
        plan: Of the run.
    """
    day = day_number(date)
    apart = max(max(days) + 1 - day, day + 1 - min(days))
    return None if _owners(plan) or apart * DAY_US > plan.window_us else day * DAY_US


def near_files(files: Sequence[DataFile], days: set[int], window_us: int) -> list[DataFile]:
    """Return the files whose dates the window reaches from one of some dates, given as day numbers."""
    # Two times are less than a window apart: their dates at most so many days, rounded up.
    reach = -(-window_us // DAY_US)
    ordered = sorted(days)

    def near(day: int) -> bool:
        at = bisect_left(ordered, day - reach)
        return at < len(ordered) and ordered[at] <= day + reach

    return [each for each in files if near(day_number(each.date))]


def put_lows(plan: RunPlan, splits: int, remembered: int) -> None:
    """Put the low words of all new ids aside, sorted, each once; of a few ids the high words, too.

    Args:
        plan: Of the run.
        splits: How many its input has.
        remembered: Rows of the table that are looked at.
    """
    hashes = [read_all(staged(plan.staging, KEYS, split))[:, [LOW, HIGH]] for split in range(splits)]
    words = np.concatenate([np.zeros((0, 2), np.int64), *hashes]).view(np.uint64)
    lows, order = words[:, 0], None
    if len(words) <= min(_FEW_IDS, remembered // _FEW_OF):
        order = np.argsort(lows)
        found = lows[order]
    else:
        # np.unique hashes before it sorts, which takes ten times as long where nearly all words differ.
        found = np.sort(lows)
    fresh = np.ones(found.size, np.bool_)
    fresh[1:] = found[1:] != found[:-1]
    folder = staged(plan.staging, "lows", 0)
    np.save(folder.with_name(_LOWS), found[fresh])
    if order is not None:
        np.save(folder.with_name(_HIGHS), words[order[fresh], 1])


@lru_cache(maxsize=1)
def _lows(folder: Path) -> LowProbe:
    highs = folder / _HIGHS
    return LowProbe(np.load(folder / _LOWS), np.load(highs) if highs.exists() else None)


def probe(plan: RunPlan, part: ProbedFiles) -> int:
    """Put aside the rows of some files that may have an id of a new row; return their number.

    Raises:
        StopError: A file cannot be read.
    """
    lows = _lows(staged(plan.staging, "lows", 0).parent)
    found: list[NDArray[np.int64]] = [np.zeros((0, 6), np.int64)]
    names: dict[Name, int] = {}
    for path, time in part.files:
        try:
            found += _matching(path, time, plan, lows, names)
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


def _wanted(plan: RunPlan) -> list[str]:
    """Return the columns of numbers that are read of rows that match, beside the low word."""
    wanted = ["seqmark_high", "seqmark_time"]
    wanted += ["seqmark_fingerprint"] if plan.exclude is not None else []
    return [*wanted, "seqmark_row"] if _owners(plan) else wanted


def _owners(plan: RunPlan) -> bool:
    return plan.folders[DUPLICATES] is not None or plan.on_collision == "tag"


def _matching(
    path: str, time: int | None, plan: RunPlan, lows: LowProbe, names: dict[Name, int]
) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of a file that match, by row group; what nobody asks for is left 0."""
    with TablePages(path) as pages, ExitStack() as stack:
        parquet = None
        for group in range(pages.groups):
            try:
                found = _of_pages(pages, group, time, plan, lows, names)
            except UnknownPagesError:
                parquet = parquet or stack.enter_context(open_parquet(path, coded=_TEXTS))
                found = _of_library(parquet, pages, group, plan, lows, names)
            if len(found):
                yield found


def _of_pages(
    pages: TablePages, group: int, time: int | None, plan: RunPlan, lows: LowProbe, names: dict[Name, int]
) -> NDArray[np.int64]:
    """Return the rows of a row group that match.

    Raises:
        UnknownPagesError: It has pages that have to be read by the library.
    """
    rows, words = pages.matches(group, lows)
    found = np.zeros((rows.size, 6), np.int64)
    if not rows.size:
        return found
    name = pages.texts(group, _TEXTS) if _owners(plan) else ("", "")
    if name is None:
        raise UnknownPagesError
    wanted = _wanted(plan)
    found[:, LOW] = words
    for at, column in enumerate(_NUMBERS):
        if column not in wanted:
            continue
        if at == HIGH:
            found[:, at] = pages.words(group, column, rows, partial(lows.highs_of, words))
        elif at == TIME and time is not None:
            found[:, at] = time
        else:
            found[:, at] = pages.values(group, column, rows)
    found[:, OLD_NAME] = names.setdefault(name, len(names))
    return found


def _of_library(
    parquet: Any, pages: TablePages, group: int, plan: RunPlan, lows: LowProbe, names: dict[Name, int]
) -> NDArray[np.int64]:
    """Return the rows of a row group that match, whoever has written it.

    Raises:
        pa.ArrowInvalid: Not all of its rows can be read.
    """
    # The other cores have tasks of their own.
    low = parquet.read_row_group(group, columns=["seqmark_low"], use_threads=False).column(0)
    words = _words(low)
    pages.require_all(group, words.size)
    rows = lows.matches(words)
    if not rows.size:
        return np.zeros((0, 6), np.int64)
    wanted, owners = _wanted(plan), _owners(plan)
    columns = [*wanted, *_TEXTS] if owners else wanted
    found = parquet.read_row_group(group, columns=columns, use_threads=False).take(pa.array(rows))
    at = found.schema.get_field_index("seqmark_time")
    # Files that others have merged may have them in another unit, or without the zone.
    found = found.set_column(at, "seqmark_time", found.column(at).cast(TIME_TYPE))
    made = [words[rows]]
    for name in _NUMBERS[1:]:
        column = found.column(name).cast(pa.int64()).fill_null(0).to_numpy() if name in wanted else 0
        made.append(np.broadcast_to(column, rows.shape))
    made.append(_numbers_of_names(found, names) if owners else _nobody(rows, names))
    return np.stack(made, axis=1).astype(np.int64)


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
