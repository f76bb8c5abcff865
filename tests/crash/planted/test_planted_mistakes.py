"""Would the tests notice? Each planted mistake of `tests.crash.planted.mistakes` must make its test fail.

`make prove` looks at those that may have become others. Here all of them are looked at with ``--tier all``, one
where it is named, otherwise five: what is not proven as it is comes first, and others by chance, since the
lock misses what neither the mistake's file nor the test imports. A copy of the source tree gets the mistake,
and its test runs there.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.crash.planted.mistakes import MISTAKES, Mistake
from tests.crash.planted.proof import PASSED, Tree, changed
from tests.support.suite.extent import everything, named, note, seed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kafka.broker import Broker


SOME = 5
"""How many are enough for a change."""


def wanted(config: pytest.Config) -> list[Mistake]:
    """Return what this run looks at, the same in each of its processes: first what is not proven."""
    if everything(config) or named(config):
        return list(MISTAKES)
    alone = [each for each in MISTAKES if not each.broker]
    random.Random(seed(config)).shuffle(alone)
    unproven = {each.name for each in changed()}
    return sorted(alone, key=lambda each: each.name not in unproven)[:SOME]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each mistake that is looked at, and say how many are not."""
    if "mistake" not in metafunc.fixturenames:
        return
    chosen = wanted(metafunc.config)
    if len(chosen) < len(MISTAKES):
        drawn = f"{len(chosen)} of {len(MISTAKES)} planted mistakes were drawn"
        said = f"{drawn}, {len(changed())} are not proven as they are"
        note(metafunc.config, f"{said}; SEQMARK_TEST_SEED={seed(metafunc.config)}")
    cases = [
        pytest.param(each, id=each.name, marks=[pytest.mark.broker] if each.broker else []) for each in chosen
    ]
    metafunc.parametrize("mistake", cases)


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
