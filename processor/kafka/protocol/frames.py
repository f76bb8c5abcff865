"""Receives a broker's answers, each large one straight into memory of its own.

asyncio's streams hand on what a socket gives as bytes, collect them, and cut an answer out of the collection;
aiokafka then cuts the records out of the answer. Here the socket writes into the answer, and the records stay
where they are::

    size i32 | answer          size bytes; what has a place in the staging buffer is copied from there, once

Invariant: an answer's memory is written no more once it was handed on, and is given back when nobody holds a
part of it any more.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable

STAGING_BYTES = 16 * 1024
"""Answers to all but fetches are shorter; of a longer one so much is copied twice at most."""
_SIZE = struct.Struct(">i")


class Answer:
    """The bytes of an answer, as aiokafka's types read them."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int) -> bytes:
        """Return the next bytes: fewer where it ends."""
        return bytes(self.view(size))

    def view(self, size: int) -> memoryview:
        """Return the same without a copy."""
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]


class Frames(asyncio.BufferedProtocol):
    """What a connection's transport speaks to once it is connected.

    Args:
        before: The protocol that it spoke to, which is told of all but what is read.
        handle: Returns who is given each answer, without its size, None where nobody is any more; what that
            raises ends the connection.
        ended: Is given why nothing more comes; cancelled: nobody wants more.
        staging_bytes: Of the staging buffer, at least those of a size.
    """

    def __init__(
        self,
        before: asyncio.Protocol,
        handle: Callable[[], Callable[[bytes | memoryview], None] | None],
        ended: asyncio.Future[Any],
        staging_bytes: int = STAGING_BYTES,
    ) -> None:
        self._before = before
        self._handle = handle
        self._ended = ended
        self._staging = memoryview(bytearray(staging_bytes))
        self._staged = 0
        self._answer: memoryview | None = None
        """One that is longer than the staging buffer, of which `_came` bytes are there."""
        self._came = 0

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        if self._answer is not None:
            return self._answer[self._came :]
        return self._staging[self._staged :]

    @override
    def buffer_updated(self, nbytes: int) -> None:
        if self._ended.done():
            return
        try:
            self._take(nbytes)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next answer cannot be told from it
            self._end(error)

    def _take(self, count: int) -> None:
        if self._answer is None:
            self._staged += count
            self._unpack()
            return
        self._came += count
        if self._came == len(self._answer):
            whole, self._answer = self._answer, None
            self._hand_on(whole.toreadonly())

    def _unpack(self) -> None:
        """Hand on the answers in the staging buffer; begin one that has no place there."""
        at, stop = 0, self._staged
        self._staged = 0
        while stop - at >= _SIZE.size and not self._ended.done():
            (size,) = _SIZE.unpack_from(self._staging, at)
            if size < 0:
                raise ConnectionError(f"an answer of {size} bytes")
            begin = at + _SIZE.size
            if size <= stop - begin:
                at = begin + size
                self._hand_on(bytes(self._staging[begin:at]))
            elif _SIZE.size + size <= len(self._staging):
                break
            else:
                self._came = stop - begin
                self._answer = np.empty(size, np.uint8).data
                self._answer[: self._came] = self._staging[begin:stop]
                return
        self._staged = stop - at
        self._staging[: self._staged] = bytes(self._staging[at:stop])

    def _hand_on(self, answer: bytes | memoryview) -> None:
        handle = self._handle()
        if handle is not None:
            handle(answer)

    def _end(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    @override
    def eof_received(self) -> bool | None:
        self._end(ConnectionError("the broker has closed the connection"))
        return self._before.eof_received()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the connection is closed"))
        self._before.connection_lost(exc)

    @override
    def pause_writing(self) -> None:
        self._before.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._before.resume_writing()
