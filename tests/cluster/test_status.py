"""While one of three brokers says nothing, `seqmark status` says what the others know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import unique
from tests.support.worker.process import PipelineConfig, WorkerConfig

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.cluster import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.crash]


def test_partitions_of_a_silent_leader_are_unknown_and_all_others_known(
    cluster: Cluster, tmp_path: Path
) -> None:
    name = unique("status")
    pipeline = PipelineConfig("p", f"{name}.raw", f"{name}.clean")
    cluster.create_topic(pipeline.source, (1, 2))
    config = WorkerConfig(tmp_path, cluster.bootstrap_servers, name, (pipeline,))
    runner, path = CliRunner(), str(config.write())
    assert runner.invoke(main, ["topics", "-c", path]).exit_code == 0

    cluster.proxies[2].swallow()
    result = runner.invoke(main, ["status", "-c", path, "--json"])
    cluster.proxies[2].heal()

    assert result.exit_code == 0, result.output
    group, found = map(json.loads, result.stdout.splitlines())
    here, silent = found["hops"][0]["partitions"]
    assert (here["stable"], here["end"]) == (0, 0)
    assert (silent["stable"], silent["end"]) == (None, None)
    assert any(f"{pipeline.source}:1" in note for note in group["notes"])
    again = runner.invoke(main, ["status", "-c", path, "--json"])
    assert json.loads(again.stdout.splitlines()[1])["hops"][0]["partitions"][1]["stable"] == 0
