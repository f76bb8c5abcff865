"""What does a worker do when the broker dies in the middle of a commit, or is away for a while? It goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from processor.ops.fault_points import CommitStep
from tests.support.kafka.topics import until
from tests.support.worker.crash import READY, WAIT_S, Scene, seeded, until_halted

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import OwnBroker

pytestmark = [pytest.mark.broker, pytest.mark.crash]

DOWN_S, LONG_DOWN_S = 8, 20
"""Longer than a session, which is 6 s; with ``--tier all`` longer than most requests take to give up."""


@pytest.mark.drawn("step")
@pytest.mark.parametrize("step", [CommitStep.OUTPUT, CommitStep.OFFSETS])
def test_a_broker_killed_in_mid_commit_loses_and_repeats_nothing(
    own_broker: OwnBroker, tmp_path: Path, step: CommitStep
) -> None:
    dice = seeded()
    broker = own_broker()
    with Scene(broker.bootstrap_servers, tmp_path) as scene:
        feed = scene.feed(dice)
        with feed:
            worker = scene.worker(fault=f"{step}:{dice.randrange(2, 8)}", stop=True)
            until_halted(worker)
            broker.kill()
            worker.resume()
            broker.restart()
            until(lambda: worker.stderr.count(READY) > 1, f"it is ready again:\n{worker.stderr}", WAIT_S)
        feed.send_again()

        scene.wait_caught_up()

        scene.assert_exactly_once()
        assert worker.alive


def test_worker_and_broker_killed_together_lose_and_repeat_nothing(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    dice = seeded()
    broker = own_broker()
    with Scene(broker.bootstrap_servers, tmp_path) as scene:
        feed = scene.feed(dice)
        with feed:
            worker = scene.worker(fault=f"{CommitStep.CHANGELOG}:{dice.randrange(2, 8)}", stop=True)
            until_halted(worker)
            broker.kill()
            worker.kill()
            broker.restart()
        feed.send_again()

        scene.drain()

        scene.assert_exactly_once()


def test_a_worker_outlives_a_broker_that_is_away_and_says_so(
    own_broker: OwnBroker, tmp_path: Path, *, whole: bool
) -> None:
    down_s = LONG_DOWN_S if whole else DOWN_S
    dice = seeded()
    broker = own_broker()
    with Scene(broker.bootstrap_servers, tmp_path) as scene:
        feed = scene.feed(dice)
        feed.send(2_000)
        worker = scene.worker()
        until(lambda: scene.sink_end() > 0, "something is committed", WAIT_S)
        said_before = len(worker.stderr)

        broker.kill()
        gone = time.monotonic()
        until(lambda: "broker" in worker.stderr[said_before:], "it says that the broker is away", WAIT_S)
        until(lambda: time.monotonic() - gone > down_s, "the broker is away for a while", 2 * down_s)
        assert worker.alive, worker.stderr
        broker.restart()

        feed.send(2_000)
        feed.send_again()
        scene.wait_caught_up()
        scene.assert_exactly_once()
        assert worker.alive
