"""Finds a Java that can run the broker, of the versions that we promise.

It looks in this order: ``JAVA_HOME``, ``PATH``, the usual folders of the operating systems. The
first that fits wins, so a machine whose default is too new still works with a JDK 17 beside it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from processor.errors import BrokerError

# Kafka 4 brokers need 17; Spark 4.0 is made for 17 and 21 and fails on what came after.
OLDEST, NEWEST = 17, 21

_USUAL_PLACES = (
    "/usr/lib/jvm/*/bin/java",  # Debian, Fedora
    "/opt/java/*/bin/java",  # container images
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",  # macOS
    "/opt/homebrew/opt/openjdk*/bin/java",  # Homebrew
)
_ADVICE = (
    "Install a JDK 17 or 21 (Debian and Ubuntu: openjdk-17-jre-headless), or set JAVA_HOME to the folder of one"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that was started once and told its version.

    Attributes:
        note: What ``JAVA_HOME`` or ``PATH`` names and why that was not taken, for people; empty: it was.
    """

    path: Path
    major: int
    note: str = ""

    @property
    def home(self) -> Path:
        """The folder that JAVA_HOME would name."""
        return self.path.resolve().parent.parent


def find_java() -> Java:
    """Return the first Java from 17 to 21.

    Raises:
        BrokerError: There is none; names what was found instead and what to do.
    """
    rejected: list[str] = []
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    named = {Path(home) / "bin" / "java" if home else None, Path(on_path) if on_path else None}
    # Of those that somebody has named: he has to know that another one is taken.
    passed_over: list[str] = []
    if home and not (Path(home) / "bin" / "java").is_file():
        rejected.append(f"JAVA_HOME is {home}, which holds no bin/java")
        passed_over.append(rejected[-1])
    for path in _candidates():
        major = _major(path)
        if major is None:
            rejected.append(f"{path} does not tell its version")
        elif major < OLDEST:
            rejected.append(f"{path} is Java {major}, too old")
        elif major > NEWEST:
            rejected.append(f"{path} is Java {major}, too new")
        else:
            return Java(path, major, _note(passed_over, path, major))
        if path in named:
            passed_over.append(rejected[-1])
    if rejected:
        raise BrokerError(f"no Java from {OLDEST} to {NEWEST}: {'; '.join(rejected)}. {_ADVICE}.")
    raise BrokerError(f"no Java found by JAVA_HOME, on PATH or in the usual folders. {_ADVICE}.")


def _note(passed_over: list[str], path: Path, major: int) -> str:
    if not passed_over:
        return ""
    return f"{'; '.join(passed_over)}: taking {path} (Java {major}); {OLDEST} to {NEWEST} can be used"


def _candidates() -> list[Path]:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    places = [Path(home) / "bin" / "java"] if home else []
    places += [Path(on_path)] if on_path else []
    for pattern in _USUAL_PLACES:
        places += sorted(Path("/").glob(pattern.lstrip("/")))
    # Once per real file: distributions link the same JDK under several names.
    once: dict[Path, Path] = {}
    for place in places:
        if place.is_file():
            once.setdefault(place.resolve(), place)
    return list(once.values())


def _major(path: Path) -> int | None:
    """Return 17 of ``openjdk version "17.0.15"`` and 8 of ``"1.8.0_402"``; None if it does not run."""
    try:
        # `path` is an executable that the user's own environment names.
        run = subprocess.run(  # noqa: S603 - see above
            [path, "-version"], capture_output=True, text=True, errors="replace", timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', run.stderr + run.stdout)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])
