"""Looks whether what is made again from a date on is still in its topic, before anything is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from processor.errors import StopError
from spark_sink.batch.table.commits import RUN
from spark_sink.batch.table.layout import DUPLICATES, QUARANTINE, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from spark_sink.batch.table.commits import Snapshot, TopicSpan
    from spark_sink.batch.table.layout import TableLayout

_COLUMNS = {ROWS: ["seqmark_run", "seqmark_file", "seqmark_row"], DUPLICATES: ["run", "file", "row"]}
_SOURCE = "seqmark_source"


class RetainedOffsets(NamedTuple):
    """Offsets of a partition that can be read, as ascending ranges: a topic has a gap per transaction.

    Attributes:
        first: int64[n].
        stop: int64[n], one beyond the last.
    """

    first: NDArray[np.int64]
    stop: NDArray[np.int64]

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> RetainedOffsets:
        """Return these ranges."""
        both = np.array(list(ranges), np.int64).reshape(-1, 2)
        return cls(both[:, 0], both[:, 1])

    @classmethod
    def staged(cls, file: Path) -> RetainedOffsets:
        """Return those of a file that `spark_sink.batch.topic.staged` has written."""
        first, stop = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(columns=["offset"]):
                offset = batch.column(0).to_numpy()
                gaps = np.flatnonzero(np.diff(offset) != 1) + 1
                first.append(offset[np.append(0, gaps)])
                stop.append(offset[np.append(gaps, offset.size) - 1] + 1)
        return cls(np.concatenate(first), np.concatenate(stop))

    def lacks(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return of which offsets there is no record."""
        at = np.searchsorted(self.first, offsets, "right")
        return offsets >= np.append(np.iinfo(np.int64).min, self.stop)[at]


def spans_of(span: TopicSpan) -> dict[str, RetainedOffsets]:
    """Return by file what a run reads, as far as is known before it is read."""
    return {f"{span.topic}-{number}": RetainedOffsets.of([each]) for number, each in span.partitions.items()}


def require_retained(
    snapshot: Snapshot,
    removed: Mapping[str, Sequence[str]],
    layout: TableLayout,
    span: TopicSpan,
    there: Mapping[str, RetainedOffsets],
) -> None:
    """Refuse to remove rows that nobody could make again.

    Args:
        snapshot: What counts.
        removed: By kind, paths of the files that are made again.
        layout: Where they lie.
        span: What is read of the topic.
        there: By file, which rows can be read.

    Raises:
        StopError: Names a row that is gone, and from which date on all are there.
    """
    over = {each.run for each in snapshot.commits if each.topic and each.topic.is_of(span.topic, span.topic_id)}
    quarantined = _quarantined(snapshot, span)
    dates = {each.path: each.date for kind in removed for each in snapshot.files[kind]}
    lost: list[tuple[str, str, int]] = []
    for kind, paths in removed.items():
        for path in paths:
            if path not in dates:  # merged by another program meanwhile: its rows are in another one
                continue
            table = _places(str(layout.file(path)), kind, quarantined.get(path))
            lost += [(dates[path], *each) for each in _of_others(table, over)]
            lost += [(dates[path], *each) for each in _gone(table, there)]
    if not lost:
        return
    last, (_, file, row) = max(lost)[0], min(lost)
    raise StopError(
        f"{file}:{row} cannot be read again: retention has removed it, or another input had it, or compaction "
        f"has left a later record in its place. Rows of {min(lost)[0]} to {last} would be lost; name a date "
        f"after {last}"
    )


def _quarantined(snapshot: Snapshot, span: TopicSpan) -> dict[str, str]:
    """Return the runs that files of quarantined rows are of, which do not say it themselves.

    What a compaction has merged is of all runs before it: of one over an earlier topic of the name, where
    there is one.
    """
    found: dict[str, str] = {}
    alien: str | None = None
    for each in snapshot.commits:
        topic, run = each.topic, each.run
        if each.kind != RUN:
            found.update({} if alien is None else {file.path: alien for file in each.added[QUARANTINE]})
            continue
        found.update({file.path: run for file in each.added[QUARANTINE]})
        if topic is not None and topic.topic == span.topic and not topic.is_of(span.topic, span.topic_id):
            alien = run
    return found


def _places(path: str, kind: str, run: str | None) -> Any:
    """Return run, file and row of the rows of a data file; no run: not known."""
    with pq.ParquetFile(path) as parquet:
        if kind != QUARANTINE:
            return parquet.read(columns=_COLUMNS[kind]).rename_columns(["run", "file", "row"])
        sources = parquet.read(columns=[_SOURCE]).column(_SOURCE)
    parts = pc.split_pattern(sources, ":", max_splits=1, reverse=True)
    rows = pc.cast(pc.list_element(parts, 1), pa.int64())
    runs = pa.array([run] * len(sources), pa.string())
    return pa.table({"run": runs, "file": pc.list_element(parts, 0), "row": rows})


def _of_others(table: Any, over: set[str]) -> Iterator[tuple[str, int]]:
    """Yield file and lowest row of what runs over other inputs have written."""
    for each in table.group_by(["run", "file"]).aggregate([("row", "min")]).to_pylist():
        if each["run"] is not None and each["run"] not in over:
            yield each["file"], each["row_min"]


def _gone(table: Any, there: Mapping[str, RetainedOffsets]) -> Iterator[tuple[str, int]]:
    """Yield file and lowest row of what cannot be read of a file; all of one that is no partition."""
    if not len(table):
        return
    files = table.column("file").combine_chunks().dictionary_encode()
    which, row = files.indices.to_numpy(), table.column("row").to_numpy()
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(files.dictionary)))
    for name, rows in zip(files.dictionary.to_pylist(), np.split(row[order], ends[:-1]), strict=True):
        gone = rows[there[name].lacks(rows)] if name in there else rows
        if gone.size:
            yield name, int(gone.min())
