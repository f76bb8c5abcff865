"""Thousands of scopes, their epochs and their reorder windows survive every kill.

Scopes are kept otherwise than the one watermark of scope ``partition``: their changes are written to the
changelog in bulk, and to the local state only once in a while, so that after a kill it lags by whole commits.
Each step of the commit is met with a local state that is written with each commit, and with one that never is.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from processor.ops.fault_points import CommitStep
from processor.state.scope_log import MOST_UNSAVED
from tests.support.judges.rules import EPOCH_HEADER, Rules
from tests.support.kafka.members import Members
from tests.support.worker.crash import Scene, seeded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.crash]

SCOPES = 300
"""In each partition."""
FIRST_RECORDS = 2_000
KILLS, ALL_KILLS = 2, 5
EACH_COMMIT_S, NEVER_S = 0.0, 1e6
BY_KEY = Rules("key", epoch=EPOCH_HEADER, reorder_window=64)
BY_PRODUCER = Rules("header:producer", epoch=EPOCH_HEADER, reorder_window=100)
EACH = pytest.mark.parametrize(
    ("rules", "local_s"),
    [
        pytest.param(BY_KEY, EACH_COMMIT_S, id="key, local state written with each commit"),
        pytest.param(BY_PRODUCER, NEVER_S, id="header, local state never written"),
    ],
)


def killed_after(scene: Scene, step: CommitStep, local_s: float) -> None:
    """Run a worker under load until it kills itself after ``step``; then send what it has seen again."""
    dice = seeded()
    feed = scene.feed(dice)
    feed.send(FIRST_RECORDS)
    # The first commit holds the positions, the second the first records: the third has something before it.
    times = dice.randrange(3, 8)
    with feed:
        worker = scene.worker(fault=f"{step}:{times}", local_s=local_s)
        assert worker.wait() == -signal.SIGKILL, f"step {step} was not reached {times} times:\n{worker.stderr}"
    written = [mark is not None for mark in scene.local_marks()]
    assert written == [local_s == EACH_COMMIT_S] * len(written)
    feed.send_again()
    feed.send(100)


@EACH
@pytest.mark.drawn("step")
@pytest.mark.parametrize("step", CommitStep)
def test_a_kill_after_a_step_loses_and_repeats_nothing_of_any_scope(
    broker: Broker, tmp_path: Path, step: CommitStep, rules: Rules, local_s: float
) -> None:
    with Scene(broker.bootstrap_servers, tmp_path, rules=rules, scopes=SCOPES) as scene:
        killed_after(scene, step, local_s)

        scene.drain()

        truth = scene.assert_exactly_once()
        assert all(len(part.scopes) > SCOPES // 2 for part in truth)
        assert all(part.quarantined for part in truth)


def test_a_kill_at_least_once_loses_nothing_of_any_scope(broker: Broker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    with Scene(servers, tmp_path, rules=BY_KEY, scopes=SCOPES, guarantee="at_least_once") as scene:
        killed_after(scene, CommitStep.OUTPUT, EACH_COMMIT_S)

        scene.drain()

        scene.assert_at_least_once()


@pytest.mark.timeout(900)
def test_kills_at_random_lose_and_repeat_nothing_of_any_scope(
    broker: Broker, tmp_path: Path, *, whole: bool
) -> None:
    dice, further = seeded(), MOST_UNSAVED + 2_000  # more scopes than wait for a local write
    with Scene(broker.bootstrap_servers, tmp_path, rules=BY_KEY, scopes=SCOPES, slots=2) as scene:
        feed = scene.feed(dice)
        feed.send_scopes(further)
        with feed:
            Members(scene, dice).kill_many(ALL_KILLS if whole else KILLS)
        feed.send_again()

        scene.drain("c")

        truth = scene.assert_exactly_once()
        assert all(len(part.scopes) > further + SCOPES // 2 for part in truth)
