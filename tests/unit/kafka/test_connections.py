"""A broker that says nothing while a session is renewed is one that did not answer, in words that all know.

With a server that takes connections and answers nothing; sessions on a broker are tested in
`tests/broker/kafka/test_guarded.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.admin import SaslAuthenticateRequest
from aiokafka.protocol.metadata import MetadataRequest

from processor.broker.ports import HOST
from processor.kafka.protocol.connections import BrokerClient, Connection

HANDSHAKE, METADATA = 17, 3
DEFAULT = 0
NODE = 1


def test_a_broker_that_hangs_while_a_session_is_renewed_is_a_request_without_an_answer() -> None:
    async def story() -> bool:
        taken: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _, writer: taken.append(writer), HOST, 0)
        port = server.sockets[0].getsockname()[1]
        client: Any = BrokerClient(bootstrap_servers=f"{HOST}:{port}")
        made: Any = Connection(HOST, port, request_timeout_ms=50, sasl_mechanism="PLAIN")
        made._do_version_lookup = lambda: asyncio.sleep(0)
        await made.connect()
        made._versions = {HANDSHAKE: (0, 1), METADATA: (0, 5), SaslAuthenticateRequest.API_KEY: (0, 1)}
        client._conns[NODE, DEFAULT] = made
        made._renew_at_s = 0.0
        try:
            # Whatever is no KafkaError ends aiokafka's group coordinator, and with it the worker.
            with pytest.raises(RequestTimedOutError):
                await client.send(NODE, MetadataRequest([]), group=DEFAULT)
            return bool(made.connected())
        finally:
            await client.close()
            for writer in taken:
                writer.close()
            server.close()

    assert asyncio.run(story()) is False


def test_requests_keep_their_order_while_a_connection_is_made() -> None:
    sent: list[str] = []

    class Made(Connection):
        def connected(self) -> bool:
            return True

        async def keep_session(self) -> None:
            pass

        def send(self, request: Any, expect_response: bool = True) -> Any:  # noqa: FBT001, FBT002 - aiokafka's
            del expect_response
            sent.append(request)
            return asyncio.sleep(0)

        def __del__(self) -> None:
            """Never connected: there is nothing to warn of."""

    async def story() -> None:
        client: Any = BrokerClient(bootstrap_servers=f"{HOST}:1")
        waits: list[asyncio.Task[Any]] = []

        def ask(name: str) -> None:
            waits.append(asyncio.create_task(client.send(NODE, name, group=DEFAULT)))

        async def connect(node: int, group: int) -> Any:
            if (node, group) not in client._conns:
                await asyncio.sleep(0)  # the second asks meanwhile
                ask("third")  # comes when the connection is just there
                client._conns[node, group] = Made(HOST, 1)
            return client._conns[node, group]

        client._connect = connect
        ask("first")
        ask("second")
        await asyncio.gather(*waits)
        await asyncio.gather(*waits)  # with the third

    asyncio.run(story())
    assert sent == ["first", "second", "third"]
