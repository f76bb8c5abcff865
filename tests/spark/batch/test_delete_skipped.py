"""Is a table the clean stream after the MERGE of docs/verdicts.md, typed as it stands there?"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none
from pyspark.errors import PySparkException

from schemas.verdicts.record import SourceSums, VerdictRecord
from tests.support.batches.lakes import LAKES, Lake
from tests.support.kafka.topics import (
    create_topic,
    delete_records,
    new,
    produce,
    produce_transaction,
    read_topic,
    unique,
)
from tests.support.readers.page import page_code
from tests.support.worker.process import new_config, run_drain
from tests.support.worker.verdicts import read_clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
_SCHEMA = "`topic` string, `partition` int, `offset` long, `value` string"
Position = tuple[int, int]


class LoadedTable:
    """A table that keeps partition and offset of a raw topic, and the page's function over it."""

    def __init__(self, lake: Lake, folder: Path, servers: str, verdicts: str) -> None:
        self._lake, self._folder = lake, folder / "clicks"
        lake.make_empty(self._folder, _SCHEMA)
        self._words = servers, verdicts, f"delta.`{self._folder}`"
        if lake.name == "iceberg":
            catalog = f"lake_{os.urandom(4).hex()}"
            settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop"}
            for key, value in {**settings, ".warehouse": str(folder), ".cache-enabled": "false"}.items():
                lake.spark.conf.set(f"spark.sql.catalog.{catalog}{key}", value)
            self._words = servers, verdicts, f"{catalog}.clicks"

    def load(self, places: Iterable[Position]) -> None:
        """Do what a loader does."""
        frame = self._lake.spark.createDataFrame([("raw", *place, "value") for place in places], _SCHEMA)
        frame.coalesce(1).write.format(self._lake.name).mode("append").save(str(self._folder))

    def delete_skipped(self) -> list[Position]:
        """Run what the page has; returns what the table has then."""
        delete: Any = page_code("from pyspark.sql")["delete_skipped"]
        delete(self._lake.spark, *self._words)
        return self.positions()

    def positions(self) -> list[Position]:
        """Return what the table has, in order."""
        return sorted((row["partition"], row["offset"]) for row in self._lake.read(self._folder).collect())


@pytest.mark.parametrize("lake", [pytest.param(each, marks=pytest.mark.drawn("lake")) for each in LAKES])
def test_the_table_is_the_clean_stream_however_far_its_loader_lags(
    lake: str, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    made = new_config(broker.bootstrap_servers, tmp_path, 2)
    (pipeline,) = made.with_verdicts("verdicts").pipelines
    config = replace(made, pipelines=(replace(pipeline, sink=""),))
    for partition in range(2):
        produce(config.bootstrap_servers, config.source, [new(n) for n in (1, 2, 2, 3, 1)], partition=partition)
        more = [new(n) for n in (4, 4, 5, 5)]
        produce_transaction(config.bootstrap_servers, config.source, more, partition=partition)
    worker = run_drain(config)
    assert worker.code == 0, worker.stderr
    produce(config.bootstrap_servers, config.source, [new(5)])
    raw = [(each.partition, each.offset) for each in read_topic(config.bootstrap_servers, config.source)]
    table = LoadedTable(LAKES[lake](spark), tmp_path, config.bootstrap_servers, config.verdicts)
    clean = [(each.partition, each.offset) for each in read_clean(config)]
    early = [(number, at) for number in range(2) for at in (1, 2, 4)]

    table.load(early)

    assert table.delete_skipped() == [(0, 1), (1, 1)]
    table.load(sorted({*raw} - {*early}))
    # Behind the marker of the transaction is a record that nobody has judged.
    assert table.delete_skipped() == sorted([*clean, (0, 10)])
    assert len(clean) == 10


def said(base: int, end: int, skipped: Sequence[int], **more: Any) -> VerdictRecord:
    """Return a verdict record of partition 0."""
    return VerdictRecord(0, base, end, SourceSums(end - base), skipped=np.array(skipped, np.int64), **more)


def test_the_newest_verdicts_count_and_expired_ones_do_not(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    servers, verdicts = broker.bootstrap_servers, unique("verdicts")
    create_topic(servers, verdicts)
    table = LoadedTable(LAKES["delta"](spark), tmp_path, servers, verdicts)

    def say(*values: bytes) -> None:
        produce(servers, verdicts, [new(0)._replace(key=None, headers=(), value=each) for each in values])

    # Judged again from 3 on, as far as 6: nobody has judged 6 and 7 by the rules of now.
    say(said(0, 0, [], begins=True).encode(), said(0, 8, [1, 3, 5, 7]).encode())
    say(said(3, 3, [], begins=True).encode(), said(3, 6, [4]).encode())
    table.load((0, at) for at in range(8))
    assert table.delete_skipped() == [(0, at) for at in (0, 2, 3, 5, 6, 7)]
    say(said(6, 8, [6]).encode())
    assert table.delete_skipped() == [(0, at) for at in (0, 2, 3, 5, 7)]

    table.load([(0, 1), (0, 4), (0, 6)])
    delete_records(servers, verdicts, 4)
    assert table.delete_skipped() == [(0, at) for at in (0, 1, 2, 3, 4, 5, 7)]

    say(said(8, 9, [8]).encode()[:-1])
    table.load([(0, 6)])
    # What Spark makes of a Java exception whose causes go round in a circle is not converted.
    with pytest.raises((PySparkException, Py4JJavaError), match="it fails its checksum"):
        table.delete_skipped()
    assert table.positions() == [(0, at) for at in (0, 1, 2, 3, 4, 5, 6, 7)]
