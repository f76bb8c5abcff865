"""Keeps what is staged of a backfill in a folder of its own, and what it was made of, so that a load can go on.

::

    FOLDER/RUN.lock            held by who works on it
    FOLDER/RUN/history.json    what the history was; written last, so that with it all is staged
    FOLDER/RUN/...             what is staged, see `processor.reset.backfill.staging`; removed once it is loaded

Invariant: what is staged is loaded only by a command line that says the same of the history.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from processor.errors import StopError
from processor.paths import PRIVATE_FILE, PRIVATE_FOLDER
from processor.reset.backfill.staging import Staging

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NOTE = "history.json"
_VERSION = 1
_OWN_LEVELS = 4
"""Below the state folder: application, ``backfill``, pipeline and run."""


class BackfillStep(StrEnum):
    """Moments of a preparation at which a test may end it."""

    HASHED = "hashed"
    STAGED = "staged"


class HistoryCounts(NamedTuple):
    """What was read of a history.

    Attributes:
        files: How many files, or partitions of a topic.
        rows: Rows or records.
        beyond: Of them those from the cut on, left out where that was asked for.
        faults: Of them those without an id or a time, left out: the stream cannot judge them either.
        first_fault: Where the first is, and why; empty: there is none.
        taken: By partition that ids are remembered in, rows with an id.
        expired: By partition, how many ids are not remembered any more.
    """

    files: int
    rows: int
    beyond: int
    faults: int
    first_fault: str
    taken: dict[int, int]
    expired: dict[int, int]


class Prepared(NamedTuple):
    """What a folder has.

    Attributes:
        counts: Of the history.
        staging: What is to be loaded; None: it was loaded, and is removed.
        parts: What was loaded, by partition: cut, clock and ids.
        cuts: With ``route`` the cuts, by partition of the source; the parts are those that ids are sent to.
    """

    counts: HistoryCounts
    staging: Staging | None
    parts: list[dict[str, Any]]
    cuts: dict[int, int]


class HistoryFolder:
    """The folder of one backfill.

    Args:
        root: Of all backfills of the pipeline.
        run: The backfill's name.
        request: What is said of the history: JSON.
    """

    def __init__(self, root: Path, run: str, request: dict[str, Any]) -> None:
        self.path = root / run
        self._lock = root / f"{run}.lock"
        # As it is read back.
        self._request: dict[str, Any] = json.loads(json.dumps({"version": _VERSION, "run": run, **request}))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder while the block runs.

        Raises:
            StopError: Another process does, or it cannot be made.
        """
        with self.writing():
            _make_private(self._lock.parent)
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StopError(f"another process works on {self.path}: wait until it has ended") from error
            yield
        finally:
            os.close(descriptor)

    def prepared(self) -> Prepared | None:
        """Return what is staged of this very history; None: nothing is.

        Raises:
            StopError: It cannot be read.
        """
        note = self._note()
        if note is None or self.difference():
            return None
        counts = HistoryCounts(**note["counts"])
        counts = counts._replace(taken=_by_number(counts.taken), expired=_by_number(counts.expired))
        return Prepared(
            counts,
            None if note["loaded"] else Staging.read(self.path),
            note["parts"],
            dict(note.get("cuts", [])),
        )

    def difference(self) -> str:
        """Say what of the history is another than what was staged; empty: nothing, or nothing is staged."""
        note = self._note()
        before = {} if note is None else note["request"]
        changed = [key for key in before if before[key] != self._request.get(key)]
        return ", ".join(f"{key} was {before[key]} and is {self._request.get(key)}" for key in changed)

    def begin(self) -> None:
        """Make an empty folder, its owner's alone."""
        with self.writing():
            shutil.rmtree(self.path, ignore_errors=True)
            _make_private(self.path)

    def note(self, counts: HistoryCounts, staging: Staging, *, loaded: bool = False) -> None:
        """Note that a history is staged, or that it was loaded, and then remove what was staged."""
        parts = [
            {"partition": each.partition, "cut": each.cut, "clock_ms": each.clock_ms, "rows": each.rows}
            for _, each in sorted(staging.partitions.items())
        ]
        cuts = sorted(staging.cuts.items())
        said = {
            "request": self._request,
            "counts": counts._asdict(),
            "loaded": loaded,
            "parts": parts,
            "cuts": cuts,
        }
        with self.writing():
            made = self.path / f".{_NOTE}"
            made.write_text(json.dumps(said, indent=1))
            made.chmod(PRIVATE_FILE)
            made.replace(self.path / _NOTE)
            if loaded:
                for file in self.path.iterdir():
                    if file.name != _NOTE:
                        file.unlink()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Say what to do where the block cannot write what it stages.

        Raises:
            StopError: So it is.
        """
        try:
            yield
        except OSError as error:
            raise StopError(
                f"{error.filename or self.path} cannot be written: {error.strerror}. With --staging name a "
                "folder that this user can write to, with room for 72 bytes per row of the history"
            ) from error

    def _note(self) -> dict[str, Any] | None:
        path = self.path / _NOTE
        try:
            note: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StopError(f"{path} cannot be read ({error}): remove {self.path}, it is made again") from error
        return note if note["request"].get("version") == _VERSION else None


def _make_private(folder: Path) -> None:
    """Make a folder and those above it; what is below the state folder is its owner's alone."""
    above = list(reversed(folder.parents))
    for each in [*above[-_OWN_LEVELS:], folder]:
        if not each.exists():
            each.parent.mkdir(parents=True, exist_ok=True)
            each.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def _by_number(counts: dict[Any, int]) -> dict[int, int]:
    """Return what JSON gave text keys."""
    return {int(number): count for number, count in counts.items()}
