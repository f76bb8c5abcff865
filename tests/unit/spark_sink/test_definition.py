"""Is every change noticed that gives a sink's numbers another meaning, and no other?"""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - pydantic reads the annotation
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import Field

from schemas.config import Settings, Sink
from schemas.event import EventModel
from schemas.events import ClickEvent
from spark_sink.query.definition import differences, meaning
from tests.support.spark_sink.job import sink, tables

if TYPE_CHECKING:
    from pathlib import Path


class Dearer(ClickEvent):
    """Clicks with a field more, and one that is checked otherwise."""

    discount: float
    amount: Decimal = Field(ge=1, decimal_places=2)


def means(folder: Path, model: type[ClickEvent] = ClickEvent, **changes: Any) -> dict[str, str]:
    written = sink(folder, "clean", "hourly", {"kind": "console"}, window="1 hour") | changes
    found: Sink = Settings.model_validate(tables("127.0.0.1:9", written)).aggregates[0]
    return meaning(found, EventModel.of(model))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"topic": "other"}, ["topic was clean, is other"]),
        ({"window": "2 hours"}, ["window was 1 hour, is 2 hours", "slide was 1 hour, is 2 hours"]),
        ({"slide": "30 minutes"}, ["slide was 1 hour, is 30 minutes"]),
        ({"group_by": []}, ["group_by was campaign (string), is nothing"]),
        (
            {"aggregates": {"events": "count", "revenue": "sum:discount"}},
            ["aggregates.revenue was sum:amount (decimal(28,2)), is sum:discount (float)"],
        ),
        (
            {"aggregates": {"revenue": "sum:amount", "events": "count"}},
            ["aggregates was events, revenue, is revenue, events"],
        ),
        (
            {"aggregates": {"events": "count"}},
            ["aggregates.revenue was sum:amount (decimal(28,2)), is not set"],
        ),
        ({"output": {"kind": "parquet", "path": "var"}}, ["output.kind was console, is parquet"]),
    ],
)
def test_what_gives_the_numbers_another_meaning_is_told(
    tmp_path: Path, changes: dict[str, Any], told: list[str]
) -> None:
    assert differences(means(tmp_path), means(tmp_path, Dearer, **changes)) == told


@pytest.mark.parametrize(
    "changes",
    [
        {"window": "60 minutes"},
        {"slide": "3600 seconds"},
        {"watermark": "4 hours"},
        {"max_ahead": "2 hours"},
        {"trigger": "10 seconds"},
        {"aside": "elsewhere"},
    ],
)
def test_what_leaves_them_right_is_no_change(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert differences(means(tmp_path), means(tmp_path, Dearer, **changes)) == []
