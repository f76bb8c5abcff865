"""How does a Java peer come from one source file to a command line?

Its jars are resolved as the broker's are, and its source is compiled once: to classes in a folder of the cache
whose name is a hash of source, coordinates and compiler, so that nothing is compiled while anything is
measured. The folder appears by one rename, so it is whole or not there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from processor.errors import BrokerError
from processor.jvm.jars import resolve
from processor.jvm.java import find_java
from processor.paths import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCES = Path(__file__).parent / "java"
LOGGING = ("org.slf4j:slf4j-simple:1.7.36",)
"""To stderr; the broker's, so that one copy is in Ivy's cache."""
JVM_FLAGS = (
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
"""For each of them; what is tuned stands with the peer."""
_COMPILE_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Program:
    """One of the sources here.

    Attributes:
        main: The class, and the name of its file.
        jars: Short name of the set of jars, for its folder and for messages.
        coordinates: ``group:artifact:revision`` of what it is compiled and run with.
    """

    main: str
    jars: str
    coordinates: tuple[str, ...]

    def prepare(self, say: Callable[[str], None]) -> str | None:
        """Fetch and compile what is not in the cache; return why that cannot be done, or None."""
        try:
            self.class_path(say)
        except BrokerError as exc:
            return str(exc)
        return None

    def class_path(self, say: Callable[[str], None] = lambda _: None) -> str:
        """Return jars and classes as Java's ``-cp`` takes them, at once if the cache has them.

        Raises:
            BrokerError: There is no suitable JDK, the jars are not to be had, or the source does not compile.
        """
        jars = [str(jar) for jar in resolve([*self.coordinates, *LOGGING], self.jars, say=say)]
        return os.pathsep.join([str(self._classes(jars, say)), *jars])

    def command(self, flags: list[str], arguments: dict[str, str]) -> list[str]:
        """Return the command line: Java with these flags, and the arguments as ``name=value``."""
        given = [f"{name}={value}" for name, value in arguments.items()]
        java = str(find_java().path)
        return [java, *flags, *JVM_FLAGS, "-cp", self.class_path(), self.main, *given]

    def _classes(self, jars: list[str], say: Callable[[str], None]) -> Path:
        source = SOURCES / f"{self.main}.java"
        java = find_java()
        made_of = [source.read_bytes(), *(name.encode() for name in (*self.coordinates, str(java.major)))]
        digest = hashlib.sha256(b"\0".join(made_of)).hexdigest()[:16]
        folder = cache_dir() / "peers" / f"{self.main}-{digest}"
        if folder.is_dir():
            return folder
        compiler = java.home / "bin" / "javac"
        if not compiler.is_file():
            raise BrokerError(
                f"{java.home} has no bin/javac: it is a runtime only. "
                "Install a JDK 17 or 21 (Debian and Ubuntu: openjdk-17-jdk-headless)."
            )
        say(f"compiling {source.name}")
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".compile-", dir=folder.parent) as made:
                classes = Path(made) / "classes"
                _compile(compiler, source, classes, os.pathsep.join(jars))
                if not folder.is_dir():  # somebody else may have been quicker
                    classes.rename(folder)
        except OSError as exc:
            raise BrokerError(f"{source.name} cannot be compiled into {folder}: {exc}") from exc
        return folder


def _compile(compiler: Path, source: Path, classes: Path, class_path: str) -> None:
    try:
        run = subprocess.run(
            [compiler, "-nowarn", "-proc:none", "-d", classes, "-cp", class_path, source],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMPILE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise BrokerError(f"{source.name} is not compiled within {_COMPILE_TIMEOUT_S} s") from exc
    if run.returncode != 0:
        raise BrokerError(f"{source.name} does not compile:\n{run.stderr or run.stdout}")
