"""What becomes of an aggregate that waits for its database when another one of the process fails?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from processor.errors import StopError
from spark_sink.job import SinkJob, SinkOptions
from spark_sink.outputs import console
from tests.support.kafka.topics import create_topic, dice, unique, until
from tests.support.spark_sink.job import Silent, settings, sink
from tests.support.spark_sink.sinks import START, click, send
from tests.support.spark_sink.spark import spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from tests.support.kafka.broker import Broker
    from tests.support.spark_sink.postgres import OwnPostgres

__all__ = ["spark"]

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.timeout(300),  # below the 900 s for which a database is waited for
]


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.usefixtures("spark")
def test_one_that_fails_ends_the_process_though_another_waits_for_its_database(
    broker: Broker,
    own_postgres: OwnPostgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    at_start: bool,
) -> None:
    own, bootstrap = own_postgres(), broker.bootstrap_servers
    topics = [unique("clean") for _ in range(2)]
    for topic in topics:
        create_topic(bootstrap, topic)
    sent = [click(dice(0), 0, START, timedelta(minutes=59))]
    send(bootstrap, topics[0], sent, 1)
    audience = Silent()

    def said(part: str) -> bool:
        return any(part in each for each in audience.said)

    def fails_later(_self: console.Terminal, _rows: DataFrame, _batch: int) -> None:
        if not at_start:
            until(lambda: said("table: "), "the other one runs")
            own.stop()
            send(bootstrap, topics[1], sent, 1)
        until(lambda: said("waits for PostgreSQL"), "the other one waits")
        raise StopError("no room")

    monkeypatch.setattr(console.Terminal, "_print", fails_later)
    table = {"kind": "postgres", "url": own.url, "table": "hourly"}
    short = {"window": "1 hour", "trigger": "1 second"}
    config = settings(
        bootstrap,
        sink(tmp_path, topics[0], "shown", {"kind": "console"}, **short),
        sink(tmp_path, topics[1], "table", table, **short),
    )

    if at_start:
        own.stop()
    with pytest.raises(StopError, match="no room"):
        SinkJob(config, config.aggregates, SinkOptions(master="local[2]"), audience).run()
