"""A table whose numbers stay whole in a narrow window: half a number is another number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from typing_extensions import override

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_AROUND = 3
"""A column is two blanks and a line wider than what is in it; the table has one more line."""
_LEAST = 3
"""What is broken into this can still be read."""


class NumberTable(Table):
    """A table that breaks titles before words, and never the numbers: columns that are justified right."""

    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._fit(options.max_width)
        yield from super().__rich_console__(console, options)

    def _fit(self, room: int) -> None:
        cells = [max((_width(str(cell)) for cell in column.cells), default=0) for column in self.columns]
        widths = [max(_width(str(each.header)), cell) for each, cell in zip(self.columns, cells, strict=True)]
        excess = sum(widths) + _AROUND * len(widths) + 1 - room
        numbers = [index for index, column in enumerate(self.columns) if column.justify == "right"]
        # The widest title over a short number gives way first.
        while excess > 0 and (titles := [i for i in numbers if widths[i] > max(cells[i], _LEAST)]):
            widths[max(titles, key=widths.__getitem__)] -= 1
            excess -= 1
        for column in self.columns:
            column.overflow = "fold"
        words = [width for index, width in enumerate(widths) if index not in numbers]
        if excess <= sum(max(0, width - _LEAST) for width in words):  # or nothing fits, and all is broken
            for index in numbers:
                self.columns[index].width = widths[index]


def _width(text: str) -> int:
    return max(map(cell_len, text.splitlines()), default=0)
