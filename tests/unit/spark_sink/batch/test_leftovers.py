"""What a dead run has left is removed, but not while its commit may still come to count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_sink.batch.leftovers import remove_leftovers
from spark_sink.batch.table.commits import Commit, Snapshot, commit_file
from spark_sink.batch.table.layout import DATA_NAME, TableLayout

if TYPE_CHECKING:
    from pathlib import Path

NAME = "00000002-0a1b2c3d-00000-00000.parquet"


def left(folder: Path) -> tuple[TableLayout, Path]:
    """Return a table with one commit, and a file of rows that it does not name."""
    layout = TableLayout(str(folder))
    file = folder / "data" / "seqmark_date=2026-01-05" / NAME
    for each in (file, commit_file(layout, 1)):
        each.parent.mkdir(parents=True)
        each.touch()
    assert DATA_NAME.fullmatch(file.name)
    return layout, file


@pytest.mark.parametrize("ahead", ["00000002.json", "00000002.0a1b2c3d.aside"])
def test_while_a_dead_runs_commit_may_be_on_the_way_into_the_tables_log_its_files_stay(
    tmp_path: Path, ahead: str
) -> None:
    layout, file = left(tmp_path)
    snapshot = Snapshot([Commit(1, "r1", "run", [], "", {})])
    (commit_file(layout, 1).parent / ahead).touch()

    assert remove_leftovers(layout, snapshot, keep_rows=True) == 0
    assert file.exists()


@pytest.mark.parametrize("keep_rows", [False, True])
def test_what_no_commit_names_is_removed(tmp_path: Path, *, keep_rows: bool) -> None:
    layout, file = left(tmp_path)

    assert remove_leftovers(layout, Snapshot([Commit(1, "r1", "run", [], "", {})]), keep_rows=keep_rows) == 1
    assert not file.exists()
