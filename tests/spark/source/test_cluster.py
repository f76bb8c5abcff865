"""Does the source work where executors are processes of their own?"""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.topics import create_topic, unique
from tests.support.spark_sink.sinks import START, Click, send

if TYPE_CHECKING:
    from tests.support.kafka.broker import Broker

ROOT = Path(__file__).parents[3]


@pytest.mark.broker
@pytest.mark.spark
def test_executors_of_their_own_read_every_event(broker: Broker) -> None:
    topic = unique("clean")
    create_topic(broker.bootstrap_servers, topic, 4)
    clicks = [Click(START, "abc"[number % 3], "u", Decimal(1), number) for number in range(30)]
    send(broker.bootstrap_servers, topic, clicks, 4)

    # From the repository: executors find the programs by the environment's Python.
    program = [sys.executable, "-m", "tests.spark.source.on_cluster", broker.bootstrap_servers, topic]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"counted": {"a": 10, "b": 10, "c": 10}, "executors": 2}
