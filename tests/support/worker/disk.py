"""A small disk in memory, which the test fills and frees.

Linux and root only: elsewhere the test is skipped. A process of its own mounts it and waits for the end of its
standard input: so it is unmounted also where the tests are killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_WAIT_S = 60.0
_BLOCK = 4096


class Disk:
    """A small disk.

    Args:
        path: Where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self, left_bytes: int = 0) -> None:
        """Leave no more room than this, in whole blocks."""
        self.free()
        blocks = os.statvfs(self.path).f_bavail - left_bytes // _BLOCK
        with self._ballast.open("wb") as file:
            file.truncate(0)
            os.posix_fallocate(file.fileno(), 0, blocks * _BLOCK)

    def free(self) -> None:
        """Make room again."""
        self._ballast.unlink(missing_ok=True)


class NewDisk(Protocol):
    """Makes disks; each is unmounted when the test ends."""

    def __call__(self, size: str = "32m") -> Disk:
        """Mount one; the size is in the words of tmpfs."""


@contextmanager
def mounted(size: str) -> Iterator[Disk]:
    """Mount a disk; skips the test where that is not allowed."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a disk of its own is mounted as root on Linux only")
    # Not pytest's folder: only its owner may enter that, and a server may be somebody else.
    folder = Path(tempfile.mkdtemp(prefix="seqmark-disk-"))
    folder.chmod(0o755)
    holder = subprocess.Popen(
        [sys.executable, "-m", "tests.support.worker.disk", str(folder), size],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        # Ctrl-C in the terminal ends the tests, which then end it.
        process_group=0,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        said = holder.stdout.readline().strip()
        if said != "mounted":
            pytest.skip(f"a disk of its own cannot be mounted here: {said}")
        yield Disk(folder)
    finally:
        holder.stdin.close()
        holder.wait(_WAIT_S)
        holder.stdout.close()
        folder.rmdir()


def _hold(folder: str, size: str) -> None:
    """Mount, say so, and unmount when standard input ends, whoever has closed it."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0777", "seqmark-test", folder]
    done = subprocess.run(mount, capture_output=True, text=True, check=False, timeout=_WAIT_S)
    print(done.stderr.replace("\n", " ") if done.returncode else "mounted", flush=True)  # noqa: T201 - its result
    if done.returncode:
        return
    sys.stdin.read()
    # Lazily where a process still has a file there: it goes when that process ends.
    for command in (["umount", folder], ["umount", "--lazy", folder]):
        if subprocess.run(command, capture_output=True, check=False, timeout=_WAIT_S).returncode == 0:
            return


if __name__ == "__main__":
    _hold(*sys.argv[1:])


def spoil(file: Path) -> None:
    """Flip a bit in each 512 bytes of a file, in place, but in its last 4 KB: they say where everything is."""
    size = file.stat().st_size
    with file.open("r+b") as opened:
        for at in range(100, size - _BLOCK, 512):
            opened.seek(at)
            byte = opened.read(1)[0]
            opened.seek(at)
            opened.write(bytes([byte ^ 0x10]))


def open_to_others(folder: Path) -> list[str]:
    """Return what of a folder, itself included, others may read or write."""
    found = [path for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    return [f"{path}: {path.stat().st_mode:o}" for path in found if path.stat().st_mode & 0o077]
