"""Hashes a history by Spark: deals its files out to tasks, which put hashed rows aside.

Spark sees no row, as in `seqmark batch`: a task reads row groups or a file by Arrow, and writes 40 bytes per
row. Memory goes by the rows that a task reads at a time.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from processor.engine.rest import (
    ANYWHERE,
    Fault,
    JsonIds,
    JsonKind,
    Normal,
    partitions_of,
    routed_partitions,
    warm_rest,
)
from processor.errors import StopError
from spark_sink.backfill.hashed import (
    NO_OFFSET,
    HashedRows,
    HashedSplit,
    RowColumns,
    RowHashes,
    hashed_file,
    merged_fault,
    read_hashed,
    read_whole,
)
from spark_sink.backfill.tables import hash_rows, read_history_footer
from spark_sink.batch.cluster import TaskCluster, files_session
from spark_sink.batch.delta_inputs import find_delta_inputs
from spark_sink.batch.inputs import (
    InputFile,
    digest,
    find_inputs,
    in_order,
    require_unchanged,
    stamped,
    with_folders,
)
from spark_sink.batch.plan import Split
from spark_sink.batch.reader import committed_files
from spark_sink.batch.rows.json_lines import read_lines, require_end
from spark_sink.batch.rows.schema import schema_of
from spark_sink.batch.rows.times import read_time_ms
from spark_sink.batch.table.commits import read_snapshot
from spark_sink.batch.table.counted import DELTA, PARQUET, table_format
from spark_sink.batch.table.definition import read_definition
from spark_sink.batch.table.layout import ROWS, TableLayout
from spark_sink.batch.table.log import open_log
from spark_sink.batch.tasks.inspect import splits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from processor.engine.rest import IdColumn, JsonMatches, JsonRows
    from spark_sink.backfill.plan import HistoryPlan
    from spark_sink.batch.rows.json_lines import LineBlock


def hash_lines(plan: HistoryPlan, split: Split) -> HashedSplit:
    """Put the hashed rows of a file aside.

    Raises:
        StopError: It is cut or corrupt, or a row is of no partition.
    """
    path = plan.files[split.file]
    return HashedRows(plan, split.number, path).write(_blocks(plan, path))


def _blocks(plan: HistoryPlan, path: str) -> Iterator[tuple[NDArray[np.int64], RowColumns]]:
    reader = _id_reader(plan)
    for block in read_lines(path):
        try:
            yield block.rows, _columns(plan, reader, block, path)
        except (ValueError, pa.ArrowException) as error:
            raise StopError(f"{path}, from row {block.rows[0]} on: a value cannot be read ({error})") from error


def _id_reader(plan: HistoryPlan) -> JsonIds:
    columns = plan.columns
    return JsonIds(
        [each.column for each in columns.id],
        plan.secret,
        # Where a record stood is no part of its content.
        exclude=None if plan.exclude is None else [*plan.exclude, *columns.beside_value],
        as_bytes=[at for at, each in enumerate(columns.id) if each.as_bytes],
        normal=[each.normal for each in columns.id],
    )


def _columns(plan: HistoryPlan, reader: JsonIds, block: LineBlock, path: str) -> RowColumns:
    columns, text, count = plan.columns, block.text, block.rows.size
    found = text.look_up(*filter(None, (columns.time, columns.partition, columns.key, columns.offset)))
    (times, late), at = _times(text, found, 0), 1
    partition, offset = np.zeros(count, np.int64), np.zeros(0, np.int64)
    if columns.partition is not None:
        partition, at = _numbers(text, found, at, ANYWHERE), at + 1
    if columns.key is not None:
        if columns.partition is None:
            partition = partitions_of(text.texts(found, at), plan.partitions)
        at += 1
    if columns.offset is not None:
        offset = _numbers(text, found, at, NO_OFFSET)
    read = reader.read(text)
    ids = read.ids
    sent_to = None if plan.route is None else routed_partitions(read, plan.route)
    require_end(block, ids.fault, path)
    hashes = RowHashes(ids.hash, ids.fingerprint, times)
    return RowColumns(hashes, merged_fault(ids.fault, late), partition, offset, sent_to)


def _times(text: JsonRows, found: JsonMatches, at: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return times in ms: of whole numbers, which are ms, and of texts."""
    kind = found.kind[at]
    texts = text.texts(found, at)
    whole, words = kind == JsonKind.INTEGER, (kind == JsonKind.STRING) | (kind == JsonKind.ESCAPED)
    times, fault = np.zeros(kind.size, np.int64), np.full(kind.size, Fault.FIELD_TYPE, np.uint8)
    fault[kind <= JsonKind.NULL] = Fault.FIELD_MISSING
    array = _text_array(texts)
    for rows, numeric in ((whole, True), (words, False)):
        if rows.any():
            some = array.filter(pa.array(rows))
            times[rows], fault[rows] = read_time_ms(some.cast(pa.int64()) if numeric else some)
    return times, fault


def _numbers(text: JsonRows, found: JsonMatches, at: int, nothing: int) -> NDArray[np.int64]:
    """Return whole numbers, also where a text says them; ``nothing`` where there are none."""
    texts = text.texts(found, at)
    numbers, absent = read_whole(_text_array(texts))
    numbers[absent] = nothing
    return numbers


def _text_array(column: IdColumn) -> Any:
    """Return texts that were gathered from JSON as an array of Arrow's."""
    offsets = pa.py_buffer(np.ascontiguousarray(column.offsets, np.int64))
    valid = pa.py_buffer(np.packbits(column.valid, bitorder="little"))
    made = pa.Array.from_buffers(
        pa.large_string(), column.valid.size, [valid, offsets, pa.py_buffer(column.data)]
    )
    return made.cast(pa.string())


class HistoryFiles(NamedTuple):
    """The files of a history.

    Attributes:
        files: Them, in any order.
        ignored: Files that are left out.
    """

    files: list[InputFile]
    ignored: list[str]

    @property
    def name(self) -> str:
        """What they are known by: paths, sizes and times of modification."""
        return digest(self.files)


class CleanTable(NamedTuple):
    """What the clean table of a batch says of itself.

    Attributes:
        key: 16 bytes, the key of its hashes.
        id: Its id columns, and of each whether it has bytes and not texts or numbers.
        exclude: Columns that do not count in fingerprints; None: it has no fingerprints.
        normal: Of each id column what does not count of it.
    """

    key: bytes
    id: list[tuple[str, bool]]
    exclude: list[str] | None
    normal: dict[str, Normal]


class HashedHistory(NamedTuple):
    """What came of a history.

    Attributes:
        files: How many files it has.
        rows: How many rows.
        beyond: Of them those at and behind the cut, left out.
        faults: Of them those without an id or a time, left out.
        first_fault: Says where the first is, and why; empty: there is none.
        ends: By partition, the highest offset and one more; 0 where no row says one.
        taken: By partition that they are remembered in, rows that were not left out.
    """

    files: int
    rows: int
    beyond: int
    faults: int
    first_fault: str
    ends: list[int]
    taken: list[int]


def history_session(
    pipeline: str, master: str, memory: str, say: Callable[[str], None], *lakes: str
) -> AbstractContextManager[SparkSession]:
    """Return Spark for a history, with what reads tables of ``delta`` or ``iceberg``."""
    return files_session(f"seqmark-backfill-{pipeline}", master=master, memory=memory, lakes=lakes, say=say)


def find_history(
    path: str,
    kind: str,
    session: Callable[[str], AbstractContextManager[SparkSession]],
    ignore: Sequence[str] = (),
) -> HistoryFiles:
    """Return the files of a history; those of a table are the ones that count now.

    Args:
        path: A file, a folder, or that of a table.
        kind: Its format.
        session: Gives a session that reads ``delta`` or ``iceberg``; called where a log says what counts.
        ignore: Patterns of names of files that are left out.

    Raises:
        StopError: There is none, or one cannot be read.
    """
    if kind == DELTA:
        with session(DELTA) as spark:
            return HistoryFiles(find_delta_inputs(spark, [path], "history")[0], [])
    if kind != "batch":
        found, ignored = find_inputs([path], kind, ignore)
        return HistoryFiles(with_folders(found, None) if kind == PARQUET else found, ignored)
    files = _files_that_count(path, session)
    if not files:
        raise StopError(f"{path} has no rows: no run of its batch has kept any")
    paths = [Path(each).resolve() for each in files]
    return HistoryFiles(in_order(stamped(each, each.name) for each in paths), [])


def _files_that_count(
    path: str, session: Callable[[str], AbstractContextManager[SparkSession]]
) -> Sequence[str]:
    layout = TableLayout(path)
    if (lake := table_format(layout)) == PARQUET:
        return committed_files(path)
    with session(lake) as spark:
        counting = open_log(spark, lake, layout).read().files[ROWS]
    return [str(layout.file(each.path)) for each in counting]


def read_clean_table(path: str) -> CleanTable:
    """Return what a clean table says of itself.

    Raises:
        StopError: It is no clean table, or a commit is damaged.
    """
    layout = TableLayout(path)
    try:
        definition = read_definition(layout)
    except FileNotFoundError as error:
        raise StopError(f"{path} is no clean table: no batch has written there") from error
    names, fingerprint = definition.columns["id"], definition.columns["fingerprint"]
    last = read_snapshot(layout).last
    if last is None:
        raise StopError(f"{path} has no rows: no run of its batch has committed")
    schema = schema_of(last.schema)
    as_bytes = [(name, "binary" in str(schema.field(name).type)) for name in names]
    normal = {name: Normal.of(definition.columns["normalise"].get(name)) for name in names}
    exclude = None if fingerprint is None else list(fingerprint["exclude"])
    return CleanTable(definition.key, as_bytes, exclude, normal)


def hash_history(
    spark: SparkSession, plan: HistoryPlan, files: Sequence[InputFile], say: Callable[[str], None]
) -> tuple[HashedHistory, list[Path]]:
    """Put the rows of a history aside; returns what came of it, and the files of hashed rows.

    Raises:
        StopError: A file is cut, corrupt or has changed meanwhile, lacks a column, or a row is of no partition.
    """
    cluster = TaskCluster(spark)
    splits = _splits(cluster, plan)
    say(f"hashing the ids of {len(files):,} files, in {len(splits):,} parts")
    warm_rest()  # workers then find the kernels compiled
    task = hash_lines if plan.format == "json" else hash_rows
    made = cluster.run(partial(task, plan), splits, "reading the history")
    require_unchanged(files)
    first = ""
    for split, each in zip(splits, made, strict=True):
        if each.first_fault is not None:
            row, code = each.first_fault
            first = f"{plan.files[split.file]}, row {row}: {Fault(code).code}"
            break
    ends = np.array([each.ends for each in made], np.int64).reshape(-1, plan.partitions)
    outcome = HashedHistory(
        len(files),
        sum(each.rows for each in made),
        sum(each.beyond for each in made),
        sum(each.faults for each in made),
        first,
        ends.max(axis=0, initial=0).tolist(),
        np.array([each.taken for each in made], np.int64).reshape(-1, plan.places).sum(axis=0).tolist(),
    )
    return outcome, [hashed_file(plan.folder, each.number) for each in splits]


def _splits(cluster: TaskCluster, plan: HistoryPlan) -> list[Split]:
    if plan.format == "json":
        return [Split(number, number) for number in range(len(plan.files))]
    return splits_of(
        cluster.run(partial(read_history_footer, plan), range(len(plan.files)), "looking at the history")
    )


def hashed_rows(files: Sequence[Path]) -> Iterator[NDArray[np.void]]:
    """Yield the hashed rows of files, which are removed once they are read."""
    for file in files:
        yield from read_hashed(file)
        file.unlink()
