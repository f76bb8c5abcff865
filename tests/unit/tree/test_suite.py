"""What a run without ``--all`` leaves out is drawn fairly, and units of work stay in one process."""

from __future__ import annotations

import random
import re

import pytest

from tests.support.suite.extent import draw
from tests.support.suite.schedule import unit
from tests.unit.tree.house import ROOT

STEPS = ("begun", "output", "changelog", "offsets", "ended", "local")


@pytest.mark.parametrize("seed", range(50))
def test_each_kind_is_drawn_once_and_each_step_at_least_once(seed: int) -> None:
    tests = [(f"{kind}[{step}]", kind, step) for kind in "abcdefghi" for step in STEPS]
    tests += [(f"few[{step}]", "few", step) for step in STEPS[3:5]]

    drawn = draw(tests, random.Random(seed))

    assert sorted(name.partition("[")[0] for name in drawn) == sorted([*"abcdefghi", "few"])
    often = [sum(step in name for name in drawn) for step in STEPS]
    assert min(often) >= 1
    assert max(often) <= 2


def test_a_draw_is_the_same_in_all_processes_and_another_with_another_seed() -> None:
    tests = [(f"{kind}[{step}]", kind, step) for kind in "abcdef" for step in STEPS]

    draws = [sorted(draw(tests[::way], random.Random(seed))) for seed in range(5) for way in (1, -1)]

    assert draws[::2] == draws[1::2]
    assert len({tuple(each) for each in draws}) > 1


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ("tests/broker/test_a.py::test_a", "tests/broker/test_a.py::test_b[c::d]", True),
        ("tests/broker/test_a.py::test_a", "tests/broker/test_b.py::test_a", False),
        ("tests/spark/test_a.py::test_a", "tests/spark/test_b.py::test_a", True),
        ("tests/crash/test_a.py::test_a[b]", "tests/crash/test_a.py::test_a[c]", False),
    ],
)
def test_tests_that_share_something_run_in_one_process(first: str, second: str, *, together: bool) -> None:
    assert (unit(first) == unit(second)) is together


def test_each_variable_that_a_test_sets_is_read_by_somebody() -> None:
    tests = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    code = tests + [
        path.read_text() for top in ("processor", "spark_sink") for path in (ROOT / top).rglob("*.py")
    ]
    name = r'"(SEQMARK_TEST_[A-Z_]+)"'

    written = {found for text in tests for found in re.findall(rf"(?:setenv\({name}|{name}:)", text)}
    read = {
        found
        for text in code
        for found in re.findall(rf"environ(?:\(\))?(?:\.get\(|\[|\.setdefault\(){name}", text)
    }

    assert {first or second for first, second in written} - read == set()
