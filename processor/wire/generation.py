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
from typing import Any

from typing_extensions import override

from processor.engine.batch.columns import Columns

CHECKED = os.environ.get("SEQMARK_TEST_BUFFERS") == "1"
"""Whether it is looked at. Each read of a column costs a call then."""
POISON = 0xAA
"""What bytes are overwritten with; in a column -0xAA, which is no offset, position or length either."""
_COLUMNS = frozenset(each.name for each in fields(Columns))


class Generations:
    """The pieces of one decoder, counted.

    Args:
        checked: Whether a piece that has passed cannot be read.

    Attributes:
        newest: Number of the newest piece; those before it have passed.
    """

    def __init__(self, *, checked: bool) -> None:
        self._checked = checked
        self.newest = 0

    def pass_on(self, columns: Columns, rows: int, used: int) -> None:
        """Let the newest piece pass, of so many rows and bytes: its columns are about to be written into."""
        self.newest += 1
        if self._checked:
            for name in _COLUMNS - {"data"}:
                getattr(columns, name)[:rows] = -POISON
            columns.data[:used] = POISON

    def current(self, columns: Columns) -> Columns:
        """Return the columns of the newest piece."""
        return CheckedColumns.of(columns, self, self.newest) if self._checked else columns


@dataclass(slots=True)
class CheckedColumns(Columns):
    """Columns that cannot be read once their piece has passed; what is made of them cannot either.

    Attributes:
        generation: The number of their piece.
    """

    generations: Generations
    generation: int

    @classmethod
    def of(cls, columns: Columns, generations: Generations, generation: int) -> CheckedColumns:
        """Return the same columns, checked."""
        values = {name: getattr(columns, name) for name in _COLUMNS}
        return cls(**values, generations=generations, generation=generation)

    def __getattribute__(self, name: str) -> Any:
        read = object.__getattribute__
        if name in _COLUMNS:
            newest, mine = read(self, "generations").newest, read(self, "generation")
            assert newest == mine, f"piece {mine} has passed: its decoder is at piece {newest}"  # noqa: S101 - in tests
        return read(self, name)

    @override
    def rows(self, start: int, stop: int) -> CheckedColumns:
        return CheckedColumns.of(Columns.rows(self, start, stop), self.generations, self.generation)
