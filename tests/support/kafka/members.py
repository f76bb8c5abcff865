"""Two members of a group that are killed at random and come back, sometimes late."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.support.kafka.topics import until
from tests.support.worker.crash import READY, WAIT_S, Scene

if TYPE_CHECKING:
    import random

    from tests.support.worker.process import Worker

LONGEST_LIFE_S = 0.7
"""Of a member after it is at work, or was started."""


class Members:
    """Two members of a group, one of which is missing at times.

    Args:
        scene: Starts them.
        dice: Decide who is killed, and when.
    """

    def __init__(self, scene: Scene, dice: random.Random) -> None:
        self._scene = scene
        self._dice = dice
        self._living: dict[str, Worker] = {name: scene.worker(name) for name in ("a", "b")}

    def kill_many(self, times: int) -> None:
        """Kill one of them again and again, two thirds of the times at work; in the end all are dead.

        Between the kills something is committed, or they would say nothing: this waits for it.
        """
        moments = [READY] * -(-2 * times // 3)
        moments += [""] * (times - len(moments))
        self._dice.shuffle(moments)
        for moment in moments:
            before = self._scene.sink_end()
            self._kill_one(moment)
            if moment:
                until(lambda: self._scene.sink_end() > before, "something is committed", WAIT_S)  # noqa: B023
        for worker in self._living.values():
            worker.kill()

    def _kill_one(self, said: str) -> None:
        """Kill a member some time after it has ``said`` something."""
        dice = self._dice
        name = dice.choice(sorted(self._living))
        worker = self._living.pop(name)
        until(lambda: said in worker.stderr or not worker.alive, f"{name} says {said!r}", WAIT_S)
        time.sleep(dice.random() * LONGEST_LIFE_S)
        assert worker.alive, worker.stderr
        worker.kill()
        # Sometimes the other works alone for a while, or nobody does.
        for missing in sorted({"a", "b"} - set(self._living)):
            if dice.random() < 0.7 or not self._living:
                self._living[missing] = self._scene.worker(missing)
