"""Episodes one after the other, each by the next seed."""

from __future__ import annotations

import itertools
import logging
import time
from dataclasses import dataclass

from tests.simulation.brokers.episode import WorkerEpisode
from tests.simulation.brokers.routes.episode import RoutedEpisode
from tests.simulation.episode import Episode

KINDS: tuple[type[Episode | WorkerEpisode], ...]
KINDS = (*(Episode, WorkerEpisode) * 3, Episode, RoutedEpisode)
"""Of episodes, which take turns by seed: slots over a cluster, and workers over brokers, some with a route."""


@dataclass
class Totals:
    """What some episodes have done."""

    episodes: int = 0
    kills: int = 0
    faults: int = 0
    cpu_s: float = 0.0

    def __str__(self) -> str:
        each_s = self.kills / max(self.cpu_s, 0.001)
        done = f"{self.episodes} episodes, {self.kills} kills, {self.faults} other faults"
        return f"{done} in {self.cpu_s:.1f} CPU s: {each_s:.0f} kills per CPU second"


def run(first: int, cpu_s: float, most: int | None = None, step: int = 1) -> Totals:
    """Run episodes for so many CPU seconds, one at least, and ``most`` at most, of each ``step`` seeds one.

    Raises:
        BaseException: As the first that fails does, with a note that says how to repeat it.
    """
    totals, began = Totals(), time.process_time()
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # a million lines about what is meant to go wrong
    try:
        for seed in itertools.count(first, step):
            try:
                outcome = KINDS[seed % len(KINDS)](seed).run()
            except BaseException as error:
                error.add_note(f"repeat with: python -m tests.simulation --seed {seed} --minutes 0")
                raise
            totals.episodes += 1
            totals.kills += outcome.kills
            totals.faults += outcome.faults
            totals.cpu_s = time.process_time() - began
            if totals.cpu_s >= cpu_s or totals.episodes == most:
                return totals
    finally:
        logging.disable(before)
    raise AssertionError("seeds do not end")
