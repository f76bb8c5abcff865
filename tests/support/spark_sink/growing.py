"""A topic of clicks that grows while a test does something else."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from tests.support.kafka.topics import create_topic, unique

if TYPE_CHECKING:
    import random

EVERY_S = 0.3


class GrowingTopic:
    """Sends some at once, and then again and again until the block ends; each kind says what."""

    def __init__(self, bootstrap: str, dice: random.Random, partitions: int) -> None:
        self.bootstrap, self.topic = bootstrap, unique("clicks")
        self._dice, self._made = dice, 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        create_topic(bootstrap, self.topic, partitions)

    def __enter__(self) -> Self:
        self.send()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_S):
            self.send()

    def send(self) -> None:
        """Send some."""
        raise NotImplementedError
