"""Which folder is this worker's, when several share one state_dir on a host?

``state_dir/application_id/home-N`` with the lowest N that nobody holds. A lock on the file beside it is held
until the process ends, however it ends. A restarted worker finds its state again; a paused one keeps its
folder, and the worker that takes over its partitions restores into another.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from processor.errors import StopError

MOST_HOMES = 256


class Home:
    """A claimed folder.

    Args:
        state_dir: From the config.
        application_id: From the config.

    Raises:
        StopError: It cannot be made or claimed: permission, disk full, too many workers.
    """

    def __init__(self, state_dir: str | Path, application_id: str) -> None:
        root = Path(state_dir) / application_id
        try:
            root.mkdir(parents=True, exist_ok=True)
            self.folder, self._lock = _claim(root)
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


def _claim(root: Path) -> tuple[Path, int]:
    for number in range(MOST_HOMES):
        folder = root / f"home-{number}"
        lock = os.open(root / f"home-{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        folder.mkdir(exist_ok=True)
        return folder, lock
    raise StopError(f"{root}: {MOST_HOMES} workers hold a folder here already")
