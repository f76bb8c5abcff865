"""Greets one broker at one address: by its versions, its SASL mechanisms, and as a user.

A client does all of that at once and says that it has failed; here each step is one call. Versions and
mechanisms are told before anybody says who he is (KIP-35, KIP-43).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from processor.kafka.protocol.connections import Connection
from processor.kafka.protocol.internals import CloseReason, SaslHandShakeRequest
from processor.kafka.protocol.requests import MetadataRequest, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIENT_ID = "seqmark-doctor"


class Greeting:
    """A broker at an address, spoken to with the options of an aiokafka client.

    Every call makes a connection and closes it. It raises `OSError` where there is none or it broke,
    `TimeoutError` where nothing came in time, and `KafkaError` for what the broker said.
    """

    def __init__(self, host: str, port: int, options: Mapping[str, Any], deadline_s: float) -> None:
        self._address = host, port
        self._options = {name: value for name, value in options.items() if name != "bootstrap_servers"}
        self._deadline_s = deadline_s

    async def versions(self) -> Mapping[int, tuple[int, int]]:
        """Return the lowest and the highest version that the broker knows, by API key; names no user."""
        connection = await self._connected(named=False)
        try:
            return connection.versions
        finally:
            await _close(connection)

    async def mechanisms(self, mechanism: str) -> tuple[int, list[str]]:
        """Ask for a SASL mechanism; returns Kafka's code, and the mechanisms that the listener offers."""
        connection = await self._connected(named=False)
        try:
            async with asyncio.timeout(self._deadline_s):
                answer = await connection.send(SaslHandShakeRequest(mechanism))
            return int(answer.error_code), list(answer.enabled_mechanisms)
        finally:
            await _close(connection)

    async def brokers(self) -> list[tuple[int, str, int]]:
        """Give the credentials, if any are configured, and return number, host and port of all brokers."""
        connection = await self._connected(named=True)
        try:
            async with asyncio.timeout(self._deadline_s):
                metadata, *_ = plain(await connection.send(MetadataRequest([])))
            return [(int(node), str(host), int(port)) for node, host, port, *_ in metadata.brokers]
        finally:
            await _close(connection)

    async def _connected(self, *, named: bool) -> Connection:
        options = dict(self._options)
        if not named:
            encrypted = options["security_protocol"].endswith("SSL")
            options["security_protocol"] = "SSL" if encrypted else "PLAINTEXT"
        connection = Connection(
            *self._address,
            client_id=CLIENT_ID,
            request_timeout_ms=int(self._deadline_s * 1000),
            **options,
        )
        async with asyncio.timeout(self._deadline_s):
            await connection.connect()
        return connection


async def _close(connection: Connection) -> None:
    closed = connection.close(reason=CloseReason.SHUTDOWN)
    if closed is not None:
        await asyncio.wait([closed], timeout=1)
