"""Would the tests notice? Each planted mistake of `tests.crash.planted` must make its test fail.

A copy of the source tree gets the mistake; the named test runs on the copy in a process of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.planted import MISTAKES, Mistake
from tests.support.topics import environment

if TYPE_CHECKING:
    from tests.support.broker import Broker

ROOT = Path(__file__).parents[2]
COPIED = ("processor", "schemas", "spark_sink", "tests", "pyproject.toml")
LIMIT_S = 400
FAILED, PASSED = 1, 0


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the source tree."""
    ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(source, tmp_path / name)
    return tmp_path


def plant(tree: Path, mistake: Mistake) -> None:
    file = tree / mistake.file
    text = file.read_text()
    assert text.count(mistake.old) == 1, f"the list is out of date: {mistake.file} has not once\n{mistake.old}"
    file.write_text(text.replace(mistake.old, mistake.new))


def run(tree: Path, tests: list[str], bootstrap: str = "") -> tuple[int, str]:
    """Run tests on a tree; returns pytest's exit code and what it said.

    Args:
        tree: Where.
        tests: Node ids.
        bootstrap: Of the broker; empty: none is needed.
    """
    # The same examples each time, only until the first that fails, which nobody needs in its smallest form.
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "tests.crash.unshrunk", "--hypothesis-seed=0"]
    # Integers wrap in kernels; plain numpy warns of it, which is no mistake here.
    options += ["-W", "ignore::RuntimeWarning"]
    # Kernels as plain Python: numba would compile all of them anew for a tree at another place.
    extra = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_DISABLE_JIT": "1"}
    env = environment(extra)
    if bootstrap:
        env["SEQMARK_KAFKA__BOOTSTRAP_SERVERS"] = bootstrap
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=tree,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def assert_caught(tree: Path, mistake: Mistake, bootstrap: str = "") -> None:
    plant(tree, mistake)
    code, said = run(tree, [mistake.test], bootstrap)
    assert code != PASSED, f"not caught: {mistake.name}"
    # Neither an import that breaks nor a fixture that fails is a test that has noticed something.
    assert code == FAILED, said
    assert re.search(r"^\d+ failed(?!.*error)", said, re.MULTILINE), said


QUICK = [mistake for mistake in MISTAKES if not mistake.broker]


@pytest.mark.crash
@pytest.mark.parametrize("mistake", QUICK, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_caught(tree: Path, mistake: Mistake) -> None:
    assert_caught(tree, mistake)


@pytest.mark.crash
@pytest.mark.broker
@pytest.mark.parametrize(
    "mistake", [mistake for mistake in MISTAKES if mistake.broker], ids=lambda mistake: mistake.name
)
def test_a_planted_mistake_is_caught_on_a_broker(tree: Path, broker: Broker, mistake: Mistake) -> None:
    assert_caught(tree, mistake, broker.bootstrap_servers)


@pytest.mark.crash
def test_without_a_mistake_the_same_tests_pass(tree: Path) -> None:
    # Those on a broker are part of this run as they are: once is enough.
    code, said = run(tree, sorted({mistake.test for mistake in QUICK}))

    assert code == PASSED, said


def test_the_readme_says_which_test_catches_which_mistake() -> None:
    rows = [f"| {mistake.name} | `{mistake.test}` |" for mistake in MISTAKES]
    readme = (ROOT / "tests" / "README.md").read_text()
    missing = [row for row in rows if row not in readme]
    assert not missing, "tests/README.md lacks these rows:\n" + "\n".join(missing)
    assert readme.count("| `tests/") == len(rows), "tests/README.md lists mistakes that are not planted"


def test_the_names_of_the_mistakes_differ() -> None:
    names = [mistake.name for mistake in MISTAKES]
    assert len(set(names)) == len(names)
    assert os.sep not in "".join(names)
