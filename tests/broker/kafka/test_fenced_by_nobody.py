"""A slot whose transactional id the coordinator itself has taken back is rebuilt, alone.

The group hears nothing of it: the worker's other slot goes on, and so would other workers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from processor.broker.embedded import EmbeddedBroker
from processor.kafka.client import Client
from processor.kafka.transactions.coordinator import Coordinator
from processor.kafka.transactions.fencing import SlotId
from processor.kafka.transactions.producer import Producer
from processor.ops.fault_points import CommitStep
from tests.support.kafka.topics import new, open_transactions, produce, read_topic, sequences, until
from tests.support.worker.crash import until_halted
from tests.support.worker.process import new_config, start_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kafka.broker import Broker
    from tests.support.worker.process import Worker, WorkerConfig

pytestmark = pytest.mark.broker

LONG_MS = 60_000
"""A session that outlasts what the coordinator does here."""
SETTINGS = {
    "transactional.id.expiration.ms": "4000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="module")
def forgetful() -> Iterator[str]:
    """A broker that forgets a transactional id after four seconds."""
    with EmbeddedBroker(overrides=SETTINGS) as broker:
        yield broker.bootstrap_servers


def ready(worker: Worker, partition: int) -> int:
    """Return how often the slot of a partition has begun to work."""
    return worker.stderr.count(f": ready, partitions [{partition}]")


def passed(config: WorkerConfig) -> list[list[int]]:
    found = read_topic(config.bootstrap_servers, config.sink)
    return [sequences(found, partition) for partition in (0, 1)]


def known(config: WorkerConfig, slot: int) -> bool:
    """Whether the coordinator still knows the id of a slot."""
    identity = SlotId(config.application_id, config.pipelines[0].name, slot, 2).transactional_id

    async def described() -> bool:
        client = await Client.open({"bootstrap_servers": config.bootstrap_servers}, "test")
        try:
            return await Coordinator(client, identity, 1000, 10).describe() is not None
        finally:
            await client.close()

    return asyncio.run(described())


def assert_only_the_first_slot_was_built_anew(config: WorkerConfig, worker: Worker) -> None:
    until(lambda: passed(config)[0] == list(range(6)), f"all has passed:\n{worker.stderr}")
    assert passed(config)[0] == list(range(6))
    assert ready(worker, 0) > 1, worker.stderr
    assert ready(worker, 1) == 1, worker.stderr
    assert "joining the group again" not in worker.stderr


def test_a_slot_that_was_idle_until_its_id_was_forgotten_is_built_anew_alone(
    forgetful: str, tmp_path: Path
) -> None:
    config = new_config(forgetful, tmp_path, 2, slots=2, session_timeout_ms=LONG_MS)
    produce(forgetful, config.source, [new(i) for i in range(3)])
    with start_worker(config) as worker:
        worker.wait_ready()
        until(lambda: passed(config)[0] == [0, 1, 2], f"the first have passed:\n{worker.stderr}")
        until(lambda: not known(config, 0), "the id is forgotten")

        produce(forgetful, config.source, [new(i) for i in range(6)])

        assert_only_the_first_slot_was_built_anew(config, worker)


def test_a_slot_whose_transaction_has_timed_out_is_built_anew_alone(broker: Broker, tmp_path: Path) -> None:
    bootstrap = broker.bootstrap_servers
    config = new_config(
        bootstrap, tmp_path, 2, slots=2, session_timeout_ms=LONG_MS, transaction_timeout_ms=6_000
    )
    halt = {"SEQMARK_FAULT_STEP": f"{CommitStep.CHANGELOG}:3", "SEQMARK_FAULT_ACTION": "stop"}
    with start_worker(config, env=halt) as worker:
        worker.wait_ready()
        produce(bootstrap, config.source, [new(i) for i in range(6)])
        until_halted(worker)
        until(lambda: not open_transactions(bootstrap, config.application_id), "the coordinator has aborted it")

        worker.resume()

        assert_only_the_first_slot_was_built_anew(config, worker)


def test_a_slot_that_is_fenced_again_soon_is_given_back_to_the_group(broker: Broker, tmp_path: Path) -> None:
    bootstrap = broker.bootstrap_servers
    config = new_config(bootstrap, tmp_path, 1, slots=1, session_timeout_ms=LONG_MS)
    identity = SlotId(config.application_id, config.pipelines[0].name, 0, 1).transactional_id

    async def take() -> None:
        client = await Client.open({"bootstrap_servers": bootstrap}, "test", [config.sink])
        rival = Producer(client, identity)
        await rival.fence()
        await rival.close()

    with start_worker(config) as worker:
        worker.wait_ready()
        for number, said in enumerate(("ours by the group's word, rebuilding", "joining the group again")):
            asyncio.run(take())
            produce(bootstrap, config.source, [new(number)])
            worker.wait_says(said)
            again = number + 2
            until(lambda: ready(worker, 0) == again, f"it works again:\n{worker.stderr}")  # noqa: B023 - at once
        until(lambda: len(read_topic(bootstrap, config.sink)) == 2, f"all has passed:\n{worker.stderr}")
    assert sequences(read_topic(bootstrap, config.sink)) == [0, 1]
