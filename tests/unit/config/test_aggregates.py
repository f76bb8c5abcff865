"""A sink's table is read as the contract has it, and every mistake in it is named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.config import Settings, Sink, aggregate_call
from schemas.config.reference import place

HOUR_MS = 3_600_000
COMPLETE = Path(__file__).parents[3] / "examples" / "complete.toml"


def with_sinks(*changes: dict[str, Any | None]) -> dict[str, Any]:
    """Return the complete example with a sink for each of these changes; None takes a key away."""
    config = tomllib.loads(COMPLETE.read_text(encoding="utf-8"))
    first = config["aggregates"][0]
    config["aggregates"] = [
        {key: value for key, value in (first | change).items() if value is not None} for change in changes
    ]
    return config


def sink(**changes: Any) -> Sink:
    return Settings.model_validate(with_sinks(changes)).aggregates[0]


def faults(*changes: dict[str, Any | None]) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(with_sinks(*changes))
    return {".".join(map(str, place(e["loc"]).path)): e["msg"] for e in caught.value.errors()}


def other(**changes: Any) -> dict[str, Any]:
    """Return a second sink that shares nothing with the first, but for these changes."""
    apart = {"name": "b", "checkpoint": "var/b", "output": {"kind": "console"}}
    return apart | changes


def test_what_is_not_set_has_the_contract_s_default() -> None:
    found = sink()
    assert (found.window, found.slide, found.session_gap) == (HOUR_MS, None, None)
    assert (found.max_offsets_per_trigger, found.trigger) == (None, 0)
    assert (found.max_ahead, sink(max_ahead="0s").max_ahead) == (HOUR_MS, 0)
    assert found.aside_path == "var/checkpoints/hourly-aside"
    assert sink(aside="elsewhere").aside_path == "elsewhere"


def test_windows_may_slide_or_follow_sessions() -> None:
    assert sink(slide="15m").slide == HOUR_MS / 4
    assert sink(window=None, session_gap="30 minutes").session_gap == HOUR_MS / 2


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"window": None}, "window"),
        ({"session_gap": "30 minutes"}, "session_gap"),
        ({"window": None, "session_gap": "1 hour", "slide": "1 minute"}, "slide"),
        ({"slide": "61 minutes"}, "slide"),
        ({"window": "0 hours"}, "window"),
        ({"watermark": "2 h"}, "watermark"),
        ({"trigger": "soon"}, "trigger"),
        ({"max_ahead": "1.5 hours"}, "max_ahead"),
        ({"max_offsets_per_trigger": 0}, "max_offsets_per_trigger"),
        ({"event": "schemas.events"}, "event"),
        ({"aggregates": {}}, "aggregates"),
        ({"aggregates": {"a": "median:amount"}}, "aggregates.a"),
        ({"aggregates": {"a": "sum"}}, "aggregates.a"),
        ({"aggregates": {"a": "count:amount"}}, "aggregates.a"),
        ({"aggregates": {"a": "p100.5:amount"}}, "aggregates.a"),
        ({"aggregates": {"Window_End": "count"}}, "aggregates.Window_End"),
        ({"aggregates": {"campaign": "count"}}, "aggregates.campaign"),
        ({"aggregates": {"a": "count", "A": "count"}}, "aggregates.A"),
        ({"group_by": ["a.b", "a_b"]}, "group_by.1"),
        ({"output": {"kind": "kafka", "topic": "clicks.clean"}}, "output.topic"),
        ({"output": {"kind": "kafka", "topic": "events.raw"}}, "output.topic"),
        ({"output": {"kind": "iceberg", "path": "s3a://bucket/hourly"}}, "output.path"),
        ({"output": {"kind": "delta", "path": "d"}, "group_by": ["user id"]}, "group_by.0"),
        (
            {"output": {"kind": "delta", "path": "d"}, "aggregates": {"Window_date": "count"}},
            "aggregates.Window_date",
        ),
        ({"output": {"kind": "iceberg", "path": "i"}, "group_by": ["window_start.day"]}, "group_by.0"),
    ],
)
def test_a_sink_s_mistake_is_named(changes: dict[str, Any], key: str) -> None:
    assert set(faults(changes)) == {f"aggregates.0.{key}"}


def test_tables_lie_where_their_log_can_be_kept() -> None:
    for output in (
        {"kind": "delta", "path": "s3a://bucket/hourly"},
        {"kind": "iceberg", "path": "hdfs://name/hourly"},
        {"kind": "iceberg", "path": "file:///srv/hourly"},
    ):
        assert sink(output=output).output.model_dump() == output
    # What Delta would refuse is no matter to the others.
    assert sink(output={"kind": "iceberg", "path": "i"}, group_by=["user id"]).group_by == ["user id"]


def test_a_name_of_a_column_is_one_that_sql_takes() -> None:
    found = faults({"aggregates": {"1st": "count"}})
    assert any("does not begin with a digit" in message for message in found.values())


@pytest.mark.parametrize(
    ("first", "second", "key"),
    [
        ({}, other(name="hourly"), "name"),
        ({}, other(output={"kind": "parquet", "path": "var/hourly/"}), "output.path"),
        ({}, other(aside="var/hourly"), "aside"),
        ({}, other(output={"kind": "delta", "path": "var/hourly"}), "output.path"),
        ({}, other(output={"kind": "iceberg", "path": "./var/./hourly/"}), "output.path"),
        ({}, other(aside="var/checkpoints/hourly-aside"), "aside"),
        (
            {"output": {"kind": "kafka", "topic": "hours"}},
            other(output={"kind": "kafka", "topic": "hours"}),
            "output.topic",
        ),
        (
            {"output": {"kind": "postgres", "url": "postgresql://db/a", "table": "t"}},
            other(output={"kind": "postgres", "url": "postgresql://db/a", "table": "t"}),
            "output.table",
        ),
    ],
)
def test_two_sinks_write_to_places_of_their_own(
    first: dict[str, Any], second: dict[str, Any], key: str
) -> None:
    assert set(faults(first, second)) == {f"aggregates.1.{key}"}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("count", ("count", "", 0)),
        ("sum:a.b", ("sum", "a.b", 0)),
        ("approx_count_distinct:user-id", ("approx_count_distinct", "user-id", 0)),
        ("p50:amount", ("percentile", "amount", 50)),
        ("p99.9:amount", ("percentile", "amount", 99.9)),
        ("p0:amount", ("percentile", "amount", 0)),
    ],
)
def test_an_aggregate_is_taken_apart(text: str, parts: tuple[str, str, float]) -> None:
    assert sink(aggregates={"made": text}).aggregates == {"made": text}
    assert aggregate_call(text) == parts


def test_a_duration_that_spark_cannot_count_by_is_told_the_longest_there_is() -> None:
    assert sink(watermark="999999 weeks").watermark == sink(watermark="6999993d").watermark
    assert 'must be at most "6999993d"' in faults({"watermark": "1000000 weeks"})["aggregates.0.watermark"]


def test_a_window_that_is_too_short_for_its_slide_is_said_in_the_short_form() -> None:
    assert "the window (1h)" in faults({"slide": "61 minutes"})["aggregates.0.slide"]
