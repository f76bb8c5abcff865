"""Bounds the connections to the web server: how many there are, and how long one may keep a place.

Each takes a descriptor, and those are for brokers and state. So there are at most `MOST`: where one more comes,
the one goes that has been waited for longest. A request's head has to come within `HEAD_S`, and the next
request, or the end of an answer, within `IDLE_S`. What is being answered is never ended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp.web import SockSite, StreamResponse, middleware
from aiohttp.web_runner import BaseSite
from typing_extensions import override

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from aiohttp.web import Application, Request

MOST = 64
"""A browser has six, Prometheus and each probe one, every other worker one."""
HEAD_S = 10.0
IDLE_S = 30.0


class Connections:
    """All connections to one web server."""

    def __init__(self, head_s: float = HEAD_S) -> None:
        self._open: dict[Any, _Connection] = {}
        self.head_s = head_s

    def bound(self, application: Application) -> None:
        """Be told of what an application answers, before it is started."""
        application.middlewares.append(self._answered)

    def site(self, runner: Any, listening: socket.socket) -> BaseSite:
        """Return what accepts connections to a runner's application."""
        return _Site(self, runner, listening)

    def add(self, handler: Any, connection: _Connection) -> None:
        """Take one in, and end another one where there are too many."""
        self._open[handler] = connection
        if len(self._open) > MOST:
            waiting = [(each.since, key) for key, each in self._open.items() if each.waits]
            _, oldest = min(waiting, key=lambda each: each[0])
            self._open.pop(oldest).end()

    def remove(self, handler: Any) -> None:
        """Forget one that has ended."""
        self._open.pop(handler, None)

    @middleware
    async def _answered(
        self, request: Request, handler: Callable[[Request], Awaitable[StreamResponse]]
    ) -> StreamResponse:
        connection = self._open.get(request.protocol)
        if connection is None:  # it has ended
            return await handler(request)
        connection.work()
        try:
            return await handler(request)
        finally:
            connection.wait(IDLE_S)


class _Connection(asyncio.Protocol):
    """Hands on to aiohttp what comes in, and ends the connection where nothing does."""

    def __init__(self, connections: Connections, handler: Any) -> None:
        self._connections = connections
        self._handler = handler
        self._transport: Any = None
        self._deadline: asyncio.TimerHandle | None = None
        self._begun = True
        self.since = 0.0

    @property
    def waits(self) -> bool:
        """Whether it is waited for, and not answered."""
        return self._deadline is not None

    def work(self) -> None:
        """Set no limit: a request is being answered."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def wait(self, limit_s: float) -> None:
        """Wait for the next request for so long at most."""
        self.work()
        if self._transport is not None and not self._transport.is_closing():
            loop = asyncio.get_running_loop()
            self.since, self._begun = loop.time(), limit_s < IDLE_S
            self._deadline = loop.call_later(limit_s, self.end)

    def end(self) -> None:
        """End it now."""
        self._transport.abort()

    @override
    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._handler.connection_made(transport)
        self.wait(self._connections.head_s)
        self._connections.add(self._handler, self)

    @override
    def data_received(self, data: bytes) -> None:
        if self.waits and not self._begun:
            self.wait(self._connections.head_s)
        self._handler.data_received(data)

    @override
    def eof_received(self) -> bool | None:
        ends: bool | None = self._handler.eof_received()
        return ends

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.work()
        self._connections.remove(self._handler)
        self._handler.connection_lost(exc)

    @override
    def pause_writing(self) -> None:
        self._handler.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._handler.resume_writing()


class _Site(SockSite):
    """aiohttp's site, whose connections are bounded."""

    def __init__(self, connections: Connections, runner: Any, listening: socket.socket) -> None:
        super().__init__(runner, listening)
        self._connections = connections

    @override
    async def start(self) -> None:
        await BaseSite.start(self)
        make: Any = self._runner.server
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self._connections, make()), sock=self._sock, backlog=self._backlog
        )
