"""The list of planted mistakes and the table that people read must be of the same mistakes."""

from __future__ import annotations

import os

from tests.crash.planted.mistakes import MISTAKES
from tests.crash.planted.proof import TABLE, TABLE_HEAD, changed, rows


def test_the_readme_says_which_test_catches_which_mistake() -> None:
    _, _, table = TABLE.read_text().partition(TABLE_HEAD)
    assert table.splitlines() == rows(), "run `make prove`: it writes the table of tests/README.md"


def test_each_mistake_was_caught_as_it_is_now() -> None:
    unproven = [mistake.name for mistake in changed()]
    assert not unproven, "run `make prove`: these, what they are in, or their tests have changed"


def test_the_names_of_the_mistakes_differ() -> None:
    names = [mistake.name for mistake in MISTAKES]
    assert len(set(names)) == len(names)
    assert os.sep not in "".join(names)
