"""Nothing is lost, nothing comes twice and order holds, whatever happens to one broker of three under load.

One worker, or two, with a pipeline of each mode. In the short form three things happen, one after the other;
with ``--tier all`` all of them do, in an order by chance, again and again.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.judges.id_rules import IdRules
from tests.support.kafka.outages import Outages
from tests.support.kafka.topics import until
from tests.support.suite.extent import everything
from tests.support.worker.crash import WAIT_S, Scene, seeded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.cluster import Cluster
    from tests.support.worker.process import Worker

pytestmark = [pytest.mark.broker, pytest.mark.crash]

SHORT = ("rolling restart", "transaction coordinator killed", "cut off")
ROUNDS = int(os.environ.get("SEQMARK_TEST_ROUNDS", "2"))
"""Of the long form: how often each thing happens."""
RECORDS_PER_S = 600
"""Of each mode: the cores are shared with three brokers."""


@pytest.mark.timeout(3600)
def test_whatever_happens_to_one_broker_loses_and_repeats_nothing(
    cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dice = seeded()
    happens = list(SHORT)
    members = ["a"]
    if everything(request.config):
        happens = [name for _ in range(ROUNDS) for name in dice.sample(sorted(Outages.ALL), len(Outages.ALL))]
        members = ["a", "b"]
    with (
        Scene(cluster.direct, tmp_path, 3, slots=2) as sequences,
        Scene(cluster.direct, tmp_path, 3, rules=IdRules(window="1s")) as ids,
    ):
        scenes = _joined(cluster, sequences, ids)
        outages = Outages(cluster, sequences.config, slots=2, dice=dice)
        feeds = [scene.feed(dice) for scene in scenes]
        for feed in feeds:
            feed.rate = RECORDS_PER_S
        with feeds[0], feeds[1]:
            workers = [sequences.worker(member) for member in members]
            _wait_commits(scenes, workers)
            for name in happens:
                outages.happen(name, lambda: _wait_commits(scenes, workers))
                cluster.restore()
                _wait_commits(scenes, workers)
        for feed in feeds:
            feed.send_again()

        for scene in scenes:
            scene.wait_caught_up()
        for worker in workers:
            worker.terminate()
            assert worker.wait() == 0, worker.stderr
        for scene in scenes:
            scene.assert_exactly_once()


def _joined(cluster: Cluster, sequences: Scene, ids: Scene) -> tuple[Scene, Scene]:
    """Give both pipelines to the same workers, which reach the brokers through the proxies."""
    (one,), (other,) = sequences.config.pipelines, ids.config.pipelines
    other = replace(other, name="ids")
    servers = cluster.bootstrap_servers
    sequences.config = replace(sequences.config, bootstrap_servers=servers, pipelines=(one, other))
    ids.config = replace(sequences.config, pipelines=(other, one))
    return sequences, ids


def _wait_commits(scenes: tuple[Scene, Scene], workers: list[Worker]) -> None:
    """Wait until something more of both is committed."""
    for scene in scenes:
        before = scene.sink_end()

        def more(scene: Scene = scene, before: int = before) -> bool:
            assert all(worker.alive for worker in workers), [worker.stderr for worker in workers]
            return scene.sink_end() > before

        until(more, "something is committed", 2 * WAIT_S)
