"""A worker outlives its broker's restart, clean or by kill -9, losing and repeating nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.topics import open_transactions, until
from tests.support.worker.process import (
    contents,
    deduplicated,
    new,
    new_config,
    produce,
    read_topic,
    start_worker,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import OwnBroker

pytestmark = pytest.mark.broker


def test_the_output_is_right_after_the_broker_was_restarted_twice(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    broker = own_broker()
    bootstrap = broker.bootstrap_servers
    config = new_config(bootstrap, tmp_path, 3, slots=2)

    def produce_all(start: int) -> None:
        for number in range(3):
            batches = [[new(at + i) for i in range(-30, 100)] for at in range(start, start + 1000, 100)]
            produce(bootstrap, config.source, *batches, partition=number, codec="lz4")

    def complete() -> bool:
        assert worker.alive, worker.stderr
        wanted = len(deduplicated(read_topic(bootstrap, config.source)))
        return len(read_topic(bootstrap, config.sink)) >= wanted

    with start_worker(config) as worker:
        worker.wait_ready()
        produce_all(0)
        broker.restart()
        produce_all(1000)
        until(complete, "all is out after a clean restart")
        produce_all(2000)
        broker.kill()
        broker.start()
        produce_all(3000)
        until(complete, "all is out after a kill")
        worker.wait_ready()
        worker.terminate()
        assert worker.wait() == 0

    source = read_topic(bootstrap, config.source)
    assert contents(read_topic(bootstrap, config.sink)) == contents(deduplicated(source))
    assert not open_transactions(bootstrap, config.application_id)
