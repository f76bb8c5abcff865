"""A table in a narrow window breaks titles, then words, and no number as long as all of it fits."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from processor.ops.number_table import NumberTable

TITLES = ("pipeline", "partition", "source", "duplicates", "quarantine", "verdict")
ROW = ("clicks", "0", "1,234,567,890", "98,765", "0", "3 violations")


def drawn(columns: int) -> str:
    """Return a table of a certificate as a window of so many columns shows it."""
    table = NumberTable(*TITLES)
    for column in table.columns[1:-1]:
        column.justify = "right"
    table.add_row(*ROW)
    out = StringIO()
    Console(file=out, width=columns).print(table)
    return out.getvalue()


@pytest.mark.parametrize("columns", [320, 80, 60])
def test_each_number_is_in_one_piece_and_the_table_in_the_window(columns: int) -> None:
    lines = drawn(columns).splitlines()

    cells = [cell.strip() for line in lines for cell in line.split("│")]
    assert set(ROW[1:-1]) <= set(cells)
    assert max(map(len, lines)) <= columns


def test_a_title_breaks_before_a_word_and_nothing_where_all_fits() -> None:
    wide, narrow = drawn(320), drawn(72)

    assert all(title in wide for title in TITLES)
    assert "quarantine" not in narrow
    assert "3 violations" in narrow
    assert "clicks" in narrow


def test_where_nothing_fits_nothing_is_left_out() -> None:
    shown = [line.split("│")[-2].strip() for line in drawn(40).splitlines() if "│" in line]

    assert "".join(sorted("".join(shown))) == "".join(sorted("3violations"))
