"""Compiles a peer in Java once, and says how it is started.

Its jars are resolved as the broker's are. Classes lie in a folder of the cache whose name is a hash of sources,
coordinates and compiler, so that nothing is compiled while anything is measured. The folder appears by one
rename, so it is whole or not there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers import Peer
from processor.broker.jars import JarSet, resolve
from processor.broker.java import find_java
from processor.errors import BrokerError
from processor.paths import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import Job

SOURCES = Path(__file__).parent / "programs"
LIST = Path(__file__).with_name("jars.json")
LOGGING = "org.slf4j:slf4j-simple:1.7.36"
"""To stderr, as the broker's."""
JVM_FLAGS = ("-XX:-UsePerfData", "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
"""For each of them; what is tuned stands with the peer."""
_COMPILE_TIMEOUT_S = 120


class JavaPeer(Peer):
    """A peer whose program is a class in ``programs/``, compiled with ``Values.java``.

    Attributes:
        jars: What it is compiled and run with; in `LIST`.
        flags: Of its JVM, beside `JVM_FLAGS`.
    """

    jars: JarSet
    flags: tuple[str, ...]

    def arguments(self, job: Job) -> dict[str, str]:
        """Return what the program is told of the job."""
        raise NotImplementedError

    def tuned(self, job: Job) -> dict[str, str]:
        """Return what is set in the system."""
        raise NotImplementedError

    def prepare(self, say: Callable[[str], None]) -> str | None:
        """Fetch and compile what is not in the cache."""
        try:
            self.class_path(say)
        except BrokerError as exc:
            return str(exc)
        return None

    def command(self, job: Job) -> list[str]:
        """Return the command line: Java with its flags, and the arguments as ``name=value``."""
        given = [f"{name}={value}" for name, value in {**self.arguments(job), **self.tuned(job)}.items()]
        flags = (*self.flags, *JVM_FLAGS, "-cp", self.class_path())
        return [str(find_java().path), *flags, self.program, *given]

    def settings(self, job: Job) -> dict[str, str]:
        """Return flags and settings."""
        return {"java": " ".join(self.flags), **self.tuned(job)}

    def class_path(self, say: Callable[[str], None] = lambda _: None) -> str:
        """Return jars and classes as Java's ``-cp`` takes them, at once if the cache has them.

        Raises:
            BrokerError: There is no suitable JDK, the jars cannot be fetched, or the sources do not compile.
        """
        jars = os.pathsep.join(map(str, resolve(self.jars, listed=LIST, say=say)))
        sources, java = [SOURCES / f"{name}.java" for name in (self.program, "Values")], find_java()
        used = [*(each.read_text() for each in sources), *self.jars.coordinates, str(java.major)]
        digest = hashlib.sha256("\0".join(used).encode()).hexdigest()[:16]
        folder = cache_dir() / "peers" / f"{self.program}-{digest}"
        if not folder.is_dir():
            compiler = java.home / "bin" / "javac"
            if not compiler.is_file():
                raise BrokerError(
                    f"{java.home} has no bin/javac: it is a runtime only. "
                    "Install a JDK 17 or 21 (Debian and Ubuntu: openjdk-17-jdk-headless)."
                )
            say(f"compiling {self.program}")
            _compile([str(compiler), "-nowarn", "-proc:none", "-cp", jars, *map(str, sources)], folder)
        return os.pathsep.join([str(folder), jars])


def _compile(call: list[str], folder: Path) -> None:
    limit_s = _COMPILE_TIMEOUT_S
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".compile-", dir=folder.parent) as made:
            classes = Path(made) / "classes"
            call = [*call, "-d", str(classes)]
            run = subprocess.run(call, capture_output=True, text=True, timeout=limit_s, check=False)
            if run.returncode != 0:
                raise BrokerError(f"{folder.name} does not compile:\n{run.stderr or run.stdout}")
            if not folder.is_dir():  # somebody else may have been quicker
                classes.rename(folder)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise BrokerError(f"{folder} cannot be compiled: {exc}") from exc
