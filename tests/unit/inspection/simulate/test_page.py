"""The page of a simulation can be read on a phone and on a desk, and runs nothing that records name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.inspection.simulate.forecast import Simulation
from processor.inspection.simulate.page import render
from processor.inspection.simulate.recommend import recommend
from tests.support.chromium.browser import Chromium, hard_to_read
from tests.unit.inspection.simulate.test_recommend import by_ids, row

if TYPE_CHECKING:
    from pathlib import Path

EVIL = "</code><script>document.title='run'</script>" + "x" * 60
PHONE, DESK = 360, 1600


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    windows = np.geomspace(1_000, 30 * 86_400_000, 33).astype(int).tolist()
    rows = [row(window, 1_000 * n / 32) for n, window in enumerate(windows)]
    found = Simulation("clicks", "clicks.raw", 4, [by_ids(rows, crossing=500)], notes=[EVIL], changing=[EVIL])
    found.candidates = [
        {"place": EVIL, "distinct": 9, "copies": 1, "crossing": 0, "rising": EVIL, "out_of_order": 3}
    ]
    path: Path = tmp_path_factory.mktemp("simulation") / "page.html"
    path.write_text(render(EVIL, 100, [(found, recommend(found, 100))]), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_everything_can_be_read(chromium: Chromium, address: str, width: int, *, dark: bool) -> None:
    look = chromium.look(address, hard_to_read, width=width, dark=dark)

    assert look.seen == []
    assert look.errors == []
    assert look.requests == []


def test_what_records_name_is_text_and_the_plot_is_there(chromium: Chromium, address: str) -> None:
    look = chromium.look(address, lambda page: (page.title(), page.locator("svg.wide circle").count()))

    assert look.seen[0].startswith("Seqmark: a simulation of </code><script>")
    assert look.seen[1] == 1
