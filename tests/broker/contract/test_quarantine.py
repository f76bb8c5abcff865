"""What becomes of records that cannot be judged, or that no topic takes?"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.kafka.topics import alter_topic, create_topic, dice, int64, sequences, unique
from tests.support.verify.certificate import certificate
from tests.support.worker.process import (
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

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

WHEN = 1_700_000_000_000


def test_a_first_record_that_cannot_be_judged_stops_the_worker_each_time(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    produce(config.bootstrap_servers, config.source, [New(None, None, (), WHEN), new(1)])

    first, second = run_drain(config), run_drain(config)

    assert (first.code, second.code) == (1, 1)
    assert f"{config.source}:0:0: the record cannot be judged: header_missing" in second.stderr
    assert read_topic(config.bootstrap_servers, config.sink) == []


@pytest.mark.parametrize(("into", "codec"), [("sink", "none"), ("sink", "lz4"), ("quarantine", "lz4")])
def test_the_size_that_is_asked_for_is_enough(broker: Broker, tmp_path: Path, into: str, codec: str) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    if into == "quarantine":
        config = config.with_quarantine()
        create_topic(config.bootstrap_servers, config.quarantine, 1, {"max.message.bytes": "10000"})
    create_topic(config.bootstrap_servers, config.sink, 1, {"max.message.bytes": "10000"})
    records = [new(1), new(2, value=dice(3).randbytes(30_000)), new(3)]
    produce(config.bootstrap_servers, config.source, records, codec=codec)
    refusing = config.sink if into == "sink" else config.quarantine

    stopped = run_drain(config)

    assert stopped.code == 1
    assert f"{config.source}:0:1" in stopped.stderr
    assert sequences(read_topic(config.bootstrap_servers, config.sink)) == [1]
    asked = re.search(rf"{re.escape(refusing)} needs max.message.bytes of at least (\d+)", stopped.stderr)
    assert asked, stopped.stderr
    alter_topic(config.bootstrap_servers, refusing, max_message_bytes=asked[1])
    assert run_drain(config).code == 0
    rest = [1, 2, 3] if into == "sink" else [1, 3]
    assert sequences(read_topic(config.bootstrap_servers, config.sink)) == rest


def test_a_receipt_that_its_topic_refuses_holds_up_nothing_that_comes_before_it(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 2).with_duplicates().but(slots=1)
    bootstrap = config.bootstrap_servers
    create_topic(bootstrap, config.duplicates, 2, {"max.message.bytes": "150"})
    produce(bootstrap, config.source, [new(i) for i in range(5)], [new(5), new(5), new(6)])
    produce(bootstrap, config.source, [new(i) for i in range(7)], partition=1)

    first, second = run_drain(config), run_drain(config)

    for ended in (first, second):
        assert ended.code == 1
        assert f"{config.source}:0:6: the receipt of this dropped record is too large" in ended.stderr
    assert sequences(read_topic(bootstrap, config.sink), 0) == list(range(6))
    # What was committed is not begun again for.
    assert (
        "rebuilding: to commit what comes before offset 6" in first.stderr,
        "to commit" in second.stderr,
    ) == (
        True,
        False,
    )
    asked = re.search(
        rf"{re.escape(config.duplicates)} needs max.message.bytes of at least (\d+)", second.stderr
    )
    assert asked, second.stderr
    alter_topic(bootstrap, config.duplicates, max_message_bytes=asked[1])
    assert run_drain(config).code == 0
    found = read_topic(bootstrap, config.sink)
    assert [sequences(found, number) for number in range(2)] == [list(range(7))] * 2
    assert certificate(config).code == 0


KEY, HEADER, FIELD = {"from": "key"}, {"from": "header", "name": "id"}, {"from": "value", "pointer": "/id"}
MEBIBYTE = 2**20


def of_ids(*parts: dict[str, str]) -> dict[str, Any]:
    """Return a ``dedup`` of mode insert-id."""
    return {"mode": "insert-id", "id": list(parts), "window": "99999d"}


# By name of a pipeline: its dedup, what comes, and what becomes of it. All of it is random or large, or both,
# and its source takes it, with the broker's default limit of 1 MiB a batch.
NOISE = [dice(seed).randbytes(900_000) for seed in range(3)]
TEXT = NOISE[2][:450_000].hex().encode()
HOSTILE: dict[str, tuple[dict[str, Any], list[New], list[str]]] = {
    "long-key": (
        {"scope": "key"},
        [new(1, key=b"k" * (MEBIBYTE + 1)), new(1, key=b"k" * 65_536), new(1, key=NOISE[0])],
        ["scope_too_large", "pass", "scope_too_large"],
    ),
    "long-header": (
        {"scope": "header:id"},
        [New(b"k", b"v", (("seq", int64(n)), ("id", name)), WHEN) for n, name in enumerate((NOISE[0], b"a"))],
        ["scope_too_large", "pass"],
    ),
    "late-key": (
        {},
        [new(2, key=NOISE[0]), new(1, key=NOISE[1]), new(2, key=b"k" * 9 * MEBIBYTE)],
        ["pass", "late", "duplicate"],
    ),
    "id-header": (
        of_ids(HEADER),
        [New(NOISE[1][:300_000], b"v", (("id", NOISE[0][:700_000]),), WHEN + n) for n in range(2)],
        ["pass", "duplicate"],
    ),
    "id-key": (of_ids(KEY), [New(NOISE[0], b"v", (), WHEN + n) for n in range(2)], ["pass", "duplicate"]),
    "id-value": (
        of_ids(FIELD, KEY),
        [New(b"k", b'{"id":"' + TEXT + b'"}', (), WHEN + n) for n in range(2)],
        ["pass", "duplicate"],
    ),
    "id-parts": (
        of_ids(*({"from": "header", "name": str(n)} for n in range(200))),
        [
            New(b"k", b"v", tuple((str(n), NOISE[0][4_000 * n :][:4_000]) for n in range(200)), WHEN + k)
            for k in range(2)
        ],
        ["pass", "duplicate"],
    ),
    "no-id": (of_ids(HEADER), [New(NOISE[0], None, (("x", NOISE[1][:100_000]),), WHEN)], ["header_missing"]),
    "routed": (
        {**of_ids(KEY), "route": "by-id"},
        [New(NOISE[0], b"v", (), WHEN + n) for n in range(2)],
        ["pass", "duplicate"],
    ),
}


def test_no_record_that_a_source_takes_stops_a_pipeline_that_has_a_quarantine(
    broker: Broker, tmp_path: Path
) -> None:
    name = unique("hostile")
    pipelines = []
    for pipeline, (dedup, records, _) in HOSTILE.items():
        made = PipelineConfig(pipeline, f"{name}.{pipeline}", f"{name}.{pipeline}.clean", dedup=dedup)
        create_topic(broker.bootstrap_servers, made.source, 1)
        for each in records:
            # Alone: what stands beside it in a batch is not what it takes.
            produce(broker.bootstrap_servers, made.source, [each], codec="zstd", batch_bytes=16 * MEBIBYTE)
        pipelines.append(made)
    config = WorkerConfig(tmp_path, broker.bootstrap_servers, name, tuple(pipelines), {"slots": 1})
    config = config.with_quarantine().with_duplicates()

    ended = run_drain(config)

    assert ended.code == 0, ended.stderr
    found = {pipeline.name: outcomes(config, pipeline) for pipeline in config.pipelines}
    assert found == {name: said for name, (_, _, said) in HOSTILE.items()}
    told = certificate(replace(config, pipelines=config.pipelines[:-1]))  # there is none with route
    assert told.code == 0, (told.details, told.stderr)


def outcomes(config: WorkerConfig, pipeline: PipelineConfig) -> list[str]:
    """Return what became of each record of a pipeline with one partition, by place in its source."""
    topics = (pipeline.sink, pipeline.duplicates, pipeline.quarantine)
    sink, receipts, aside = (read_topic(config.bootstrap_servers, topic or "") for topic in topics)
    source = [each.content for each in read_topic(config.bootstrap_servers, pipeline.source)]
    told = [(source.index(each.content), "pass") for each in sink]
    for receipt in receipts:
        said = json.loads(receipt.value or b"")
        told.append((said["offset"], said["verdict"]))
    for each in aside:
        headers = dict(each.headers)
        offset = int((headers["seqmark.source"] or b"").rpartition(b":")[2])
        told.append((offset, (headers["seqmark.error"] or b"").decode()))
    assert sorted(offset for offset, _ in told) == list(range(len(source)))
    return [verdict for _, verdict in sorted(told)]
