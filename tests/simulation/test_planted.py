"""The command that says which planted mistakes seeds alone notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation import planted

if TYPE_CHECKING:
    import pytest


def test_it_says_what_is_caught_and_what_no_episode_imports(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["the source offsets are not part of the transaction", "the source is read by its name"]
    assert planted.main([*names, "--seconds", "20"]) == 0
    *found, last = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in found) == ["caught", "not"], found
    assert last == "1 of 2 are caught by seeds alone"
