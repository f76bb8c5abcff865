"""A table that keeps partition and offset of a raw topic, and what verdicts should leave of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from click.testing import CliRunner

from processor.commands.cli import main
from schemas.verdicts.record import SourceSums, VerdictRecord
from tests.support.kafka.topics import create_topic, new, produce, produce_transaction, read_topic
from tests.support.worker.process import WorkerConfig, new_config

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from click.testing import Result
    from pyspark.sql import SparkSession

    from tests.support.batches.lakes import Lake
    from tests.support.kafka.broker import Broker

_SCHEMA = "`topic` string, `partition` int, `offset` long, `value` string"
Position = tuple[int, int]


class AppliedScene:
    """One pipeline of verdicts, and one table.

    Args:
        lake: The table's format.
        broker: Has the topics.
        folder: For all of it.
        partitions: Of the source.
    """

    def __init__(self, lake: Lake, broker: Broker, folder: Path, partitions: int = 1) -> None:
        self.lake, self.table = lake, folder / "table"
        made = new_config(broker.bootstrap_servers, folder, partitions)
        (pipeline,) = made.with_verdicts("verdicts").pipelines
        self.config: WorkerConfig = replace(made, pipelines=(replace(pipeline, sink=""),))
        self.bootstrap = broker.bootstrap_servers
        lake.make_empty(self.table, _SCHEMA)
        self._loaded = dict.fromkeys(range(partitions), 0)

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self.lake.spark

    def produce(self, sequences: Sequence[int], partition: int = 0, *, transaction: bool = False) -> None:
        """Write records into the source."""
        records = [new(each) for each in sequences]
        if transaction:
            produce_transaction(self.bootstrap, self.config.source, records, partition=partition)
        else:
            produce(self.bootstrap, self.config.source, records, partition=partition)

    def say(self, *verdicts: VerdictRecord) -> None:
        """Write verdict records, each where it belongs."""
        for each in verdicts:
            record = new(0)._replace(key=None, headers=(), value=each.encode())
            produce(self.bootstrap, self.config.verdicts, [record], partition=each.partition)

    def make_verdicts(self, partitions: int = 1) -> None:
        """Make their topic, where no worker does."""
        create_topic(self.bootstrap, self.config.verdicts, partitions)

    def load(self, upto: int | None = None, *, leave_out: Sequence[Position] = ()) -> None:
        """Do what the table's loader does: append what the source has up to an offset."""
        rows = []
        for each in read_topic(self.bootstrap, self.config.source):
            place = each.partition, each.offset
            if self._loaded[each.partition] <= each.offset < (each.offset + 1 if upto is None else upto):
                self._loaded[each.partition] = each.offset + 1
                rows += [] if place in leave_out else [(self.config.source, *place, "value")]
        self.append(rows)

    def append(self, rows: Sequence[tuple[str, int, int, str]]) -> None:
        """Append rows."""
        frame = self.spark.createDataFrame(list(rows), _SCHEMA).coalesce(1)
        frame.write.format(self.lake.name).mode("append").save(str(self.table))

    def positions(self) -> list[Position]:
        """Return what the table has of the source, in order."""
        rows = self.lake.read(self.table).where(f"topic = '{self.config.source}'")
        return sorted((row["partition"], row["offset"]) for row in rows.collect())

    def words(self, *more: str, table: str | None = None) -> list[str]:
        """Return the command as a user types it."""
        where = str(self.table) if table is None else table
        return ["apply", "-c", str(self.config.write()), "--pipeline", "p", "--table", where, *more]

    def run(self, *more: str, table: str | None = None) -> Result:
        """Run it."""
        return CliRunner().invoke(main, self.words(*more, table=table))

    def applied(self, *more: str) -> dict[int, dict[str, Any]]:
        """Run it, and return what it says of each partition."""
        ended = self.run("--json", *more)
        assert ended.exit_code == 0, ended.output
        return {each["partition"]: each for each in map(json.loads, ended.stdout.splitlines())}


def said(base: int, end: int, skipped: Sequence[int], **more: Any) -> VerdictRecord:
    """Return a verdict record of partition 0."""
    return VerdictRecord(0, base, end, SourceSums(end - base), skipped=np.array(skipped, np.int64), **more)
