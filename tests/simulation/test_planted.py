"""The command that says which planted mistakes seeds alone notice, and what it has found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.crash.planted.mistakes import MISTAKES
from tests.simulation import planted
from tests.simulation.lacking import BY_NAME, lacking

if TYPE_CHECKING:
    import pytest


def test_it_says_what_is_caught_and_what_no_episode_imports(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["the source offsets are not part of the transaction", "what RocksDB makes is readable to others"]
    assert planted.main([*names, "--seconds", "20"]) == 0
    *found, last = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in found) == ["caught", "not"], found
    assert last == "1 of 2 are caught by seeds alone"


def test_of_each_mistake_whose_test_needs_a_broker_the_list_says_what_became_of_it() -> None:
    wanted = {mistake.name: mistake for mistake in MISTAKES if mistake.broker}
    assert json.loads(planted.TABLE.read_text()).keys() == wanted.keys()
    assert BY_NAME.keys() <= wanted.keys()


def test_of_what_no_episode_imports_it_is_said_what_the_simulation_lacks() -> None:
    wanted = {mistake.name: mistake for mistake in MISTAKES if mistake.broker}
    silent = [
        name for name, what in planted.noted().items() if what == "not reached" and not lacking(wanted[name])
    ]
    assert not silent
