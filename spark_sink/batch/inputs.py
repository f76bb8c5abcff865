"""Finds the input files of a run, and says by what they are known.

What is hidden is told by Spark's rule. A folder that belongs to a table is refused: only the table's log
says which of its files count, and the others hold rows that were removed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from processor.errors import StopError
from spark_sink.batch.rows.constants import constants_of_folders
from spark_sink.batch.rows.formats import is_of_format
from spark_sink.batch.table.commits import InputStamp
from spark_sink.batch.table.layout import OWN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from spark_sink.batch.rows.constants import Constant
    from spark_sink.batch.table.commits import Commit, TopicSpan

_TABLES = (
    ("_delta_log", "a Delta table", "read it with the format delta"),
    ("metadata/*.metadata.json*", "an Iceberg table", "export it as Parquet files, and read those"),
    (".hoodie", "a Hudi table", "export it as Parquet files, and read those"),
    ("_spark_metadata", "the output of a Spark stream", "write a copy of it with Spark, and read that"),
    (
        f"{OWN_FOLDER}/table.json",
        "the clean table of a batch",
        "copy it with `spark_sink.read_clean`, or give it to a backfill with the format batch",
    ),
)
_MOST_NAMES = 5
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

    @property
    def logged(self) -> Any | None:
        """The columns that the log of the files' table says; None: there is none."""

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
        logged: The columns that the log of their table says, as an Arrow schema; None: they have none.
    """

    span: TopicSpan | None = None
    expired = 0

    def __init__(self, found: list[InputFile], logged: Any | None = None) -> None:
        self.found, self.logged = found, logged
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


def find_inputs(
    paths: Sequence[str], kind: str, ignore: Sequence[str] = ()
) -> tuple[list[InputFile], list[str]]:
    """Return the files in the order in which rows of one time are judged, and those that are left out.

    Args:
        paths: Files, and folders with all that is below them.
        kind: Format of the files; one that is named itself may be called anything, and be no other's.
        ignore: Patterns of names, or of paths from a folder on, that are left out.

    Raises:
        StopError: A path does not exist or belongs to a table, a file is of another format, or there is none.
    """
    found: dict[Path, InputFile] = {}
    ignored: list[str] = []
    unknown: list[str] = []
    for given in paths:
        root = Path(given).resolve()
        if not root.exists():
            raise StopError(
                f"input {given} does not exist; name a file or a folder, or give others with --input"
            )
        try:
            for each in _files_of(root):
                names = each.name, each.stamp.name
                named = each.path == root
                if not named and any(fnmatch(name, pattern) for pattern in ignore for name in names):
                    ignored.append(str(each.path))
                elif is_of_format(each.path, kind, named=named):
                    found.setdefault(each.path.resolve(), each)
                else:
                    unknown.append(str(each.path))
        except OSError as error:
            raise StopError(
                f"input {error.filename} cannot be read ({error.strerror}): a run reads every file; fix "
                "that, or give others with --input"
            ) from error
    if unknown:
        more = f", and {len(unknown) - _MOST_NAMES} more" if len(unknown) > _MOST_NAMES else ""
        raise StopError(
            f"input files are not {kind} files: {', '.join(unknown[:_MOST_NAMES])}{more}. Name them "
            'in ignore, such as "*.csv", or move them away: none is left out unnoticed'
        )
    if not found:
        left = f"; {len(ignored)} files are left out by ignore" if ignored else ""
        raise StopError(f"no input: there is no {kind} file in {', '.join(paths)}{left}")
    return in_order(found.values()), ignored


def _files_of(root: Path) -> Iterator[InputFile]:
    """Yield a file, or those below a folder.

    Raises:
        OSError: One cannot be looked at.
        StopError: They belong to a table.
    """
    free = set[Path]()
    _require_no_table(root.parent, free)
    if not root.is_dir():
        yield stamped(root, root.name)
        return
    for file in sorted(_below(root, free)):
        if file.is_symlink():
            _require_no_table(file.resolve().parent, free)
        yield stamped(file, file.relative_to(root).as_posix())


def _require_no_table(folder: Path, free: set[Path]) -> None:
    """Refuse files of a table.

    Args:
        folder: Where they really lie, behind all links.
        free: Folders that are none, like all above them; gets this one.

    Raises:
        StopError: It, or one above it, is one; names it, and how its rows are read.
    """
    for each in (folder, *folder.parents):
        if each in free:
            return
        for mark, what, advice in _TABLES:
            if next(each.glob(mark), None) is not None:
                raise StopError(
                    f"input {each} is {what}, whose log says which files count: the others hold rows that "
                    f"were removed; {advice}"
                )
        free.add(each)


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


def _below(root: Path, free: set[Path]) -> Iterator[Path]:
    """Yield the files below a folder, by links too, each folder once.

    Raises:
        OSError: A folder cannot be listed; what is in it would be lost unnoticed.
        StopError: It belongs to a table.
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
        _require_no_table(Path(real), free)
        folders[:] = sorted(each for each in folders if not _hidden(each))
        yield from (Path(folder, each) for each in files if not _hidden(each))


def _hidden(name: str) -> bool:
    """Return whether Spark reads no file or folder of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


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
