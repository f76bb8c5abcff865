"""Would the tests notice? Each planted mistake of `tests.crash.planted.mistakes` must make its test fail.

Looked at are those that may have become others since they were last proven, by `lock.json`; all of them
with ``--all``, or where one is named. A copy of the source tree gets the mistake, and its test runs there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.crash.planted.mistakes import MISTAKES, Mistake
from tests.crash.planted.proof import PASSED, ROOT, Tree, changed, digest
from tests.support.suite.extent import everything, named, note

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kafka.broker import Broker


def wanted(config: pytest.Config) -> list[Mistake]:
    """Return the mistakes that this run looks at."""
    return list(MISTAKES) if everything(config) or named(config) else changed()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each mistake that is looked at, and say how many are not."""
    if "mistake" not in metafunc.fixturenames:
        return
    chosen = wanted(metafunc.config)
    if len(chosen) < len(MISTAKES):
        note(
            metafunc.config,
            f"{len(MISTAKES) - len(chosen)} of {len(MISTAKES)} planted mistakes are as they were when proven",
        )
    cases = [
        pytest.param(each, id=each.name, marks=[pytest.mark.broker] if each.broker else []) for each in chosen
    ]
    none = pytest.param(None, id="none has changed", marks=pytest.mark.skip("none may have become another"))
    metafunc.parametrize("mistake", cases or [none])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    """Give a copy of the source tree, without a mistake whenever a test begins."""
    with Tree(tmp_path_factory.mktemp("planted")) as copy:
        yield copy


@pytest.mark.crash
@pytest.mark.timeout(2400)
def test_without_a_mistake_the_same_tests_pass(request: pytest.FixtureRequest) -> None:
    # Those on a broker are part of this run as they are: once is enough.
    tests = {mistake.test for mistake in wanted(request.config) if not mistake.broker}
    if not tests:
        pytest.skip("none may have become another")
    tree: Tree = request.getfixturevalue("tree")

    code, said = tree.run(sorted(tests))

    assert code == PASSED, said


@pytest.mark.crash
def test_a_planted_mistake_is_caught(request: pytest.FixtureRequest, tree: Tree, mistake: Mistake) -> None:
    servers = ""
    if mistake.broker:
        broker: Broker = request.getfixturevalue("broker")
        servers = broker.bootstrap_servers

    tree.prove(mistake, servers)


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


@pytest.mark.parametrize("part", ["the file", "the test", "what the test imports", "the mistake"])
def test_a_mistake_is_looked_at_anew_where_a_part_of_it_has_changed(tmp_path: Path, part: str) -> None:
    texts = {
        "processor/a.py": "x = 1\n",
        "tests/unit/test_a.py": "from tests.support.b import c\n",
        "tests/support/b.py": "from tests.support import d\n",
        "tests/support/d.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    mistake = Mistake("m", "processor/a.py", "1", "2", "tests/unit/test_a.py::test_a")
    before = digest(mistake, tmp_path)
    (tmp_path / "processor" / "other.py").write_text("")
    assert digest(mistake, tmp_path) == before

    touched = {"the file": "processor/a.py", "the test": "tests/unit/test_a.py"}
    if part == "the mistake":
        mistake = mistake._replace(new="3")
    else:
        with (tmp_path / touched.get(part, "tests/support/d.py")).open("a") as file:
            file.write("# more\n")

    assert digest(mistake, tmp_path) != before
