"""A state belongs to one pipeline and the topics it was made with: whatever else has their names is refused."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from schemas.changelog import POSITION_KEY, sealed
from tests.support.reset import remembered, run_reset
from tests.support.topics import environment, produce_transaction, sequences, unique
from tests.support.worker import (
    ROOT,
    New,
    PipelineConfig,
    WorkerConfig,
    new,
    new_config,
    produce,
    read_topic,
    run_drain,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker import Broker

pytestmark = pytest.mark.broker


def drained(config: WorkerConfig) -> WorkerConfig:
    """Drain with exit 0."""
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    return config


def ten(broker: Broker, folder: Path, **worker: object) -> WorkerConfig:
    """Return a config whose pipeline has passed the records 0 to 9."""
    config = new_config(broker.bootstrap_servers, folder).but(**worker)
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(10)])
    return drained(config)


def test_a_state_of_another_application_whose_name_runs_together_with_ours_is_refused_by_name(
    broker: Broker, tmp_path: Path
) -> None:
    a = unique("a")
    first = new_config(broker.bootstrap_servers, tmp_path)
    topics = first.pipelines[0]
    theirs = replace(first, application_id=a, pipelines=(replace(topics, name="b-c"),))
    ours = replace(
        first, application_id=f"{a}-b", pipelines=(PipelineConfig("c", topics.source, f"{topics.sink}.2"),)
    )
    assert theirs.changelog == ours.changelog
    produce(first.bootstrap_servers, first.source, [new(i) for i in range(10)])
    drained(theirs)

    refused = run_drain(ours)
    asked = run_reset(ours, "--to-earliest", pipeline="c")
    checked = subprocess.run(
        [sys.executable, "-m", "processor", "check", "-c", str(ours.write())],
        env=environment({"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        check=False,
    )

    named = f"holds the state of application {a}, pipeline b-c"
    assert (refused.code, asked.code, checked.returncode) == (1, 1, 0)
    assert named in refused.stderr
    assert named in asked.stderr
    assert named in checked.stderr
    assert not read_topic(ours.bootstrap_servers, ours.sink)
    produce(first.bootstrap_servers, first.source, [new(i) for i in range(5, 12)])
    drained(theirs)
    assert sequences(read_topic(theirs.bootstrap_servers, theirs.sink)) == list(range(12))


def test_a_state_of_before_names_were_kept_is_taken_over_once(broker: Broker, tmp_path: Path) -> None:
    config = ten(broker, tmp_path)
    now = remembered(config).position
    assert now is not None
    head = struct.Struct(">BHqqI16s16s")
    numbers = 1, now.slots, now.next_offset, now.batch_offset, now.batch_crc
    old = sealed(POSITION_KEY, head.pack(*numbers, now.definition, now.state_id))
    produce_transaction(config.bootstrap_servers, config.changelog, [New(POSITION_KEY, old, (), 0)])

    drained(config)

    found = remembered(config).position
    assert found == now
    assert (now.application, now.pipeline) == (config.application_id, "p")
