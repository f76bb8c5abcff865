"""Columns that cannot be read once the decoder has opened the next piece; for tests.

The pieces of a decoder use one buffer, and the slots of a worker one decoder: nothing of a piece is used after
its turn. With ``SEQMARK_TEST_BUFFERS=1``, as in all tests, that is looked at. Each piece's columns have its
number, and to read those of one that has passed is an `AssertionError`. What it left in the buffers is
overwritten, so that a view that somebody has kept shows as well. Without the variable nothing of this is done:
the decoder counts its pieces, once per piece.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any, Protocol

from processor.engine.batch.columns import Columns

CHECKED = os.environ.get("SEQMARK_TEST_BUFFERS") == "1"
"""Whether it is looked at. Each read of a column costs a call then."""
POISON = 0xAA
"""What bytes are overwritten with; in a column -0xAA, which is no offset, position or length either."""
_COLUMNS = frozenset(each.name for each in fields(Columns))


class PieceCounter(Protocol):
    """A decoder, as columns know it."""

    @property
    def generation(self) -> int:
        """The number of its newest piece."""
        ...


@dataclass(slots=True)
class CheckedColumns(Columns):
    """Columns that cannot be read once their piece has passed; what is made of them cannot either.

    Attributes:
        decoder: Whose buffers they lie in.
        generation: Of the piece: the number that the decoder gave it.
    """

    decoder: PieceCounter
    generation: int

    @classmethod
    def of(cls, columns: Columns, decoder: PieceCounter, generation: int) -> CheckedColumns:
        """Return the same columns, checked."""
        values = {each.name: getattr(columns, each.name) for each in fields(Columns)}
        return cls(**values, decoder=decoder, generation=generation)

    def __getattribute__(self, name: str) -> Any:
        read = object.__getattribute__
        if name in _COLUMNS:
            now, mine = read(self, "decoder").generation, read(self, "generation")
            assert now == mine, f"piece {mine} has passed: its decoder is at piece {now}"  # noqa: S101 - in tests
        return read(self, name)

    def rows(self, start: int, stop: int) -> CheckedColumns:
        """Return a view of rows ``start`` to ``stop``."""
        return CheckedColumns.of(Columns.rows(self, start, stop), self.decoder, self.generation)


def poison(columns: Columns) -> None:
    """Overwrite all columns, but not the bytes that they point into."""
    for name in _COLUMNS - {"data"}:
        getattr(columns, name)[...] = -POISON
