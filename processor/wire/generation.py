"""Columns that cannot be read once the decoder has opened the next piece; for tests.

The pieces of a decoder use one buffer, and the slots of a worker one decoder: nothing of a piece is used after
its turn. With ``SEQMARK_TEST_BUFFERS=1``, as in all tests, that is looked at. Each piece's columns have its
number, and to read those of one that has passed is an `AssertionError`. What it left in the buffers is
overwritten, so that a view that somebody has kept shows as well. Without the variable nothing of this is done:
the decoder counts its pieces, once per piece.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from processor.engine.batch.columns import Columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from processor.engine.batch.columns import RecordTable

CHECKED = os.environ.get("SEQMARK_TEST_BUFFERS") == "1"
"""Whether it is looked at. Each read of a column costs a call then."""
POISON = 0xAA
"""What bytes are overwritten with; in a column -0xAA, which is no offset, position or length either."""
_COLUMNS = frozenset(Columns.__slots__)


class Generations:
    """The pieces of one decoder, counted: those before ``newest`` have passed."""

    def __init__(self, *, checked: bool) -> None:
        self._checked = checked
        self.newest = 0

    def pass_on(self, columns: Columns, rows: int, used: int) -> None:
        """Let the newest piece pass, of so many rows and bytes: its columns are about to be written into."""
        self.newest += 1
        if self._checked:
            for column in columns.table:
                column[:rows] = -POISON
            columns.data[:used] = POISON

    def current(self, columns: Columns) -> Columns:
        """Return the columns of the newest piece."""
        if not self._checked:
            return columns
        return CheckedColumns(columns.data, columns.table, self, self.newest)


class CheckedColumns(Columns):
    """Columns that cannot be read once their piece has passed; what is made of them cannot either."""

    __slots__ = ("generation", "generations")

    def __init__(
        self, data: NDArray[np.uint8], table: RecordTable, generations: Generations, generation: int
    ) -> None:
        super().__init__(data, table)
        self.generations, self.generation = generations, generation

    def __getattribute__(self, name: str) -> Any:
        read = object.__getattribute__
        if name in _COLUMNS:
            newest, mine = read(self, "generations").newest, read(self, "generation")
            assert newest == mine, f"piece {mine} has passed: its decoder is at piece {newest}"  # noqa: S101 - in tests
        return read(self, name)

    @override
    def over(self, table: RecordTable) -> CheckedColumns:
        return CheckedColumns(self.data, table, self.generations, self.generation)
