"""A worker that cannot go on stops in order: at a source batch nobody can read, at a sink that refuses.

It commits what comes before, says where it stands and what to do, and exits 1. Nothing of what was refused is
to be seen, and the next run after the mend completes.
"""

from __future__ import annotations

import asyncio
import struct
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import google_crc32c
import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from processor.kafka.client import Client
from processor.kafka.transactions.producer import Producer
from processor.wire.codec import Codec
from processor.wire.encode import plain_batch
from tests.support.judges.id_rules import IdRules
from tests.support.kafka.topics import (
    alter_topic,
    create_topic,
    delete_records,
    dice,
    group_offsets,
    open_transactions,
    sequences,
    until,
)
from tests.support.kafka.versions import is_older
from tests.support.verify.certificate import certificate
from tests.support.worker.process import (
    New,
    new,
    new_config,
    produce,
    read_topic,
    run_drain,
    start_worker,
)
from tests.support.worker.reset import run_reset

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker, OwnBroker

pytestmark = pytest.mark.broker

START_MS = 1_760_000_000_000
OLDEST_MS = f"message_timestamp_{'difference' if is_older('3.6') else 'before'}_max_ms"
"""How far back a topic takes timestamps."""


def batch_starts(segment: bytes) -> list[int]:
    """Return where each batch of a segment file begins."""
    starts, at = [], 0
    while at < len(segment):
        starts.append(at)
        at += 12 + struct.unpack_from(">i", segment, at + 8)[0]
    return starts


def spoil(segment: Path, number: int, *, right_crc: bool) -> None:
    """Turn over bytes in the payload of one batch of a segment file, with or without a CRC that fits."""
    data = bytearray(segment.read_bytes())
    starts = [*batch_starts(bytes(data)), len(data)]
    start, stop = starts[number], starts[number + 1]
    for at in range(start + 61, stop):
        data[at] ^= 0x5A
    if right_crc:
        struct.pack_into(">I", data, start + 17, google_crc32c.value(bytes(data[start + 21 : stop])))
    segment.write_bytes(data)


def test_a_source_batch_that_cannot_be_decoded_stops_the_worker_which_names_how_to_step_over_it(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    broker = own_broker()
    bootstrap = broker.bootstrap_servers
    folders = {right_crc: tmp_path / f"crc-{right_crc}" for right_crc in (False, True)}
    configs = {}
    for right_crc, folder in folders.items():
        folder.mkdir()
        config = configs[right_crc] = new_config(bootstrap, folder)
        batches = [[new(at + i) for i in range(10)] for at in (0, 10, 20, 30)]
        produce(bootstrap, config.source, *batches, codec="zstd")
    logs = broker.data_dir / "logs"
    # Cleanly: after a crash the broker would look at its batches and cut the log.
    broker.stop(keep=True)
    for right_crc, config in configs.items():
        spoil(next((logs / f"{config.source}-0").glob("*.log")), 2, right_crc=right_crc)
    broker.start()

    for right_crc, config in configs.items():
        ended = run_drain(config)

        assert ended.code == 1, ended.stderr
        assert f"{config.source}:0: the batch at offset 20 cannot be decoded" in ended.stderr
        assert ("CRC-32C" in ended.stderr) is not right_crc
        assert sequences(read_topic(bootstrap, config.sink)) == list(range(20))
        assert group_offsets(bootstrap, config.application_id) == {(config.source, 0): 20}
        assert not open_transactions(bootstrap, config.application_id)
        command = ended.stderr.rpartition("seqmark reset -c FILE ")[2].split()
        assert command == ["--pipeline", "p", "--to-offset", "0:30"]
        shown = CliRunner().invoke(main, ["read", "-c", str(config.write()), config.source])
        assert (shown.exit_code, len(shown.stdout.splitlines())) == (1, 30)
        assert "cannot be decoded" in shown.stderr
        assert "offsets 20 to 29 were stepped over" in shown.stderr

        stepped = run_reset(config, *command[2:])

        assert stepped.code == 0, stepped.stderr
        assert "the batch at offset 20 cannot be decoded" in stepped.stderr
        assert run_drain(config).code == 0
        assert sequences(read_topic(bootstrap, config.sink)) == [*range(20), *range(30, 40)]
        # What lies before the reset is only remembered: the batch is stepped over there as well.
        told = certificate(config)
        assert (told.code, told.last["source"]) == (0, 10), (told.details, told.stderr)

        # Back again, the state is recomputed over it as well.
        (line,) = run_reset(config, "--to-offset", "0:35").lines
        assert (line["state"], line["records"]) == ("recomputed", 25)
        assert run_drain(config).code == 0
        assert sequences(read_topic(bootstrap, config.sink)) == [*range(20), *range(30, 40), *range(35, 40)]


def test_a_reset_says_of_each_topic_that_cannot_be_decoded_what_can_be_done(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    broker = own_broker()
    bootstrap = broker.bootstrap_servers
    config = new_config(bootstrap, tmp_path).with_quarantine()
    config = replace(config, pipelines=(IdRules(window="10m").applied(config.pipelines[0]),))
    minutes = (0, 1, 11, 25)
    batches = [
        [New(b"k", b"v", (("id", b"%d" % minute),) if i else (), START_MS + 60_000 * minute) for i in range(5)]
        for minute in minutes
    ]
    produce(bootstrap, config.source, *batches)
    assert run_drain(config).code == 0
    # What is retained lasts for a window all the same, and its first batch cannot be decoded.
    delete_records(bootstrap, config.source, 5)
    broker.stop(keep=True)
    logs = broker.data_dir / "logs"
    spoil(next((logs / f"{config.source}-0").glob("*.log")), 1, right_crc=False)
    spoil(next((logs / f"{config.quarantine}-0").glob("*.log")), 0, right_crc=False)
    broker.start()

    refused = run_reset(config, "--to-offset", "0:18")
    assert refused.code == 1
    assert f"{config.quarantine}:0: the batch at offset 0 cannot be decoded" in refused.stderr
    assert "nothing was changed" in refused.stderr
    assert "With --forget it begins empty" in refused.stderr
    assert "from a copy" not in refused.stderr

    assert run_reset(config, "--to-offset", "0:18", "--forget").code == 0


def test_a_source_batch_that_inflates_beyond_64_mib_stops_the_worker_before_it(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    produce(config.bootstrap_servers, config.source, [new(1), new(2)])

    async def produce_bomb() -> None:
        key, value, headers, timestamp = new(3, value=bytes(65 << 20))
        bomb = plain_batch([(key, value, timestamp, headers)], Codec.ZSTD)
        client = await Client.open({"bootstrap_servers": config.bootstrap_servers}, "test", [config.source])
        producer = Producer(client, None)
        await producer.fence()
        await producer.send(config.source, 0, [bomb])
        await producer.flush()
        await producer.close()

    asyncio.run(produce_bomb())

    ended = run_drain(config)

    assert ended.code == 1
    assert f"{config.source}:0: the batch at offset 2 cannot be decoded" in ended.stderr
    assert "seqmark reset -c FILE --pipeline p --to-offset 0:3\n" in ended.stderr
    assert sequences(read_topic(config.bootstrap_servers, config.sink)) == [1, 2]


def test_a_compacted_sink_that_refuses_a_null_key_stops_the_worker(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    create_topic(config.bootstrap_servers, config.sink, 1, {"cleanup.policy": "compact"})
    produce(config.bootstrap_servers, config.source, [new(1, b"a"), new(2, None), new(3, b"b")])

    ended = run_drain(config)

    assert ended.code == 1
    assert f"{config.sink}:0 refused a batch of 3 records" in ended.stderr
    assert "INVALID_RECORD" in ended.stderr
    assert read_topic(config.bootstrap_servers, config.sink) == []
    assert not open_transactions(config.bootstrap_servers, config.application_id)
    assert group_offsets(config.bootstrap_servers, config.application_id) == {(config.source, 0): 0}
    alter_topic(config.bootstrap_servers, config.sink, cleanup_policy="delete")
    assert run_drain(config).code == 0
    assert sequences(read_topic(config.bootstrap_servers, config.sink)) == [1, 2, 3]


def test_a_sink_that_refuses_old_timestamps_stops_the_worker(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    bootstrap = config.bootstrap_servers
    now_ms = int(time.time() * 1000)
    with start_worker(config) as worker:
        worker.wait_ready()
        produce(bootstrap, config.source, [new(1, timestamp=now_ms)])
        until(lambda: len(read_topic(bootstrap, config.sink)) == 1, "the first record is out")
        # After the check at the start, which would have refused it.
        alter_topic(bootstrap, config.sink, **{OLDEST_MS: "3600000"})
        produce(bootstrap, config.source, [new(2, timestamp=now_ms), new(3, timestamp=1)])
        assert worker.wait() == 1

    assert f"{config.sink}:0 refused a batch of 2 records" in worker.stderr
    assert OLDEST_MS.replace("_", ".") in worker.stderr
    assert sequences(read_topic(bootstrap, config.sink)) == [1]
    refused = run_drain(config)
    assert refused.code == 1
    assert OLDEST_MS.replace("_", ".") in refused.stderr
    alter_topic(bootstrap, config.sink, **{OLDEST_MS: str(2**63 - 1)})
    assert run_drain(config).code == 0
    assert sequences(read_topic(bootstrap, config.sink)) == [1, 2, 3]


def test_a_limit_lowered_while_the_worker_runs_is_read_again(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, web_port=0)
    bootstrap, noise = config.bootstrap_servers, dice(4)

    def out_or_ended(count: int) -> bool:
        return not worker.alive or len(read_topic(bootstrap, config.sink)) == count

    with start_worker(config) as worker:
        worker.wait_ready()
        for step, limit in enumerate((9000, 6000, 3000)):
            alter_topic(bootstrap, config.sink, max_message_bytes=str(limit))
            records = [new(step * 100 + i, value=noise.randbytes(200)) for i in range(50)]
            produce(bootstrap, config.source, records)
            until(partial(out_or_ended, (step + 1) * 50), f"all are out with {limit}")
        assert worker.alive, worker.stderr
        worker.terminate()
        assert worker.wait() == 0
    assert [n % 100 for n in sequences(read_topic(bootstrap, config.sink))] == list(range(50)) * 3


def test_a_sink_of_another_partition_count_is_refused_at_the_start(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 3)
    create_topic(config.bootstrap_servers, config.sink, 2)

    ended = run_drain(config)

    assert ended.code == 1
    assert f"{config.sink}: sink of pipeline p: has 2 partitions" in ended.stderr


def test_a_config_that_is_wrong_starts_nothing(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, guarantee="exactly_onec")

    ended = run_drain(config)

    assert ended.code == 2
    assert "worker.guarantee" in ended.stderr
    assert not config.state_dir.exists()
