"""Does the example config bring a topic into a table, and a second run nothing twice?"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from schemas.events import ClickEvent
from tests.support.kafka.topics import create_topic, environment, new, produce, unique
from tests.support.spark_sink.postgres import rows
from tests.support.spark_sink.spark import SHORT

if TYPE_CHECKING:
    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.postgres]

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgres.toml"
RUN_S = 240
AT = int(datetime(2026, 1, 5, 7, tzinfo=UTC).timestamp() * 1000)


def click(minute: int, campaign: str, amount: str) -> bytes:
    event = {
        "event_id": f"{campaign}{minute}",
        "occurred_at": f"2026-01-05T07:{minute:02}:00Z",
        "campaign": campaign,
        "user_id": f"user {minute % 2}",
        "page": "/",
        "amount": amount,
    }
    return ClickEvent.model_validate(event).model_dump_json().encode()


def run(variables: dict[str, str]) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "processor",
            "aggregate",
            "-c",
            str(EXAMPLE),
            "--available-now",
            "--memory",
            "700m",
        ],
        env=environment(variables | {"JAVA_TOOL_OPTIONS": SHORT}),
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.timeout(2 * RUN_S + 60)
def test_the_example_writes_a_topic_into_a_table_once(broker: Broker, database: str, tmp_path: Path) -> None:
    topic = unique("clicks")
    create_topic(broker.bootstrap_servers, topic, 1)
    variables = {
        "SEQMARK_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "SEQMARK_AGGREGATES__0__TOPIC": topic,
        "SEQMARK_AGGREGATES__0__CHECKPOINT": str(tmp_path / "checkpoint"),
        "SEQMARK_AGGREGATES__0__OUTPUT__URL": database,
    }
    asked = "SELECT campaign, events, revenue::text, users FROM hourly ORDER BY campaign"
    first = [click(1, "a", "0.10"), click(2, "a", "0.20"), click(3, "b", "1.00")]
    produce(
        broker.bootstrap_servers,
        topic,
        [new(number, value=each, timestamp=AT) for number, each in enumerate(first)],
    )
    told = run(variables)
    assert rows(database, asked) == [("a", 2, "0.30", 2), ("b", 1, "1.00", 1)]
    produce(broker.bootstrap_servers, topic, [new(3, value=click(4, "b", "2.00"), timestamp=AT)])
    told += run(variables)
    assert rows(database, asked) == [("a", 2, "0.30", 2), ("b", 2, "3.00", 2)]
    assert database not in told
