"""Hands out turns at the work on records, so that nothing else in the process waits long.

All slots of a worker open, judge and write records with one decoder and one encoder, a piece at a time. Between
two pieces, whosever they are, the event loop has a turn for everything else: heartbeats, health checks, what
brokers answer. A piece is bounded (`processor.wire.decode`); what cannot be, one batch of 64 MiB or one record
of as much, is worked on in a thread: kernels and codecs release the interpreter's lock.

Invariant: one step is worked on at a time, in a thread or not, and a step that has begun is done before anybody
else has the next turn, also where who waits for it is cancelled, however often.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


class Turns:
    """One for all that share a decoder and an encoder."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def take(self, step: Callable[[], Result], *, long: bool) -> Result:
        """Do a step in turn, and let others go on.

        Args:
            step: Touches nothing that anybody else uses outside of a turn.
            long: Whether it is done in a thread.

        Raises:
            asyncio.CancelledError: The step has been done all the same.
        """
        async with self._turn:
            if not long:
                result = step()
            else:
                doing = asyncio.ensure_future(asyncio.to_thread(step))
                try:
                    result = await asyncio.shield(doing)
                except asyncio.CancelledError:
                    while not doing.done():
                        with contextlib.suppress(asyncio.CancelledError):
                            await asyncio.wait([doing])
                    raise
            # Within the turn: who is ready for the next one must not take it before the event loop went on.
            await asyncio.sleep(0)
        return result
