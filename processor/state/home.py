"""Claims a folder for this worker where several share one state_dir on a host.

``state_dir/application_id/home-N`` with the lowest N that nobody holds. A lock on the file beside it is held
until the process ends, however it ends. A restarted worker finds its state again; a paused one keeps its
folder, and the worker that takes over its partitions restores into another.

State is as secret as the records it is made of, and is believed: nobody else may read it or write to it. What
an earlier version left open is closed when a folder is claimed; what RocksDB makes from then on is closed by
the process's umask (`keep_to_ourselves`), for it has no setting for that.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.paths import OTHERS, PRIVATE_FILE, PRIVATE_FOLDER
from processor.state.kv.page_files import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger(__name__)

MOST_HOMES = 256
_STATE_SUFFIXES = {".sst", SUFFIX}
"""Of RocksDB's files and of pages; its write-ahead log, which has the last values once more, does not count."""


def keep_to_ourselves(state_dir: Path) -> None:
    """Let nothing that this process makes from now on be read or written by others.

    Folders above ``state_dir`` that are missing are made before: they may be everybody's.
    """
    with suppress(OSError):  # `Home` says it
        state_dir.parent.mkdir(parents=True, exist_ok=True)
    os.umask(OTHERS)


class Home:
    """A claimed folder, below the config's ``state_dir``.

    Raises:
        StopError: It cannot be made or claimed: permission, disk full, too many workers.
    """

    def __init__(self, state_dir: str | Path, application_id: str) -> None:
        root = Path(state_dir) / application_id
        try:
            root.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            root.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            self.folder, self._lock = _claim(root)
            _close(root)
        except OSError as error:
            raise StopError(
                f"state_dir {state_dir}: {error.strerror} ({error.filename}); "
                "set worker.state_dir to a folder that this user can write to"
            ) from error

    def partition(self, pipeline: str, partition: int) -> Path:
        """Return the folder of one source partition's state."""
        return self.folder / pipeline / str(partition)

    def release(self) -> None:
        """Give the folder free."""
        os.close(self._lock)


def sizes(state_dir: Path, application_id: str, pipelines: Iterable[str]) -> list[int]:
    """Return for each worker's folder the bytes of these pipelines' state in it."""
    names = list(pipelines)
    return [
        sum(
            file.stat().st_size
            for name in names
            for file in (home / name).rglob("*")
            if file.suffix in _STATE_SUFFIXES
        )
        for home in (state_dir / application_id).glob("home-*")
        if home.is_dir()
    ]


def _claim(root: Path) -> tuple[Path, int]:
    for number in range(MOST_HOMES):
        folder = root / f"home-{number}"
        lock = os.open(root / f"home-{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        return folder, lock
    raise StopError(f"{root}: {MOST_HOMES} workers hold a folder here already")


def _close(root: Path) -> None:
    """Take from others what modes allow them, of the folder and all in it, what other workers have made too."""
    try:
        if root.stat().st_mode & OTHERS:
            root.chmod(PRIVATE_FOLDER)
        # From above: what is inside a closed folder is not changed by others while it is looked at.
        for folder, folders, files in os.walk(root):
            for name in (*folders, *files):
                path = Path(folder, name)
                with suppress(FileNotFoundError):  # another worker has deleted it
                    mode = path.lstat().st_mode
                    if mode & OTHERS and not stat.S_ISLNK(mode):
                        path.chmod(PRIVATE_FOLDER if stat.S_ISDIR(mode) else PRIVATE_FILE)
    except PermissionError as error:
        message = "state in %s can be read by other users, and this one is not allowed to change that: %s"
        log.warning(message, root, error)
