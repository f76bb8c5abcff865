"""The page holds what was counted, needs nothing else, and lets nothing of the data become markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from processor.inspection.report.flows import TABLE_HOURS
from processor.inspection.report.hours import HOUR_MS, Fate, Flow, Hours, Stretch
from processor.inspection.report.markup import element, shown_value
from processor.inspection.report.page import ReportPage, render
from processor.inspection.report.plots import draw_flow
from processor.inspection.report.sinks import _steps
from spark_sink.reading.summary import Group, SinkPart, SinkSummary, SummaryRow

if TYPE_CHECKING:
    from spark_sink.batch.table.summary import BatchPart

HOSTILE = "<script>alert('1')</script>&\"$x^2$_"
VOID = {"meta"}


class Page(HTMLParser):
    """Reads a page: its tables, its text, its elements; fails where elements do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self._table: list[list[str]] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._table = self.tables.setdefault(str(dict(attrs)["aria-label"]), [])
        elif tag == "tr":
            self._table.append([])
        elif tag in {"td", "th"}:
            self._table[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open and {"td", "th"} & set(self._open):
            self._table[-1][-1] += data


def hours_of(counts: dict[int, int], without: int = 0) -> Hours:
    hours = Hours()
    for hour, count in counts.items():
        hours.add(np.full(count, hour * HOUR_MS, np.int64))
    hours.without = without
    return hours


def flow(name: str = "clicks", duplicates: str | None = "clicks.duplicates") -> Flow:
    fates = {
        Fate.CLEAN: hours_of({470_000: 80, 470_001: 5}),
        Fate.DUPLICATE: hours_of({470_000: 10}),
        Fate.LATE: hours_of({470_000: 6}, without=1),
        Fate.COLLISION: hours_of({}),
        Fate.QUARANTINED: hours_of({470_000: 2}),
        Fate.WAITING: hours_of({470_001: 3}),
    }
    raw = hours_of({470_000: 98, 470_001: 8}, without=1)
    stretches = [Stretch("clicks.raw", 0, 0, 107, 107)]
    return Flow(name, "clicks.raw", "clicks.clean", duplicates, "q", raw, fates, stretches)


def sink(text: str = "spring") -> SinkPart:
    rows = tuple(
        SummaryRow(hour * HOUR_MS, (hour + 1) * HOUR_MS, (group,), (hour - 470_000 + 1, 2.5))
        for hour in (470_000, 470_001)
        for group in (text, None)
    )
    everything = Group((), 4, (6, None))
    groups = (Group((text,), 2, (3, None)), Group((None,), 2, (3, None)))
    summary = SinkSummary(
        ("campaign",),
        ("events", "mean"),
        rows=4,
        windows=2,
        groups=2,
        first_ms=470_000 * HOUR_MS,
        last_ms=470_002 * HOUR_MS,
        everything=everything,
        largest=groups,
        shown=rows,
    )
    return SinkPart("hourly", "clicks.clean", "windows of 1 hour", "Parquet files in var/hourly", summary)


def page(
    *flows: Flow,
    sinks: tuple[SinkPart, ...] = (),
    application: str = "clicks",
    batches: tuple[BatchPart, ...] = (),
) -> str:
    return render(ReportPage(application, "b:9092", "my.toml", 1_700_000_000_000, "1", flows, sinks, batches))


def test_the_table_has_every_hour_and_the_sum() -> None:
    found = Page(page(flow())).tables["Records of clicks by the hour"]

    assert found == [
        ["hour (UTC)", "raw", "clean", "duplicate", "late", "quarantined", "not judged yet"],
        ["2023-08-14 08:00", "98", "80", "10", "6", "2", "0"],
        ["2023-08-14 09:00", "8", "5", "0", "0", "0", "3"],
        ["without a plausible time", "1", "0", "0", "1", "0", "0"],
        ["all", "107", "85", "10", "7", "2", "3"],
    ]


def test_collisions_that_pass_are_told_beside_the_clean_records_that_they_are() -> None:
    counted = replace(flow(), on_collision="tag")
    counted.collided[Fate.CLEAN].add(np.full(4, 470_000 * HOUR_MS))

    read = Page(page(counted))

    head, *_, foot = read.tables["Records of clicks by the hour"]
    assert head[-2:] == ["not judged yet", "collisions in clean"]
    assert foot[1:] == ["107", "85", "10", "7", "2", "3", "4"]
    assert "It adds up" in read.text
    assert "Dotted: records with the id of other content" in read.text


def test_collisions_that_are_dropped_have_a_column_of_their_own_in_the_sum() -> None:
    counted = replace(flow(), on_collision="drop")
    counted.fates[Fate.COLLISION].add(np.full(3, 470_000 * HOUR_MS))
    counted.raw.add(np.full(3, 470_000 * HOUR_MS))

    read = Page(page(counted))

    head, *_, foot = read.tables["Records of clicks by the hour"]
    assert head[-3:] == ["collision", "quarantined", "not judged yet"]
    assert foot[1:] == ["110", "85", "10", "7", "3", "2", "3"]
    assert "110 raw = 85 clean + 10 duplicate + 7 late + 3 collision + 2 quarantined" in read.text


def test_without_a_fingerprint_nothing_is_said_of_collisions() -> None:
    assert "ollision" not in re.sub("<style>.*?</style>", "", page(flow()), flags=re.DOTALL)


def test_it_says_from_which_offsets_and_when() -> None:
    read = Page(page(flow()))

    assert read.tables["What was read for clicks"][1] == ["clicks.raw", "0", "0", "107", "107"]
    assert "2023-11-14 22:13:20" in read.text


def test_it_says_whether_the_counts_add_up() -> None:
    good, lost, more = flow(), flow(), flow()
    lost.raw.without += 4
    more.raw.without -= 1

    assert (
        "107 raw = 85 clean + 10 duplicate + 7 late + 2 quarantined + 3 not judged yet" in Page(page(good)).text
    )
    assert "4 raw records are in no other topic" in Page(page(lost)).text
    assert "1 more than came" in Page(page(more)).text


def test_a_problem_is_told_in_place_of_a_sum() -> None:
    counted = flow()
    counted.problems.append("The topic q does not exist.")

    text = Page(page(counted)).text

    assert "Not everything could be read" in text
    assert "The topic q does not exist." in text
    assert "It adds up" not in text


def test_a_resend_that_is_late_is_said_to_be_below_the_sequence_watermark() -> None:
    read = Page(page(flow()))

    assert "late: below the sequence watermark" in read.text
    assert "number is below the sequence watermark, because it was sent again" in read.text


def test_by_ids_nothing_is_late() -> None:
    counted = replace(flow(), by_sequence=False)
    counted.fates[Fate.LATE].counts.clear()
    counted.fates[Fate.LATE].without = 0
    read = Page(page(counted))

    assert "late" not in read.tables["Records of clicks by the hour"][0]
    assert "sequence watermark" not in read.text
    # A mode that was changed leaves receipts of the one before.
    assert "late" in Page(page(replace(flow(), by_sequence=False))).tables["Records of clicks by the hour"][0]


def test_without_receipts_kinds_are_not_told_apart() -> None:
    head = Page(page(flow(duplicates=None))).tables["Records of clicks by the hour"][0]

    assert head == ["hour (UTC)", "raw", "clean", "dropped", "quarantined", "not judged yet"]


def test_of_many_hours_the_newest_are_listed_and_the_others_summed() -> None:
    counted = flow()
    counted.raw.add(np.arange(470_000 - 500, 470_000) * HOUR_MS)

    rows = Page(page(counted)).tables["Records of clicks by the hour"]

    assert rows[1][:2] == ["before 2023-08-07 10:00", str(500 - (TABLE_HOURS - 2))]
    assert len(rows) == 1 + 1 + TABLE_HOURS + 1 + 1
    assert rows[-1][1] == "607"


def test_a_sink_has_its_groups_and_its_windows_newest_first() -> None:
    tables = Page(page(sinks=(sink(),))).tables

    assert tables["Groups of hourly"] == [
        ["campaign", "windows", "events, summed"],
        ["spring", "2", "3"],
        ["\u2013", "2", "3"],
        ["all", "2", "6"],
    ]
    assert tables["Windows of hourly, newest first"][1] == [
        *("2023-08-14 09:00", "2023-08-14 10:00", "\u2013", "2", "2.5")
    ]


def test_groups_that_add_up_stand_on_one_another_and_others_are_lines() -> None:
    whole = sink()
    assert whole.summary
    partly = replace(whole, summary=replace(whole.summary, groups=3))

    assert re.findall(
        r"(\w+) of hourly by window .*?, a (band|line) each for spring, \u2013", page(sinks=(whole,))
    ) == [
        ("events", "band"),
        ("mean", "line"),
    ]
    assert "a band each" not in page(sinks=(partly,))


def test_a_window_without_an_event_is_a_step_of_nothing() -> None:
    summary = sink().summary
    assert summary
    first, last = (each * HOUR_MS for each in (470_000, 470_003))
    apart = replace(
        summary, shown=tuple(SummaryRow(start, start + HOUR_MS, (), (1,)) for start in (first, last))
    )
    across = replace(
        summary, shown=(*apart.shown, SummaryRow(first + 60_000, first + 60_000 + HOUR_MS, (), (1,)))
    )
    sessions = replace(summary, shown=(*apart.shown, SummaryRow(first, first + 60_000, (), (1,))))

    assert _steps(apart, [first, last], 0) == [first + step * HOUR_MS for step in range(5)]
    assert _steps(across, [first, first + 60_000, last], 0) == []
    assert _steps(sessions, [first, last], 0) == []
    assert _steps(apart, [first, last], 1) == []  # means have no sum


def test_nothing_of_the_data_becomes_markup() -> None:
    read = Page(page(flow(HOSTILE), sinks=(sink(HOSTILE),), application=HOSTILE))

    assert "script" not in read.names
    assert read.text.count(HOSTILE) >= 5  # heading, title, contents, tables, a picture's legend
    assert not [name for name, _ in read.attributes if name.startswith("on")]


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = page(flow(), sinks=(sink(),))
    read = Page(text)

    links = [value for name, value in read.attributes if name in {"src", "href", "xlink:href", "data"}]
    assert links
    assert all(link and link.startswith("#") for link in links)
    assert not {"script", "link", "iframe", "img", "object", "embed"} & set(read.names)
    assert all(found.startswith("#") for found in re.findall(r"url\(\s*['\"]?([^)]*)\)", text))
    assert "@import" not in text


def test_ids_are_unique_and_every_reference_meets_one() -> None:
    read = Page(page(flow("a"), flow("b"), sinks=(sink(),)))
    ids = [value for name, value in read.attributes if name == "id"]

    assert len(ids) == len(set(ids))
    used = {value[1:] for name, value in read.attributes if value and name in {"href", "xlink:href"}}
    assert used <= set(ids)


def test_every_picture_is_svg_and_has_a_text_in_its_place() -> None:
    text = page(flow(), sinks=(sink(),))
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)

    assert len(pictures) == 6  # three, each for a desk and for a phone
    for picture in pictures:
        ET.fromstring(picture)  # noqa: S314 - our own
    assert len(re.findall(r'role="img" aria-label="[^"]{40,}"', text)) == 3


def test_an_empty_pipeline_says_so_and_has_no_picture() -> None:
    empty = Flow("p", "raw", "clean", None, None, Hours(), {fate: Hours() for fate in Fate})

    text = page(empty)

    assert "There is no record in these topics." in text
    assert "<svg" not in text


def test_the_same_counts_make_the_same_picture() -> None:
    assert draw_flow(flow(), "x") == draw_flow(flow(), "x")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "\u2013"),
        (True, "true"),
        (1234567, "1,234,567"),
        (0.5, "0.5"),
        (2e9, "2,000,000,000"),
        ("a", "a"),
    ],
)
def test_a_value_is_shown_for_people(value: object, shown: str) -> None:
    assert shown_value(value) == shown


def test_an_attribute_cannot_be_left() -> None:
    assert element("a", "<", title='"><b>') == '<a title="&quot;&gt;&lt;b&gt;">&lt;</a>'
