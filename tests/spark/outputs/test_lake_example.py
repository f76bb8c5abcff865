"""Does the example of tables run as it stands, but for where topic and folders are?"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import create_topic, unique
from tests.support.spark_sink.job import ROOT
from tests.support.spark_sink.sinks import START, Click, send
from tests.support.suite.pages import typed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

TABLES = ROOT / "examples" / "aggregates-tables.toml"


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.usefixtures("interruptible")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_each_table_of_the_example_gets_its_rows(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = unique("clean")
    create_topic(broker.bootstrap_servers, topic)
    clicks = [
        Click(START + timedelta(minutes=at), "a", "u", Decimal("1.50"), number)
        for number, at in enumerate((0, 10, 50, 24 * 60))
    ]
    send(broker.bootstrap_servers, topic, clicks, 1)
    here = {"SEQMARK_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    for number, name in enumerate(("hourly", "visits")):
        here[f"SEQMARK_AGGREGATES__{number}__TOPIC"] = topic
        here[f"SEQMARK_AGGREGATES__{number}__CHECKPOINT"] = str(tmp_path / f"checkpoint-{number}")
        here[f"SEQMARK_AGGREGATES__{number}__OUTPUT__PATH"] = str(tmp_path / name)

    for line in typed(TABLES):
        done = CliRunner().invoke(main, line.split()[1:], env=here)
        assert done.exit_code == 0, done.stderr

    def read(kind: str, name: str, *columns: str) -> list[tuple[object, ...]]:
        rows = spark.read.format(kind).load(str(tmp_path / name))
        return sorted(tuple(row) for row in rows.selectExpr("string(window_start)", *columns).collect())

    assert read("delta", "hourly", "string(window_date)", "campaign", "events", "revenue") == [
        ("2026-01-05 00:00:00", "2026-01-05", "a", 3, Decimal("4.50"))
    ]
    assert read("iceberg", "visits", "user_id", "pages", "spent") == [
        ("2026-01-05 00:00:00", "u", 2, Decimal("3.00")),
        ("2026-01-05 00:50:00", "u", 1, Decimal("1.50")),
    ]
