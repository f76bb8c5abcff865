"""Reads and writes the commits of a clean table: what of its files counts.

A commit is one file, put if absent, that names its predecessor by number and SHA-256 and says which files it
adds and which it removes. What counts is what the commits from 1 to the last have added and not removed:

    {"version": 1, "number": 7, "previous": {"number": 6, "sha256": "..."} | null,
     "run": "...", "kind": "run" | "compaction", "from": "2026-01-31" | null,
     "inputs": [{"name", "bytes", "modified_ns"}], "columns": {name: type}, "schema": base64 of Arrow's form,
     "topic": {"topic", "topic_id", "partitions": {"0": [from, to]}} | null,
     "added": {"rows": [{"path", "date", "rows"}], "duplicates": [...], "quarantine": [{..., "source"}]},
     "removed": {"rows": ["path"], ...}, "counts": {"read": 10, ...}}

``topic`` is what a run over a topic has read; the next one goes on there. Paths lead from the table's folder
on. A run is one commit: rows, receipts and quarantine count together.

Beside them, in ``head.json``, stand number and SHA-256 of the last commit, put right after it. It decides
nothing: after a crash it may be one commit behind. By it a last commit that was removed or changed is found.

With Delta and Iceberg the table's own log has the last word: it says which rows count, up to which number
commits do, and by a mark which file of that number. A commit of a higher number is of a run that died before
the log had it; the next run sets it aside as ``00000007.1f2e3d4c.aside`` until one of that number counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from processor.errors import StopError
from spark_sink.batch.table.counted import counted_commits, mark_of
from spark_sink.batch.table.layout import KINDS, ROWS, flush_folder, put_if_absent, replace_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from spark_sink.batch.table.counted import Counted
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


@dataclass(frozen=True, slots=True)
class TopicSpan:
    """What a run has read of a topic.

    Attributes:
        topic: Its name.
        topic_id: 32 hex digits; empty: its brokers give none.
        partitions: By number, from which offset to before which; all that there were.
    """

    topic: str
    topic_id: str
    partitions: dict[int, tuple[int, int]]

    @property
    def offsets(self) -> int:
        """How many offsets it has."""
        return sum(stop - start for start, stop in self.partitions.values())

    def is_of(self, topic: str, topic_id: str) -> bool:
        """Say whether it is of this topic; an id that brokers of before 2.8 do not give decides nothing."""
        known = {self.topic_id, topic_id} - {""}
        return self.topic == topic and len(known) < 2


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
    topic: TopicSpan | None = None
    """What was read of a topic; None: files were."""
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


def read_snapshot(layout: TableLayout, counted: Counted | None = None) -> Snapshot:
    """Read all commits that count.

    Args:
        layout: Where the table lies.
        counted: With Delta or Iceberg the last one; not given: it is looked for.

    Raises:
        StopError: One is damaged, is missing, or does not follow the one before it.
    """
    head = _read_head(layout)  # before the commits: one may be put meanwhile
    counted = counted_commits(layout) if counted is None else counted
    folder = layout.own / "commits"
    files = sorted(each for each in folder.glob("*.json") if each.stem.isdecimal()) if folder.is_dir() else []
    if counted is not None:
        last = counting_file(layout, counted)
        files = [*files[: max(counted.number - 1, 0)], *([] if last is None else [last])]
        _require_counted(folder, len(files), head, counted.number)
    commits: list[Commit] = []
    for number, file in enumerate(files, 1):
        commits.append(_read(file, number, commits[-1] if commits else None))
    if head is not None:
        number, sha256 = head
        if len(commits) < number:
            raise StopError(
                f"commit {folder / f'{number:08d}.json'} is missing, and what it names would be lost; restore "
                "the folder from a backup"
            )
        if commits[number - 1].sha256 != sha256:
            raise StopError(
                f"commit {files[number - 1]} was changed after it was put; restore the folder from a backup"
            )
    return Snapshot(commits)


def commit_file(layout: TableLayout, number: int) -> Path:
    """Return where the commit of a number is put."""
    return layout.own / "commits" / f"{number:08d}.json"


def files_aside(layout: TableLayout, number: int) -> list[Path]:
    """Return the commits of a number that dead runs have put, and later runs have set aside."""
    return sorted((layout.own / "commits").glob(f"{number:08d}.*.aside"))


def counting_file(layout: TableLayout, counted: Counted) -> Path | None:
    """Return the file of the last commit that counts by the table's own log; None: there is none.

    Raises:
        StopError: What was put under its number is something else.
    """
    file = commit_file(layout, counted.number)
    there = [each for each in (file, *files_aside(layout, counted.number)) if each.exists()]
    if not counted.number or not there:
        return None
    if not counted.mark:
        return file if file in there else None
    for each in there:
        if mark_of(counted.number, hashlib.sha256(each.read_bytes()).hexdigest()) == counted.mark:
            return each
    raise StopError(
        f"commit {file} is not the one that counts by the table's log: it was changed after it was put, or is "
        "of a run that died; restore the folder from a backup"
    )


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
            topic=_topic(made["topic"]),
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


def _topic(made: dict[str, Any] | None) -> TopicSpan | None:
    if made is None:
        return None
    spans = {int(number): (int(start), int(stop)) for number, (start, stop) in made["partitions"].items()}
    return TopicSpan(made["topic"], made["topic_id"], spans)


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
        "topic": None if commit.topic is None else asdict(commit.topic),
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
    if not put_if_absent(commit_file(layout, commit.number), text):
        raise overtaken(layout)
    return text


def overtaken(layout: TableLayout) -> StopError:
    """Return what is said where somebody else has committed meanwhile."""
    return StopError(
        f"another run has committed to {layout.output} meanwhile: nothing of this one counts; start it again"
    )
