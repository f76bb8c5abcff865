"""Proves that a planted mistake is caught, and keeps which ones are.

`lock.json` holds a digest for each mistake that was caught when somebody last looked: over the mistake,
the file it is planted in, the file of the test that catches it, and what that imports of ``tests``. Where the
digest is the same the mistake is proven. It misses what else takes part: other modules of the program, fixtures
of a ``conftest.py``, other versions of what is installed. ``--all`` looks anew at every one.

    python -m tests.crash.planted.prove             # looks at those that have changed, and writes the lock
"""

from __future__ import annotations

import compileall
import json
import py_compile
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.crash.planted.mistakes import MISTAKES, Mistake
from tests.support.kafka.topics import environment
from tests.support.suite import closure
from tests.support.suite.closure import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

LOCK = Path(__file__).with_name("lock.json")
TABLE = ROOT / "tests" / "README.md"
TABLE_HEAD = "| mistake | caught by |\n| --- | --- |\n"
COPIED = (
    "processor",
    "schemas",
    "spark_sink",
    "seqmark",
    "tests",
    "examples",
    "deploy",
    "docs",
    "README.md",
    "pyproject.toml",
)
LIMIT_S = 400
"""For a test: on a machine whose cores are taken, its kernels plain Python, it may take a minute."""
PATIENCE_S = 90
"""For what a test waits for, which may never come with a mistake in it: well below `LIMIT_S`, at which a test
is ended and has noticed nothing. No kernel is compiled here, so nothing takes as long as in other tests."""
MORE_S = 30
"""For each further one."""
FAILED, PASSED = 1, 0
# The same examples each time, only until the first that fails, which nobody needs in its smallest form.
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "tests.crash.planted.unshrunk", "--hypothesis-seed=0")
# Integers wrap in kernels; plain numpy warns of it, which is no mistake here.
WRAPPING = ("-W", "ignore::RuntimeWarning")


class NotCaughtError(AssertionError):
    """A mistake went unnoticed, or what noticed it was no test."""


def proven() -> dict[str, str]:
    """Return the lock: digests by name."""
    found: dict[str, str] = json.loads(LOCK.read_text()) if LOCK.exists() else {}
    return found


def write(digests: dict[str, str]) -> None:
    """Write the lock; mistakes that are no longer planted go."""
    kept = {mistake.name: digests[mistake.name] for mistake in MISTAKES if mistake.name in digests}
    new = LOCK.with_suffix(".new")
    new.write_text(json.dumps(kept, indent=1) + "\n")
    new.replace(LOCK)


def rows() -> list[str]:
    """Return the table of `tests/README.md`: a row for each mistake, with the test that catches it."""
    return [f"| {mistake.name} | `{mistake.test}` |" for mistake in MISTAKES]


def write_rows() -> None:
    """Write that table, which is the last thing on its page."""
    before, head, _ = TABLE.read_text().partition(TABLE_HEAD)
    TABLE.write_text(before + head + "\n".join(rows()) + "\n")


def changed() -> list[Mistake]:
    """Return the mistakes that the lock does not prove."""
    before = proven()
    return [mistake for mistake in MISTAKES if before.get(mistake.name) != digest(mistake)]


def digest(mistake: Mistake, tree: Path = ROOT) -> str:
    """Return what decides whether a mistake could have become another."""
    files = {mistake.file, *closure.imported(tree, mistake.test.partition("::")[0], {"tests"})}
    return closure.digest(tree, files, json.dumps(mistake[:-1]).encode())


class Tree:
    """A copy of the source tree in which mistakes are planted, one at a time, and tests run.

    A context manager. Kernels are plain Python there: numba would compile all of them anew for a tree at
    another place, and for each mistake.

    Args:
        folder: An empty one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "tree"
        self._log = folder / "log"
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
        for name in COPIED:
            source, target = ROOT / name, self._folder / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=ignored)
            else:
                shutil.copy(source, target)
        # Compiled once, and held against the source's content: a mistake changes a file within a second.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        for name in ("processor", "schemas"):
            compileall.compile_dir(self._folder / name, quiet=2, invalidation_mode=mode)
        extra = {
            "PYTHONPATH": str(self._folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_DISABLE_JIT": "1",
            "SEQMARK_TEST_PATIENCE_S": str(PATIENCE_S),
        }
        self._server = subprocess.Popen(
            [sys.executable, str(self._folder / "tests" / "crash" / "planted" / "forked.py")],
            cwd=self._folder,
            env=environment(extra),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.communicate()

    def digest(self, mistake: Mistake) -> str:
        """Return the digest of a mistake by the files of the copy."""
        return digest(mistake, self._folder)

    def run(self, tests: Sequence[str], *options: str, bootstrap: str = "") -> tuple[int, str]:
        """Run tests; returns pytest's exit code and what it said.

        Args:
            tests: Node ids.
            options: Of pytest.
            bootstrap: Of the broker; empty: none is needed.
        """
        request = {
            "arguments": [*OPTIONS, *WRAPPING, *options, *tests],
            "environment": {"SEQMARK_KAFKA__BOOTSTRAP_SERVERS": bootstrap} if bootstrap else {},
            "log": str(self._log),
            "limit_s": LIMIT_S + MORE_S * (len(tests) - 1),
        }
        server = self._server
        assert server is not None
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, "the process that runs the tests has ended"
        return int(answer), self._log.read_text(errors="replace")

    def prove(self, mistake: Mistake, bootstrap: str = "") -> None:
        """Plant a mistake, see its test fail, and take the mistake out.

        Raises:
            NotCaughtError: It passed, or something else than a test failed.
        """
        file = self._folder / mistake.file
        right = file.read_text() if file.exists() else ""
        if right.count(mistake.old) != 1:
            raise NotCaughtError(f"the list is out of date: {mistake.file} has not once\n{mistake.old}")
        file.write_text(right.replace(mistake.old, mistake.new))
        try:
            code, said = self.run([mistake.test], "-x", bootstrap=bootstrap)
        finally:
            file.write_text(right)
        if code == PASSED:
            raise NotCaughtError(f"not caught: {mistake.name}")
        # Neither an import that breaks nor a fixture that fails is a test that has noticed something.
        if code != FAILED or not re.search(r"^\d+ failed(?!.*error)", said, re.MULTILINE):
            raise NotCaughtError(f"no test has failed, but pytest ended with {code}:\n{said}")
