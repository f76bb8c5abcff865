"""A time line is right in every mode: scopes, routed ids, new ids, contents, filters, shared topics."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.inspection.test_timeline import Told, explain
from tests.support.kafka.topics import New, create_topic, int64
from tests.support.worker.process import PipelineConfig, WorkerConfig, new_config, produce, run_drain

if TYPE_CHECKING:
    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

NOW_MS = int(time.time() * 1000) - 100_000
IDS: dict[str, Any] = {"mode": "insert-id", "id": [{"from": "value", "pointer": "/id"}], "window": "1h"}
RENAME = {
    "on_collision": "rename",
    "rename": {"to": "/id", "keep": "/old"},
    "fingerprint": {"exclude": ["/at"]},
}
CONTENT = {**IDS, "id": [{"from": "content", "exclude": ["/at"]}]}
BLOOM = {"bucket": "10m", "expected_per_bucket": 1_000}
EPOCH = {"from": "header", "name": "epoch", "format": "int64"}
PIPELINES: dict[str, dict[str, Any]] = {
    "scoped": {"scope": "key", "epoch": EPOCH},
    "routed": {**IDS, "route": "by-id"},
    "renamed": {**IDS, **RENAME},
    "content": CONTENT,
    "filtered": {**IDS, "backend": "bloom", "bloom": BLOOM},
}


def of(value: str, after_ms: int, seq: int = 0, epoch: int = 1, key: bytes = b"k") -> New:
    headers = (("seq", int64(seq)), ("epoch", int64(epoch)))
    return New(key, value.encode(), headers, NOW_MS + after_ms)


BY_PARTITION = {
    0: [
        of('{"id": "a", "at": 1}', 0, 5),
        of('{"id": "a", "at": 2}', 1, 5),
        of('{"id": "a", "more": 1}', 2, 4),
        of('{"id": "b"}', 3, 1, 2),
        of('{"id": "c"}', 4, 9, 2, key=b"other"),
    ],
    1: [of('{"id": "a", "at": 3}', 5, 1)],
}


@pytest.fixture(scope="module")
def judged(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> WorkerConfig:
    """Return a config whose pipelines share a topic of receipts, and have judged everything."""
    config = new_config(broker.bootstrap_servers, tmp_path_factory.mktemp("kinds"), 2, slots=1)
    first, pipelines = config.source, []
    for name, dedup in PIPELINES.items():
        source = f"{first}.{name}"
        create_topic(config.bootstrap_servers, source, 2)
        for partition, records in BY_PARTITION.items():
            produce(config.bootstrap_servers, source, records, partition=partition)
        shared = f"{first}.receipts"
        pipelines.append(PipelineConfig(name, source, f"{source}.clean", duplicates=shared, dedup=dedup))
    config = replace(config, pipelines=tuple(pipelines))
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    return config


def told(config: WorkerConfig, pipeline: str, *words: str) -> Told:
    found = explain(config, "--pipeline", pipeline, *words)
    assert found.code == 0, found.stderr
    return found


def outcomes(found: Told) -> list[tuple[int, int, str]]:
    return [(each["source"]["partition"], each["source"]["offset"], each["outcome"]) for each in found.records]


def test_by_key_the_scope_of_sequences_is_told(judged: WorkerConfig) -> None:
    found = told(judged, "scoped", "--key", "k")

    assert outcomes(found) == [
        (0, 0, "passed"),
        (0, 1, "duplicate"),
        (0, 2, "late"),
        (0, 3, "passed"),
        (1, 0, "passed"),
    ]
    assert [(each["partition"], each["watermark"], each["epoch"]) for each in found.last["state"]] == [
        (0, 1, 2),
        (1, 1, 1),
    ]


def test_routed_ids_meet_across_partitions(judged: WorkerConfig) -> None:
    found = told(judged, "routed", "--id", "a")

    kinds = outcomes(found)
    assert [each[:2] for each in kinds] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert sorted(each[2] for each in kinds) == ["duplicate", "duplicate", "duplicate", "passed"]
    (owner,) = [record["owner"] for each in found.last["state"] for record in each["remembered"]]
    (passed,) = [each["source"] for each in found.records if each["outcome"] == "passed"]
    assert owner == passed


def test_an_id_that_was_renamed_is_found_by_its_old_one(judged: WorkerConfig) -> None:
    found = told(judged, "renamed", "--id", "a")

    assert outcomes(found) == [
        (0, 0, "passed"),
        (0, 1, "duplicate"),
        (0, 2, "collision"),
        (1, 0, "passed"),
    ]
    collided = found.records[2]
    assert collided["clean"] is not None
    assert collided["clause"].startswith("collides with it, differs in")
    assert [len(each["remembered"]) for each in found.last["state"]] == [2, 1]

    by_new_id = told(judged, "renamed", "--id", collided["grounds"]["new_id"])
    assert outcomes(by_new_id) == [(0, 2, "collision")]


def test_a_content_is_found_by_the_digits_of_its_receipt(judged: WorkerConfig) -> None:
    (dropped,) = [
        each
        for each in told(judged, "content", "--json-field", "/id=a").records
        if each["outcome"] == "duplicate"
    ]
    digits = dropped["grounds"]["id"][0]["content"]

    found = told(judged, "content", "--id", f"content:{digits}")

    assert outcomes(found) == [(0, 0, "passed"), (0, 1, "duplicate")]
    assert [len(each["remembered"]) for each in found.last["state"]] == [1, 0]


def test_filters_say_that_they_know_an_id(judged: WorkerConfig) -> None:
    found = told(judged, "filtered", "--id", "a")

    assert [each[2] for each in outcomes(found)] == ["passed", "duplicate", "duplicate", "passed"]
    assert [each["owner"] for state in found.last["state"] for each in state["remembered"]] == [None, None]


def test_without_a_name_every_pipeline_that_can_be_asked_is(judged: WorkerConfig) -> None:
    found = explain(judged, "--json-field", "/id=c")

    summaries = [each for each in [*found.records, found.last] if "asked" in each and "looked" in each]
    assert [each["pipeline"] for each in summaries] == list(PIPELINES)
    assert json.dumps(found.last["since"])
