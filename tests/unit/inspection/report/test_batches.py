"""The section of a batch tells its runs in order, and what counts by date."""

from __future__ import annotations

import re

import pytest

from processor.inspection.report.batches import TABLE_DATES
from processor.inspection.report.page import ReportPage, render
from spark_sink.batch.table.summary import (
    COLLIDED,
    COLLISION,
    DUPLICATE,
    KEPT,
    QUARANTINED,
    BatchPart,
    TableRun,
)
from tests.unit.inspection.report.test_page import HOSTILE, Page, flow, page


def archive(name: str = "archive") -> BatchPart:
    counts = {"read": 1200, "skipped": 0, "kept": 1100, "duplicates": 90, "collisions": 12, "quarantined": 4}
    part = BatchPart(name, f"var/{name}", f"var/clean/{name}", receipts=True)
    part.runs += [
        TableRun(1, "monday", True, None, {"files": 2, **counts, "dates": 2}),
        TableRun(2, f"again {name}", True, "2026-03-03", {"files": 4, **counts, "skipped": 700, "dates": 1}),
        TableRun(3, "compaction", False, None, {"files": 6, "dates": 2}),
    ]
    for date, numbers in {"2026-03-01": (600, 50, 3, 0, 5), "2026-03-04": (500, 40, 0, 1, 4)}.items():
        for what, rows in zip((KEPT, DUPLICATE, COLLISION, QUARANTINED, COLLIDED), numbers, strict=True):
            part.add(date, what, rows)
    part.add("", QUARANTINED, 3)
    return part


@pytest.fixture(scope="module")
def read() -> Page:
    return Page(page(batches=(archive(),)))


def test_runs_are_told_in_order_with_what_they_made_again(read: Page) -> None:
    head, *rows = read.tables["Runs of archive"]

    assert head == [
        *("commit", "run", "rows read", "of earlier dates", "kept", "duplicates", "collisions", "quarantined"),
        "dates with new rows",
    ]
    assert rows == [
        ["1", "monday", "1,200", "0", "1,100", "90", "12", "4", "2"],
        ["2", "again archive, made again from 2026-03-03 on", "1,200", "700", "1,100", "90", "12", "4", "1"],
        ["3", "compaction: 6 files merged", "\u2013", "\u2013", "\u2013", "\u2013", "\u2013", "\u2013", "2"],
    ]


def test_what_counts_is_told_by_date_and_in_sum(read: Page) -> None:
    names = ["kept", "duplicates", "collisions dropped", "quarantined", "collisions kept or quarantined"]
    assert read.tables["Rows of archive by date"] == [
        ["date (UTC)", *names],
        ["2026-03-01", "600", "50", "3", "0", "5"],
        ["2026-03-04", "500", "40", "0", "1", "4"],
        ["without a date", "0", "0", "0", "3", "0"],
        ["all", "1,100", "90", "3", "4", "9"],
    ]
    (alt,) = (
        value for name, value in read.attributes if name == "aria-label" and value and "by date from" in value
    )
    assert "from 2026-03-01 to 2026-03-04 (UTC): 1,100 kept, 90 duplicates, 3 collisions dropped" in str(alt)


def test_of_many_dates_the_newest_are_listed_and_the_others_summed() -> None:
    part = BatchPart("archive", "raw", "clean", receipts=False, runs=archive().runs)
    for day in range(2 * TABLE_DATES):
        part.add(f"{2000 + day // 336}-{1 + day // 28 % 12:02d}-{1 + day % 28:02d}", KEPT, 1)

    _, first, *rows, foot = Page(page(batches=(part,))).tables["Rows of archive by date"]

    assert (first[1], len(rows)) == (str(TABLE_DATES), TABLE_DATES)
    assert first[0] == f"before {rows[0][0]}"
    assert foot == ["all", "732", "0"]


def test_a_batch_without_a_run_is_said_and_has_no_picture() -> None:
    part = BatchPart("archive", "raw", "clean", receipts=True, notes=["The output clean does not exist yet."])

    text = page(batches=(part,))

    assert "The output clean does not exist yet." in Page(text).text
    assert "<svg" not in text


def test_where_there_are_no_batches_nothing_is_said_of_them() -> None:
    assert "atch" not in re.sub("<style>.*?</style>", "", page(flow()), flags=re.DOTALL)


def test_a_page_of_batches_alone_speaks_of_no_broker_and_no_topic() -> None:
    text = Page(render(ReportPage("archive", "", "my.toml", 1_700_000_000_000, "1", (), (), (archive(),)))).text

    assert "What became of the rows of archive" in text
    assert not [word for word in ("broker", "Kafka", "read_committed", "seqmark verify") if word in text]


def test_nothing_of_a_batch_becomes_markup() -> None:
    read = Page(page(flow(), batches=(archive(HOSTILE), archive("b"))))

    assert "script" not in read.names
    ids = [value for name, value in read.attributes if name == "id"]
    assert len(ids) == len(set(ids))
