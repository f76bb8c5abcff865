"""A worker makes of a generated stream exactly what its truth says, under each kind of definition."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import contents, create_topic
from tests.support.worker.process import WorkerConfig, new_config, read_topic, run_drain

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker
PARTITIONS = 3
RECORDS = 12_000
HEADER, KEY = {"from": "header", "name": "id"}, {"from": "key"}
A, B = ({"from": "value", "pointer": f"/a~1b/{number}"} for number in (2, 0))


def config_of(broker: Broker, folder: Path, sequence: dict[str, str], **dedup: Any) -> WorkerConfig:
    config = new_config(broker.bootstrap_servers, folder, PARTITIONS).with_quarantine()
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(replace(pipeline, sequence=sequence, dedup=dedup),))


def generate(config: WorkerConfig, *arguments: str) -> Result:
    given = ["generate", "-c", str(config.write()), "--records", str(RECORDS), *arguments]
    return CliRunner().invoke(main, given)


@pytest.mark.parametrize(
    ("sequence", "dedup"),
    [
        pytest.param({"from": "value", "pointer": "/meta/seq"}, {"scope": "key"}, id="key and value"),
        pytest.param(
            {"from": "header", "name": "seq", "format": "int32"},
            {"scope": "header:producer", "epoch": {"from": "header", "name": "epoch", "format": "text"}},
            id="header and epoch",
        ),
        pytest.param(
            {"from": "header", "name": "seq", "format": "int64"},
            {"scope": "partition", "reorder_window": 50},
            id="partition and window",
        ),
        pytest.param(
            {"from": "value", "pointer": "/a~1b/2", "format": "text"},
            {
                "scope": "header:producer",
                "epoch": {"from": "value", "pointer": "/a~1b/0"},
                "reorder_window": 9,
            },
            id="everything",
        ),
    ],
)
def test_a_worker_passes_and_quarantines_what_the_truth_says(
    broker: Broker, tmp_path: Path, sequence: dict[str, str], dedup: dict[str, Any]
) -> None:
    compare(config_of(broker, tmp_path, sequence, **dedup), tmp_path / "truth.jsonl")


@pytest.mark.parametrize(
    ("parts", "more"),
    [
        pytest.param([HEADER], {"window": "1h"}, id="header"),
        pytest.param([KEY], {"window": "1h", "refresh": True}, id="key, refreshed"),
        pytest.param([A, HEADER, B], {"window": "90m", "on_missing": "pass"}, id="several, may be missing"),
        pytest.param(
            [{"from": "value", "pointer": "/event_id"}, KEY], {"window": "10s"}, id="what clicks have"
        ),
        pytest.param([A], {"window": "7d", "time": "arrival"}, id="by arrival"),
    ],
)
def test_a_worker_passes_by_ids_what_the_truth_says(
    broker: Broker, tmp_path: Path, parts: list[dict[str, str]], more: dict[str, Any]
) -> None:
    config = config_of(broker, tmp_path, {}, mode="insert-id", id=parts, **more)
    compare(config, tmp_path / "truth.jsonl")


def compare(config: WorkerConfig, truth: Path) -> None:
    """Let a worker make a stream clean, and hold what comes out against the truth."""
    ended = generate(config, "--malformed", "0.005", "--seed", "5", "--truth", str(truth), "--json")
    assert ended.exit_code == 0, ended.stderr
    assert run_drain(config).code == 0

    lines = [json.loads(line) for line in truth.read_text().splitlines()]
    source = read_topic(config.bootstrap_servers, config.source)
    assert [(line["partition"], line["offset"]) for line in lines] == [(r.partition, r.offset) for r in source]
    passing = [record for record, line in zip(source, lines, strict=True) if line["passes"]]
    assert json.loads(ended.stdout)["passes"] == len(passing) > RECORDS * 0.8
    assert contents(read_topic(config.bootstrap_servers, config.sink)) == contents(passing)

    bad = [(r.partition, r.key, r.value, line["quarantine"]) for r, line in zip(source, lines, strict=True)
           if "quarantine" in line]  # fmt: skip
    found = read_topic(config.bootstrap_servers, config.quarantine)
    codes = [(dict(record.headers)["seqmark.error"] or b"").decode() for record in found]
    assert bad == [(r.partition, r.key, r.value, code) for r, code in zip(found, codes, strict=True)]
    assert len(bad) > 20  # of 57 and their copies; with on_missing = "pass" half of them pass


def test_a_definition_that_no_record_can_carry_is_refused_before_a_topic_is_made(
    broker: Broker, tmp_path: Path
) -> None:
    config = config_of(broker, tmp_path, {"from": "value", "pointer": "/page/number"})
    (pipeline,) = config.pipelines
    config = replace(config, pipelines=(replace(pipeline, source="never.made"),))
    ended = generate(config)
    assert ended.exit_code == 2
    assert f"pipelines.{pipeline.name}.dedup.sequence.pointer: /page/number leads into page" in ended.stderr
    create_topic(broker.bootstrap_servers, "never.made")  # it would exist already


def test_scopes_are_refused_where_the_partition_is_the_scope(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path, {"from": "header", "name": "seq"})
    ended = generate(config, "--scopes", "5")
    assert ended.exit_code == 2
    assert "--scopes: is for a pipeline with scopes" in ended.stderr
