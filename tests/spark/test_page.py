"""The config and the command lines of docs/spark.md do what the page says, typed as they stand there."""

from __future__ import annotations

import re
import tomllib
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.spark.test_sink_command import WAIT_S, scrape
from tests.support.kafka.topics import create_topic, free_port, unique, until
from tests.support.spark_sink.sinks import START, Click, send
from tests.support.spark_sink.spark import SHORT
from tests.support.suite.pages import typed
from tests.support.worker import forks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
CONFIG, *_ = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
LINES = [line.split()[1:] for line in typed(PAGE) if line.startswith("seqmark ")]
PORT = "9100"


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_the_config_of_the_page_counts_by_its_two_commands(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    bootstrap, topic, port = broker.bootstrap_servers, unique("clicks.clean"), str(free_port())
    create_topic(bootstrap, topic)
    kafka = f'[kafka]\nbootstrap_servers = "{bootstrap}"\n\n[worker]\napplication_id = "test"\n\n'
    (tmp_path / "my.toml").write_text(kafka + CONFIG.replace('"clicks.clean"', f'"{topic}"'))
    once, on = LINES
    env = {"JAVA_TOOL_OPTIONS": SHORT}
    send(bootstrap, topic, [click(0, 0), click(1, 10), click(2, 4 * 60)], 1)

    done = forks.run(*once, folder=tmp_path, env=env, timeout_s=WAIT_S)

    assert done.returncode == 0, done.stderr
    assert "3 records read" in done.stdout
    # The third click has moved the event-time watermark to 02:00: the first hour is final, and is a file.
    assert hours(spark, tmp_path) == {"00:00": (2, Decimal("3.00"))}

    words = [port if word == PORT else word for word in on]
    assert words != on
    log = tmp_path / "log"
    running = forks.start(*words, folder=tmp_path, stdout=log, env=env)
    try:
        until(lambda: up(int(port)) or running.poll() is not None, "it serves its metrics", WAIT_S)
        send(bootstrap, topic, [click(3, 8 * 60)], 1)
        until(lambda: len(hours(spark, tmp_path)) == 2 or running.poll() is not None, "the next hour", WAIT_S)
        assert running.poll() is None, log.read_text()
        # As systemd stops a service: the JVM, too, which may be gone before the process that needs it.
        process = psutil.Process(running.pid)
        for each in (*process.children(recursive=True), process):
            each.terminate()
        assert running.wait(120) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        running.kill()
    assert hours(spark, tmp_path)["04:00"] == (1, Decimal("1.50"))


def click(number: int, minutes: int) -> Click:
    """Return one of 1.50."""
    return Click(START + timedelta(minutes=minutes), "a", "u", Decimal("1.50"), number)


def up(port: int) -> bool:
    """Return whether the page's aggregate is said to run."""
    (aggregate,) = tomllib.loads(CONFIG)["aggregates"]
    return scrape(port).get(f'seqmark_sink_up{{sink="{aggregate["name"]}"}}') == 1


def hours(spark: SparkSession, folder: Path) -> dict[str, tuple[int, Decimal]]:
    """Return events and revenue of each hour that is in the page's output, by its beginning."""
    (aggregate,) = tomllib.loads(CONFIG)["aggregates"]
    rows = spark.read.parquet(str(folder / aggregate["output"]["path"])).collect()
    return {f"{row.window_start:%H:%M}": (row.events, row.revenue) for row in rows}
