"""Says which Kafka the tests' embedded brokers are: the one that Seqmark brings, or another.

``SEQMARK_TEST_KAFKA=3.5.2 pytest tests/broker/contract`` asks an older one of `OTHERS`, whose jars come from
Maven Central as those of today's do. It runs in KRaft mode too, which 3.0 calls a preview.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from processor.broker.embedded import EmbeddedBroker
from processor.broker.jars import JarSet

VARIABLE = "SEQMARK_TEST_KAFKA"
OTHERS = ("3.0.2", "3.5.2", "3.9.2", "4.4.0")
"""The last of the oldest that docs/versions.md names, of two between, and the newest that there is."""
LIST = Path(__file__).with_name("jars.json")
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"


def wanted() -> str | None:
    """Return the version that the environment asks for; None: the one that Seqmark brings."""
    return os.environ.get(VARIABLE) or None


def embedded(**arguments: Any) -> EmbeddedBroker:
    """Return a broker of the version that is wanted, with these arguments of `EmbeddedBroker`."""
    broker = EmbeddedBroker(**arguments)
    if (version := wanted()) is not None:
        broker.kafka, broker.listed = jars(version), LIST
    return broker


def jars(version: str) -> JarSet:
    """Return the jars of a version of Kafka; those of `OTHERS` are in `LIST`."""
    return JarSet("kafka", (f"org.apache.kafka:kafka_2.13:{version}", _LOGGING))


def is_older(version: str) -> bool:
    """Say whether the tests' broker is older than this version."""
    asked = wanted()
    return asked is not None and _number(asked) < _number(version)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
