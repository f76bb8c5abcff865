"""What a connection sends and takes is whole, and whatever ends it is said in words that all know.

With a server that answers nothing, or what it is told to; sessions on a broker are tested in
`tests/broker/kafka/test_guarded.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import CorrelationIdError, KafkaConnectionError, RequestTimedOutError
from aiokafka.protocol.admin import SaslAuthenticateRequest
from aiokafka.protocol.metadata import MetadataRequest

from processor.broker.ports import HOST
from processor.kafka.protocol.connections import BrokerClient, Connection
from processor.kafka.protocol.requests import NO_TAGS, FetchByIdRequest
from processor.kafka.transactions.producer import BatchesRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PRODUCE, FETCH, METADATA, HANDSHAKE = 0, 1, 3, 17
TOPIC_ID = bytes(range(16))
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


def test_records_are_not_copied_out_of_an_answer() -> None:
    records = bytes(range(256)) * 1_000
    request = FetchByIdRequest(500, 1, 1, 1, [("clicks", [(0, -1, 7, 1)])], {"clicks": TOPIC_ID})
    row: tuple[Any, ...] = (0, 0, 9, 8, 0, [], -1, records, NO_TAGS)
    response = request.prepare({FETCH: (13, 13)}).RESPONSE_TYPE(0, 0, 0, [(TOPIC_ID, [row], NO_TAGS)], NO_TAGS)

    async def story() -> Any:
        async with talking(lambda number: answered(number, response.encode())) as made:
            made._versions = {FETCH: (13, 13)}
            return request.by_name(await made.send(request))

    ((topic, (found,)),) = asyncio.run(story())
    assert (topic, found[:4], bytes(found[-1])) == ("clicks", (0, 0, 9, 8), records)
    assert isinstance(found[-1], memoryview)


def test_records_that_leave_the_answer_end_the_connection() -> None:
    request = FetchByIdRequest(500, 1, 1, 1, [("clicks", [(0, -1, 7, 1)])], {"clicks": TOPIC_ID})
    row: tuple[Any, ...] = (0, 0, 9, 8, 0, [], -1, bytes(100_000), NO_TAGS)
    response = request.prepare({FETCH: (13, 13)}).RESPONSE_TYPE(0, 0, 0, [(TOPIC_ID, [row], NO_TAGS)], NO_TAGS)

    async def story() -> bool:
        async with talking(lambda number: answered(number, response.encode()[:-50_000])) as made:
            made._versions = {FETCH: (13, 13)}
            with pytest.raises(KafkaConnectionError):
                await made.send(request)
            return bool(made.connected())

    assert asyncio.run(story()) is False


@pytest.mark.parametrize("number", [-1, 17])
def test_a_large_answer_to_something_else_ends_the_connection(number: int) -> None:
    request = FetchByIdRequest(500, 1, 1, 1, [("clicks", [(0, -1, 7, 1)])], {"clicks": TOPIC_ID})

    async def story() -> bool:
        async with talking(lambda _: answered(number, bytes(100_000))) as made:
            made._versions = {FETCH: (13, 13)}
            with pytest.raises(CorrelationIdError):
                await made.send(request)
            return bool(made.connected())

    assert asyncio.run(story()) is False


def test_a_connection_that_ends_within_an_answer_is_an_error_for_whoever_waits() -> None:
    async def story() -> bool:
        async with talking(lambda _: struct.pack(">i", 100_000) + bytes(50_000), ends=True) as made:
            made._versions = {METADATA: (0, 5)}
            with pytest.raises(KafkaConnectionError):
                await made.send(MetadataRequest([]))
            return bool(made.connected())

    assert asyncio.run(story()) is False


def test_a_connection_that_is_closed_takes_no_request_in_parts() -> None:
    async def story() -> None:
        async with talking(lambda _: b"") as made:
            made._versions = {PRODUCE: (3, 7)}
            made.close()
            with pytest.raises(KafkaConnectionError):
                made.send(BatchesRequest(None, -1, 1_000, []))

    asyncio.run(story())


def answered(number: int, answer: bytes) -> bytes:
    """What a broker sends of an answer of a flexible version: its size, the request's number, no tags."""
    return struct.pack(">iib", len(answer) + 5, number, 0) + answer


@asynccontextmanager
async def talking(
    answer: Callable[[int], bytes],
    *,
    ends: bool = False,
    heard: asyncio.Queue[bytes] | None = None,
    later_s: Callable[[], float] = lambda: 0.0,
) -> AsyncIterator[Any]:
    """Connect to a server that answers each request by its number; where it ``ends``, only the first.

    It reads none before ``later_s``.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError), contextlib.closing(writer):
            while True:
                request = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                if heard is not None:
                    heard.put_nowait(request)
                await asyncio.sleep(later_s())
                writer.write(answer(int.from_bytes(request[4:8], "big")))
                if ends:
                    break

    server = await asyncio.start_server(serve, HOST, 0)
    made: Any = Connection(HOST, server.sockets[0].getsockname()[1], request_timeout_ms=5_000)
    made._do_version_lookup = lambda: asyncio.sleep(0)
    await made.connect()
    try:
        yield made
    finally:
        made.close()
        await made._closed_fut
        server.close()
