"""Does Spark read what is committed in a clean topic, with the security that the config asks for?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from schemas.config import Kafka
from spark_sink.query.sources import client_options, read_topic
from tests.support.kafka.topics import create_topic, new, produce, produce_transaction, unique

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def test_aborted_records_are_not_read(spark: SparkSession, broker: Broker) -> None:
    topic, bootstrap = unique("clean"), broker.bootstrap_servers
    create_topic(bootstrap, topic, 2)
    produce(bootstrap, topic, [new(1, value=b"1"), new(2, value=b"2")], partition=1)
    produce_transaction(bootstrap, topic, [new(3, value=b"3")], commit=False)
    produce_transaction(bootstrap, topic, [new(4, value=b"4")], commit=True)

    rows = read_topic(spark, Kafka(bootstrap_servers=bootstrap), topic).collect()

    assert sorted((row["partition"], bytes(row["value"])) for row in rows) == [(0, b"4"), (1, b"1"), (1, b"2")]


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
