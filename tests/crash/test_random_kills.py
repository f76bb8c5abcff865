"""Does anything go wrong when workers are killed at any moment, again and again, while records keep coming?

Thirty kills of one or two workers of a group, in start, restore, rebalance and work alike. Kafka's page cache
survives a kill: this shows safety against a process that dies, not against a power loss.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.support.crash import READY, WAIT_S, Scene, seeded

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.support.broker import Broker
    from tests.support.worker import Worker

pytestmark = [pytest.mark.broker, pytest.mark.crash]

KILLS = 30
LONGEST_LIFE_S = 0.7


class Members:
    """Two members of a group, one of which is missing at times."""

    def __init__(self, scene: Scene, dice: random.Random) -> None:
        self._scene = scene
        self._dice = dice
        self._living: dict[str, Worker] = {name: scene.worker(name) for name in ("a", "b")}

    def kill_one(self) -> bool:
        """Kill a member at a moment that the dice choose; returns whether it was at work by then."""
        dice = self._dice
        name = dice.choice(sorted(self._living))
        worker = self._living.pop(name)
        if dice.random() < 0.7:
            self._wait_ready(worker)
        time.sleep(dice.random() * LONGEST_LIFE_S)
        worked = READY in worker.stderr
        worker.kill()
        # Sometimes the other works alone for a while, or nobody does.
        for missing in sorted({"a", "b"} - set(self._living)):
            if dice.random() < 0.7 or not self._living:
                self._living[missing] = self._scene.worker(missing)
        return worked

    @staticmethod
    def _wait_ready(worker: Worker) -> None:
        deadline = time.monotonic() + WAIT_S
        while READY not in worker.stderr:
            assert worker.alive, worker.stderr
            assert time.monotonic() < deadline, worker.stderr
            time.sleep(0.02)

    def kill_all(self) -> None:
        for worker in self._living.values():
            worker.kill()


@pytest.mark.timeout(300)
def test_thirty_kills_at_random_lose_and_repeat_nothing(broker: Broker, tmp_path: Path) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path, partitions=4, slots=2) as scene:
        feed = scene.feed(dice)
        with feed:
            members = Members(scene, dice)
            at_work = 0
            progress = {scene.sink_end()}
            for _ in range(KILLS):
                at_work += members.kill_one()
                progress.add(scene.sink_end())
            members.kill_all()
        feed.send_again()

        scene.drain("c")

        scene.assert_exactly_once()
        assert at_work >= KILLS // 3, "too few kills met a worker at work to say anything"
        assert len(progress) > KILLS // 3, "too little was committed between the kills to say anything"
