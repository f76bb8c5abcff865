"""Reads and writes the commits of a clean table: what of its files counts.

A commit is one file, put if absent, that names its predecessor by number and SHA-256 and says which files it
adds and which it removes. What counts is what the commits from 1 to the last have added and not removed:

    {"version": 1, "number": 7, "previous": {"number": 6, "sha256": "..."} | null,
     "run": "...", "kind": "run" | "compaction", "from": "2026-01-31" | null,
     "inputs": [{"name", "bytes", "modified_ns"}], "columns": {name: type}, "schema": base64 of Arrow's form,
     "added": {"rows": [{"path", "date", "rows"}], "duplicates": [...], "quarantine": [{..., "source"}]},
     "removed": {"rows": ["path"], ...}, "counts": {"read": 10, ...}}

Paths lead from the table's folder on. A run is one commit: rows, receipts and quarantine count together.

Beside them, in ``head.json``, stand number and SHA-256 of the last commit, put right after it. It decides
nothing: after a crash it may be one commit behind. By it a last commit that was removed or changed is found.

With Delta and Iceberg the table's own log has the last word: it says which rows count, and up to which number
commits do. A commit of a higher number is of a run that died before the log had it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from processor.errors import StopError
from spark_sink.batch.table.counted import counted_commits
from spark_sink.batch.table.layout import KINDS, ROWS, flush_folder, put_if_absent, replace_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from spark_sink.batch.table.layout import TableLayout

VERSION = 1
RUN, COMPACTION = "run", "compaction"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table.

    Attributes:
        path: From the table's folder on.
        date: Of all its rows, in UTC; empty: they have none.
        rows: Their number.
        source: Path of the input file that undated rows come from.
    """

    path: str
    date: str
    rows: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class InputStamp:
    """What an input file is known by."""

    name: str
    bytes: int
    modified_ns: int


def _kinds() -> dict[str, Any]:
    return {kind: [] for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit, see the module."""

    number: int
    run: str
    kind: str
    inputs: list[InputStamp]
    schema: str
    columns: dict[str, str]
    added: dict[str, list[DataFile]] = field(default_factory=_kinds)
    removed: dict[str, list[str]] = field(default_factory=_kinds)
    counts: dict[str, int] = field(default_factory=dict)
    since: str | None = None
    """The date from which on results were made again; None: none were."""
    sha256: str = ""
    """Of its file."""


class Snapshot:
    """What counts after the last commit.

    Args:
        commits: From the first on.
        rows: The files of rows that count; None: those that the commits name.

    Attributes:
        commits: As given.
        files: By kind, those that count.
    """

    def __init__(self, commits: list[Commit], rows: Sequence[DataFile] | None = None) -> None:
        self.commits = commits
        found: dict[str, dict[str, DataFile]] = {kind: {} for kind in KINDS}
        for commit in commits:
            for kind, paths in commit.removed.items():
                for path in paths:
                    found[kind].pop(path, None)
            for kind, files in commit.added.items():
                found[kind].update({each.path: each for each in files})
        self._named = {kind: list(files.values()) for kind, files in found.items()}
        self.files = self._named if rows is None else {**self._named, ROWS: list(rows)}

    @property
    def last(self) -> Commit | None:
        """The last commit; None: there is none."""
        return self.commits[-1] if self.commits else None

    def to_remove(self, kind: str) -> list[DataFile]:
        """Return the files of a kind that a commit may remove: those that count, and those that commits name.

        They are the same unless other programs have merged files of rows: without the second part, commits
        would go on naming files that are gone.
        """
        return list({each.path: each for each in [*self._named[kind], *self.files[kind]]}.values())

    def of_run(self, run: str) -> Commit | None:
        """Return the commit of a run; None: it has none."""
        return next((each for each in self.commits if each.kind == RUN and each.run == run), None)


def read_snapshot(layout: TableLayout, counted: int | None = None) -> Snapshot:
    """Read all commits that count.

    Args:
        layout: Where the table lies.
        counted: With Delta or Iceberg the number of the last one; not given: it is looked for.

    Raises:
        StopError: One is damaged, is missing, or does not follow the one before it.
    """
    head = _read_head(layout)  # before the commits: one may be put meanwhile
    counted = counted_commits(layout) if counted is None else counted
    folder = layout.own / "commits"
    names = (
        sorted(each.name for each in folder.glob("*.json") if each.stem.isdecimal()) if folder.is_dir() else []
    )
    if counted is not None:
        _require_counted(folder, len(names), head, counted)
        names = names[:counted]
    commits: list[Commit] = []
    for number, name in enumerate(names, 1):
        commits.append(_read(folder / name, number, commits[-1] if commits else None))
    if head is not None:
        number, sha256 = head
        if len(commits) < number:
            raise StopError(
                f"commit {folder / f'{number:08d}.json'} is missing, and what it names would be lost; restore "
                "the folder from a backup"
            )
        if commits[number - 1].sha256 != sha256:
            raise StopError(
                f"commit {folder / names[number - 1]} was changed after it was put; restore the folder from a "
                "backup"
            )
    return Snapshot(commits)


def _require_counted(folder: Path, put: int, head: tuple[int, str] | None, counted: int) -> None:
    """Refuse a table whose own log has other commits than those that are beside it.

    Raises:
        StopError: Says what is missing.
    """
    if put < counted:
        raise StopError(
            f"commit {folder / f'{counted:08d}.json'} is missing, and the table's log says that it counts; "
            "restore the folder from a backup"
        )
    if head is not None and head[0] > counted:
        raise StopError(
            f"commit {folder / f'{head[0]:08d}.json'} has counted, and the table's log knows those up to "
            f"{counted} only: it was replaced by an older one; restore the folder from a backup"
        )


def _read_head(layout: TableLayout) -> tuple[int, str] | None:
    """Return number and SHA-256 of a commit that was put; None: none is known."""
    file = layout.own / "head.json"
    try:
        made = json.loads(file.read_text())
        return int(made["number"]), str(made["sha256"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StopError(f"{file} is damaged ({error}); restore the folder from a backup") from error


def note_head(layout: TableLayout, number: int, text: str) -> None:
    """Note the last commit, whose text this is."""
    made = {"number": number, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    # The commit counts already: a full disk must not make it look as if it did not.
    with contextlib.suppress(OSError):
        replace_whole(layout.own / "head.json", json.dumps(made))


def _read(file: Path, number: int, before: Commit | None) -> Commit:
    raw = file.read_bytes()
    try:
        made = json.loads(raw)
        version, previous = made["version"], made["previous"]
        if version != VERSION:
            raise StopError(
                f"commit {file}: version {version}, this Seqmark reads {VERSION}; install a newer one"
            )
        commit = Commit(
            number=made["number"],
            run=made["run"],
            kind=made["kind"],
            inputs=[InputStamp(**each) for each in made["inputs"]],
            schema=made["schema"],
            columns=made["columns"],
            added={kind: [DataFile(**each) for each in files] for kind, files in made["added"].items()},
            removed=made["removed"],
            counts=made["counts"],
            since=made["from"],
            sha256=hashlib.sha256(raw).hexdigest(),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StopError(f"commit {file} is damaged ({error}); restore the folder from a backup") from error
    expected = None if before is None else {"number": before.number, "sha256": before.sha256}
    if commit.number != number or previous != expected:
        raise StopError(
            f"commit {file} does not follow the one before it: a commit is missing or was changed; restore the "
            "folder from a backup"
        )
    return commit


def put_commit(layout: TableLayout, commit: Commit, before: Commit | None) -> str:
    """Put a commit, and return its text. Without a log of the table's own it counts from here on, whole.

    Raises:
        StopError: Somebody else has put one of this number.
    """
    added = {kind: [asdict(each) for each in files] for kind, files in commit.added.items()}
    made = {
        "version": VERSION,
        "number": commit.number,
        "previous": None if before is None else {"number": before.number, "sha256": before.sha256},
        "run": commit.run,
        "kind": commit.kind,
        "from": commit.since,
        "inputs": [asdict(each) for each in commit.inputs],
        "columns": commit.columns,
        "schema": commit.schema,
        "added": added,
        "removed": commit.removed,
        "counts": commit.counts,
    }
    folder = layout.own / "commits"
    folder.mkdir(parents=True, exist_ok=True)
    for each in (layout.own, layout.output, layout.output.parent):
        flush_folder(each)
    text = json.dumps(made, indent=1)
    if not put_if_absent(folder / f"{commit.number:08d}.json", text):
        raise overtaken(layout)
    return text


def overtaken(layout: TableLayout) -> StopError:
    """Return what is said where somebody else has committed meanwhile."""
    return StopError(
        f"another run has committed to {layout.output} meanwhile: nothing of this one counts; start it again"
    )
