"""The Spark side: reads the clean topics and files at rest, and is the only importer of pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pyspark.sql import DataFrame, SparkSession

    from schemas.config import Kafka

__all__ = ["clean_topic", "read_clean", "register"]


def read_clean(spark: SparkSession, path: str) -> DataFrame:
    """Read what is committed of a clean table that `seqmark batch` writes; see `spark_sink.batch.reader`.

    Args:
        spark: A session.
        path: The folder that the config names as output, duplicates or quarantine.

    Raises:
        StopError: No batch has written there, or a commit is damaged.
    """
    from spark_sink.batch import reader  # noqa: PLC0415 - pyarrow is slow to import, and not every install has it

    return reader.read_clean(spark, path)


def register(spark: SparkSession) -> None:
    """Make ``format("seqmark")`` known to a session.

    Its options stand in `spark_sink.source.options`. To register again changes nothing.
    """
    from spark_sink.source import clean  # noqa: PLC0415 - as above

    clean.register(spark)


def clean_topic(  # noqa: PLR0913 - all but the first three are named, and have a value
    spark: SparkSession,
    kafka: Kafka | str,
    topic: str,
    event: type[BaseModel] | str | None = None,
    *,
    stream: bool = True,
    metadata: bool = False,
    unreadable: Literal["fail", "skip", "keep"] = "fail",
    accept_loss: bool = False,
    verdicts: str | None = None,
    max_offsets_per_trigger: int | None = None,
    time_field: str | None = None,
) -> DataFrame:
    """Return the events of a clean topic, a column per field of their model, read_committed.

    An event is read as a whole or is bad, by the rules of `seqmark aggregate` (docs/spark.md). A model that the
    kernels cannot check is read by Spark's own JSON reader, with the same rows; a warning says so.

    Args:
        spark: A session.
        kafka: ``HOST:PORT``, or the table ``[kafka]`` of a config.
        topic: The clean topic; with ``verdicts`` the source of its pipeline.
        event: The pydantic model, or ``MODULE:CLASS``; None: key, value, topic, partition, offset and
            timestamp of the records as they are.
        stream: Whether it is a stream from the earliest record on; else all that is there now.
        metadata: Whether to add ``_partition``, ``_offset``, ``_timestamp`` and ``_key``.
        unreadable: What a record does that is no event: ``fail`` ends the query and names it, ``skip`` leaves
            it out, ``keep`` gives a row of nulls with ``_unreadable`` (why), ``_value`` and the metadata.
        accept_loss: Whether to go on where retention has removed what was not read yet.
        verdicts: The topic of verdicts, where the pipeline writes such and no clean topic: what they skip is
            not read.
        max_offsets_per_trigger: Offsets of one batch of a stream at most, cut by event time; None: all there
            are. Not with the trigger ``availableNow``.
        time_field: The field with the event's time, which such a cut needs.

    Raises:
        StopError: The model cannot be read; names every field. Or batches cannot be bounded.
    """
    from spark_sink.source import clean  # noqa: PLC0415 - as above

    return clean.clean_topic(
        spark,
        kafka,
        topic,
        event,
        stream=stream,
        metadata=metadata,
        unreadable=unreadable,
        accept_loss=accept_loss,
        verdicts=verdicts,
        max_offsets_per_trigger=max_offsets_per_trigger,
        time_field=time_field,
    )
