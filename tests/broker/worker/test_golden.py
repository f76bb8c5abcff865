"""Topics and local state that commit 5fc7e47 has written are restored, continued and certified by today's code.

`tests.golden.make` has made the archive: a broker's data folder and a worker's state folder. A third of each
source is new to today's worker. It resends records of the other two thirds.
"""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.golden import make
from tests.support.judges.id_rules import IdRules, IdSaid
from tests.support.judges.rules import Rules
from tests.support.kafka.topics import Record, contents, open_transactions, read_topic
from tests.support.verify.certificate import certificate
from tests.support.worker.process import PipelineConfig, WorkerConfig, run_drain

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import OwnBroker

pytestmark = pytest.mark.broker

NAMES = list(make.DEDUP)
FROM_CHANGELOG = {"even": NAMES[::2], "odd": NAMES[1::2]}
"""Pipelines whose local state is deleted before today's worker starts."""
UNPROVABLE = {"unconfirmed", "routed"}
"""What `verify` does not know yet."""
SINCE_MS = make.START_MS + 2 * make.THIRD * make.STEP_MS
COMPILED_S = 400.0
"""The worker needs the kernels of all judges: to compile them took 118 s on a busy machine."""
# Its offsets would be forgotten a week after they were committed.
SETTINGS = {"offsets.retention.minutes": "2147483647"}


@pytest.mark.drawn("gone")
@pytest.mark.parametrize("gone", FROM_CHANGELOG)
def test_what_an_old_commit_has_stored_is_gone_on_with(
    own_broker: OwnBroker, tmp_path: Path, gone: str
) -> None:
    with tarfile.open(make.ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    for name in FROM_CHANGELOG[gone]:
        for folder in tmp_path.glob(f"state/{make.APPLICATION}/home-0/{name}*"):
            shutil.rmtree(folder)
    broker = own_broker(data_dir=tmp_path / "broker", overrides=SETTINGS)
    config = config_of(broker.bootstrap_servers, tmp_path)

    ended = run_drain(config, timeout_s=COMPILED_S)

    assert ended.code == 0, ended.stderr
    read_whole = set(re.findall(r"no local state of golden-(\w+)-changelog:\d", ended.stderr))
    assert read_whole == set(FROM_CHANGELOG[gone])
    assert not re.search("(WARNING|ERROR).*local state", ended.stderr), ended.stderr
    assert not open_transactions(config.bootstrap_servers)
    for pipeline in config.pipelines:
        if pipeline.name == "routed":
            assert_each_id_passed_once(config.bootstrap_servers, pipeline)
        else:
            assert_as_the_naive_model_says(config.bootstrap_servers, pipeline)
    provable = tuple(each for each in config.pipelines if each.name not in UNPROVABLE)
    told = certificate(replace(config, pipelines=provable))
    assert (told.code, told.violations) == (0, []), told.stderr
    assert len(told.partitions) == len(provable) * make.PARTITIONS


def config_of(bootstrap: str, folder: Path) -> WorkerConfig:
    pipelines = []
    for name, dedup in make.DEDUP.items():
        source, sink, quarantine, duplicates = (
            f"{name}.{kind}" for kind in ("raw", "clean", "quarantine", "duplicates")
        )
        pipelines.append(PipelineConfig(name, source, sink, quarantine, duplicates, dedup=dedup))
    return WorkerConfig(folder, bootstrap, make.APPLICATION, tuple(pipelines), {"slots": 1})


def rules_of(dedup: dict[str, Any]) -> Rules | IdRules:
    kept = {key: value for key, value in dedup.items() if key not in {"mode", "backend"}}
    return Rules(**kept) if dedup["mode"] == "watermark" else IdRules(**{**kept, "id": tuple(kept["id"])})


def assert_as_the_naive_model_says(bootstrap: str, pipeline: PipelineConfig) -> None:
    """Sink, receipts and quarantine are those of judging the whole source record by record."""
    rules = rules_of(dict(pipeline.dedup))
    models = [rules.model() for _ in range(make.PARTITIONS)]
    said = [(each, models[each.partition].judge(each)) for each in read_topic(bootstrap, pipeline.source)]
    verdicts = Counter(each.verdict for _, each in said)

    assert contents(read_topic(bootstrap, pipeline.sink)) == contents(
        record for record, each in said if each.verdict == "pass"
    ), pipeline.name
    dropped = [(record, each) for record, each in said if each.verdict in {"duplicate", "late"}]
    told = receipts(bootstrap, pipeline)
    if isinstance(rules, Rules):
        keys = "verdict", "sequence", "watermark"
        judged = [tuple(getattr(each, key) for key in keys) for _, each in dropped]
        assert [tuple(each[key] for key in keys) for each in told] == judged, pipeline.name
    elif rules.confirmed:
        owners = [(each.owner, each.expires_ms) for _, each in dropped if isinstance(each, IdSaid)]
        assert [(each["owner"]["offset"], each["expires_at"]) for each in told] == owners, pipeline.name
    assert [(each["partition"], each["offset"]) for each in told] == [
        (record.partition, record.offset) for record, _ in dropped
    ], pipeline.name
    assert len(read_topic(bootstrap, pipeline.quarantine or "")) == verdicts["header_missing"] > 0
    assert sum(1 for record, _ in dropped if sent_before(record)) > 10, "only what was stored could tell"


def assert_each_id_passed_once(bootstrap: str, pipeline: PipelineConfig) -> None:
    """Which of equal ids of two partitions comes first is nobody's claim; all others have it as their owner."""
    names = {
        (record.partition, record.offset): dict(record.headers)["id"] or b""
        for record in read_topic(bootstrap, pipeline.source)
        if record.headers
    }
    told = receipts(bootstrap, pipeline)
    passed = [dict(record.headers)["id"] or b"" for record in read_topic(bootstrap, pipeline.sink)]
    dropped = {(each["partition"], each["offset"]): each["owner"] for each in told}

    assert sorted(passed) == sorted(set(names.values()))
    assert len(dropped) == len(told) == len(names) - len(passed) > 0
    for place, owner in dropped.items():
        first = owner["partition"], owner["offset"]
        assert names[place] == names[first]
        assert first not in dropped
    quarantined = read_topic(bootstrap, pipeline.quarantine or "")
    assert len(quarantined) == len(read_topic(bootstrap, pipeline.source)) - len(names) > 0


def receipts(bootstrap: str, pipeline: PipelineConfig) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in read_topic(bootstrap, pipeline.duplicates or "")]


def sent_before(record: Record) -> bool:
    """Say whether today's worker was the first to see this, and the old one has seen what it repeats."""
    first = int.from_bytes(dict(record.headers)["n"] or b"", "big")
    return record.timestamp >= SINCE_MS and first < 2 * make.THIRD
