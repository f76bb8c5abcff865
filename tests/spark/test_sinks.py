"""The aggregates are right to the row, with late events, bad records and restarts in between.

Five sinks read one topic in three runs: events of the second run come too late for windows that the first has
closed, the third closes all that is open. The truth is computed in plain Python.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from schemas.config import Settings
from schemas.event import EventModel, TextType
from spark_sink.side_output import SideOutput, SideOutputAudience, Written
from tests.support.kafka.topics import create_topic, dice, read_topic, unique
from tests.support.spark_sink.job import run
from tests.support.spark_sink.sinks import (
    HOUR,
    START,
    Click,
    Row,
    by_window,
    click,
    numbers,
    send,
    sessions,
    sliding,
    tumbling,
    written_aside,
)
from tests.support.spark_sink.spark import rows_read

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_sink.query.progress import Totals
    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

GAP = timedelta(minutes=5)
HOURLY = {"files": "parquet", "delta": "delta", "iceberg": "iceberg"}
"""Sinks with one definition: by name the kind of the output."""
# The first run's newest event, less the watermark's half hour: up to here its windows are closed.
CLOSED = START + timedelta(hours=5, minutes=29)


@dataclass(frozen=True)
class Ran:
    """What came of the three runs."""

    settings: Settings
    folder: Path
    events: list[Click]
    """Those that are events, in the order of the runs."""
    tardy: set[int]
    """Numbers of those that came in the second run and belong to the first one's time."""
    bad: dict[int, str]
    """Number to reason."""
    closed: dict[str, list[Row]]
    """By sink: of the outputs that get each closed window once."""
    sessions: list[Row]
    newest: dict[str, Row]
    """Of the topic: key to value."""
    records: int
    """Of the topic."""
    totals: dict[str, Totals]
    """Of the second run."""
    read: int
    """Records of all runs."""


def config(folder: Path, bootstrap: str, topic: str, out: str) -> Settings:
    shared: dict[str, Any] = {
        "topic": topic,
        "event": "schemas.events:ClickEvent",
        "time_field": "occurred_at",
        "watermark": "30 minutes",
    }

    def sink(name: str, **more: Any) -> dict[str, Any]:
        return {**shared, "name": name, "checkpoint": str(folder / f"checkpoint-{name}"), **more}

    all_of_them = {
        "events": "count",
        "revenue": "sum:amount",
        "least": "min:amount",
        "most": "max:amount",
        "mean": "avg:amount",
        "users": "approx_count_distinct:user_id",
        "middle": "p50:amount",
        "high": "p90:amount",
    }
    few = {"events": "count", "revenue": "sum:amount"}

    def hourly(name: str, kind: str) -> dict[str, Any]:
        output = {"kind": kind, "path": str(folder / name)}
        return sink(name, window="1 hour", group_by=["campaign"], aggregates=all_of_them, output=output)

    return Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "worker": {"application_id": "test"},
            "aggregates": [
                *(hourly(name, kind) for name, kind in HOURLY.items()),
                sink(
                    "topic",
                    window="2 hours",
                    slide="1 hour",
                    group_by=["campaign"],
                    aggregates=few,
                    output={"kind": "kafka", "topic": out},
                ),
                sink(
                    "visits",
                    session_gap="5 minutes",
                    group_by=["campaign"],
                    aggregates=few,
                    # As in the examples: below the folder that the driver was started in.
                    output={"kind": "parquet", "path": os.path.relpath(folder / "visits")},
                ),
            ],
        }
    )


@pytest.fixture(scope="module")
def ran(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder, bootstrap = tmp_path_factory.mktemp("sinks"), broker.bootstrap_servers
    topic, out, chance = unique("clean"), unique("aggregate"), dice(5)
    create_topic(bootstrap, topic, 3)
    settings = config(folder, bootstrap, topic, out)

    first = [click(chance, number, START, timedelta(hours=5, minutes=58)) for number in range(600)]
    first.append(Click(START + timedelta(hours=5, minutes=59), "a", "u1", Decimal("1.00"), 600))
    broken = {
        601: b"no JSON",
        602: None,
        603: b'{"event_id":"e","occurred_at":"2026-01-05T03:00:00Z","campaign":"a","user_id":"u","page":"/"}',
        604: b"\xff\xfe",
    }
    bad = [Click(START, "", "", Decimal(0), number, raw, bad=True) for number, raw in broken.items()]
    # One from the future would close the windows of all others; the limit is exact, and of the record's own.
    first.append(Click(START + 3 * HOUR, "a", "u1", Decimal("1.00"), 605, ahead=HOUR))
    for number, ahead in ((606, HOUR + timedelta(milliseconds=1)), (607, timedelta(days=300))):
        bad.append(Click(START + ahead, "a", "u1", Decimal("1.00"), number, ahead=ahead))
    send(bootstrap, topic, first + bad, 3)
    run(settings)

    tardy = [click(chance, number, START, timedelta(hours=4, minutes=50)) for number in range(700, 740)]
    timely = [click(chance, number, START + 6 * HOUR, 2 * HOUR) for number in range(740, 900)]
    late_and_bad = [Click(START, "", "", Decimal(0), 900, b"[1]", bad=True)]
    send(bootstrap, topic, tardy + timely + late_and_bad, 3)
    totals = run(settings).totals

    # It closes all windows but its own.
    last = [Click(START + 48 * HOUR, "end", "u1", Decimal("2.00"), 1000)]
    send(bootstrap, topic, last, 3)
    run(settings)

    records = read_topic(bootstrap, out)
    return Ran(
        settings,
        folder,
        first + tardy + timely + last,
        {each.number for each in tardy},
        {601: "not_json", 602: "null", 603: "missing:amount", 604: "not_utf8", 900: "not_object"}
        | {606: "ahead", 607: "ahead"},
        {name: rows_of(spark, folder / name, kind) for name, kind in HOURLY.items()},
        rows_of(spark, folder / "visits"),
        {(record.key or b"").decode(): json.loads(record.value or b"") for record in records},
        len(records),
        totals,
        len(first) + len(bad) + len(tardy) + len(timely) + len(late_and_bad) + len(last),
    )


def rows_of(spark: SparkSession, path: Path, kind: str = "parquet") -> list[Row]:
    """Read as Spark does, times as milliseconds: Python's own would be in this machine's zone."""
    rows = (
        spark.read.format(kind)
        .load(str(path))
        .selectExpr("*", "unix_millis(window_start) AS start_ms", "unix_millis(window_end) AS end_ms")
    )
    return [row.asDict() for row in rows.collect()]


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def counted(ran: Ran) -> list[Click]:
    """The events that no hour is missing."""
    return [each for each in ran.events if each.number not in ran.tardy]


def by_campaign(each: Click) -> str:
    return each.campaign


@pytest.mark.parametrize("name", list(HOURLY))
def test_each_closed_window_is_there_once_and_equals_the_plain_computation(ran: Ran, name: str) -> None:
    truth = by_window(counted(ran), tumbling(HOUR), by_campaign)
    closed = {key: clicks for key, clicks in truth.items() if key[1] != "end"}
    found = {(row["start_ms"], row["campaign"]): row for row in ran.closed[name]}
    assert len(found) == len(ran.closed[name]) == len(closed) == 8 * 3
    for ((start, end), campaign), clicks in closed.items():
        row, amounts = found[ms(start), campaign], sorted(each.amount for each in clicks)
        assert row["end_ms"] == ms(end)
        assert (row["events"], row["revenue"]) == (len(clicks), sum(amounts))
        assert (row["least"], row["most"]) == (amounts[0], amounts[-1])
        assert abs(float(row["mean"]) - float(sum(amounts)) / len(amounts)) < 1e-5
        # Exact in groups of fewer than 10,000: the smallest value that so many are at or below.
        assert row["middle"] == amounts[(len(amounts) + 1) // 2 - 1]
        assert row["high"] == amounts[-(-9 * len(amounts) // 10) - 1]


def test_distinct_users_are_right_within_the_promised_error(ran: Ran) -> None:
    truth = by_window(counted(ran), tumbling(HOUR), by_campaign)
    for row in ran.closed["files"]:
        start = datetime.fromtimestamp(row["start_ms"] / 1000, START.tzinfo)
        users = {each.user for each in truth[(start, start + HOUR), row["campaign"]]}
        # The standard error is 5 %; four of them, and at least one.
        assert abs(row["users"] - len(users)) <= max(1, 0.2 * len(users))


def test_parquet_lies_in_folders_by_date(ran: Ran) -> None:
    folders = {each.name for each in (ran.folder / "files").iterdir() if each.is_dir()}
    assert folders == {"window_date=2026-01-05", "_spark_metadata"}


def test_the_newest_record_of_each_key_is_the_sliding_aggregate(ran: Ran) -> None:
    def closed(each: Click, window: tuple[datetime, datetime]) -> bool:
        return each.number in ran.tardy and window[1] <= CLOSED

    truth = by_window(ran.events, sliding(2 * HOUR, HOUR), by_campaign, closed)
    found = {
        (value["window_start"], value["window_end"], value["campaign"]): (value["events"], value["revenue"])
        for value in ran.newest.values()
    }
    assert found == {
        (stamp(start), stamp(end), campaign): (len(clicks), str(sum(each.amount for each in clicks)))
        for ((start, end), campaign), clicks in truth.items()
    }


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_windows_that_changed_were_written_again_under_their_key(ran: Ran) -> None:
    assert ran.records > len(ran.newest)
    for key, value in ran.newest.items():
        assert key == json.dumps(
            {name: value[name] for name in ("campaign", "window_end", "window_start")}, separators=(",", ":")
        )


def test_sessions_are_those_of_the_plain_computation(ran: Ran) -> None:
    timely = [each for each in ran.events if each.number not in ran.tardy and each.campaign != "end"]
    truth = sessions(timely, GAP, by_campaign)
    found = {
        (row["start_ms"], row["end_ms"], row["campaign"]): (row["events"], row["revenue"])
        for row in ran.sessions
    }
    assert len(found) == len(ran.sessions)
    assert found == {
        (ms(start), ms(end), campaign): (len(clicks), sum(each.amount for each in clicks))
        for ((start, end), campaign), clicks in truth.items()
    }


@pytest.mark.parametrize("name", [*HOURLY, "topic", "visits"])
def test_exactly_the_events_that_were_not_counted_are_written_aside(ran: Ran, name: str) -> None:
    assert numbers(written_aside(ran.folder / f"checkpoint-{name}-aside", "late")) == sorted(ran.tardy)


def test_an_event_that_is_late_for_one_window_says_for_which_and_counts_in_the_other(ran: Ran) -> None:
    slides = sliding(2 * HOUR, HOUR)
    by_number = {each.number: each for each in ran.events}
    rows = written_aside(ran.folder / "checkpoint-topic-aside", "late")
    for row in rows:
        windows = slides(by_number[int(row["key"])].at)
        missed = [(stamp(start), stamp(end)) for start, end in windows if end <= CLOSED]
        assert [(each["start"], each["end"]) for each in row["windows"]] == missed
        assert row["counted"] is (len(missed) < len(windows))
        assert row["watermark"] == stamp(CLOSED)
    assert {row["counted"] for row in rows} == {True, False}


@pytest.mark.parametrize("name", [*HOURLY, "topic", "visits"])
def test_exactly_the_records_that_are_no_events_are_written_aside_with_the_reason(ran: Ran, name: str) -> None:
    rows = written_aside(ran.folder / f"checkpoint-{name}-aside", "bad")
    assert len(rows) == len(ran.bad)
    assert {int(row["key"]): row["reason"] for row in rows} == ran.bad
    values = {int(row["key"]): (row.get("value"), row.get("value_base64")) for row in rows}
    assert values[601] == ("no JSON", None)
    assert values[602] == (None, None)
    assert values[604] == (None, "//4=")


def test_late_and_bad_are_counted(ran: Ran) -> None:
    for totals in ran.totals.values():
        assert (totals.rows, totals.late, totals.bad) == (201, 40, 1)


def test_nothing_is_left_to_do(ran: Ran) -> None:
    todo: Sequence[Path] = list(ran.folder.glob("*-aside/_seqmark/todo/*.json"))
    assert todo == []


def test_what_a_crash_has_left_to_do_is_written_at_the_next_start_over_what_is_there(
    spark: SparkSession, ran: Ran
) -> None:
    folder = ran.folder / "checkpoint-files-aside"
    before = {what: sorted(map(str, written_aside(folder, what))) for what in ("late", "bad")}
    # As if it had been killed before it had seen its first batch as done, with some files written already.
    state = folder / "_seqmark" / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"seen": -1}))
    shutil.rmtree(folder / "bad")
    # A limit that has been changed since is not that of a batch of before.
    sink = ran.settings.aggregates[0].model_copy(update={"max_ahead": 7_200_000})
    counts: list[Written] = []
    audience = SideOutputAudience(lambda _: None, lambda _: None, counts.append, lambda _: None)

    # Nor is a model, by which none of its events would be one.
    model = EventModel.load(sink.event)
    none = replace(model.root.members["event_id"], type=TextType(values=("none",)))
    stricter = replace(model, root=replace(model.root, members={**model.root.members, "event_id": none}))

    aside = SideOutput(spark, ran.settings.kafka, sink, stricter, accept_loss=False, audience=audience)
    before_reading = rows_read(spark)

    aside.open()

    assert {what: sorted(map(str, written_aside(folder, what))) for what in ("late", "bad")} == before
    assert (sum(each.late for each in counts), sum(each.bad for each in counts)) == (40, 7)
    # Once each, though late and bad are written apart.
    assert rows_read(spark) - before_reading == ran.read
