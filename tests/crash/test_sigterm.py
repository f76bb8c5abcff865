"""Does a worker that is told to stop do so soon, with exit code 0 and nothing open, whatever hangs?"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from processor.ops.fault_points import CommitStep
from tests.support.kafka.topics import New, open_transaction, until
from tests.support.worker.crash import READY, WAIT_S, Scene, ended_by, seeded, until_halted

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker, OwnBroker

pytestmark = [pytest.mark.broker, pytest.mark.crash]

STOP_S = 15
"""Ten are promised, on a machine that has time for it. Whatever hangs would cost more: 16 s are 0.8 of the
transaction's time-out in these tests, and other requests have longer ones."""


@pytest.mark.drawn("name")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_under_load_ends_it_in_time_with_nothing_open(
    broker: Broker, tmp_path: Path, name: str
) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path) as scene:
        feed = scene.feed(dice)
        with feed:
            worker = scene.worker()
            until(lambda: scene.sink_end() > 0, "something is committed", WAIT_S)

            seconds = ended_by(worker, signal.Signals[name])

            scene.assert_nothing_open()
        assert seconds < STOP_S
        assert "unexpected" not in worker.stderr
        feed.send_again()
        scene.drain()
        scene.assert_exactly_once()


def test_sigterm_ends_a_worker_that_restores(broker: Broker, tmp_path: Path) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path) as scene:
        feed = scene.feed(dice)
        feed.send(1_000)
        scene.drain()
        # Restoring waits for the end of a transaction that somebody else has open on the changelog.
        changelog = scene.config.changelog
        foreign = open_transaction(broker.bootstrap_servers, changelog, [New(b"P", b"never", (), 1)])
        worker = scene.worker()
        until(lambda: "waiting until it ends" in worker.stderr, f"it restores:\n{worker.stderr}", WAIT_S)

        seconds = ended_by(worker, signal.SIGTERM)

        assert seconds < STOP_S
        assert READY not in worker.stderr
        foreign.abort_transaction(WAIT_S)
        feed.send(1_000)
        scene.drain()
        scene.assert_exactly_once()


def test_sigterm_ends_a_worker_whose_broker_is_gone(own_broker: OwnBroker, tmp_path: Path) -> None:
    dice = seeded()
    broker = own_broker()
    with Scene(broker.bootstrap_servers, tmp_path) as scene:
        feed = scene.feed(dice)
        feed.send(20_000)
        worker = scene.worker()
        until(lambda: scene.sink_end() > 0, "something is committed", WAIT_S)
        broker.kill()

        seconds = ended_by(worker, signal.SIGTERM)

        assert seconds < STOP_S
        broker.restart()
        feed.send(1_000)
        scene.drain()
        scene.assert_exactly_once()


def test_sigterm_ends_a_worker_whose_broker_does_not_answer_its_commit(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    dice = seeded()
    broker = own_broker()
    with Scene(broker.bootstrap_servers, tmp_path) as scene:
        feed = scene.feed(dice)
        with feed:
            worker = scene.worker(fault=f"{CommitStep.OFFSETS}:{dice.randrange(2, 8)}", stop=True)
            until_halted(worker)
        os.kill(broker.pid, signal.SIGSTOP)
        worker.resume()
        # It asks for the end of its transaction, and nobody answers.
        time.sleep(0.5)

        seconds = ended_by(worker, signal.SIGTERM)

        assert seconds < STOP_S
        os.kill(broker.pid, signal.SIGCONT)
        feed.send_again()
        scene.drain()
        scene.assert_exactly_once()


def test_sigterm_ends_a_worker_that_starts(broker: Broker, tmp_path: Path) -> None:
    with Scene(broker.bootstrap_servers, tmp_path) as scene:
        worker = scene.worker(fresh=True)
        # The config has been read once its topics are there: the process knows that it is a worker.
        until(lambda: scene.sink_end() >= 0 and scene.exists(scene.config.sink), "it starts", WAIT_S)

        assert ended_by(worker, signal.SIGTERM) < STOP_S
