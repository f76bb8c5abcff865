"""How much of its tests a run does: all with ``--tier all``, otherwise fewer kills and planted mistakes.

A test of which a part is enough for each change is marked ``drawn("step")``, by the parameter that it is a
matrix over. Of all its kinds (the test and its other parameters) each runs once, with a step that is drawn anew
in each run; over all the tests with the same steps, each step comes about as often as the others. What was
drawn, of how many, and with which seed is said at the end.

Tests that somebody names, by a node id or by ``-k``, are never left out.
"""

from __future__ import annotations

import os
import random
import re
import secrets
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from tests.support.suite import tiers

if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = "drawn"
_SEED = pytest.StashKey[int]()
_NOTES = pytest.StashKey[list[str]]()


def everything(config: pytest.Config) -> bool:
    """Say whether this run leaves nothing out."""
    return bool(config.getoption("tier") == tiers.ALL)


def named(config: pytest.Config) -> bool:
    """Say whether somebody wants just these tests: by a node id or a part of the name."""
    return bool(config.getoption("keyword")) or any("::" in each for each in config.args)


def seed(config: pytest.Config) -> int:
    """Return what this run draws with: SEQMARK_TEST_SEED, or a new one, the same in all of its processes."""
    if _SEED not in config.stash:
        given = getattr(config, "workerinput", {}).get("seed") or os.environ.get("SEQMARK_TEST_SEED")
        config.stash[_SEED] = int(given or secrets.randbits(32))
    return config.stash[_SEED]


def note(config: pytest.Config, text: str) -> None:
    """Have the run's summary say something of what it leaves out."""
    config.stash.setdefault(_NOTES, [])
    if text not in config.stash[_NOTES]:
        config.stash[_NOTES].append(text)


def notes(config: pytest.Config) -> list[str]:
    """Return what was noted."""
    return config.stash.get(_NOTES, [])


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what was not drawn."""
    matrix = [item for item in items if item.get_closest_marker(MARK)]
    if everything(config) or named(config) or not matrix:
        return
    wanted = set(draw(((item.nodeid, *_place(item)) for item in matrix), random.Random(seed(config))))
    gone = {item for item in matrix if item.nodeid not in wanted}
    keep(config, items, [item for item in items if item not in gone])
    said = f"{len(wanted)} of {len(matrix)} tests of a kill or a pause at a given moment were drawn"
    note(config, f"{said}, with SEQMARK_TEST_SEED={seed(config)}")


def keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    """Take out all tests but some."""
    still = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in still])
    items[:] = kept


def draw(tests: Iterable[tuple[str, str, str]], dice: random.Random) -> list[str]:
    """Choose one test of each kind, and each value of the drawn parameter about as often as the others.

    Args:
        tests: Name, kind, and value of the parameter that is drawn.
        dice: Decide.
    """
    kinds: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, kind, value in sorted(tests):
        kinds[kind][value] = name
    order = list(kinds)
    dice.shuffle(order)
    # Those with the fewest values to choose from come first, or others take what only they could have.
    order.sort(key=lambda kind: len(kinds[kind]))
    often: defaultdict[str, int] = defaultdict(int)
    chosen = []
    for kind in order:
        least = min(often[value] for value in kinds[kind])
        value = dice.choice([value for value in kinds[kind] if often[value] == least])
        often[value] += 1
        chosen.append(kinds[kind][value])
    return chosen


def _place(item: pytest.Item) -> tuple[str, str]:
    """Return the kind of a test of a matrix, and its value of the parameter that is drawn."""
    marker = item.get_closest_marker(MARK)
    assert marker is not None
    (axis,) = marker.args
    value = str(item.callspec.params[axis])  # type: ignore[attr-defined] # of parametrized tests alone
    kind, found = re.subn(rf"(?<=[\[-]){re.escape(value)}(?=[-\]])", "*", item.nodeid, count=1)
    assert found, f"{item.nodeid} does not tell its {axis}, {value}"
    return kind, value
