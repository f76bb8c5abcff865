"""Makes a virtual environment of its own for a peer whose dependencies are not the project's.

Its lock is installed by hash into a folder under the user's cache folder, named by the lock's content.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from processor.paths import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MADE = "made"
"""File that says that the environment is whole."""


class PeerEnvironment:
    """The environment of one lock; ``name`` is the first part of its folder's name."""

    def __init__(self, name: str, lock: Path) -> None:
        self._name, self._lock = name, lock

    def version(self, package: str) -> str:
        """Return the version of a package that the lock holds."""
        begins = f"{package}=="
        line = next(line for line in self._lock.read_text().splitlines() if line.startswith(begins))
        return line.split()[0].removeprefix(begins)

    @property
    def python(self) -> Path:
        """The interpreter."""
        digest = hashlib.sha256(self._lock.read_bytes() + sys.version.encode()).hexdigest()[:16]
        return cache_dir() / "bench" / f"{self._name}-{digest}" / "bin" / "python"

    def make(self, title: str, say: Callable[[str], None]) -> str | None:
        """Make it where it is not there yet; return why it cannot be made, or None."""
        folder = self.python.parents[1]
        if (folder / MADE).is_file():
            return None
        say(f"installing {title} into an environment of its own, once")
        # One without its mark was cut off.
        shutil.rmtree(folder, ignore_errors=True)
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for call in (
            [sys.executable, "-m", "venv", str(folder)],
            [*pip, "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(self._lock)],
        ):
            done = subprocess.run(call, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"its environment cannot be made: {done.stderr.strip()[-500:]}"
        (folder / MADE).touch()
        return None
