"""Says where in the folder of a clean table everything lies.

    OUTPUT/data/2026-01-31/00000007-1f2e3d4c-00012-5b6a7988-0.parquet
                                           rows of one date: commit, attempt, split, try of its task, file
    OUTPUT/_seqmark/table.json             what the table is, made once
    OUTPUT/_seqmark/commits/00000007.json  what counts, see `spark_sink.batch.table.commits`
    OUTPUT/_seqmark/head.json              number and SHA-256 of the last commit, put after it
    OUTPUT/_seqmark/lock                   held by the run that is at work
    OUTPUT/_seqmark/staging/1f2e3d4c/      what one attempt of a run puts aside, removed when it ends
    DUPLICATES/data/2026-01-31/...         receipts, likewise; QUARANTINE/data/...
    DUPLICATES/_seqmark/of.json            whose commits say which of these files count

An attempt has a random name: a task of a run that was killed may still write for a moment, and then writes to
files that nobody will ever name. So has each try of a task: where Spark takes an executor for lost that is not,
two tries write at once.

One run at a time changes a table. The system frees its lock when the holder ends, however it ends. Two runs
that got past it, on a file system without locks, still could not both commit: a commit's number is taken once.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from processor.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS, DUPLICATES, QUARANTINE = "rows", "duplicates", "quarantine"
KINDS = (ROWS, DUPLICATES, QUARANTINE)
OWN_FOLDER = "_seqmark"
"""Spark, DuckDB's globs aside, leaves out names that begin with an underscore."""
UNDATED = "undated"
"""The folder of rows without a time that can be read."""
DATA_NAME = re.compile(r"\d{8}-[0-9a-f]{8}-\d{5,}(-[0-9a-f]{8})?-\d+\.parquet")
"""Of a data file: commit, attempt, split, try, and the number of the file among those of its task."""
DAY_US = 86_400_000_000
_FIRST_DAY = date(1970, 1, 1)


def day_text(day: int) -> str:
    """Return a date as it stands in names: 0 is ``1970-01-01``."""
    # Not strftime, which gives years before 1000 fewer digits: names are read back, and compared as texts.
    return (_FIRST_DAY + timedelta(days=day)).isoformat()


def day_number(text: str) -> int:
    """Return the number of a date, from 1970-01-01 on."""
    return (date.fromisoformat(text) - _FIRST_DAY).days


class TableLayout:
    """The folders of one clean table.

    Attributes:
        output: Folder of the table.
        folders: By kind, where its files lie; None where the config names none.
        own: Folder of what is ours.
    """

    def __init__(self, output: str, duplicates: str | None = None, quarantine: str | None = None) -> None:
        self.output = Path(output).resolve()
        given = {DUPLICATES: duplicates, QUARANTINE: quarantine}
        self.folders: dict[str, Path | None] = {
            ROWS: self.output,
            **{kind: None if path is None else Path(path).resolve() for kind, path in given.items()},
        }
        self.own = self.output / OWN_FOLDER

    def staging(self, attempt: str) -> Path:
        """Return the folder of an attempt."""
        return self.own / "staging" / attempt

    def relative(self, file: Path) -> str:
        """Return a file's path as commits name it: from the table's folder on."""
        return os.path.relpath(file, self.output)

    def file(self, relative: str) -> Path:
        """Return the file that a commit names."""
        return Path(os.path.normpath(self.output / relative))

    def claim(self) -> None:
        """Note in the folders of receipts and quarantine whose commits say what of them counts.

        Raises:
            StopError: A folder belongs to another table.
        """
        for kind, folder in self.folders.items():
            if kind == ROWS or folder is None:
                continue
            note = folder / OWN_FOLDER / "of.json"
            whose = {"table": os.path.relpath(self.output, folder), "kind": kind}
            if not note.exists():
                note.parent.mkdir(parents=True, exist_ok=True)
                put_if_absent(note, json.dumps(whose))
            if json.loads(note.read_text()) != whose:
                raise StopError(
                    f"{kind} folder {folder}: it belongs to another table or holds another kind; name "
                    f"another folder"
                )


@contextmanager
def table_lock(layout: TableLayout) -> Iterator[None]:
    """Hold the lock of a table while the block runs.

    Raises:
        StopError: Another run holds it, or the block fails by the file system.
    """
    layout.own.mkdir(parents=True, exist_ok=True)
    # Not inherited: the JVM and its Python workers may outlive us for a moment.
    handle = os.open(layout.own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StopError(
                f"another run is at work on {layout.output}: one run at a time; start this one when it "
                f"has ended"
            ) from error
        yield
    except OSError as error:
        # A task's has come back as a refusal; this one is the driver's own.
        raise StopError(
            f"{layout.output}: {error}; mend that and start it again: a run that had committed by then says so"
        ) from error
    finally:
        os.close(handle)


def put_if_absent(file: Path, text: str) -> bool:
    """Write a file whole and durably, unless there is one of this name; return whether it was written.

    A crash leaves it absent or whole: it gets its name by a link, which fails where the name is taken.
    """
    hidden = _hidden(file, text)
    try:
        os.link(hidden, file)
    except FileExistsError:
        return False
    finally:
        hidden.unlink()
    flush_folder(file.parent)
    return True


def replace_whole(file: Path, text: str) -> None:
    """Write a file whole and durably, in place of one that may be there."""
    hidden = _hidden(file, text)
    hidden.replace(file)
    flush_folder(file.parent)


def _hidden(file: Path, text: str) -> Path:
    hidden = file.with_name(f".{file.name}.{os.getpid()}-{os.urandom(4).hex()}")
    with hidden.open("x") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    return hidden


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
