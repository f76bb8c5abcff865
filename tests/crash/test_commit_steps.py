"""A worker that is killed between any two steps of the commit loses, repeats and reorders nothing.

The steps are those of `processor.pipeline.slot_pipeline`; each is met under load, some commits after the start.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from processor.ops.fault_points import CommitStep
from tests.support.kafka.topics import group_offsets
from tests.support.worker.crash import Scene, seeded
from tests.support.worker.process import new_config, start_worker

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.crash]

FIRST_RECORDS = 2_000


def killed_after(scene: Scene, step: CommitStep, dice: random.Random) -> None:
    """Run a worker under load until it kills itself after ``step``; then send what it has seen again.

    What is sent again is judged by the state that the kill has left: a record of it that passes shows that
    the state is behind the output; a new one that does not shows that it is ahead.
    """
    feed = scene.feed(dice)
    feed.send(FIRST_RECORDS)
    times = dice.randrange(2, 8)
    with feed:
        worker = scene.worker(fault=f"{step}:{times}")
        assert worker.wait() == -signal.SIGKILL, f"step {step} was not reached {times} times:\n{worker.stderr}"
    feed.send_again()
    feed.send(100)


@pytest.mark.fast
@pytest.mark.parametrize("step", CommitStep)
def test_a_kill_after_a_step_loses_and_repeats_nothing(
    broker: Broker, tmp_path: Path, step: CommitStep
) -> None:
    with Scene(broker.bootstrap_servers, tmp_path) as scene:
        killed_after(scene, step, seeded())

        scene.drain()

        truth = scene.assert_exactly_once()
        assert sum(len(each.passed) for each in truth) > FIRST_RECORDS // 2
        assert any(each.quarantined for each in truth)


@pytest.mark.drawn("step")
@pytest.mark.parametrize("step", CommitStep)
def test_a_kill_at_least_once_loses_nothing_and_keeps_the_order(
    broker: Broker, tmp_path: Path, step: CommitStep
) -> None:
    with Scene(broker.bootstrap_servers, tmp_path, guarantee="at_least_once") as scene:
        killed_after(scene, step, seeded())

        scene.drain()

        scene.assert_at_least_once()


def test_at_least_once_the_groups_offset_is_there_when_its_step_is_reached(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, guarantee="at_least_once")
    # The first commit says where the partition begins.
    with start_worker(config, env={"SEQMARK_FAULT_STEP": CommitStep.OFFSETS}) as worker:
        assert worker.wait() == -signal.SIGKILL, worker.stderr
    assert group_offsets(config.bootstrap_servers, config.application_id) == {(config.source, 0): 0}
