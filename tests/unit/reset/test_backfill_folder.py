"""The folder of a backfill is its owner's alone, held by one at a time, and found by the same history only."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.engine.ids.clock import NEVER
from processor.errors import StopError
from processor.reset.backfill.intake.cuts import cuts_after
from processor.reset.backfill.intake.folder import HistoryCounts, HistoryFolder
from processor.reset.backfill.staging import Staging, remembered_rows, stage_partition

if TYPE_CHECKING:
    from pathlib import Path

COUNTS = HistoryCounts(1, 7, 0, 1, "a.jsonl, row 3: field_missing", {0: 6}, {0: 2})


def staged(folder: HistoryFolder) -> Staging:
    folder.begin()
    rows = remembered_rows(np.zeros((0, 2), np.uint64), np.zeros(0, np.int64), NEVER, 1)
    parts = {0: stage_partition(folder.path, 0, 3, NEVER, rows)}
    return Staging(folder.path, "r", "p", bytes(16), bytes(16), False, parts).write()


def test_what_is_staged_is_found_again_by_the_same_history_only(tmp_path: Path) -> None:
    folder = HistoryFolder(tmp_path, "r", {"cut": [(0, 3)], "files": "abc"})
    assert folder.prepared() is None
    staging = staged(folder)
    assert folder.prepared() is None, "it counts when the note is there"
    folder.note(COUNTS, staging)

    found = HistoryFolder(tmp_path, "r", {"cut": [(0, 3)], "files": "abc"}).prepared()

    assert found is not None
    assert (found.counts, found.staging) == (COUNTS, staging)
    other = HistoryFolder(tmp_path, "r", {"cut": [(0, 4)], "files": "abc"})
    assert other.prepared() is None
    assert other.difference() == "cut was [[0, 3]] and is [[0, 4]]"
    folder.note(COUNTS, staging, loaded=True)
    done = folder.prepared()
    assert done is not None
    assert (done.staging, [each["cut"] for each in done.parts]) == (None, [3])
    assert [each.name for each in folder.path.iterdir()] == ["history.json"]


def test_nobody_else_may_look_into_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        folder = HistoryFolder(tmp_path / "state" / "app" / "backfill" / "p", "r", {})
        with folder.locked():
            folder.note(COUNTS, staged(folder))
    finally:
        os.umask(before)
    made = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
    assert len(made) > 6
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in made} == {0}


def test_two_at_once_and_a_folder_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    with HistoryFolder(tmp_path, "r", {}).locked():
        with (
            pytest.raises(StopError, match=r"another process works on .*/r"),
            HistoryFolder(tmp_path, "r", {}).locked(),
        ):
            pass
        with HistoryFolder(tmp_path, "s", {}).locked():
            pass
    (tmp_path / "file").touch()
    with (
        pytest.raises(StopError, match=r"cannot be written: Not a directory\. With --staging name a folder"),
        HistoryFolder(tmp_path / "file", "r", {}).locked(),
    ):
        pass


def test_the_cut_that_nobody_gives_is_where_the_history_ends() -> None:
    assert cuts_after({0: None, 1: 7, 2: None}, [12, 9, 0]) == {0: 12, 1: 7, 2: 0}
