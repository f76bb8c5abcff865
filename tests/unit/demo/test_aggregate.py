"""Does the demo know what Spark should have made of its stream, and see every row that is otherwise?"""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime
from decimal import Decimal

import pytest

from processor.demo.aggregate import Aggregated, Amounts, Rows, closed, newest_ms, true_rows
from processor.demo.tables import aggregate_told, hours_table
from processor.generator import HOUR_MS, StreamOptions, make_stream
from schemas.config import HeaderSource, WatermarkDedup

DEDUP = WatermarkDedup(
    mode="watermark", sequence=HeaderSource.model_validate({"from": "header", "name": "seq", "format": "int64"})
)
STREAM = make_stream(DEDUP, StreamOptions(5_000, 0.1, 3, 3, 472_222 * HOUR_MS, malformed=0.01))
TRUTH: Rows = {
    (HOUR_MS, "a"): Amounts(3, Decimal("1.50")),
    (HOUR_MS, "b"): Amounts(1, Decimal("0.00")),
    (2 * HOUR_MS, "a"): Amounts(2, Decimal("7.25")),
}


def aggregated(rows: Rows, *more: tuple[tuple[int, str], Amounts], late: int = 0, bad: int = 0) -> Aggregated:
    still = {(3 * HOUR_MS, "a"): Amounts(9, Decimal("9.00"))}
    return Aggregated([*rows.items(), *more], TRUTH, still, late, bad, 1.0)


def test_the_truth_is_what_the_events_say_that_must_pass() -> None:
    plain: dict[tuple[int, str], list[Decimal]] = defaultdict(list)
    for partition in STREAM:
        for record, passes in zip(partition.records(0, len(partition)), partition.passes, strict=True):
            if passes:
                event = json.loads(record.value or b"")
                hour = int(datetime.fromisoformat(event["occurred_at"]).timestamp()) // 3_600 * HOUR_MS
                plain[hour, event["campaign"]].append(Decimal(event["amount"]))

    assert true_rows(STREAM) == {key: Amounts(len(each), sum(each, Decimal(0))) for key, each in plain.items()}
    assert len(plain) == 36
    assert any(sum(each) for each in plain.values())


def test_the_newest_time_is_that_of_a_record_that_passes() -> None:
    times = [int(time) for each in STREAM for time in each.timestamp_ms[each.passes]]
    assert newest_ms(STREAM) == max(times)


@pytest.mark.parametrize(
    ("newest", "hours"), [(2 * HOUR_MS + 9, 0), (2 * HOUR_MS + 10, 1), (3 * HOUR_MS + 10, 2)]
)
def test_an_hour_is_closed_when_its_end_is_not_above_the_watermark(newest: int, hours: int) -> None:
    assert len({start for start, _ in closed(TRUTH, newest, 10)}) == hours


def test_what_is_right_has_no_differences() -> None:
    right = aggregated(TRUTH)
    assert right.differences == []
    assert right.agree == 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            aggregated({key: row for key, row in TRUTH.items() if key[1] != "b"}),
            "1970-01-01 01:00 b: no row; must be: 1 events, revenue 0.00",
        ),
        (
            aggregated(TRUTH | {(HOUR_MS, "a"): Amounts(4, Decimal("1.50"))}),
            "1970-01-01 01:00 a: 4 events, revenue 1.50; must be: 3 events, revenue 1.50",
        ),
        (
            aggregated(TRUTH | {(HOUR_MS, "a"): Amounts(3, Decimal("1.51"))}),
            "1970-01-01 01:00 a: 3 events, revenue 1.51; must be: 3 events, revenue 1.50",
        ),
        (
            aggregated(TRUTH | {(HOUR_MS, "c"): Amounts(1, Decimal(0))}),
            "1970-01-01 01:00 c: 1 events, revenue 0; must be: no row",
        ),
        (aggregated(TRUTH, ((HOUR_MS, "b"), TRUTH[HOUR_MS, "b"])), "1970-01-01 01:00 b: 2 rows"),
        (aggregated(TRUTH, late=2, bad=1), "2 events counted as late and 1 records as bad; there are none"),
    ],
)
def test_one_fault_is_one_difference(wrong: Aggregated, said: str) -> None:
    assert wrong.differences == [f"the aggregate: {said}"]


def test_an_empty_output_is_said_briefly() -> None:
    whole = true_rows(STREAM)
    said = Aggregated([], whole, {}, 0, 0, 1.0).differences
    assert len(said) == 6
    assert said[-1] == "the aggregate: and 31 more differences"


def test_a_row_of_an_open_hour_is_a_difference() -> None:
    early = aggregated(TRUTH, ((3 * HOUR_MS, "a"), Amounts(9, Decimal("9.00"))))
    assert early.differences == ["the aggregate: 1970-01-01 03:00 a: 9 events, revenue 9.00; must be: no row"]
    assert [hour.ok for hour in early.hours] == [True, True, False]


def test_people_see_each_hour_beside_the_truth_and_why_one_is_open() -> None:
    wrong = aggregated(TRUTH | {(2 * HOUR_MS, "a"): Amounts(1, Decimal("7.25"))})

    columns = [list(column.cells) for column in hours_table(wrong).columns]

    assert columns[1:3] == [["4", "1", ""], ["4", "2", "9"]]
    assert ["WRONG" in str(cell) for cell in columns[5]] == [False, True, False]
    assert columns[5][2] == "open"
    assert [column.footer for column in hours_table(wrong).columns] == [
        "all closed",
        "5",
        "6",
        "8.75",
        "8.75",
        "1 of 2",
    ]
    told = aggregate_told(wrong, "10 minutes")
    assert told[0] == "1 of 2 closed hours agree with the truth, 2 of 3 rows by hour and campaign"
    assert told[1].startswith("1 still open (1970-01-01 03:00, 9 events): ")
    assert "10 minutes behind the newest click" in told[1]
