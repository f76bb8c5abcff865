"""What is made again from a date on is removed only where the topic still has every record of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from processor.errors import StopError
from spark_sink.batch.table.commits import COMPACTION, RUN, Commit, DataFile, Snapshot, TopicSpan
from spark_sink.batch.table.layout import DUPLICATES, KINDS, QUARANTINE, ROWS, TableLayout
from spark_sink.batch.topic.again import RetainedOffsets, require_retained, spans_of
from spark_sink.batch.topic.source import TopicBlock
from spark_sink.batch.topic.staged import TopicFile

if TYPE_CHECKING:
    from pathlib import Path

DATE = "2026-01-05"
NOW = TopicSpan("t", "bb", {0: (0, 10), 1: (0, 10)})


def commit(number: int, kind: str = QUARANTINE, topic_id: str | None = "bb") -> Commit:
    """Return a commit with a file of its number; of a compaction without an id."""
    span = None if topic_id is None else TopicSpan("t", topic_id, {0: (0, 10)})
    what = COMPACTION if topic_id is None else RUN
    found = Commit(number, f"r{number}", what, [], "", {}, topic=span)
    found.added[kind].append(DataFile(f"{number}.parquet", DATE, 1))
    return found


def require(
    folder: Path, commits: list[Commit], kind: str, there: dict[str, RetainedOffsets] | None = None
) -> None:
    """Make again what the last commit has."""
    removed = {each: [f"{commits[-1].number}.parquet"] if each == kind else [] for each in KINDS}
    require_retained(
        Snapshot(commits), removed, TableLayout(str(folder)), NOW, spans_of(NOW) if there is None else there
    )


def put(folder: Path, rows: list[tuple[str, int]], number: int = 1, run: str = "r1") -> None:
    files, numbers = [file for file, _ in rows], [row for _, row in rows]
    runs, sources = [run] * len(rows), [f"{file}:{row}" for file, row in rows]
    table = pa.table({"seqmark_run": runs, "seqmark_file": files, "seqmark_row": numbers})
    for name, column in (("run", runs), ("file", files), ("row", numbers), ("seqmark_source", sources)):
        table = table.append_column(name, pa.array(column))
    pq.write_table(table, folder / f"{number}.parquet")


def staged(folder: Path, *offsets: int) -> RetainedOffsets:
    values: list[bytes | None] = [b"{}"] * len(offsets)
    with TopicFile(folder / "t-0") as file:
        for block in np.array_split(np.array(offsets), 2):
            file.take(TopicBlock(block, block, values[: block.size], values[: block.size]))
    return RetainedOffsets.staged(folder / "t-0")


@pytest.mark.parametrize("kind", [ROWS, DUPLICATES, QUARANTINE])
def test_a_record_that_compaction_has_removed_from_the_middle_is_not_made_again(
    tmp_path: Path, kind: str
) -> None:
    put(tmp_path, [("t-0", 3), ("t-1", 4), ("t-0", 5), ("t-0", 8)])
    whole = {"t-0": staged(tmp_path, 1, 3, 5, 7, 8), "t-1": spans_of(NOW)["t-1"]}
    holed = whole | {"t-0": staged(tmp_path, 1, 3, 7, 8)}

    require(tmp_path, [commit(1, kind)], kind, whole)
    with pytest.raises(StopError, match=r"t-0:5 cannot be read again: .*compaction has left a later"):
        require(tmp_path, [commit(1, kind)], kind, holed)
    with pytest.raises(StopError, match=r"t-1:4 cannot be read again"):
        require(tmp_path, [commit(1, kind)], kind, {"t-0": whole["t-0"]})


def test_offsets_are_those_that_were_staged_and_no_others(tmp_path: Path) -> None:
    offsets = [0, 1, 2, 5, 6, 9, 11]

    assert staged(tmp_path, *offsets).lacks(np.arange(-2, 15)).tolist() == [
        each not in offsets for each in range(-2, 15)
    ]
    assert staged(tmp_path).lacks(np.arange(3)).all()


def test_quarantined_rows_of_an_earlier_topic_of_the_name_are_not_removed(tmp_path: Path) -> None:
    put(tmp_path, [("t-0", 5)])
    require(tmp_path, [commit(1)], QUARANTINE)

    with pytest.raises(StopError, match=r"t-0:5 cannot be read again.*another input had it"):
        require(tmp_path, [commit(1, topic_id="aa")], QUARANTINE)


def test_quarantined_rows_that_were_merged_are_removed_where_all_are_of_this_topic(tmp_path: Path) -> None:
    put(tmp_path, [("t-0", 5)], 3)

    require(tmp_path, [commit(1), commit(2), commit(3, topic_id=None)], QUARANTINE)
    with pytest.raises(StopError, match=r"t-0:5 cannot be read again"):
        require(tmp_path, [commit(1, topic_id="aa"), commit(2), commit(3, topic_id=None)], QUARANTINE)
