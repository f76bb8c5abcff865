"""The command that says which planted mistakes seeds alone notice, and what it has found."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.crash.planted.mistakes import MISTAKES
from tests.simulation import planted
from tests.simulation.planted import lacking


def test_it_says_what_is_caught_and_what_no_episode_imports() -> None:
    at_rest = "all files in the folder of a Delta table are the history"
    names = ["the source offsets are not part of the transaction", at_rest]
    command = [sys.executable, "-m", "tests.simulation.planted", *names, "--seconds", "20"]
    done = subprocess.run(command, cwd=planted.ROOT, capture_output=True, text=True, check=True)
    *found, last = done.stdout.splitlines()
    assert sorted(line.split()[0] for line in found) == ["caught", "not"], found
    assert last == "1 of 2 are caught by seeds alone"


def test_of_each_mistake_whose_test_needs_a_broker_the_list_says_what_became_of_it() -> None:
    wanted = {mistake.name: mistake for mistake in MISTAKES if mistake.broker}
    assert json.loads(planted.TABLE.read_text()).keys() == wanted.keys()


def test_of_what_no_episode_imports_it_is_said_what_the_simulation_lacks() -> None:
    wanted = {mistake.name: mistake for mistake in MISTAKES if mistake.broker}
    silent = [
        name for name, what in planted.noted().items() if what == "not reached" and not lacking(wanted[name])
    ]
    assert not silent
