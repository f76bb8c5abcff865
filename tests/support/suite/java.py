"""A shell script that stands in for Java, with a certain version or a certain failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FAKE = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}" 2025-04-15' >&2; exit 0; fi
echo "$@" >> "{calls}"
{script}
"""


class FakeJava:
    """A JDK folder whose `java` tells a version and runs a script.

    Args:
        home: Made here; what JAVA_HOME would name.
        version: As ``java -version`` prints it.
        script: Shell commands for any other call.
    """

    def __init__(self, home: Path, version: str = "17.0.15", script: str = "exit 1") -> None:
        self.home = home
        self.path = home / "bin" / "java"
        self._calls = home / "calls"
        self.path.parent.mkdir(parents=True)
        self.path.write_text(FAKE.format(version=version, calls=self._calls, script=script))
        self.path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        """The arguments of each call but ``-version``."""
        return self._calls.read_text().splitlines() if self._calls.exists() else []
