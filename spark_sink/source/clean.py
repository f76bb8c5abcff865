"""Gives a clean topic as a DataFrame of events, for a job or a notebook of one's own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sql

from processor.errors import StopError
from schemas.config import Kafka
from schemas.event import EventModel, EventModelError
from spark_sink.session import DUPLICATE_KEYS
from spark_sink.source.format import NAME, SeqmarkSource
from spark_sink.source.options import BOUND, RULES, TIME_FIELD, kafka_options
from spark_sink.source.rules import rules_of, why_not, written
from spark_sink.values.parse import parse

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pyspark.sql import DataFrame, SparkSession

    from spark_sink.source.options import Unreadable

log = logging.getLogger(__name__)

_METADATA = {"_partition": "partition", "_offset": "offset", "_timestamp": "timestamp", "_key": "key"}


def register(spark: SparkSession) -> None:
    """Make ``format("seqmark")`` known to a session; to do it again changes nothing.

    Its options stand in `spark_sink.source.options`.
    """
    try:
        spark.dataSource.register(SeqmarkSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # Spark has found it in the thread's active session, which is another one.
        sessions: Any = spark._jvm.SparkSession  # noqa: SLF001 - py4j's door to the JVM
        active = sessions.getActiveSession()
        sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - the same
        try:
            spark.dataSource.register(SeqmarkSource)
        finally:
            sessions.setActiveSession(active.get())


def clean_topic(  # noqa: PLR0913 - all but the first three are named, and have a value
    spark: SparkSession,
    kafka: Kafka | str,
    topic: str,
    event: type[BaseModel] | str | None = None,
    *,
    stream: bool = True,
    metadata: bool = False,
    unreadable: Unreadable = "fail",
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
    kafka = Kafka(bootstrap_servers=kafka) if isinstance(kafka, str) else kafka
    register(spark)
    options = {"topic": topic, "accept_loss": str(accept_loss).lower(), **kafka_options(kafka)}
    options |= {} if verdicts is None else {"verdicts": verdicts}
    options |= {} if max_offsets_per_trigger is None else {BOUND: str(max_offsets_per_trigger)}
    options |= {} if time_field is None else {TIME_FIELD: time_field}
    reader = (spark.readStream if stream else spark.read).format(NAME)
    if event is None:
        return reader.options(**options).load()
    model = _model(event)
    if (why := why_not(model)) is None:
        options |= {
            "metadata": str(metadata).lower(),
            "unreadable": unreadable,
            RULES: written(rules_of(model)),
        }
        return reader.options(**options).load()
    if max_offsets_per_trigger is not None:
        raise StopError(f"{BOUND} is not for {model.name}, whose times the kernels do not read: {why}")
    strict = spark.conf.get(DUPLICATE_KEYS, "false") != "true"
    log.warning(
        "%s: %s is read by Spark's own JSON reader, several times as slowly: %s%s",
        topic,
        model.name,
        why,
        f". A value with equal keys in an object is no event, unless the session has {DUPLICATE_KEYS} = true"
        if strict
        else "",
    )
    return _by_rows(reader.options(**options).load(), model, unreadable, metadata=metadata)


def _by_rows(records: DataFrame, model: EventModel, unreadable: Unreadable, *, metadata: bool) -> DataFrame:
    """Parse values as an aggregate does whose model no kernel checks."""
    parsed = parse(records, model)
    if unreadable == "skip":
        parsed = parsed.where(sql.col("bad").isNull())
    if unreadable == "fail":
        told = sql.concat(
            sql.concat_ws(":", "topic", "partition", "offset"), sql.lit(" is no event ("), "bad", sql.lit(")")
        )
        # Where it decides which rows there are: a column that nobody uses is never computed.
        failed = sql.raise_error(told).cast("boolean")
        parsed = parsed.where(sql.when(sql.col("bad").isNotNull(), failed).otherwise(sql.lit(True)))
    columns = [sql.col("event")[name].alias(name) for name in model.root.members]
    if metadata or unreadable == "keep":
        columns += [sql.col(name).alias(shown) for shown, name in _METADATA.items()]
    if unreadable == "keep":
        bad = sql.col("bad")
        columns += [bad.alias("_unreadable"), sql.when(bad.isNotNull(), sql.col("value")).alias("_value")]
    return parsed.select(*columns)


def _model(event: type[BaseModel] | str) -> EventModel:
    try:
        return EventModel.load(event) if isinstance(event, str) else EventModel.of(event)
    except EventModelError as error:
        raise StopError(str(error)) from None
