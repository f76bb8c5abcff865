"""The example of docs/cold-start.md does what the page says, typed as it stands there."""

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
DELIVERED, CAME = re.findall(r"^```json\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)
CONFIG = re.findall(r"^```toml\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)[0]
TABLE, RECEIPTS = re.findall(r"^```text\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)
WHEN_MS = 1_772_442_300_000
"""2026-03-02T09:05:00Z, of the first record that the topic still has."""


def run(line: str) -> str:
    """Run a line of the page in this process, where the tests' Spark is; return its result."""
    done = CliRunner().invoke(main, line.split()[1:])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_the_example_of_the_page_comes_out_as_it_says(
    broker: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQMARK_KAFKA__BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("SEQMARK_WORKER__WEB_PORT", "0")
    create_topic(broker.bootstrap_servers, "payments.raw")
    records = [
        New(None, line.encode(), (), WHEN_MS + number * 120_000)
        for number, line in enumerate(CAME.splitlines())
    ]
    produce(broker.bootstrap_servers, "payments.raw", records)
    Path("delivered").mkdir()
    Path("delivered/march.jsonl").write_text(DELIVERED)
    Path("my.toml").write_text(CONFIG)
    backfill, worker, receipts = (line for line in typed(PAGE) if line.startswith("seqmark "))

    printed = run(backfill)
    assert printed == TABLE
    out, log = tmp_path / "worker.out", tmp_path / "worker.log"
    process = forks.start(*worker.split()[1:], folder=tmp_path, stdout=out, stderr=log, env=dict(os.environ))
    with Worker(process, log, 0) as draining:
        assert draining.wait() == 0, draining.stderr
    assert run(receipts) == RECEIPTS
    clean = read_topic(broker.bootstrap_servers, "payments.clean")
    assert [json.loads(each.value or b"")["order_id"] for each in clean] == ["o-4"]
