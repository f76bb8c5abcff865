"""A worker that starts again knows what it has committed, and refuses to guess the rest.

State is a mirror of the changelog: it survives, it is rebuilt where it is gone or damaged, and where it does
not fit what is there (another source, another definition, no changelog) the worker refuses.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.topics import (
    create_topic,
    delete_records,
    delete_topic,
    group_offsets,
    open_transactions,
    sequences,
    until,
)
from tests.support.worker.disk import open_to_others
from tests.support.worker.process import (
    WorkerConfig,
    contents,
    deduplicated,
    new,
    new_config,
    produce,
    read_topic,
    run_drain,
    start_worker,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker


def drain(config: WorkerConfig) -> str:
    """Drain with exit 0; return what the worker said."""
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    return ended.stderr


def refused(config: WorkerConfig) -> str:
    """Drain with exit 1; return what the worker said."""
    ended = run_drain(config)
    assert ended.code == 1, ended.stderr
    return ended.stderr


def ten(broker: Broker, folder: Path, **worker: object) -> WorkerConfig:
    """Return a config whose pipeline has passed the records 0 to 9."""
    config = new_config(broker.bootstrap_servers, folder).but(**worker)
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(10)])
    drain(config)
    return config


def test_local_state_is_closed_to_others_whatever_the_umask_is(broker: Broker, tmp_path: Path) -> None:
    config = ten(broker, tmp_path)
    files = [path for path in config.state_dir.rglob("*") if path.is_file()]
    for path in files:
        path.chmod(0o666)  # of an earlier version
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(12)])
    before = os.umask(0)
    try:
        drain(config)
    finally:
        os.umask(before)
    assert [path for path in config.state_dir.rglob("*") if path.is_file() and path not in files]
    assert open_to_others(config.state_dir) == []


def test_local_state_that_is_damaged_is_found_said_and_rebuilt(broker: Broker, tmp_path: Path) -> None:
    config = ten(broker, tmp_path)
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(12)])
    files = [path for path in config.state_dir.rglob("*.sst") if path.stat().st_size]
    assert files
    for path in files:
        data = bytearray(path.read_bytes())
        for at in range(len(data)):
            data[at] ^= 0xA5
        path.write_bytes(data)

    said = drain(config)

    assert "local state of" in said
    assert sequences(read_topic(config.bootstrap_servers, config.sink)) == list(range(12))


@pytest.mark.parametrize("local", [True, False], ids=["local state kept", "local state gone"])
def test_a_changelog_that_is_gone_is_refused(broker: Broker, tmp_path: Path, *, local: bool) -> None:
    config = ten(broker, tmp_path)
    delete_topic(config.bootstrap_servers, config.changelog)
    if not local:
        shutil.rmtree(config.state_dir)

    said = refused(config)

    assert "changelog" in said
    assert "'Beginning anew' in docs/operations.md" in said  # what to do
    assert sequences(read_topic(config.bootstrap_servers, config.sink)) == list(range(10))


def test_a_source_made_anew_is_refused(broker: Broker, tmp_path: Path) -> None:
    config = ten(broker, tmp_path)
    delete_topic(config.bootstrap_servers, config.source)
    create_topic(config.bootstrap_servers, config.source, 1)
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(20)])

    said = refused(config)

    assert f"{config.source}:0" in said
    assert "made anew" in said
    assert sequences(read_topic(config.bootstrap_servers, config.sink)) == list(range(10))


def test_where_retention_has_passed_the_position_the_worker_goes_on_and_counts(
    broker: Broker, tmp_path: Path
) -> None:
    config = ten(broker, tmp_path)
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(10, 30)])
    delete_records(config.bootstrap_servers, config.source, 25)
    with start_worker(config) as worker:
        worker.wait_ready()
        until(lambda: len(read_topic(config.bootstrap_servers, config.sink)) == 15, "the rest is out")

        assert worker.metrics()["seqmark_records_expired_total{pipeline=p}"] == 15
        assert f"{config.source}:0: offsets 10 to 24 are gone" in worker.stderr
        worker.terminate()
        assert worker.wait() == 0

    assert sequences(read_topic(config.bootstrap_servers, config.sink)) == [*range(10), *range(25, 30)]
    drain(config)
    assert len(read_topic(config.bootstrap_servers, config.sink)) == 15


def test_retention_that_passes_the_position_while_the_worker_runs_is_seen(
    broker: Broker, tmp_path: Path
) -> None:
    config = ten(broker, tmp_path)
    with start_worker(config) as worker:
        worker.wait_ready()
        worker.pause()
        produce(config.bootstrap_servers, config.source, [new(i) for i in range(10, 30)])
        delete_records(config.bootstrap_servers, config.source, 25)
        produce(config.bootstrap_servers, config.source, [new(i) for i in range(20, 35)])
        worker.resume()
        until(lambda: sequences(read_topic(config.bootstrap_servers, config.sink))[-1:] == [34], "34 is out")
        worker.terminate()
        assert worker.wait() == 0

    source = read_topic(config.bootstrap_servers, config.source)
    sink = read_topic(config.bootstrap_servers, config.sink)
    # The fetch that waited may still have seen some of what was deleted then.
    assert sequences(sink)[:10] == list(range(10))
    assert sequences(sink)[-10:] == list(range(25, 35))
    assert sorted(set(sequences(sink))) == sequences(sink)
    assert len(source) == 20


def test_start_latest_begins_at_the_end_and_keeps_that_place(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, start="latest")
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(10)])
    drain(config)
    nothing = read_topic(config.bootstrap_servers, config.sink)
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(5, 15)])

    drain(config)

    assert nothing == []
    assert sequences(read_topic(config.bootstrap_servers, config.sink)) == list(range(5, 15))


def test_the_number_of_slots_may_change_while_nothing_runs(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 6)
    for step, slots in enumerate((4, 1, 6)):
        for number in range(6):
            sent = [new(step * 50 + i) for i in range(-20, 50)]
            produce(config.bootstrap_servers, config.source, sent, partition=number)

        drain(config.but(slots=slots))

    assert "fencing" not in drain(config.but(slots=6))
    source = read_topic(config.bootstrap_servers, config.source)
    assert contents(read_topic(config.bootstrap_servers, config.sink)) == contents(deduplicated(source))


def test_a_zombie_with_another_number_of_slots_is_fenced(broker: Broker, tmp_path: Path) -> None:
    config = ten(broker, tmp_path, session_timeout_ms=1000, transaction_timeout_ms=3000, slots=1)
    bootstrap = config.bootstrap_servers
    produce(bootstrap, config.source, [new(i) for i in range(20)])
    halt = {"SEQMARK_FAULT_STEP": "offsets", "SEQMARK_FAULT_ACTION": "stop"}
    with start_worker(config, env=halt) as zombie:
        until(lambda: open_transactions(bootstrap, config.application_id), "a transaction is open")
        until(lambda: zombie.paused, "the zombie is halted")

        drain(config.but(slots=3))
        before = read_topic(bootstrap, config.sink)
        zombie.resume()
        zombie.wait_says("is not held by this producer any more")
        zombie.terminate()
        zombie.wait()

    assert sequences(before) == list(range(20))
    assert read_topic(bootstrap, config.sink) == before
    assert not open_transactions(bootstrap, config.application_id)
    assert group_offsets(bootstrap, config.application_id)[config.source, 0] == 30


def test_a_worker_with_another_number_of_slots_is_refused_while_one_works(
    broker: Broker, tmp_path: Path
) -> None:
    config = ten(broker, tmp_path, slots=1)
    with start_worker(config) as worker:
        worker.wait_ready()

        said = refused(config.but(slots=3))

        assert "the group works with slots = 1, this worker is configured with 3" in said
        produce(config.bootstrap_servers, config.source, [new(10)])
        until(lambda: len(read_topic(config.bootstrap_servers, config.sink)) == 11, "the first goes on")
        worker.terminate()
        assert worker.wait() == 0
