"""Each record is in one place, and each id passed once, whatever is killed between source and routed sink.

Both hops commit by the same numbered steps; a kill is aimed at one of them, while both work.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from processor.ops.fault_points import CommitStep
from tests.support.kafka.members import Members
from tests.support.worker.crash import seeded, until_halted
from tests.support.worker.routed import RoutedScene

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.crash]

FIRST_RECORDS = 6_000
KILLS, ALL_KILLS = 3, 6
FIRST, SECOND = "p.route", "p"


@pytest.mark.parametrize("hop", [FIRST, SECOND])
@pytest.mark.drawn("step")
@pytest.mark.parametrize("step", CommitStep)
def test_a_kill_after_a_step_of_either_hop_loses_and_repeats_nothing(
    broker: Broker, tmp_path: Path, step: CommitStep, hop: str
) -> None:
    dice = seeded()
    with RoutedScene(broker.bootstrap_servers, tmp_path) as scene:
        feed = scene.feed(dice)
        feed.send(FIRST_RECORDS)
        times = dice.randrange(3, 8)
        with feed:
            worker = scene.worker(fault=f"{step}:{times}", hop=hop)
            assert worker.wait() == -signal.SIGKILL, f"{step} was not reached {times} times:\n{worker.stderr}"
        feed.send_again()
        feed.send(100)

        scene.drain()

        found = scene.assert_routed()
        assert len(found.passed) > FIRST_RECORDS // 2
        assert found.quarantined


@pytest.mark.drawn("hop")
@pytest.mark.parametrize("hop", [FIRST, SECOND])
def test_a_worker_paused_in_a_commit_of_either_hop_commits_nothing_afterwards(
    broker: Broker, tmp_path: Path, hop: str
) -> None:
    dice = seeded()
    with RoutedScene(broker.bootstrap_servers, tmp_path) as scene:
        feed = scene.feed(dice)
        feed.send(FIRST_RECORDS)
        paused = scene.worker(fault=f"{CommitStep.OFFSETS}:{dice.randrange(2, 5)}", hop=hop, stop=True)
        with feed:
            until_halted(paused)
        scene.drain("b")
        before = scene.assert_routed()

        paused.resume()
        paused.wait_says("asking the group who owns it")
        paused.kill()

        assert scene.assert_routed() == before


@pytest.mark.timeout(900)
def test_kills_at_random_lose_and_repeat_nothing(broker: Broker, tmp_path: Path, *, whole: bool) -> None:
    dice = seeded()
    with RoutedScene(broker.bootstrap_servers, tmp_path, slots=2) as scene:
        feed = scene.feed(dice)
        feed.send(FIRST_RECORDS)
        with feed:
            Members(scene, dice).kill_many(ALL_KILLS if whole else KILLS)
        feed.send_again()

        scene.drain("c")

        scene.assert_routed()
