"""Removes what no commit names: files of runs that died, and files that a commit before the last has removed.

What the last commit has removed stays, for readers that began before it; with Delta and Iceberg all files of
rows that ever counted do, for these have commands of their own to clear them. So does what has no name of ours:
a folder that holds other files too is nobody's to clear. Called with the table's lock held.

A run that was killed has no lock, but its commit may still be on the way into the log of Delta or Iceberg:
while a file of the next commit lies there, nothing is removed. The next run that commits decides over it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from spark_sink.batch.table.commits import commit_file, files_aside
from spark_sink.batch.table.layout import DATA_NAME, OWN_FOLDER, ROWS

if TYPE_CHECKING:
    from spark_sink.batch.table.commits import Snapshot
    from spark_sink.batch.table.layout import TableLayout


def remove_leftovers(layout: TableLayout, snapshot: Snapshot, *, keep_rows: bool) -> int:
    """Remove them; return how many data files they were.

    Args:
        layout: Where the table lies.
        snapshot: What counts.
        keep_rows: Whether files of rows stay that a commit has named once.
    """
    shutil.rmtree(layout.own / "staging", ignore_errors=True)
    ahead = len(snapshot.commits) + 1
    if keep_rows and (commit_file(layout, ahead).exists() or files_aside(layout, ahead)):
        return 0
    named = {layout.file(each.path) for files in snapshot.files.values() for each in files}
    if snapshot.last is not None:
        named |= {layout.file(path) for paths in snapshot.last.removed.values() for path in paths}
    if keep_rows:
        named |= {layout.file(each.path) for commit in snapshot.commits for each in commit.added[ROWS]}
    removed = 0
    for folder in layout.folders.values():
        if folder is None:
            continue
        for root, folders, files in os.walk(folder / "data"):
            folders[:] = [each for each in folders if each != OWN_FOLDER]
            for name in files:
                file = Path(root, name)
                if file not in named and DATA_NAME.fullmatch(name):
                    file.unlink(missing_ok=True)
                    removed += 1
    return removed
