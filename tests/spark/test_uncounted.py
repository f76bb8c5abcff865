"""Where hardly any event is counted, the warning has what was looked for and what is there, and no value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from processor.commands.spark.aggregate import _uncounted
from spark_sink.query.progress import Totals
from spark_sink.query.uncounted import hardly_any, why_late, why_unreadable
from tests.support.kafka.topics import New, create_topic, produce, unique
from tests.support.spark_sink.job import Silent, run, settings, sink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from schemas.config import Sink
    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def clicks(folder: Path) -> Sink:
    return settings("127.0.0.1:9", sink(folder, "t", "s", {"kind": "console"}, window="1h")).aggregates[0]


def told(spark: SparkSession, folder: Path, code: str, values: Sequence[object]) -> str:
    rows = [(value if isinstance(value, bytes) else json.dumps(value).encode(), code) for value in values]
    kept = spark.createDataFrame([*rows, (b'{"late": 1}', None)], "value binary, bad string")
    return why_unreadable(kept, clicks(folder), len(rows), len(rows) + 1)


def test_code_looked_for_and_members_are_told_and_no_value(spark: SparkSession, tmp_path: Path) -> None:
    text = told(spark, tmp_path, "missing:occurred_at", [{"ts": "secret", "user": "me"}, {"ts": 1}, b"none"])

    assert "3 of the first 4 records cannot be read as schemas.events:ClickEvent" in text
    assert "most of them for missing:occurred_at: looked for occurred_at; members seen: ts, user." in text
    assert "secret" not in text
    assert "late" not in text


def test_members_of_the_object_that_lacks_one_are_told(spark: SparkSession, tmp_path: Path) -> None:
    assert "looked for user.country; members of user seen: land." in told(
        spark, tmp_path, "missing:user.country", [{"user": {"land": "de"}, "at": 1}]
    )


def test_names_are_few_short_and_do_nothing_to_a_terminal(spark: SparkSession, tmp_path: Path) -> None:
    many: Mapping[str, Any] = {f"m{number:02}": 0 for number in range(50)}
    assert "m11, …" in told(spark, tmp_path, "missing:occurred_at", [many])

    text = told(spark, tmp_path, "missing:occurred_at", [{"\x1b[2J" + "x" * 1_000: 1}])
    assert "\x1b" not in text
    assert len(text) < 600


def test_what_is_no_json_has_no_members(spark: SparkSession, tmp_path: Path) -> None:
    assert "no value is a JSON object" in told(spark, tmp_path, "not_json", [b"\x00\xff", b"a,b"])


def test_late_events_are_told_by_the_event_time_watermark(tmp_path: Path) -> None:
    text = why_late(clicks(tmp_path), 99, 100)
    assert "99 of the first 100 events are late: looked for occurred_at, which is more than 30 minutes" in text
    assert "event-time watermark" in text


def test_nine_of_ten_may_still_be_an_accident() -> None:
    assert not hardly_any(100, 90)
    assert hardly_any(100, 91)
    assert hardly_any(1, 1)


def test_the_last_line_says_that_nothing_was_counted(tmp_path: Path) -> None:
    declared = clicks(tmp_path)
    assert _uncounted(declared, Totals(batches=1, rows=200, bad=180)) == ""
    assert _uncounted(declared, Totals()) == ""
    assert _uncounted(declared, Totals(batches=1, rows=200, bad=199, late=1)) == (
        f"nothing was counted: of 200 records 200 were written aside to {declared.aside_path} "
        "(199 that cannot be read, 1 late)"
    )


def test_a_wrong_class_is_warned_of_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    del spark
    topic = unique("orders")
    create_topic(broker.bootstrap_servers, topic)
    values = [json.dumps({"ts": 1_700_000_000, "user": f"u{number}"}).encode() for number in range(20)]
    produce(broker.bootstrap_servers, topic, [New(b"", value, (), 1_700_000_000_000) for value in values])
    heard = Silent()

    job = run(
        settings(broker.bootstrap_servers, sink(tmp_path, topic, "hourly", {"kind": "console"}, window="1h")),
        heard,
    )

    (warned,) = heard.warned
    assert warned.startswith("hourly: 20 of the first 20 records cannot be read as schemas.events:ClickEvent")
    assert "members seen: ts, user" in warned
    assert job.totals["hourly"].bad == 20
