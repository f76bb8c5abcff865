"""Does Spark count what is committed in a clean topic, each event in its hour?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import pytest
from pydantic import SecretStr

from schemas.config import Kafka
from spark_sink.sources import client_options, read_topic
from spark_sink.transforms import event_times, hourly_counts
from tests.support.topics import create_topic, new, produce, produce_transaction, unique

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class Broker(Protocol):
    """What the fixture of the same name gives."""

    @property
    def bootstrap_servers(self) -> str: ...


def values(spark: SparkSession, *texts: str) -> DataFrame:
    return spark.createDataFrame([(text.encode(),) for text in texts], "value binary")


def counted(events: DataFrame) -> list[tuple[str | None, int]]:
    rows = hourly_counts(events).selectExpr("string(hour) AS hour", "events").collect()
    return [(row["hour"], row["events"]) for row in rows]


def test_an_event_counts_in_the_hour_that_it_occurred_in(spark: SparkSession) -> None:
    times = ("00:00:00Z", "00:59:59.999Z", "01:00:00.000Z", "03:30:00+02:00")
    records = values(spark, *(f'{{"a":1,"occurred_at":"2026-01-05T{time}"}}' for time in times))
    assert counted(event_times(records)) == [
        ("2026-01-05 00:00:00", 2),
        ("2026-01-05 01:00:00", 2),
    ]


def test_an_event_without_a_time_is_counted_apart(spark: SparkSession) -> None:
    records = values(spark, "{}", "no JSON", '{"occurred_at":"2026-01-05T00:00:00Z"}')
    assert counted(event_times(records)) == [(None, 2), ("2026-01-05 00:00:00", 1)]


def test_aborted_records_are_not_read(spark: SparkSession, broker: Broker) -> None:
    topic, bootstrap = unique("clean"), broker.bootstrap_servers
    create_topic(bootstrap, topic, 2)
    click = b'{"occurred_at":"2026-01-05T07:08:09.123Z"}'
    produce(bootstrap, topic, [new(1, value=click), new(2, value=click)], partition=1)
    produce_transaction(bootstrap, topic, [new(3, value=click)], commit=False)
    produce_transaction(bootstrap, topic, [new(4, value=click)], commit=True)
    records = read_topic(spark, Kafka(bootstrap_servers=bootstrap), topic)
    assert counted(event_times(records)) == [("2026-01-05 07:00:00", 3)]
    occurred = event_times(records).selectExpr("unix_millis(occurred_at) AS ms").first()
    assert occurred is not None
    assert occurred["ms"] == int(datetime(2026, 1, 5, 7, 8, 9, 123000, UTC).timestamp() * 1000)


def test_security_is_passed_on_in_the_words_of_the_java_client(tmp_path: Path) -> None:
    (tmp_path / "client.pem").write_text("CERTIFICATE")
    (tmp_path / "key.pem").write_text("KEY")
    options = client_options(
        Kafka(
            bootstrap_servers="broker:9093",
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username="me",
            sasl_plain_password=SecretStr('a"b\\c'),
            ssl_cafile=tmp_path / "ca.pem",
            ssl_certfile=tmp_path / "client.pem",
            ssl_keyfile=tmp_path / "key.pem",
            ssl_check_hostname=False,
        )
    )
    assert options == {
        "bootstrap.servers": "broker:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="a\\"b\\\\c";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERTIFICATE",
        "ssl.keystore.key": "KEY",
        "ssl.endpoint.identification.algorithm": "",
    }
