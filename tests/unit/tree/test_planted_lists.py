"""The list of planted mistakes and the table that people read must be of the same mistakes."""

from __future__ import annotations

import os

from tests.crash.planted.mistakes import MISTAKES
from tests.crash.planted.proof import TABLE, TABLE_HEAD, rows


def test_the_readme_says_which_test_catches_which_mistake() -> None:
    _, _, table = TABLE.read_text().partition(TABLE_HEAD)
    assert table.splitlines() == rows(), "run `make prove`: it writes the table of tests/README.md"


def test_the_names_of_the_mistakes_differ() -> None:
    names = [mistake.name for mistake in MISTAKES]
    assert len(set(names)) == len(names)
    assert os.sep not in "".join(names)
