"""Has the product's own clients speak to brokers in memory, through the one seam that there is."""

from __future__ import annotations

import asyncio
import contextlib
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.protocol.metadata import MetadataRequest as PlainMetadataRequest
from typing_extensions import override

from processor.kafka import client as client_module
from processor.kafka.protocol import leaders
from processor.kafka.protocol.connections import BrokerClient
from processor.kafka.protocol.internals import ConnectionGroup
from processor.kafka.protocol.requests import MetadataRequest, plain
from processor.kafka.topics import ensure
from tests.simulation.brokers.processes import Process, Ways, here
from tests.simulation.brokers.troubles import BrokerOdds
from tests.simulation.clockwork import clockwork
from tests.simulation.faults import Fate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from aiokafka.admin import NewTopic
    from aiokafka.admin.config_resource import ConfigResource

    from tests.simulation.brokers.kafka.cluster import Brokers

_ANY = 0
CALM_S = 1000.0
"""Of simulated time: above all deadlines."""


class SimulatedClient(BrokerClient):
    """Our client of brokers, but for its connections; metadata, coordinators and deadlines are its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.connections = Ways()
        known = self.cluster.brokers
        # Of a set, whose order is another in each process.
        self.cluster.brokers = lambda: sorted(known())

    @override
    async def bootstrap(self) -> None:
        metadata, _ = plain(await self.send(_ANY, MetadataRequest([])))
        self.cluster.update_metadata(metadata)
        self._sync_task = asyncio.create_task(self._md_synchronizer())

    @override
    async def send(self, node_id: Any, request: Any, *, group: int = ConnectionGroup.DEFAULT) -> Any:
        return await here().send(self, node_id, request, group)


class SimulatedAdmin:
    """aiokafka's admin client, as far as `processor.kafka.topics.ensure` uses it."""

    def __init__(self, **_: Any) -> None:
        self.connections = Ways()

    async def start(self) -> None:
        await here().ask(lambda: None)

    async def close(self) -> None:
        """Nothing is open."""

    async def _send_request(self, request: Any) -> Any:
        if not isinstance(request, PlainMetadataRequest):
            return await here().send(self, _ANY, request, ConnectionGroup.DEFAULT)
        named = request.prepare({request.API_KEY: (0, 5)}).topics
        answer = await here().send(self, _ANY, MetadataRequest(named), ConnectionGroup.DEFAULT)
        found = [
            {"topic": name, "error_code": code, "partitions": [{"replicas": each[4]} for each in partitions]}
            for code, name, _, _, partitions, *_ in answer.topics
        ]
        return SimpleNamespace(to_object=lambda: {"topics": found})

    async def list_topics(self) -> list[str]:
        return list(await here().ask(lambda: sorted(here().brokers.topics)))

    async def describe_configs(self, resources: Sequence[ConfigResource]) -> list[Any]:
        def look() -> list[Any]:
            topics = here().brokers.topics
            rows = [
                (0, "", 2, each.name, list(topics[each.name].configs.items()))
                for each in resources
                if each.name in topics
            ]
            return [SimpleNamespace(resources=rows)]

        return list(await here().ask(look))

    async def create_topics(self, new: Sequence[NewTopic], **_: Any) -> Any:
        def make() -> Any:
            brokers = here().brokers
            for each in new:
                if each.name not in brokers.topics:
                    brokers.create(each.name, each.num_partitions, each.topic_configs)
            return SimpleNamespace(topic_errors=[(each.name, 0, "") for each in new])

        return await here().ask(make)


@contextlib.contextmanager
def connected(dice: random.Random) -> Iterator[pytest.MonkeyPatch]:
    """Let every client that is opened in the block be a simulated one."""
    before = random.getstate()
    random.seed(dice.random())
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client_module, "BrokerClient", SimulatedClient)
            patch.setattr(ensure, "AIOKafkaAdminClient", SimulatedAdmin)
            for module in (client_module, ensure):
                patch.setattr(module, "unresolved", _nobody)
                patch.setattr(module, "nobody_at", _nobody)
            patch.setattr(leaders.EPOCHS, "_highest", {})
            yield patch
    finally:
        random.setstate(before)


@contextlib.contextmanager
def calm_process(brokers: Brokers) -> Iterator[Callable[[Coroutine[Any, Any, None]], None]]:
    """Give what runs something in a process of its own, over these brokers and without faults."""
    dice = random.Random(1)
    fate = Fate(dice, BrokerOdds(), 0, 0)
    with clockwork(dice, CALM_S) as runner, connected(dice):

        async def alone(work: Coroutine[Any, Any, None]) -> None:
            await Process(brokers, fate).begin(work)

        yield lambda work: runner.run(alone(work))


async def _nobody(_: str) -> None:
    """Ask no name server, and knock at no port."""
