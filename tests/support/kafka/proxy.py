"""A network between a broker and its clients that loses packets, cuts connections, and comes back.

What is swallowed is held and goes on after `heal`, as TCP sends again what was lost: also a request that its
sender has long given up.

with Proxy(backend_port) as proxy:
    proxy.swallow()     # connections stay, new ones are accepted; nothing goes through, not even their end
    proxy.heal()
    proxy.cut()         # all connections break; new ones work
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Self

from processor.broker.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable

_BYTES = 256 * 1024


class Proxy:
    """Hands connections on to a port of this machine; a context manager.

    Args:
        backend: Where somebody listens, or will.
    """

    def __init__(self, backend: int) -> None:
        self._backend = backend
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread.start()
        serving = asyncio.start_server(self._connected, HOST, 0)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result()
        self.port: int = self._server.sockets[0].getsockname()[1]
        """Where clients connect."""
        self.held = 0
        """How often something has been held back, connections included."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def swallow(self) -> None:
        """Let nothing through from now on, in neither direction."""
        self._do(self._open.clear)

    def heal(self) -> None:
        """Let everything through again, what is on its way first."""
        self._do(self._open.set)

    def cut(self) -> None:
        """Break all connections."""
        self._do(self._abort)

    def _do(self, what: Callable[[], None]) -> None:
        async def done() -> None:
            what()

        asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _end(self) -> None:
        self._server.close()
        self._abort()
        self._open.set()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._let_through()
            there, back = await asyncio.open_connection(HOST, self._backend)
            self._writers.add(back)
            ways = {asyncio.ensure_future(self._pass(*way)) for way in ((reader, back), (there, writer))}
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                await self._open.wait()
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                back.transport.abort()
                self._writers.discard(back)
        writer.transport.abort()
        self._writers.discard(writer)

    async def _let_through(self) -> None:
        if not self._open.is_set():
            self.held += 1
            await self._open.wait()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_BYTES):
                await self._let_through()
                writer.write(data)
                await writer.drain()
