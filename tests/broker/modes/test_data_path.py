"""Records come through exactly as they came, whatever the batches of the source look like.

Point by point: codecs, aborted transactions, control batches, compacted gaps, a position inside a batch,
LogAppendTime, batches that the sink finds too big. What single records look like is in `contract/test_topics`.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest

from processor.kafka.client import Client, TopicPartition
from processor.kafka.fetch import Fetcher
from tests.support.kafka.topics import (
    CALL_S,
    CODECS,
    alter_brokers,
    create_topic,
    dice,
    open_transaction,
    produce_transaction,
    sequences,
    until,
)
from tests.support.worker.process import (
    New,
    PipelineConfig,
    Record,
    WorkerConfig,
    contents,
    deduplicated,
    new,
    new_config,
    produce,
    read_topic,
    run_drain,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker


def drained(config: WorkerConfig) -> tuple[list[Record], list[Record]]:
    """Run a worker until it is drained; return the source's records and the sink's."""
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    bootstrap = config.bootstrap_servers
    return read_topic(bootstrap, config.source), read_topic(bootstrap, config.sink)


class Batch(NamedTuple):
    """The header of a batch, as the broker stores it."""

    base_offset: int
    codec: int
    records: int
    size: int
    payload: bytes
    last_delta: int
    log_append_time: bool


def batches_of(bootstrap: str, topic: str) -> list[Batch]:
    """Return all data batches of partition 0."""

    async def fetch() -> bytes:
        client = await Client.open({"bootstrap_servers": bootstrap}, "test", [topic])
        try:
            fetcher, tp, data, at = Fetcher(client), TopicPartition(topic, 0), b"", 0
            while got := b"".join(chunk.data for chunk in await fetcher.fetch({tp: at})):
                data += got
                at = _last_offset(data) + 1
            return data
        finally:
            await client.close()

    return [batch for batch, control in _walk(asyncio.run(fetch())) if not control]


def _walk(data: bytes) -> Iterator[tuple[Batch, bool]]:
    at = 0
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        attributes, last_delta = struct.unpack_from(">hi", data, at + 21)
        (count,) = struct.unpack_from(">i", data, at + 57)
        size = length + 12
        payload = data[at + 61 : at + size]
        control, append_time = bool(attributes & 0x20), bool(attributes & 8)
        yield Batch(base, attributes & 7, count, size, payload, last_delta, append_time), control
        at += size


def _last_offset(data: bytes) -> int:
    *_, (batch, _) = _walk(data)
    return batch.base_offset + batch.last_delta


def test_each_codec_comes_out_as_it_went_in(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    bootstrap, name = config.bootstrap_servers, config.application_id
    pipelines = [PipelineConfig(codec, f"{name}.{codec}.raw", f"{name}.{codec}.clean") for codec in CODECS]
    text = b"some text that repeats, some text that repeats, " * 4
    for pipeline in pipelines:
        create_topic(bootstrap, pipeline.source)
        clean, mixed = range(400), [*range(300, 500), *range(400, 600)]
        batches = [[new(i, value=text + b"%d" % i) for i in numbers] for numbers in (clean, mixed)]
        produce(bootstrap, pipeline.source, *batches, codec=pipeline.name)

    ended = run_drain(replace(config, pipelines=tuple(pipelines)))

    assert ended.code == 0, ended.stderr
    for expected, pipeline in enumerate(pipelines):
        source, sink = read_topic(bootstrap, pipeline.source), read_topic(bootstrap, pipeline.sink)
        assert len(source) == 800
        assert sequences(sink) == list(range(600))
        assert contents(sink) == contents(deduplicated(source))
        assert {batch.codec for batch in batches_of(bootstrap, pipeline.source)} == {expected}
        assert {batch.codec for batch in batches_of(bootstrap, pipeline.sink)} == {expected}


def test_a_batch_with_nothing_dropped_goes_on_with_its_bytes_untouched(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    noise = dice(1)
    batches = [[new(k * 200 + i, value=noise.randbytes(200)) for i in range(200)] for k in range(3)]
    produce(config.bootstrap_servers, config.source, *batches, codec="lz4")

    drained(config)

    source = batches_of(config.bootstrap_servers, config.source)
    sink = batches_of(config.bootstrap_servers, config.sink)
    assert [batch.payload for batch in sink] == [batch.payload for batch in source]
    assert len(sink) == 3


def test_aborted_transactions_and_control_batches_of_the_source_do_not_come_out(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    bootstrap, source = config.bootstrap_servers, config.source
    produce(bootstrap, source, [new(1), new(2)])
    # An aborted record's sequence must not count: 50 would drop everything after it.
    produce_transaction(bootstrap, source, [new(50), new(51)], commit=False)
    produce_transaction(bootstrap, source, [new(3), new(2), new(4)], commit=True)
    open_then_aborted = open_transaction(bootstrap, source, [new(60)])
    produce(bootstrap, source, [new(5)])
    produce_transaction(bootstrap, source, [new(6)], commit=True)
    open_then_aborted.abort_transaction(CALL_S)
    produce(bootstrap, source, [new(7), new(7)])

    _, sink = drained(config)

    assert sequences(sink) == [1, 2, 3, 4, 5, 6, 7]


def test_gaps_that_compaction_left_come_through(broker: Broker, tmp_path: Path) -> None:
    compacting = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
        "delete.retention.ms": "100",
    }
    config = new_config(broker.bootstrap_servers, tmp_path, source_configs=compacting)
    bootstrap, source = config.bootstrap_servers, config.source
    # Each key is written three times; only its last record stays, gaps inside all batches before.
    keys = [b"%d" % (i % 40) for i in range(120)]
    produce(bootstrap, source, [new(i, keys[i]) for i in range(60)], [new(i, keys[i]) for i in range(60, 120)])
    produce(bootstrap, source, [new(120, b"last"), new(119, b"late")], codec="lz4")

    alter_brokers(bootstrap, log_cleaner_backoff_ms="200")

    rolls = itertools.count(121)

    def compacted() -> bool:
        # A newer record rolls the segment: the active one is never cleaned.
        number = next(rolls)
        produce(bootstrap, source, [new(number, b"%d" % number, timestamp=int(time.time() * 1000))])
        batches = batches_of(bootstrap, source)
        return any(batch.records < batch.last_delta + 1 for batch in batches)

    until(compacted, "the source is compacted")

    records, sink = drained(config)

    assert len(records) < 120
    assert contents(sink) == contents(deduplicated(records))


def test_a_start_inside_a_batch_loses_nothing_and_repeats_nothing(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    bootstrap = config.bootstrap_servers
    unjudgeable = New(b"key", b"no sequence", (), 1_700_000_000_000)
    batch = [*(new(i) for i in range(30)), unjudgeable, *(new(i) for i in range(25, 60))]
    produce(bootstrap, config.source, batch, codec="zstd")

    stopped = run_drain(config)
    before = read_topic(bootstrap, config.sink)
    _, sink = drained(config.with_quarantine())

    assert stopped.code == 1
    assert sequences(before) == list(range(30))
    assert sequences(sink) == list(range(60))


@pytest.mark.parametrize("resent", [False, True], ids=["nothing dropped", "some dropped"])
def test_append_times_of_the_source_become_create_times_of_the_sink(
    broker: Broker, tmp_path: Path, *, resent: bool
) -> None:
    config = new_config(
        broker.bootstrap_servers, tmp_path, source_configs={"message.timestamp.type": "LogAppendTime"}
    )
    records = [new(i, timestamp=1_000_000 + i, value=dice(i).randbytes(300)) for i in range(100)]
    again = [new(99, timestamp=5), new(100, timestamp=6)] if resent else [new(100, timestamp=6)]
    produce(config.bootstrap_servers, config.source, records, again, codec="gzip")

    source, sink = drained(config)

    assert not source[0].create_time
    assert sequences(sink) == list(range(101))
    assert contents(sink) == contents(deduplicated(source))
    assert all(record.create_time and record.timestamp > 1_700_000_000_000 for record in sink)


def test_a_batch_too_big_for_the_sink_is_split(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    create_topic(config.bootstrap_servers, config.sink, 1, {"max.message.bytes": "20000"})
    noise = dice(2)
    produce(
        config.bootstrap_servers,
        config.source,
        [new(i, value=noise.randbytes(500)) for i in range(400)],
        [new(i, value=noise.randbytes(500)) for i in range(350, 450)],
        codec="zstd",
    )

    source, sink = drained(config)

    assert sequences(sink) == list(range(450))
    assert contents(sink) == contents(deduplicated(source))
    assert max(batch.size for batch in batches_of(config.bootstrap_servers, config.sink)) <= 20_000
