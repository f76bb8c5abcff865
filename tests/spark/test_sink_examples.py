"""Does the example of sinks run as it stands, but for where topics and folders are?"""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from processor.config.load import load, require_aggregates
from tests.support.kafka.topics import create_topic, read_topic, unique
from tests.support.spark_sink.job import ROOT
from tests.support.spark_sink.sinks import START, Click, send
from tests.support.suite.pages import typed
from tests.support.worker import forks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

AGGREGATES = ROOT / "examples" / "aggregates.toml"
VERDICTS = ROOT / "examples" / "verdicts.toml"


def test_the_example_fits_its_events() -> None:
    require_aggregates(load(AGGREGATES, {}))


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.usefixtures("spark", "interruptible")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_each_output_of_the_example_gets_its_rows(broker: Broker, tmp_path: Path) -> None:
    topic, moving = unique("clean"), unique("moving")
    create_topic(broker.bootstrap_servers, topic)
    minutes = (0, 10, 50, 24 * 60)
    clicks = [
        Click(START + timedelta(minutes=at), "a", "u", Decimal("1.50"), number)
        for number, at in enumerate(minutes)
    ]
    send(broker.bootstrap_servers, topic, clicks, 1)
    here = {
        "SEQMARK_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "SEQMARK_AGGREGATES__1__OUTPUT__TOPIC": moving,
    }
    for number in range(3):
        here[f"SEQMARK_AGGREGATES__{number}__TOPIC"] = topic
        here[f"SEQMARK_AGGREGATES__{number}__CHECKPOINT"] = str(tmp_path / f"checkpoint-{number}")
    here["SEQMARK_AGGREGATES__0__OUTPUT__PATH"] = str(tmp_path / "hourly")
    printed = ""

    for line in typed(AGGREGATES):
        words = line.split()[1:] + (["--available-now"] if "--name" in line else [])
        done = CliRunner().invoke(main, words, env=here)
        assert done.exit_code == 0, done.stderr
        printed += done.stdout

    assert {file.parent.name for file in tmp_path.glob("hourly/*/*.parquet")} == {"window_date=2026-01-05"}
    newest = {
        record.key: json.loads(record.value or b"") for record in read_topic(broker.bootstrap_servers, moving)
    }
    # Four windows a click: -45 to +15 minutes, and so on; the last day's four among them.
    assert sum(row["events"] for row in newest.values()) == 4 * len(clicks)
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    visits = sorted((row["window_start"], row["pages"], row["spent"]) for row in lines)
    assert visits == [
        ("2026-01-05T00:00:00.000000Z", 2, "3.00"),
        ("2026-01-05T00:50:00.000000Z", 1, "1.50"),
    ]


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.usefixtures("interruptible")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_the_example_of_verdicts_counts_each_click_once_without_a_clean_topic(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    name = unique("clicks")
    create_topic(broker.bootstrap_servers, f"{name}.raw")
    clicks = [
        Click(START + timedelta(minutes=at), "a", "u", Decimal("1.50"), number)
        for number, at in enumerate((0, 10, 50, 24 * 60))
    ]
    send(broker.bootstrap_servers, f"{name}.raw", [*clicks[:2], *clicks], 1)
    here = {"SEQMARK_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    here |= {"SEQMARK_WORKER__APPLICATION_ID": name, "SEQMARK_WORKER__STATE_DIR": str(tmp_path / "state")}
    here |= {
        f"SEQMARK_PIPELINES__0__{key.upper()}": f"{name}.{topic}"
        for key, topic in (
            ("source", "raw"),
            *((each, each) for each in ("verdicts", "duplicates", "quarantine")),
        )
    }
    here |= {
        "SEQMARK_AGGREGATES__0__TOPIC": f"{name}.raw",
        "SEQMARK_AGGREGATES__0__VERDICTS": f"{name}.verdicts",
    }
    here["SEQMARK_AGGREGATES__0__OUTPUT__PATH"] = str(tmp_path / "hourly")
    here["SEQMARK_AGGREGATES__0__CHECKPOINT"] = str(tmp_path / "checkpoint")

    for line in typed(VERDICTS):
        words = line.split()[1:]
        if words[0] == "worker":
            there = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
            worker = forks.run(*there, "--drain", folder=tmp_path, env=here)
            assert worker.returncode == 0, worker.stderr
        else:
            done = CliRunner().invoke(main, words, env=here)
            assert done.exit_code == 0, done.stderr

    rows = spark.read.parquet(str(tmp_path / "hourly")).collect()
    assert [(row["events"], row["revenue"]) for row in rows] == [(3, Decimal("4.50"))]
    sent = read_topic(broker.bootstrap_servers, f"{name}.raw")
    assert len(sent) == 2 + len(clicks)
