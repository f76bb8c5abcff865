"""Reads a topic that is compared, forwards only, a piece at a time.

Rows that were taken are gone with the next piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from processor.engine.batch.columns import Columns


class Stream(Protocol):
    """Where the pieces of a topic come from; `processor.verify.streams.OutputStream` is one.

    Attributes:
        name: ``topic:partition``, for messages.
        floor: Every record below this offset has to be explained; those above may be of work that goes on.
    """

    name: str
    floor: int

    async def next(self, *, wait: bool) -> Columns | None:
        """Return the next piece, good until the next call; None at the end.

        Args:
            wait: The next record has to be there. Without it the end is where the stream ended when it was
                opened; with it records count that have become visible since.
        """
        ...


class Cursor:
    """A place in a `Stream`.

    Attributes:
        columns: The present piece; None before the first.
        row: The next row of it.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.columns: Columns | None = None
        self.row = 0

    @property
    def name(self) -> str:
        """``topic:partition``."""
        return self._stream.name

    @property
    def floor(self) -> int:
        """The floor of its stream."""
        return self._stream.floor

    @property
    def left(self) -> int:
        """Return how many rows of the present piece are left."""
        return 0 if self.columns is None else len(self.columns) - self.row

    @property
    def offset(self) -> int:
        """Return the next row's offset; only where one is left."""
        assert self.columns is not None  # noqa: S101 - one is left
        return int(self.columns.offset[self.row])

    async def ready(self, *, wait: bool) -> bool:
        """Make sure that a row is left; False at the end. See `Stream.next` for ``wait``."""
        while not self.left:
            piece = await self._stream.next(wait=wait)
            if piece is None:
                return False
            self.columns, self.row = piece, 0
        return True

    def take(self, rows: int) -> None:
        """Go on by ``rows``."""
        self.row += rows
