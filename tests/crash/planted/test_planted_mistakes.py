"""Would the tests notice? Each planted mistake of `tests.crash.planted.mistakes` must make its test fail.

Looked at are those that may have become others since they were last proven, by `lock.json`; all of them
with ``--all``, or where one is named. A copy of the source tree gets the mistake, and its test runs there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.planted.mistakes import MISTAKES, Mistake
from tests.crash.planted.proof import PASSED, Tree, changed
from tests.support.suite.extent import everything, named, note

if TYPE_CHECKING:
    from collections.abc import Iterator

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
