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
    from pyspark.sql.types import StructType

    from spark_sink.source.options import Unreadable

log = logging.getLogger(__name__)

_METADATA = {"_partition": "partition", "_offset": "offset", "_timestamp": "timestamp", "_key": "key"}


def register(spark: SparkSession) -> None:
    """Make ``format("seqmark")`` known to a session; to do it again changes nothing."""
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
    """Return a clean topic's events; see `spark_sink.clean_topic`."""
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


def event_schema(event: type[BaseModel] | str) -> StructType:
    """Return the columns of a model, as `clean_topic` gives them."""
    from spark_sink.values.schema import spark_type  # noqa: PLC0415 - of this function only

    return spark_type(_model(event).root)


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
