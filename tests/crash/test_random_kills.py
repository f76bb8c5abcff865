"""Workers are killed at any moment, again and again, while records keep coming: nothing is lost or repeated.

Kills of one or two workers of a group, in start, restore, rebalance and work alike: eight, or thirty with
``--tier all``. Kafka's page cache survives a kill: this shows safety against a process that dies, not against
a loss of power.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.members import Members
from tests.support.worker.crash import Scene, seeded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.crash]

KILLS, ALL_KILLS = 8, 30


@pytest.mark.timeout(900)
def test_kills_at_random_lose_and_repeat_nothing(broker: Broker, tmp_path: Path, *, whole: bool) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path, partitions=4, slots=2) as scene:
        feed = scene.feed(dice)
        with feed:
            Members(scene, dice).kill_many(ALL_KILLS if whole else KILLS)
        feed.send_again()

        scene.drain("c")

        scene.assert_exactly_once()
