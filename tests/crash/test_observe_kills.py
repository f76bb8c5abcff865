"""A worker that observes and is killed lets each record pass once, and its state is fit to go on from."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from processor.ops.fault_points import CommitStep
from tests.support.verify.certificate import certificate
from tests.support.worker.crash import Scene, seeded
from tests.support.worker.id_feed import COLLISIONS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.crash]


@pytest.mark.drawn("step")
@pytest.mark.parametrize("step", CommitStep)
def test_a_kill_while_it_observes_repeats_nothing_and_what_it_has_seen_is_dropped_afterwards(
    broker: Broker, tmp_path: Path, step: CommitStep
) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path, 1, rules=COLLISIONS) as scene:
        dropping, scene.config = scene.config, scene.config.observing()
        feed = scene.feed(dice)
        feed.send(1_000)
        with feed:
            worker = scene.worker(fault=f"{step}:{dice.randrange(2, 6)}")
            assert worker.wait() == -signal.SIGKILL, worker.stderr
        scene.drain()
        observed = certificate(scene.config)
        assert observed.code == 0, observed.details
        (line,) = observed.partitions
        assert line["source"] == line["sink"], "all of it has passed, once"
        assert line["observed"] > 0

        scene.config = dropping
        feed.send_again()
        feed.send(100)
        scene.drain(state="without" if dice.random() < 0.5 else None)
        found = certificate(scene.config)
    assert found.code == 0, found.details
    (line,) = found.partitions
    assert line["duplicates"] > 0
    assert line["source"] == line["sink"] + line["duplicates"] + line["quarantine"]
    assert line["observed"] == observed.last["observed"]
