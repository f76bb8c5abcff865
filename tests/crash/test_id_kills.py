"""Do ids, their owners and their readings survive every kill, also while they expire?

Ids are kept otherwise than watermarks: blocks of a commit's ids in the changelog, pages of them in the local
store, an index in memory that is made again at each start. The window is a second of the stream, some 10,000
records, so that ids expire all the time.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from processor.faults import Step
from tests.support.crash import Scene, seeded
from tests.support.id_rules import IdRules
from tests.support.members import Members

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.crash]

FIRST_RECORDS = 6_000
KILLS = 6
PLAIN, RENEWING = IdRules(window="1s"), IdRules(window="1s", refresh=True)
EACH = pytest.mark.parametrize("rules", [pytest.param(PLAIN, id="plain"), pytest.param(RENEWING, id="refresh")])


@EACH
@pytest.mark.parametrize("step", Step)
def test_a_kill_after_a_step_loses_and_repeats_no_id(
    broker: Broker, tmp_path: Path, step: Step, rules: IdRules
) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path, rules=rules) as scene:
        feed = scene.feed(dice)
        feed.send(FIRST_RECORDS)
        # The first commit holds the positions, the second the first records: the third has something before it.
        times = dice.randrange(3, 8)
        with feed:
            worker = scene.worker(fault=f"{step}:{times}")
            assert worker.wait() == -signal.SIGKILL, f"{step} was not reached {times} times:\n{worker.stderr}"
        feed.send_again()
        feed.send(100)

        scene.drain()

        truth = scene.assert_exactly_once()
        assert sum(len(part.passed) for part in truth) > FIRST_RECORDS // 2
        assert all(part.quarantined for part in truth)


def test_a_kill_and_a_restart_from_the_changelog_alone_lose_and_repeat_no_id(
    broker: Broker, tmp_path: Path
) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path, rules=PLAIN) as scene:
        feed = scene.feed(dice)
        with feed:
            worker = scene.worker(fault=f"{Step.ENDED}:{dice.randrange(10, 30)}")
            assert worker.wait() == -signal.SIGKILL, worker.stderr
        scene.drain(state="without")
        feed.send_again()
        scene.drain(state="without again")
        scene.assert_exactly_once()


@pytest.mark.timeout(900)
def test_kills_at_random_lose_and_repeat_no_id(broker: Broker, tmp_path: Path) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path, rules=PLAIN, slots=2) as scene:
        feed = scene.feed(dice)
        feed.send(FIRST_RECORDS)
        with feed:
            Members(scene, dice).kill_many(KILLS)
        feed.send_again()

        scene.drain("c")

        scene.assert_exactly_once()
