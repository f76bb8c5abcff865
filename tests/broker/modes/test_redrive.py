"""Quarantined records are judged again by the command, on a broker, once, whatever ends it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.kafka.topics import New, alter_topic, create_topic
from tests.support.verify.certificate import certificate
from tests.support.worker import forks
from tests.support.worker.process import (
    WorkerConfig,
    new_config,
    produce,
    read_topic,
    run_drain,
    start_worker,
)
from tests.support.worker.reset import run_reset

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

IDS = {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h"}
WHEN = 1_700_000_000_000
LARGE = bytes(range(256)) * 80


def redrive(
    config: WorkerConfig, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    words = ("redrive", "-c", str(config.write()), *arguments)
    inside = not env
    return (
        forks.inside(*words, folder=config.folder)
        if inside
        else forks.run(*words, folder=config.folder, env=env)
    )


def lines(ended: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def drain(config: WorkerConfig) -> None:
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr


def sent(name: str, value: bytes = b"v") -> New:
    return New(name.encode(), value, (("own", b"1"), ("none", None)), WHEN)


def keys(config: WorkerConfig, topic: str, partition: int) -> list[bytes | None]:
    return [r.key for r in read_topic(config.bootstrap_servers, topic) if r.partition == partition]


def test_a_redrive_that_is_killed_between_two_commits_goes_on_and_all_of_it_is_proved(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, partitions=2).with_quarantine().with_duplicates()
    config = replace(config, pipelines=(replace(config.pipelines[0], dedup=IDS),))
    create_topic(config.bootstrap_servers, config.sink, 2, {"max.message.bytes": "10000"})
    for number in range(2):
        large = [sent("a", LARGE), sent("b", LARGE), sent("a", LARGE)]
        produce(config.bootstrap_servers, config.source, [sent("c"), *large, sent("d")], partition=number)
    with start_worker(config) as worker:
        worker.wait_ready()
        refused = redrive(config)
        assert refused.returncode == 1
        assert "is not stopped" in refused.stderr
        worker.terminate()
        assert worker.wait() == 0
    drain(config)
    alter_topic(config.bootstrap_servers, config.sink, **{"max.message.bytes": "1048588"})

    foreseen = lines(redrive(config, "--dry-run", "--json"))
    # Each partition has two commits: the second makes what is judged last.
    killed = redrive(config, env={"SEQMARK_FAULT_STEP": "ended:2"})
    assert killed.returncode == -9, killed.stderr
    after = lines(redrive(config, "--json"))

    counts = [(line["before"], line["passed"], line["dropped"], line["after"]) for line in foreseen]
    assert counts == [(3, 2, 1, 0), (3, 2, 1, 0)]
    assert [line["before"] for line in after] == [0, 3]
    assert [line["passed"] for line in lines(redrive(config, "--json"))] == [0, 0]
    produce(config.bootstrap_servers, config.source, [sent("b"), sent("e")], partition=0)
    drain(config)
    assert keys(config, config.sink, 0) == [b"c", b"d", b"a", b"b", b"e"]
    assert keys(config, config.sink, 1) == [b"c", b"d", b"a", b"b"]
    told = certificate(config)
    assert told.code == 0, told.details
    assert [(line["redriven"], line["quarantine"]) for line in told.partitions] == [(3, 0), (3, 0)]
    source = {
        (r.partition, r.key, r.value): r.headers for r in read_topic(broker.bootstrap_servers, config.source)
    }
    for record in read_topic(config.bootstrap_servers, config.sink):
        assert source[record.partition, record.key, record.value] == record.headers
    explained(config)


def explained(config: WorkerConfig) -> None:
    """Ask of each position what it is: none is a contradiction."""
    for topic in (config.source, config.sink, config.duplicates, config.quarantine):
        for record in read_topic(config.bootstrap_servers, topic):
            if topic == config.quarantine and record.key is None:
                continue
            where = f"{topic}:{record.partition}:{record.offset}"
            ended = forks.inside("explain", "-c", str(config.write()), where, folder=config.folder)
            if topic == config.source and record.value == LARGE:
                assert "was judged again" in ended.stdout
            assert ended.returncode == 0, f"{where}: {ended.stdout}{ended.stderr}"


def test_what_a_wrong_config_has_put_aside_passes_by_the_right_one(broker: Broker, tmp_path: Path) -> None:
    wrong = new_config(broker.bootstrap_servers, tmp_path).with_quarantine().with_duplicates()
    records = [New(b"k", b'{"n": %d}' % n, (), WHEN + n) for n in (1, 2, 2, 3, 3)]
    produce(wrong.bootstrap_servers, wrong.source, records)
    drain(wrong)
    sequence = {"from": "value", "pointer": "/n"}
    right = replace(wrong, pipelines=(replace(wrong.pipelines[0], sequence=sequence),))

    refused = redrive(right)
    (reset,) = run_reset(right, "--to-offset", "0:5").lines
    done = redrive(right)

    assert refused.returncode == 1
    assert "seqmark reset -c FILE --pipeline p --to-offset 0:5" in refused.stderr
    assert reset["state"] == "recomputed"
    assert done.returncode == 0, done.stderr
    assert "header_missing" in done.stdout
    produce(right.bootstrap_servers, right.source, [New(b"k", b'{"n": 4}', (), WHEN)])
    drain(right)
    values = [r.value for r in read_topic(right.bootstrap_servers, right.sink)]
    assert values == [b'{"n": %d}' % n for n in (1, 2, 3, 4)]
    told = certificate(right)
    assert told.code == 0, told.details
    assert told.partitions[0]["redriven"] == 5
    assert (told.partitions[0]["source"], told.partitions[0]["sink"]) == (1, 1)
