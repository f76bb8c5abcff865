"""Hands out turns at the work on records, so that nothing else in the process waits long.

All slots of a worker open, judge and write records with one decoder, and one encoder for each topic, a piece at
a time. Between two pieces, whosever they are, the event loop has a turn for everything else: heartbeats, health
checks, what brokers answer. A piece is bounded (`processor.wire.decode`). What cannot be, one batch or one
record of 64 MiB, is worked on in a thread: kernels and codecs release the interpreter's lock. A step that finds
only on the way that the rest of it takes long leaves the rest to a thread, within its turn (`Rest`).

Invariant: one step is worked on at a time, in a thread or not, and a step that has begun is done before anybody
else has the next turn, also where who waits for it is cancelled, however often.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from processor.wire.decode import Piece

Result = TypeVar("Result")
Timed = TypeVar("Timed")


@dataclass(frozen=True, slots=True)
class Rest(Generic[Result]):
    """What is left of a step that has turned out to take long."""

    work: Callable[[], Result]


class Mark(Enum):
    """In place of a piece."""

    LONG = 1
    """The next step takes long."""
    END = 2
    """There is none any more."""


class ChunkSteps(Generic[Result]):
    """The work on one chunk, a step per piece.

    Attributes:
        long: Whether the next step is done in a thread, and all that follow in this chunk: at most one fetch.
        worked: Seconds that its steps have taken so far.
    """

    def __init__(
        self,
        pieces: Iterator[Piece | None],
        work: Callable[[Piece], Result],
        is_long: Callable[[Piece], bool],
        clock: Callable[[], float],
    ) -> None:
        self._pieces = pieces
        self._work = work
        self._is_long = is_long
        self._clock = clock
        self.long = False
        self.worked = 0.0

    def step(self) -> Result | Mark | Rest[Result | Mark]:
        """Open the next piece, and do the work on it."""
        piece = self._timed(lambda: next(self._pieces, Mark.END))
        if piece is None:
            self.long = True
            return Mark.LONG
        if isinstance(piece, Mark):
            return piece
        work = partial(self._timed, partial(self._work, piece))
        return Rest(work) if not self.long and self._is_long(piece) else work()

    def _timed(self, work: Callable[[], Timed]) -> Timed:
        started = self._clock()
        try:
            return work()
        finally:
            self.worked += self._clock() - started


class Turns:
    """One for all that share a decoder and an encoder."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def take(self, step: Callable[[], Result | Rest[Result]], *, long: bool) -> Result:
        """Do a step in turn, and let others go on.

        Args:
            step: Touches nothing that anybody else uses outside of a turn.
            long: Whether it is done in a thread; the `Rest` of one always is.

        Raises:
            asyncio.CancelledError: The step has been done all the same.
        """
        async with self._turn:
            made = await _apart(step) if long else step()
            result = await _apart(made.work) if isinstance(made, Rest) else made
            # Within the turn: who is ready for the next one must not take it before the event loop went on.
            await asyncio.sleep(0)
        return result


async def _apart(work: Callable[[], Result]) -> Result:
    """Do work in a thread; it is done when this ends, also where who waits for it is cancelled."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        while not doing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([doing])
        raise
