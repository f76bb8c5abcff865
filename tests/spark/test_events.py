"""Is an event held against its record's own timestamp, to the millisecond?"""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest

from schemas.config import Kafka
from schemas.event import EventModel
from schemas.event.written import written_model
from spark_sink.query.events import BAD, judged
from spark_sink.query.uncounted import HardlyCounted
from spark_sink.side_output import SideOutput, SideOutputAudience, Why
from tests.support.spark_sink.job import settings, sink
from tests.support.spark_sink.sinks import HOUR, START, Click

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from processor.errors import StopError
    from schemas.config import Sink

pytestmark = [
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def test_what_is_further_ahead_of_its_record_than_allowed_is_no_event(
    spark: SparkSession, tmp_path: Path
) -> None:
    aheads = [-HOUR, timedelta(0), HOUR, HOUR + timedelta(milliseconds=1), timedelta(days=9_000)]
    rows = [
        (number, Click(START + ahead, "a", "u", Decimal(1), number).value, START)
        for number, ahead in enumerate(aheads)
    ]
    records = spark.createDataFrame(rows, "offset int, value binary, timestamp timestamp")
    (clicks,) = settings(
        "127.0.0.1:9", sink(tmp_path, "t", "s", {"kind": "console"}, window="1 hour")
    ).aggregates
    model = EventModel.load(clicks.event)

    limited = judged(records, clicks, model, max_ahead_ms=3_600_000).orderBy("offset").collect()
    unlimited = judged(records, clicks, model, max_ahead_ms=None).collect()

    assert [row[BAD] for row in limited] == [None, None, None, "ahead", "ahead"]
    assert {row[BAD] for row in unlimited} == {None}


def side_output(
    spark: SparkSession,
    clicks: Sink,
    failed: Callable[[StopError], None] = lambda _: None,
) -> SideOutput:
    audience = SideOutputAudience(lambda _: None, lambda _: None, lambda _: None, failed)
    kafka, model = Kafka(bootstrap_servers="127.0.0.1:9"), EventModel.load(clicks.event)
    return SideOutput(spark, kafka, clicks, model, accept_loss=False, audience=audience)


def test_whatever_ends_the_thread_is_told(spark: SparkSession, tmp_path: Path) -> None:
    (clicks,) = settings(
        "127.0.0.1:9", sink(tmp_path, "t", "s", {"kind": "console"}, window="1 hour")
    ).aggregates
    cut_off = tmp_path / "checkpoint-s-aside" / "_seqmark" / "todo" / "0.json"
    cut_off.parent.mkdir(parents=True)
    cut_off.write_text("{")
    told: SimpleQueue[StopError] = SimpleQueue()
    opened = side_output(spark, clicks, failed=told.put)

    opened.began("q", lambda: None)
    opened.done(0, Why(late=False, bad=False))

    assert "aggregate s: the query failed" in str(told.get(timeout=60))
    opened.close(finish=False)


def test_a_batch_of_late_events_after_one_of_bad_records_is_warned_of(
    spark: SparkSession, tmp_path: Path
) -> None:
    (clicks,) = settings(
        "127.0.0.1:9", sink(tmp_path, "t", "s", {"kind": "console"}, window="1 hour")
    ).aggregates
    warned: list[str] = []
    looked = HardlyCounted(clicks, warned.append)
    kept = spark.createDataFrame([(b"{}", None)], "value binary, bad string")

    looked.look_at(kept, late=0, bad=475, first=530)
    looked.look_at(kept, late=470, bad=0, first=1_000)
    assert not warned, "most are bad, and none of them is at hand to say why"
    looked.look_at(kept, late=10, bad=0, first=1_010)

    (text,) = warned
    assert "480 of the first 1,010 events are late" in text


def test_a_new_limit_is_noted_before_a_batch_is_judged_by_it(spark: SparkSession, tmp_path: Path) -> None:
    (clicks,) = settings(
        "127.0.0.1:9",
        sink(tmp_path, "t", "s", {"kind": "console"}, window="1 hour", max_ahead="1 minute"),
    ).aggregates
    checkpoint, aside = tmp_path / "checkpoint-s", tmp_path / "checkpoint-s-aside"
    model, state = EventModel.load(clicks.event), {"query": "q", "seen": 0, "max_ahead_ms": 3_600_000}
    plan = 'v1\n{"batchWatermarkMs": 0}\n{"t": {"0": 1}}'
    for path, text in {
        checkpoint / "metadata": '{"id": "q"}',
        checkpoint / "offsets" / "0": plan,
        checkpoint / "commits" / "0": "v1\n{}",
        aside / "_seqmark" / "state.json": json.dumps(
            state | {"model": written_model(model), "earlier_models": []}
        ),
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    side_output(spark, clicks).open()

    # A process that is killed after its first batch, and before it has seen that done, has left nothing else.
    assert json.loads((aside / "_seqmark" / "state.json").read_text())["max_ahead_ms"] == 60_000
