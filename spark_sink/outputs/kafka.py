"""Writes aggregates to a topic, so that the newest record per key is the aggregate.

A record's key is the JSON object of window and group, its fields in order of their names; its value the JSON
object of the whole row. A window that changes is written again under the same key: a compacted topic keeps
the newest. Times are ISO 8601 in UTC, decimals are strings: a reader that takes numbers for doubles would
round money.

At least once with idempotent content: Spark's Kafka writer has no transactions, so a batch that comes again
after a crash is written again, with the same keys and values. No later batch was written in between, so the
newest of each key is right all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none
from pyspark.sql import functions as sql
from pyspark.sql.types import DecimalType

from processor.errors import StopError
from schemas.config import KafkaOutput
from spark_sink.outputs.output import each_batch, mode_of
from spark_sink.query.checkpoint import Checkpoint
from spark_sink.query.sources import client_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from schemas.event import Column
    from spark_sink.outputs.output import OutputPlace

# A null in a group is a group of its own: leaving it out would make two keys of one.
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    # Spark's own has milliseconds, and would make one key of several groups.
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_TIMEOUT_S = 30


def plain(rows: DataFrame) -> list[SparkColumn]:
    """Return the columns as JSON shows them: decimals as strings."""
    return [
        sql.col(f"`{field.name}`").cast("string").alias(field.name)
        if isinstance(field.dataType, DecimalType)
        else sql.col(f"`{field.name}`")
        for field in rows.schema.fields
    ]


def keyed(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return ``key`` and ``value`` (string) of the records, one per row.

    Args:
        rows: The aggregate.
        key: Columns that identify a row.
    """
    columns = dict(zip(rows.columns, plain(rows), strict=True))
    return rows.select(
        sql.to_json(sql.struct(*(columns[name] for name in sorted(key))), JSON_OPTIONS).alias("key"),
        sql.to_json(sql.struct(*columns.values()), JSON_OPTIONS).alias("value"),
    )


class CompactedTopic:
    """A topic whose newest record per window and group is the aggregate."""

    def __init__(self, place: OutputPlace) -> None:
        output = place.sink.output
        if not isinstance(output, KafkaOutput):
            raise TypeError(output.kind)
        self.mode = mode_of(place.sink)
        self._place = place
        self._topic = output.topic
        self._key: list[str] = []

    def prepare(self, columns: Sequence[Column]) -> None:
        """Create the topic where it is missing: compacted, with the source's partition count.

        Raises:
            StopError: It is missing and may not be made, or the broker refuses.
        """
        aggregates = self._place.sink.aggregates
        self._key = [column.name for column in columns if column.name not in aggregates]
        jvm = self._place.spark._jvm  # noqa: SLF001 - py4j's door to the JVM
        properties = jvm.java.util.Properties()
        for name, value in client_options(self._place.kafka).items():
            properties.setProperty(name, value)
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        try:
            self._ensure(admin)
        except Py4JJavaError as error:
            cause = error.java_exception.getMessage()
            raise StopError(
                f"aggregate {self._place.sink.name}: topic {self._topic} cannot be checked or created: {cause}"
            ) from None
        finally:
            admin.close()

    def _ensure(self, admin: object) -> None:
        jvm = self._place.spark._jvm  # noqa: SLF001 - py4j's door to the JVM
        seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
        names = admin.listTopics().names().get(_TIMEOUT_S, seconds)  # type: ignore[attr-defined]  # a Java object
        if names.contains(self._topic):
            self._warn_unless_compacted(admin)
            return
        done = Checkpoint(self._place.spark, self._place.sink.checkpoint).committed()
        if done >= 0:
            raise StopError(
                f"aggregate {self._place.sink.name}: topic {self._topic} is gone, but its checkpoint has "
                f"counted up to batch {done}: windows that are closed would never come again. To begin anew, "
                f"remove checkpoint and aside folder"
            )
        if not self._place.create_topics:
            raise StopError(
                f"aggregate {self._place.sink.name}: topic {self._topic} is missing and worker.create_topics "
                f"is false; create it with cleanup.policy=compact"
            )
        source = self._place.sink.topic
        asked = jvm.java.util.Collections.singletonList(source)
        described = admin.describeTopics(asked).allTopicNames().get(_TIMEOUT_S, seconds)  # type: ignore[attr-defined]
        partitions = described.get(source).partitions().size()
        empty = jvm.java.util.Optional.empty()
        settings = jvm.java.util.Collections.singletonMap("cleanup.policy", "compact")
        topic = jvm.org.apache.kafka.clients.admin.NewTopic(
            self._topic, jvm.java.util.Optional.of(partitions), empty
        ).configs(settings)
        admin.createTopics(jvm.java.util.Collections.singletonList(topic)).all().get(_TIMEOUT_S, seconds)  # type: ignore[attr-defined]
        self._place.say(
            f"{self._place.sink.name}: created topic {self._topic}, compacted, {partitions} partitions"
        )

    def _warn_unless_compacted(self, admin: object) -> None:
        jvm = self._place.spark._jvm  # noqa: SLF001 - py4j's door to the JVM
        config = jvm.org.apache.kafka.common.config
        resource = config.ConfigResource(getattr(config, "ConfigResource$Type").TOPIC, self._topic)
        asked = jvm.java.util.Collections.singletonList(resource)
        found = (
            admin.describeConfigs(asked)  # type: ignore[attr-defined]  # a Java object
            .all()
            .get(_TIMEOUT_S, jvm.java.util.concurrent.TimeUnit.SECONDS)
        )
        policy = found.get(resource).get("cleanup.policy").value()
        if "compact" not in policy:
            self._place.say(
                f"{self._place.sink.name}: topic {self._topic} is not compacted (cleanup.policy={policy}): "
                f"every version of a window's row stays until retention removes it, also the newest"
            )

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query."""
        return each_batch(self._place, writer, self._write)

    def _write(self, rows: DataFrame, batch: int) -> None:
        del batch  # the same rows under the same keys: a replay changes nothing
        writer = keyed(rows, self._key).write.format("kafka").option("topic", self._topic)
        for name, value in client_options(self._place.kafka).items():
            writer = writer.option(f"kafka.{name}", value)
        writer.save()
