"""Reads a clean topic into Spark.

Always read_committed: what an aborted transaction of the worker left in the topic is not part of it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from schemas.config import Kafka
    from spark_sink.query.checkpoint import Offsets

# SCRAM names its own module; PLAIN is what is left.
_LOGIN = "org.apache.kafka.common.security.{module} required username={user} password={password};"


def read_topic(spark: SparkSession, kafka: Kafka, topic: str) -> DataFrame:
    """Return all that is committed in ``topic`` now, as Spark's Kafka columns.

    They are ``key`` and ``value`` (binary), ``topic``, ``partition``, ``offset`` and ``timestamp``.
    Lazy: nothing is read before an action, and each action reads again.
    """
    reader = (
        spark.read.format("kafka")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        # A batch that lost records under way is no result.
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
    )
    for key, value in client_options(kafka).items():
        reader = reader.option(f"kafka.{key}", value)
    return reader.load()


def read_range(
    spark: SparkSession, kafka: Kafka, start: Offsets, end: Offsets, *, accept_loss: bool = False
) -> DataFrame:
    """Return what is committed between two sets of offsets, as Spark's Kafka columns; lazy.

    Args:
        spark: The session.
        kafka: How the cluster is reached.
        start: First offsets; a partition that is missing here begins at 0.
        end: One beyond the last offsets.
        accept_loss: Leave out what retention has removed; otherwise an action fails.
    """
    began = {
        topic: {partition: start.get(topic, {}).get(partition, 0) for partition in partitions}
        for topic, partitions in end.items()
    }
    partitions = {topic: sorted(map(int, each)) for topic, each in end.items()}
    reader = (
        spark.read.format("kafka")
        .option("assign", json.dumps(partitions))
        .option("startingOffsets", json.dumps(began))
        .option("endingOffsets", json.dumps(end))
        .option("failOnDataLoss", str(not accept_loss).lower())
        .option("kafka.isolation.level", "read_committed")
    )
    for key, value in client_options(kafka).items():
        reader = reader.option(f"kafka.{key}", value)
    return reader.load()


def stream_topic(
    spark: SparkSession,
    kafka: Kafka,
    topic: str,
    *,
    batch_records: int | None = None,
    accept_loss: bool = False,
) -> DataFrame:
    """Return ``topic`` as a stream from its earliest record on, as Spark's Kafka columns.

    Partitions that are added later are found and read from their beginning.

    Args:
        spark: The session.
        kafka: How the cluster is reached.
        topic: The clean topic.
        batch_records: Offsets of one batch at most; None: all there are.
        accept_loss: Go on where retention has removed what was not read yet; otherwise the query fails.
    """
    reader = (
        spark.readStream.format("kafka")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", str(not accept_loss).lower())
        .option("kafka.isolation.level", "read_committed")
    )
    if batch_records is not None:
        reader = reader.option("maxOffsetsPerTrigger", batch_records)
    for key, value in client_options(kafka).items():
        reader = reader.option(f"kafka.{key}", value)
    return reader.load()


def client_options(kafka: Kafka) -> dict[str, str]:
    """Return the table ``[kafka]`` in the words of Kafka's Java client. Holds secrets: not for logs."""
    options = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
    }
    if kafka.security_protocol.startswith("SASL"):
        options["sasl.mechanism"] = kafka.sasl_mechanism
        options["sasl.jaas.config"] = _login(kafka)
    if kafka.security_protocol.endswith("SSL"):
        options |= _tls(kafka)
    return options


def _login(kafka: Kafka) -> str:
    module = "plain.PlainLoginModule"
    if kafka.sasl_mechanism.startswith("SCRAM"):
        module = "scram.ScramLoginModule"
    password = kafka.sasl_plain_password.get_secret_value() if kafka.sasl_plain_password else ""
    return _LOGIN.format(
        module=module, user=_quoted(kafka.sasl_plain_username or ""), password=_quoted(password)
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tls(kafka: Kafka) -> dict[str, str]:
    options: dict[str, str] = {}
    if kafka.ssl_cafile:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.location"] = str(kafka.ssl_cafile)
    if kafka.ssl_certfile:
        # The Java client reads certificate and key from one text, whichever files they came in.
        pem = kafka.ssl_certfile.read_text(encoding="ascii")
        key = kafka.ssl_keyfile.read_text(encoding="ascii") if kafka.ssl_keyfile else pem
        options["ssl.keystore.type"] = "PEM"
        options["ssl.keystore.certificate.chain"] = pem
        options["ssl.keystore.key"] = key
        if kafka.ssl_password:
            options["ssl.key.password"] = kafka.ssl_password.get_secret_value()
    if not kafka.ssl_check_hostname:
        options["ssl.endpoint.identification.algorithm"] = ""
    return options
