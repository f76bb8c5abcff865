"""A worker makes of a generated stream exactly what its truth says, under each kind of definition."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import contents, create_topic
from tests.support.verify.certificate import certificate
from tests.support.worker.process import WorkerConfig, new_config, read_topic, run_drain
from tests.support.worker.several import alone, pipelines_of

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker
PARTITIONS = 3
RECORDS = 12_000
HEADER, KEY = {"from": "header", "name": "id"}, {"from": "key"}
IDS: dict[str, Any] = {"mode": "insert-id", "window": "1h"}
A, B = ({"from": "value", "pointer": f"/a~1b/{number}"} for number in (2, 0))


DEFINITIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "wraps": (
        {"from": "header", "name": "seq", "wraps": 2_000},
        {"scope": "header:producer", "reorder_window": 20},
    ),
    "wraps-and-changes": (
        {"from": "value", "pointer": "/meta/seq", "wraps": 16_384},
        {"scope": "key", "epoch": {"from": "header", "name": "boot", "order": "change"}},
    ),
    "key-and-value": ({"from": "value", "pointer": "/meta/seq"}, {"scope": "key"}),
    "header-and-epoch": (
        {"from": "header", "name": "seq", "format": "int32"},
        {"scope": "header:producer", "epoch": {"from": "header", "name": "epoch", "format": "text"}},
    ),
    "partition-and-window": (
        {"from": "header", "name": "seq", "format": "int64"},
        {"scope": "partition", "reorder_window": 50},
    ),
    "everything": (
        {"from": "value", "pointer": "/a~1b/2", "format": "text"},
        {"scope": "header:producer", "epoch": {"from": "value", "pointer": "/a~1b/0"}, "reorder_window": 9},
    ),
    "header": ({}, {**IDS, "id": [HEADER]}),
    "key-refreshed": ({}, {**IDS, "id": [KEY], "refresh": True}),
    "several-may-be-missing": (
        {},
        {**IDS, "id": [A, HEADER, B], "window": "90m", "on_missing": "pass"},
    ),
    "what-clicks-have": (
        {},
        {**IDS, "id": [{"from": "value", "pointer": "/event_id"}, KEY], "window": "10s"},
    ),
    "by-arrival": ({}, {**IDS, "id": [A], "window": "7d", "time": "arrival"}),
}


def generate(config: WorkerConfig, *arguments: str) -> Result:
    given = ["generate", "-c", str(config.write()), "--records", str(RECORDS), *arguments]
    return CliRunner().invoke(main, given)


def config_of(broker: Broker, folder: Path, sequence: dict[str, Any]) -> WorkerConfig:
    config = new_config(broker.bootstrap_servers, folder, PARTITIONS).with_quarantine().with_duplicates()
    return replace(config, pipelines=(replace(config.pipelines[0], sequence=sequence),))


@pytest.fixture(scope="module")
def made(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> tuple[WorkerConfig, dict[str, int]]:
    """Return pipelines of all definitions that one worker has drained, and how many records pass of each."""
    config = config_of(broker, tmp_path_factory.mktemp("streams"), {})
    config = pipelines_of(config, {name: dedup for name, (_, dedup) in DEFINITIONS.items()}, PARTITIONS)
    pipelines = tuple(replace(each, sequence=DEFINITIONS[each.name][0]) for each in config.pipelines)
    config = replace(config, pipelines=pipelines)
    passes = {}
    for name in DEFINITIONS:
        truth = str(config.folder / f"{name}.jsonl")
        given = ("--pipeline", name, "--malformed", "0.005", "--seed", "5", "--truth", truth, "--json")
        ended = generate(config, *given)
        assert ended.exit_code == 0, ended.stderr
        passes[name] = json.loads(ended.stdout)["passes"]
    assert run_drain(config).code == 0
    return config, passes


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_worker_passes_and_quarantines_what_the_truth_says(
    made: tuple[WorkerConfig, dict[str, int]], name: str
) -> None:
    config, passes = alone(made[0], name), made[1][name]
    lines = [json.loads(line) for line in (config.folder / f"{name}.jsonl").read_text().splitlines()]
    source = read_topic(config.bootstrap_servers, config.source)
    assert [(line["partition"], line["offset"]) for line in lines] == [(r.partition, r.offset) for r in source]
    passing = [record for record, line in zip(source, lines, strict=True) if line["passes"]]
    assert passes == len(passing) > RECORDS * 0.8
    assert contents(read_topic(config.bootstrap_servers, config.sink)) == contents(passing)

    bad = [(r.partition, r.key, r.value, line["quarantine"]) for r, line in zip(source, lines, strict=True)
           if "quarantine" in line]  # fmt: skip
    found = read_topic(config.bootstrap_servers, config.quarantine)
    codes = [(dict(record.headers)["seqmark.error"] or b"").decode() for record in found]
    assert bad == [(r.partition, r.key, r.value, code) for r, code in zip(found, codes, strict=True)]
    assert len(bad) > 20  # of 57 and their copies; with on_missing = "pass" half of them pass


@pytest.mark.parametrize("name", ["wraps", "wraps-and-changes"])
def test_where_numbers_wrap_what_was_dropped_is_proved_and_explained(
    made: tuple[WorkerConfig, dict[str, int]], name: str
) -> None:
    config = alone(made[0], name)
    told = certificate(config)
    assert (told.code, told.violations) == (0, [])
    receipts = [
        json.loads(each.value or b"") for each in read_topic(config.bootstrap_servers, config.duplicates)
    ]
    assert len(receipts) == sum(line["duplicates"] for line in told.partitions) > RECORDS // 50
    for verdict in ("duplicate", "late"):
        receipt = next(each for each in receipts if each["verdict"] == verdict)
        where = "{topic}:{partition}:{offset}".format(**receipt)
        ended = CliRunner().invoke(main, ["explain", where, "-c", str(config.write()), "--json"])
        assert ended.exit_code == 0, ended.stderr
        story = json.loads(ended.stdout)
        assert story["outcome"] == verdict
        assert story["owner"]["offset"] < receipt["offset"]


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
