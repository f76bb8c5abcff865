"""The examples of docs/spark-source.md do what the page says, typed as they stand there."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.kafka.topics import create_topic, unique
from tests.support.spark_sink.sinks import START, Click, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

PAGE = Path(__file__).parents[3] / "docs" / "spark-source.md"
NOTEBOOK, BY_OPTIONS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.fast
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_the_notebook_counts_the_hour_that_is_over_and_options_read_the_same(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    bootstrap, topic = broker.bootstrap_servers, unique("clicks.clean")
    create_topic(bootstrap, topic, 2)
    minutes = [0, 10, 50, 4 * 60]
    clicks = [Click(START + timedelta(minutes=at), "a", "u", Decimal("1.50"), at) for at in minutes]
    send(bootstrap, topic, clicks, 2)
    names: dict[str, Any] = {"spark": spark}

    for block in (NOTEBOOK, BY_OPTIONS):
        typed = block.replace("localhost:9092", bootstrap).replace("clicks.clean", topic)
        # Spark's folder is the one that its JVM was started in.
        typed = typed.replace('"var/', f'"{tmp_path}/')
        exec(compile(typed, str(PAGE), "exec", dont_inherit=True), names)  # noqa: S102 - what a reader types

    rows = spark.read.parquet(f"{tmp_path}/hourly").collect()
    assert [(row["campaign"], row["events"], row["revenue"]) for row in rows] == [("a", 3, Decimal("4.50"))]
    assert names["clicks"].isStreaming
    assert names["clicks"].columns[:2] == ["event_id", "occurred_at"]
