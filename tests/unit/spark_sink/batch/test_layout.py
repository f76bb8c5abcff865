"""Are dates named so that they sort and come back, and is a file put once?"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sink.batch.rows.times import LEAST_US, MOST_US
from spark_sink.batch.table.layout import DAY_US, day_number, day_text, put_if_absent

if TYPE_CHECKING:
    from pathlib import Path

DAYS = st.integers(LEAST_US // DAY_US, MOST_US // DAY_US)


@given(DAYS, DAYS)
def test_names_of_dates_are_in_their_order_and_come_back(one: int, other: int) -> None:
    assert day_number(day_text(one)) == one
    assert (day_text(one) < day_text(other)) == (one < other)


@pytest.mark.parametrize(
    ("day", "text"), [(0, "1970-01-01"), (-1, "1969-12-31"), (LEAST_US // DAY_US, "0001-01-01")]
)
def test_a_date_is_named_as_iso_8601_has_it(day: int, text: str) -> None:
    assert day_text(day) == text


def test_of_many_that_put_a_file_at_once_one_does_and_it_is_whole(tmp_path: Path) -> None:
    file, start = tmp_path / "1.json", threading.Barrier(8)
    put: list[str] = []

    def put_mine(text: str) -> None:
        start.wait()
        if put_if_absent(file, text):
            put.append(text)

    threads = [threading.Thread(target=put_mine, args=(f"{number}" * 9_999,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert put == [file.read_text()]
    assert list(tmp_path.iterdir()) == [file]
