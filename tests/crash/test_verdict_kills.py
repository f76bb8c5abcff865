"""A worker that writes verdicts and is killed after any step leaves ranges that say each record's fate once.

Readers run beside it meanwhile, and are killed too: what they make of it is the clean stream.
"""

from __future__ import annotations

import random
import signal
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from processor.ops.fault_points import CommitStep
from tests.support.readers.beside import Readers
from tests.support.verify.certificate import certificate
from tests.support.worker.crash import Scene, seeded
from tests.support.worker.id_feed import COLLISIONS
from tests.support.worker.verdicts import read_clean

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.judges.id_rules import IdRules
    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.crash]

RULES: dict[str, IdRules | None] = {
    "verdicts": None,
    "both": replace(COLLISIONS, on_collision="quarantine", rename=None),
}
"""Sequences with verdicts alone; ids that collide, and go to quarantine, with both."""


@pytest.mark.drawn("step")
@pytest.mark.parametrize("step", CommitStep)
@pytest.mark.parametrize("output", RULES)
def test_a_kill_after_a_step_leaves_no_gap_and_no_overlap(
    broker: Broker, tmp_path: Path, output: str, step: CommitStep
) -> None:
    dice = seeded()
    with Scene(broker.bootstrap_servers, tmp_path, rules=RULES[output]) as scene:
        scene.config = scene.config.with_verdicts(output)
        readers = Readers(scene.config, random.Random(dice.random()))
        with readers if output == "verdicts" else nullcontext():
            killed_under_load(scene, step, dice)

            scene.drain(state="without" if dice.random() < 0.5 else None)

        # The ranges follow each other, or the naive reader would say so; and they say what passes.
        truth = scene.assert_exactly_once()
        assert any(each.quarantined for each in truth)
        found = certificate(scene.config)
        if output == "verdicts":
            assert readers.materialize() == 0
            assert scene.read(scene.config.sink) == [each.passed for each in truth]
            wanted = [each.offset for each in read_clean(scene.config) if each.partition == 0]
            assert readers.all_read(len(wanted)) == wanted
    assert found.code == 0, found.details + found.stderr
    assert sum(line["sink"] for line in found.partitions) == sum(len(each.passed) for each in truth)


def killed_under_load(scene: Scene, step: CommitStep, dice: random.Random) -> None:
    feed = scene.feed(dice)
    feed.send(1_000)
    with feed:
        worker = scene.worker(fault=f"{step}:{dice.randrange(2, 8)}")
        assert worker.wait() == -signal.SIGKILL, worker.stderr
    feed.send_again()
    feed.send(100)
