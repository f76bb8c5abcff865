"""Is an aggregate the same whichever source reads it, and does a query stay with the one that it began with?"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from processor.errors import StopError
from spark_sink import job, side_output
from spark_sink.query.partial_rows import read_uncounted
from tests.support.kafka.topics import create_topic, dice, new, produce, unique
from tests.support.spark_sink.job import Silent, run, settings, sink
from tests.support.spark_sink.sinks import HOUR, START, Click, click, numbers, send, written_aside

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_sink.query.checkpoint import PlannedBatch
    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
AGGREGATES = {"events": "count", "revenue": "sum:amount", "mean": "avg:amount", "least": "min:amount"}
AGGREGATES |= {"most": "max:amount", "last": "max:occurred_at", "users": "approx_count_distinct:user_id"}
KERNELS, SPARK = "summed up as it is read", "read event by event by Spark"


def half_hours(start: int, stop: int) -> list[Click]:
    """Return clicks, one in each half hour."""
    chance = dice(start)
    return [click(chance, each, START + each * HOUR / 2, timedelta(minutes=29)) for each in range(start, stop)]


def sending(broker: Broker, topic: str, start: int, stop: int) -> None:
    """Send clicks, one in each half hour, and with them one that is late and one that is no event."""
    send(broker.bootstrap_servers, topic, half_hours(start, stop), 1)
    bad = [new(start, value=b"{}")] if start else []
    late = [click(dice(start), 1000 + start, START, timedelta(minutes=29))] if start else []
    produce(broker.bootstrap_servers, topic, bad)
    send(broker.bootstrap_servers, topic, late, 1)


def to_files(broker: Broker, folder: Path, topic: str, *names: str, **of_last: Any) -> Any:
    """Return the config of aggregates with sliding windows; ``of_last`` is what the last one has otherwise."""
    same = {"window": "1 hour", "slide": "20 minutes", "aggregates": AGGREGATES}
    made = [
        sink(folder, topic, each, {"kind": "parquet", "path": str(folder / each)}, **same) for each in names
    ]
    return settings(broker.bootstrap_servers, *made[:-1], made[-1] | of_last)


def with_member(one: Click, token: bytes) -> Click:
    """Return a click whose value has one more member, which nobody asks for."""
    assert one.value is not None
    return replace(one, raw=one.value[:-1] + b', "more": ' + token + b"}", bad=True)


@pytest.mark.usefixtures("spark")
def test_values_that_spark_reads_otherwise_than_the_kernels_are_in_one_place_each(
    broker: Broker, tmp_path: Path
) -> None:
    topic, clicks = unique("clean"), half_hours(0, 30)
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, clicks, 1)
    run(to_files(broker, tmp_path, topic, "differ"), Silent())
    # The kernels read no more than 128 levels, Spark no more than 1,000 digits.
    deep, many = b"[" * 200 + b"]" * 200, b"9" * 2_000
    late, counted, bad = (replace(clicks[at], number=100 + at) for at in (0, 28, 29))
    more = [with_member(late, many), with_member(counted, many), with_member(bad, deep)]
    send(broker.bootstrap_servers, topic, more, 1)
    run(to_files(broker, tmp_path, topic, "differ"), Silent())

    aside = {what: written_aside(tmp_path / "checkpoint-differ-aside", what) for what in ("late", "bad")}
    assert {what: numbers(rows) for what, rows in aside.items()} == {"late": [100], "bad": [129]}
    assert [(row["reason"], row["value"].encode()) for row in aside["bad"]] == [("not_json", more[2].value)]
    assert [row["value"].encode() for row in aside["late"]] == [more[0].value]


def test_both_sources_give_the_same_rows_and_a_query_stays_with_its_own(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique("clean")
    create_topic(broker.bootstrap_servers, topic)
    ways: dict[str, list[str]] = {"kernels": [], "spark": []}
    for start, stop in ((0, 30), (30, 50)):
        sending(broker, topic, start, stop)
        for name, said in ways.items():
            # Executors that lack something leave it to Spark; that they do not any more changes nothing.
            lack, audience = "Python" if name == "spark" and not start else "", Silent()
            monkeypatch.setattr(job, "why_lacking", lambda *_, lack=lack: lack)
            run(to_files(broker, tmp_path, topic, name), audience)
            said += [line for line in audience.said if KERNELS in line or SPARK in line]

    assert [KERNELS in line for line in ways["kernels"]] == [True, True]
    assert [SPARK in line for line in ways["spark"]] == [True, True]
    assert "its checkpoint was begun so" in ways["spark"][1]
    rows = [
        spark.read.parquet(str(tmp_path / name)).orderBy("window_start", "campaign").collect() for name in ways
    ]
    assert len(rows[0]) > 50
    assert rows[0] == rows[1]
    for what in ("late", "bad"):
        aside = [written_aside(tmp_path / f"checkpoint-{name}-aside", what) for name in ways]
        assert len(aside[0]) == 1
        assert aside[0] == aside[1]
    for name, by in (("kernels", "seqmark"), ("spark", "spark")):
        assert json.loads((tmp_path / f"checkpoint-{name}" / "seqmark.json").read_text())["summed_by"] == by


def test_aggregates_of_one_topic_have_the_rows_that_each_has_alone_and_none_begins_where_the_last_is_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = unique("clean")
    create_topic(broker.bootstrap_servers, topic)
    sending(broker, topic, 0, 30)
    run(to_files(broker, tmp_path, topic, "before"), Silent())
    with pytest.raises(StopError, match="before"):
        run(to_files(broker, tmp_path, topic, "after", "before", group_by=[]), Silent())
    assert not (tmp_path / "checkpoint-after" / "offsets").exists()

    send(broker.bootstrap_servers, topic, half_hours(30, 50), 1)
    run(to_files(broker, tmp_path, topic, "after", "before"), Silent())

    rows = [
        spark.read.parquet(str(tmp_path / name)).orderBy("window_start", "campaign").collect()
        for name in ("after", "before")
    ]
    assert len(rows[0]) > 50
    assert rows[0] == rows[1]


@pytest.mark.usefixtures("spark")
def test_for_one_late_event_only_what_is_around_it_is_read_again(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, first = unique("clean"), half_hours(0, 30)
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, first, 1)
    run(to_files(broker, tmp_path, topic, "narrow"), Silent())
    many = [replace(first[-1], number=100 + number) for number in range(60_000)]
    many[40_000] = replace(first[0], number=77)
    many[40_100] = with_member(replace(first[-1], number=88), b"[" * 200 + b"]" * 200)
    for begin in range(0, len(many), 4_000):
        send(broker.bootstrap_servers, topic, many[begin : begin + 4_000], 1)
    again: list[PlannedBatch] = []

    def noted(*given: Any, **options: Any) -> DataFrame:
        again.append(given[4])
        return read_uncounted(*given, **options)

    monkeypatch.setattr(side_output, "read_uncounted", noted)
    run(to_files(broker, tmp_path, topic, "narrow"), Silent())

    aside = {what: written_aside(tmp_path / "checkpoint-narrow-aside", what) for what in ("late", "bad")}
    assert {what: numbers(rows) for what, rows in aside.items()} == {"late": [77], "bad": [88]}
    (batch,) = again
    (span,) = batch.spans(topic, None)
    assert span.offsets < 30_000
