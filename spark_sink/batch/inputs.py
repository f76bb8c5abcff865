"""Finds the input files of a run, and says by what they are known."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from processor.errors import StopError
from spark_sink.batch.rows.constants import constants_of_folders
from spark_sink.batch.table.commits import InputStamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from spark_sink.batch.rows.constants import Constant
    from spark_sink.batch.table.commits import Commit, TopicSpan

_ENDS = {
    "parquet": (".parquet", ".parq", ".pq"),
    "json": (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz"),
}
_MOST_DIFFERENCES = 5
DIGITS = 16
"""Of a digest: 64 bits, for a few thousand runs."""


class RunInputs(Protocol):
    """What one run reads."""

    @property
    def names(self) -> Sequence[str]:
        """Base names of its files, in the order in which rows of one time are judged."""

    @property
    def stamps(self) -> Sequence[InputStamp]:
        """What files are known by, as the commit has them."""

    @property
    def span(self) -> TopicSpan | None:
        """What is read of a topic, as the commit has it; None: files are read."""

    @property
    def expired(self) -> int:
        """Offsets that retention has taken before they could be read."""

    @property
    def undated(self) -> set[str]:
        """Paths of inputs whose undated rows are made again."""

    @property
    def constants(self) -> Sequence[Sequence[Constant]]:
        """Of each file the columns that stand beside it; empty: none has any."""

    def identity(self) -> str:
        """Return what names a run over it."""

    def latest(self) -> Commit | None:
        """Return the run after which nothing has come; None: something has."""

    def require_same(self, commit: Commit) -> None:
        """Refuse other inputs than those of a run that has committed.

        Raises:
            StopError: Names the difference.
        """

    def files(self, staging: Path) -> Sequence[Path]:
        """Return the paths of its files, in the order of ``names``."""

    def require_unchanged(self) -> None:
        """Refuse to commit what was made of inputs that have changed meanwhile.

        Raises:
            StopError: Names one.
        """


class InputFile(NamedTuple):
    """One file that a run reads.

    Attributes:
        path: It.
        stamp: What it is known by; its name is the path from the input's folder on.
        constants: Columns that stand beside it.
    """

    path: Path
    stamp: InputStamp
    constants: Sequence[Constant] = ()

    @property
    def name(self) -> str:
        """Its base name, as receipts have it."""
        return self.path.name

    @property
    def depth(self) -> int:
        """How many parts of its path lie below the input's folder, its name included."""
        return self.stamp.name.count("/") + 1


class FileInputs:
    """Files that a run reads.

    Args:
        found: Them, in the order in which rows of one time are judged.
    """

    span: TopicSpan | None = None
    expired = 0

    def __init__(self, found: list[InputFile]) -> None:
        self.found = found
        self.names = [each.name for each in found]
        self.stamps = [each.stamp for each in found]
        self.undated = {str(each.path) for each in found}
        self.constants = [each.constants for each in found]

    def identity(self) -> str:
        """Return what names a run over them."""
        return digest(self.found)

    def latest(self) -> Commit | None:
        """Return None: files are read again by whoever names them again."""
        return None

    def require_same(self, commit: Commit) -> None:
        """Refuse other files than those of a run that has committed."""
        require_same_inputs(commit, self.found)

    def files(self, staging: Path) -> Sequence[Path]:  # noqa: ARG002 - they stay where they are
        """Return their paths."""
        return [each.path for each in self.found]

    def require_unchanged(self) -> None:
        """Refuse to commit what was made of files that have changed meanwhile."""
        require_unchanged(self.found)


def find_inputs(paths: Sequence[str], kind: str) -> tuple[list[InputFile], list[str]]:
    """Return the files in the order in which rows of one time are judged, and those that are left out.

    Args:
        paths: Files, and folders with all that is below them.
        kind: Format, by which files in folders are chosen; a file that is named itself may be called anything.

    Raises:
        StopError: A path does not exist, or there is no file at all.
    """
    found: dict[Path, InputFile] = {}
    others: list[str] = []
    for given in paths:
        root = Path(given).resolve()
        if not root.exists():
            raise StopError(
                f"input {given} does not exist; name a file or a folder, or give others with --input"
            )
        try:
            for file in sorted(_below(root)) if root.is_dir() else [root]:
                if file == root:
                    found.setdefault(root, stamped(root, root.name))
                elif file.name.lower().endswith(_ENDS[kind]):
                    found.setdefault(file.resolve(), stamped(file, file.relative_to(root).as_posix()))
                else:
                    others.append(str(file))
        except OSError as error:
            raise StopError(
                f"input {error.filename} cannot be read ({error.strerror}): a run does without no file; mend "
                "that, or give others with --input"
            ) from error
    if not found:
        ends = ", ".join(_ENDS[kind])
        left = f"; {len(others)} files with other names were left out" if others else ""
        raise StopError(f"no input: no file in {', '.join(paths)} has a name that ends in {ends}{left}")
    return in_order(found.values()), others


def with_folders(files: Sequence[InputFile], known: Any | None) -> list[InputFile]:
    """Return Parquet files with the columns that the names of their folders tell.

    Args:
        files: Them.
        known: The schema of the table that is there; None: there is none.

    Raises:
        StopError: Two folders of a path name one column.
    """
    told = constants_of_folders([(each.path, each.depth) for each in files], known)
    return [each._replace(constants=constants) for each, constants in zip(files, told, strict=True)]


def in_order(files: Iterable[InputFile]) -> list[InputFile]:
    """Return files in the order in which rows of one time are judged."""
    return sorted(files, key=lambda each: (each.name, each.stamp.name, str(each.path)))


def _below(root: Path) -> Iterator[Path]:
    """Yield the files below a folder, by links too, each folder once.

    Raises:
        OSError: A folder cannot be listed; what is in it would be lost unnoticed.
    """

    def fail(error: OSError) -> None:
        raise error

    seen = set()
    for folder, folders, files in os.walk(root, onerror=fail, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(each for each in folders if not each.startswith((".", "_")))
        yield from (Path(folder, each) for each in files if not each.startswith((".", "_")))


def stamped(file: Path, name: str) -> InputFile:
    """Return a file with what it is known by now."""
    status = file.stat()
    return InputFile(file, InputStamp(name, status.st_size, status.st_mtime_ns))


def digest(files: Sequence[InputFile]) -> str:
    """Return the name of a run over these files.

    Whole paths count: files of two folders may have one name, size and time, and one of them would be taken for
    read. An archive that has moved is another run, in which all is found to be there.
    """
    known = sorted([str(each.path), each.stamp.bytes, each.stamp.modified_ns] for each in files)
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:DIGITS]


def _known(stamp: InputStamp) -> tuple[str, int, int]:
    return stamp.name, stamp.bytes, stamp.modified_ns


def require_same_inputs(commit: Commit, files: Sequence[InputFile]) -> None:
    """Refuse other inputs than those of a run that has committed.

    Raises:
        StopError: Names the difference.
    """
    # Files of several folders may have one name: each is counted.
    before, now = Counter(commit.inputs), Counter(each.stamp for each in files)
    if commit.topic is not None:
        raise StopError(
            f"run {commit.run} has committed over topic {commit.topic.topic}, and not over files. Give this "
            "run a name of its own, or leave --run out"
        )
    missing = defaultdict(list)
    for each in sorted((before - now).elements(), key=_known):
        missing[each.name].append(each)
    told, changed = [], []
    for stamp in sorted((now - before).elements(), key=_known):
        if not missing[stamp.name]:
            told.append(f"{stamp.name} is new")
        elif (old := missing[stamp.name].pop(0)).bytes != stamp.bytes:
            changed.append(f"{stamp.name} had {old.bytes:,} bytes and has {stamp.bytes:,}")
        else:
            changed.append(f"{stamp.name} was modified")
    told += [f"{each.name} is missing" for left in missing.values() for each in left] + changed
    if told:
        more = f", and {len(told) - _MOST_DIFFERENCES} more" if len(told) > _MOST_DIFFERENCES else ""
        raise StopError(
            f"run {commit.run} has committed over other inputs: "
            f"{', '.join(told[:_MOST_DIFFERENCES])}{more}. Give "
            "this run a name of its own, or leave --run out"
        )


def require_unchanged(files: Sequence[InputFile]) -> None:
    """Refuse to commit what was made of files that have changed meanwhile.

    Raises:
        StopError: Names one.
    """
    for each in files:
        try:
            now = stamped(each.path, each.stamp.name).stamp
        except FileNotFoundError:
            now = None
        if now != each.stamp:
            raise StopError(
                f"{each.path} has changed while it was read: nothing of this run counts; start it again "
                f"when the "
                "file is whole"
            )
