"""A topic that a batch reads, and what its runs should come to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from processor.commands.spark.batch_topic import BatchTopic
from schemas.config import Settings
from spark_sink.batch.job import BatchJob, BatchOptions
from tests.support.batches.scene import START, Audience, BatchScene
from tests.support.batches.truth import FileRow
from tests.support.kafka.topics import New, bounds, create_topic, produce, unique

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_sink.batch.job import BatchOutcome
    from tests.support.kafka.broker import Broker

MS = 1000


class TopicScene(BatchScene):
    """One batch over one topic.

    Args:
        spark: Whose tasks do the work.
        broker: Has the topic.
        folder: For all of it.
        partitions: Of the topic.
        more: Keys of the batch.
    """

    def __init__(
        self, spark: SparkSession, broker: Broker, folder: Path, partitions: int = 2, **more: Any
    ) -> None:
        self.bootstrap, self.topic = broker.bootstrap_servers, unique("batch.raw")
        create_topic(self.bootstrap, self.topic, partitions)
        given = {"input": {"format": "kafka", "topic": self.topic}, **more}
        super().__init__(spark, folder, **given)
        self.audience = Audience()

    def write_config(self) -> Path:
        """Write the config; return its file."""
        file = super().write_config()
        file.write_text(f"[kafka]\nbootstrap_servers = {json.dumps(self.bootstrap)}\n{file.read_text()}")
        return file

    @property
    def settings(self) -> Settings:
        """The whole config."""
        given = {key: value for key, value in self.table.items() if value is not None}
        return Settings.model_validate({"kafka": {"bootstrap_servers": self.bootstrap}, "batches": [given]})

    @property
    def batch(self) -> Any:
        """The batch, as a config has it."""
        return self.settings.batches[0]

    def job(self, audience: Audience, **options: Any) -> BatchJob:
        """Return a run that has not begun."""
        topic = BatchTopic(self.settings.kafka, self.topic)
        return BatchJob(self.spark, self.batch, BatchOptions((), **options), audience, topic)

    def next(self, **options: Any) -> BatchOutcome:
        """Run it."""
        self.audience = Audience()
        return self.job(self.audience, **options).run()

    def send(self, partition: int, chance: random.Random, count: int) -> list[FileRow]:
        """Produce some records of few ids; return them as rows of what their partition is called."""
        first = bounds(self.bootstrap, self.topic, partition)[1]
        rows = []
        for number in range(first, first + count):
            at = START.replace(day=1 + chance.randrange(3), hour=chance.randrange(24))
            name = f"{self.topic}-{partition}"
            rows.append(FileRow(name, number, f"e{chance.randrange(count // 2)}", at, chance.randrange(3)))
        self.produce(partition, [value_of(each) for each in rows])
        return rows

    def produce(self, partition: int, values: Sequence[bytes | None], timestamp: int = 0) -> None:
        """Produce records with these values."""
        made = [New(b"k%d" % number, each, (), timestamp) for number, each in enumerate(values)]
        produce(self.bootstrap, self.topic, made, partition=partition)


def value_of(row: FileRow) -> bytes:
    """Return the JSON of a row, over two lines."""
    at = None if row.at is None else row.at.isoformat()
    return json.dumps({"event_id": row.id, "occurred_at": at, "amount": row.amount}, indent=1).encode()
