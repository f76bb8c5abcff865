"""What a run leaves out is drawn fairly, each test has a tier, and units of work stay in one process."""

from __future__ import annotations

import random
import re

import pytest

from tests.support.suite import tiers
from tests.support.suite.extent import draw
from tests.support.suite.schedule import unit
from tests.support.suite.share import Proof, choose
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


def test_the_tier_of_a_folder_is_that_of_the_longest_name_and_each_folder_has_one() -> None:
    assert tiers.of_folder("tests/broker/modes/deeper/test_a.py") == tiers.LONG
    assert tiers.of_folder("tests/broker/contract/test_a.py") == tiers.CORE
    assert tiers.of_folder("tests/unit/test_a.py") == tiers.FAST
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    assert all(any(str(each) in tiers.FOLDERS for each in file.parents) for file in files)
    assert all(any(str(file).startswith(f"{folder}/") for file in files) for folder in tiers.FOLDERS)


@pytest.mark.parametrize("seed", range(20))
def test_of_long_tests_those_proven_longest_ago_come_first_and_a_tenth_by_chance(seed: int) -> None:
    proofs = {f"old-{n:02}": Proof("as it is", f"2026-01-{n + 1:02}", 10.0, whole=False) for n in range(20)}
    files = {**dict.fromkeys(proofs, "changed"), **dict.fromkeys([f"new-{n}" for n in range(10)], "")}
    files |= {f"old-{n:02}": "as it is" for n in range(10)}  # proven as they are

    budget_s = 10 * 60 + 70

    chosen = choose(files, proofs, budget_s, random.Random(seed))

    assert chosen == choose(files, proofs, budget_s, random.Random(seed))
    assert {f"new-{n}" for n in range(10)} <= chosen, "what nobody has seen pass"
    assert {f"old-{n}" for n in range(10, 14)} <= chosen, "the oldest of those that have changed"
    assert len(chosen) <= 10 + 7
    assert len(choose(files, proofs, 0, random.Random(seed))) == 3, "a tenth at least"


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
