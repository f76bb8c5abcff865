"""When is a draining worker done, and is nothing left then?"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from processor.kafka.transactions import producer as producers
from processor.kafka.transactions.markers import settle
from processor.kafka.transactions.producer import CLOSE_S
from seqmark import Config, run_worker
from tests.support.kafka.topics import (
    CALL_S,
    bounds,
    group_offsets,
    open_transaction,
    open_transactions,
    produce_transaction,
    sequences,
    until,
)
from tests.support.worker.process import (
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


def test_an_empty_topic_is_drained_at_once(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 3)

    ended = run_drain(config)

    assert ended.code == 0, ended.stderr
    assert read_topic(config.bootstrap_servers, config.sink) == []
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"state"}


def drain_with_late_markers(config: str) -> None:
    """Drain as on a busy broker, and print how often the markers of a commit were seen; in its own process."""
    seen = 0

    async def late(*arguments: Any) -> None:
        nonlocal seen
        await asyncio.sleep(CLOSE_S + 1.0)  # longer than a producer that is closed waits for them
        await settle(*arguments)
        seen += 1

    vars(producers)["settle"] = late
    run_worker(Config.load(config, {}), drain=True)
    sys.stdout.write(str(seen))


def test_it_ends_when_what_it_has_committed_can_be_read(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    produce(config.bootstrap_servers, config.source, [new(1)])
    program = f"import {__name__} as test; test.drain_with_late_markers({str(config.write())!r})"

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert int(done.stdout) == 2  # of where it begins, and of the record


def test_signals_change_nothing_of_how_it_ends_until_it_has_ended(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)

    with start_worker(config, drain=True) as worker:
        until(lambda: "drained: " in worker.stderr, "it is done")

        def gone() -> bool:
            worker.terminate()
            return not worker.alive

        until(gone, "it has ended")
        assert worker.wait() == 0, worker.stderr


def test_control_records_and_an_aborted_tail_count(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 2)
    bootstrap, source = config.bootstrap_servers, config.source
    produce(bootstrap, source, [new(1), new(2)])
    produce_transaction(bootstrap, source, [new(3)])
    produce_transaction(bootstrap, source, [new(4), new(5)], commit=False)
    produce_transaction(bootstrap, source, [new(1)], commit=False, partition=1)

    ended = run_drain(config)

    assert ended.code == 0, ended.stderr
    assert sequences(read_topic(bootstrap, config.sink)) == [1, 2, 3]
    ends = {(source, number): bounds(bootstrap, source, number)[1] for number in (0, 1)}
    assert group_offsets(bootstrap, config.application_id) == ends


def test_what_lies_behind_an_open_transaction_is_left_for_later(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    bootstrap, source = config.bootstrap_servers, config.source
    produce(bootstrap, source, [new(1)])
    producer = open_transaction(bootstrap, source, [new(2), new(3)])
    produce(bootstrap, source, [new(4)])

    first = run_drain(config)
    behind = sequences(read_topic(bootstrap, config.sink))
    producer.commit_transaction(CALL_S)
    second = run_drain(config)

    assert (first.code, second.code) == (0, 0)
    assert behind == [1]
    assert sequences(read_topic(bootstrap, config.sink)) == [1, 2, 3, 4]


def test_workers_that_drain_together_leave_nothing(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 6, slots=3)
    for number in range(6):
        batches = [[new(at + i) for i in range(-20, 80)] for at in range(0, 1600, 80)]
        produce(config.bootstrap_servers, config.source, *batches, partition=number, codec="lz4")

    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(start_worker(config, drain=True)) for _ in range(2)]
        codes = [worker.wait() for worker in workers]

    assert codes == [0, 0]
    source = read_topic(config.bootstrap_servers, config.source)
    assert contents(read_topic(config.bootstrap_servers, config.sink)) == contents(deduplicated(source))
    assert not open_transactions(config.bootstrap_servers, config.application_id)


def test_a_worker_more_than_there_are_slots_has_nothing_to_do(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 2, slots=1)
    with start_worker(config) as busy:
        busy.wait_ready()

        idle = run_drain(config)

        assert idle.code == 0, idle.stderr
        assert "drained: 0 slots" in idle.stderr
        busy.wait_ready()
        busy.terminate()
        assert busy.wait() == 0
