"""The examples of docs/cold-start.md do what the page says, typed as it stands there."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import New, create_topic, produce, read_topic
from tests.support.suite.pages import typed
from tests.support.worker import forks
from tests.support.worker.process import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
PAGE = Path(__file__).parents[4] / "docs" / "cold-start.md"
_TEXT = PAGE.read_text()
DELIVERED, CAME, READ, MEASURED, SHIPPED, *ORDERS = re.findall(
    r"^```json\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL
)
CONFIG, METERS, ROUTED = re.findall(r"^```toml\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)
TABLE, RECEIPTS, SCOPES, BOTH = re.findall(r"^```text\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)
BACKFILL, WORKER, READ_RECEIPTS, BACKFILL_METERS, BACKFILL_ROUTED = (
    line for line in typed(PAGE) if line.startswith("seqmark ")
)
WHEN_MS = 1_772_442_300_000
"""2026-03-02T09:05:00Z, of the first record that the topic still has."""


def run(line: str) -> str:
    """Run a line of the page in this process, where the tests' Spark is; return its result."""
    done = CliRunner().invoke(main, line.split()[1:])
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.fixture
def at_work(broker: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Work in an empty folder, on the tests' broker."""
    del spark
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQMARK_KAFKA__BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("SEQMARK_WORKER__WEB_PORT", "0")
    return broker


def written(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def drain(line: str) -> None:
    """Run a worker in a process of its own."""
    out, log = Path("worker.out").resolve(), Path("worker.log").resolve()
    process = forks.start(*line.split()[1:], folder=Path.cwd(), stdout=out, stderr=log, env=dict(os.environ))
    with Worker(process, log, 0) as draining:
        assert draining.wait() == 0, draining.stderr


def test_the_example_of_the_page_comes_out_as_it_says(at_work: Broker) -> None:
    create_topic(at_work.bootstrap_servers, "payments.raw")
    records = [
        New(None, line.encode(), (), WHEN_MS + number * 120_000)
        for number, line in enumerate(CAME.splitlines())
    ]
    produce(at_work.bootstrap_servers, "payments.raw", records)
    written("delivered/march.jsonl", DELIVERED)
    written("my.toml", CONFIG)

    printed = run(BACKFILL)
    assert printed == TABLE
    drain(WORKER)
    assert run(READ_RECEIPTS) == RECEIPTS
    clean = read_topic(at_work.bootstrap_servers, "payments.clean")
    assert [json.loads(each.value or b"")["order_id"] for each in clean] == ["o-4"]


def test_the_example_with_sequences_comes_out_as_the_page_says(at_work: Broker) -> None:
    create_topic(at_work.bootstrap_servers, "readings.raw")
    lines = MEASURED.splitlines()
    records = [New(json.loads(line)["meter"].encode(), line.encode(), (), WHEN_MS) for line in lines]
    produce(at_work.bootstrap_servers, "readings.raw", records)
    before = [New(json.loads(line)["meter"].encode(), line.encode(), (), WHEN_MS) for line in READ.splitlines()]
    create_topic(at_work.bootstrap_servers, "readings.archive")
    produce(at_work.bootstrap_servers, "readings.archive", before)
    written("meters.toml", METERS)

    assert run(BACKFILL_METERS) == SCOPES
    drain(WORKER.replace("my.toml", "meters.toml"))
    clean = read_topic(at_work.bootstrap_servers, "readings.clean")
    assert [each.value for each in clean] == [lines[1].encode(), lines[3].encode()]


def test_the_example_with_a_route_comes_out_as_the_page_says(at_work: Broker) -> None:
    create_topic(at_work.bootstrap_servers, "orders.raw", 2)
    for number, came in enumerate(ORDERS):
        records = [New(None, line.encode(), (), WHEN_MS) for line in came.splitlines()]
        produce(at_work.bootstrap_servers, "orders.raw", records, partition=number)
    written("shipped/orders.jsonl", SHIPPED)
    written("routed.toml", ROUTED)

    assert run(BACKFILL_ROUTED) == BOTH
    drain(WORKER.replace("my.toml", "routed.toml"))
    clean = read_topic(at_work.bootstrap_servers, "orders.clean")
    assert [json.loads(each.value or b"")["order_id"] for each in clean] == ["o-4"]
