"""The page is readable on a phone and on a desk, by day and by night, and asks for nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.inspection.report.hours import HOUR_MS, Fate
from tests.support.chromium.browser import Chromium, hard_to_read
from tests.unit.inspection.report.test_batches import archive
from tests.unit.inspection.report.test_page import flow, hours_of, page, sink

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from processor.inspection.report.hours import Flow

LONG = "https://shop.example/a-very-long-path/without/any-space/" + "x" * 60
PHONE, DESK = 360, 1600


def eventful(name: str, hours: int) -> Flow:
    """Return a pipeline in which every fate occurs, over so many hours."""
    counted = replace(flow(name), on_collision="drop")
    each = np.arange(470_002, 470_002 + hours) * HOUR_MS
    for fate, copies in zip(Fate, (50, 7, 3, 2, 2, 1), strict=True):
        varied = np.repeat(each, 1 + (each // HOUR_MS * 7919) % copies)
        counted.fates[fate].add(varied)
        counted.raw.add(varied)
    return counted


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    waiting = replace(flow(LONG, duplicates=None), notes=["A note with a " + LONG])
    text = page(
        eventful("clicks", 40),
        waiting,
        sinks=(sink(), sink(LONG)),
        application="clicks",
        batches=(archive(), archive(LONG)),
    )
    path.write_text(text, encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_everything_can_be_read(chromium: Chromium, address: str, width: int, *, dark: bool) -> None:
    look = chromium.look(address, hard_to_read, width=width, dark=dark)

    assert look.seen == []
    assert look.errors == []
    assert look.requests == []


def test_it_is_dark_where_that_is_preferred(chromium: Chromium, address: str) -> None:
    def grounds(page: Page) -> list[str]:
        found: list[str] = page.evaluate(
            "() => [document.body, document.querySelector('.tiles li'), document.querySelector('thead th')]"
            ".map(each => getComputedStyle(each).backgroundColor)"
        )
        return found

    by_day, by_night = (chromium.look(address, grounds, dark=dark).seen for dark in (False, True))

    assert by_day[0] == "rgb(255, 255, 255)"
    assert all(max(map(int, each[4:-1].split(","))) < 60 for each in by_night), by_night


def test_a_phone_gets_narrow_pictures_and_tables_that_scroll_by_themselves(
    chromium: Chromium, address: str
) -> None:
    def shown(page: Page) -> tuple[set[str], bool]:
        pictures = "all => all.filter(each => each.checkVisibility()).map(each => each.classList[0])"
        scrolls = "all => all.some(each => each.scrollWidth > each.clientWidth)"
        return set(page.eval_on_selector_all("svg", pictures)), page.eval_on_selector_all(".scroll", scrolls)

    assert chromium.look(address, shown, width=PHONE).seen == ({"narrow"}, True)
    assert chromium.look(address, shown, width=DESK).seen == ({"wide"}, False)


def test_a_fortnight_of_a_pipeline_stays_below_300_kb() -> None:
    assert len(page(eventful("clicks", 336), sinks=(sink(),)).encode()) < 300_000


def test_the_colours_of_the_data_are_left_alone() -> None:
    """A label may look like what is edited in a picture."""
    label = 'fill="#ff0000" d="M 1.234 2.345"'

    assert page(replace(flow(), raw=hours_of({470_000: 1})), sinks=(sink(label),)).count(label) >= 2
