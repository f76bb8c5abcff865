"""What can a worker still do that was paused for so long that another has taken its place? Nothing.

Paused by SIGSTOP past the session time-out, as by a long swap or a frozen virtual machine; it does not know
of it when it goes on, in the middle of its transaction.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from processor.ops.fault_points import CommitStep
from tests.support.kafka.topics import until
from tests.support.worker.crash import READY, WAIT_S, Scene, seeded, until_halted

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker
    from tests.support.worker.process import Worker

pytestmark = [pytest.mark.broker, pytest.mark.crash]

FENCED = re.compile(r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH")


def ready_again(worker: Worker, times: int) -> None:
    until(lambda: worker.stderr.count(READY) >= times, f"ready {times} times:\n{worker.stderr}", WAIT_S)


def test_a_worker_paused_past_its_session_comes_back_to_a_share_of_the_work(
    broker: Broker, tmp_path: Path
) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path, slots=2) as scene:
        feed = scene.feed(dice)
        with feed:
            paused = scene.worker("paused")
            ready_again(paused, 2)
            until(lambda: scene.sink_end() > 0, "something is committed", WAIT_S)
            paused.pause()
            until_halted(paused)
            other = scene.worker("other")
            ready_again(other, 2)
            taken_over = scene.sink_end()
            until(lambda: scene.sink_end() > taken_over, "the other goes on", WAIT_S)

            paused.resume()

            ready_again(paused, 3)
        feed.send_again()
        scene.wait_caught_up()
        scene.assert_exactly_once()
        assert paused.alive
        assert other.alive


@pytest.mark.drawn("step")
@pytest.mark.parametrize("step", [CommitStep.OUTPUT, CommitStep.OFFSETS, CommitStep.ENDED])
def test_a_worker_paused_between_two_steps_commits_nothing_afterwards(
    broker: Broker, tmp_path: Path, step: CommitStep
) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path) as scene:
        feed = scene.feed(dice)
        with feed:
            zombie = scene.worker("zombie", fault=f"{step}:{dice.randrange(2, 8)}", stop=True)
            until_halted(zombie)
            other = scene.worker("other")
            ready_again(other, 1)
            assert "waiting until it ends" not in other.stderr, "the fence has not ended the transaction"
        feed.send_again()
        scene.wait_caught_up()
        before = scene.all_ends()

        zombie.resume()

        if step is CommitStep.ENDED:
            # It had nothing open and only hears that its partitions are gone; alone again it goes on.
            other.kill()
            ready_again(zombie, 2)
        else:
            until(lambda: FENCED.search(zombie.stderr), f"it is fenced:\n{zombie.stderr}", WAIT_S)
        assert scene.all_ends() == before, "the zombie has written something"
        feed.send(1_000)
        scene.wait_caught_up()
        scene.assert_exactly_once()
        assert zombie.alive
        if step is not CommitStep.ENDED:
            aborted = scene.read(scene.config.sink, "read_uncommitted") != scene.read(scene.config.sink)
            assert aborted, "the zombie had nothing in flight: this test has shown nothing"
