"""Does the source work where executors are processes of their own, and are they asked for Seqmark?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import venv
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.support.kafka.topics import create_topic, dice, read_topic, unique
from tests.support.spark_sink.job import sink, tables, toml
from tests.support.spark_sink.sinks import HOUR, START, Click, by_window, click, send, tumbling
from tests.support.spark_sink.spark import SHORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.kafka.broker import Broker

ROOT = Path(__file__).parents[3]
PARTITIONS, HALF, ALL = 3, 40, 60

pytestmark = [pytest.mark.broker, pytest.mark.spark]


class Ran(NamedTuple):
    """What jobs said on a cluster, and what they wrote."""

    clicks: Sequence[Click]
    first: dict[str, Any]
    second: dict[str, Any]
    """Over the same checkpoint, after more clicks."""
    fallback: dict[str, Any]
    """Of another aggregate, on executors without Seqmark."""
    refused: dict[str, Any]
    """Of the first aggregate there."""
    rows: dict[str, Any]
    """By aggregate."""


def executors_see(path: str) -> dict[str, str]:
    """Return an environment that executors inherit, who are not started in the repository's folder."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**inherited, "JAVA_TOOL_OPTIONS": SHORT, **({"PYTHONPATH": path} if path else {})}


@contextmanager
def program(log: Path, env: dict[str, str]) -> Iterator[Callable[[Path], dict[str, Any]]]:
    """Give what runs a config in a process of its own, and returns what is said there."""
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.source.aggregates_on_cluster"],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def run(config: Path) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{config}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, log.read_text(errors="replace")[-3000:]
        answer: dict[str, Any] = json.loads(line)
        return answer

    try:
        yield run
        process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=120)


def written(bootstrap: str, topic: str) -> dict[tuple[datetime, str], tuple[int, Decimal]]:
    """Return the newest row of each window and campaign."""
    newest = {record.key: json.loads(record.value or b"") for record in read_topic(bootstrap, topic)}
    return {
        (datetime.fromisoformat(row["window_start"]), row["campaign"]): (row["events"], Decimal(row["revenue"]))
        for row in newest.values()
    }


def expected(clicks: Sequence[Click]) -> dict[tuple[datetime, str], tuple[int, Decimal]]:
    found = by_window(clicks, tumbling(HOUR), lambda each: each.campaign)
    return {
        (start, campaign): (len(mine), sum((each.amount for each in mine), Decimal(0)))
        for ((start, _), campaign), mine in found.items()
    }


@pytest.fixture(scope="module")
def ran(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder, bootstrap, topic = tmp_path_factory.mktemp("cluster"), broker.bootstrap_servers, unique("clean")
    create_topic(bootstrap, topic, PARTITIONS)
    outs = {name: unique(name) for name in ("kernels", "twin", "rows")}
    sinks = {
        name: sink(folder, topic, name, {"kind": "kafka", "topic": out}, window="1 hour")
        for name, out in outs.items()
    }
    for name, members in {"kernels": ("kernels", "twin"), "rows": ("rows",)}.items():
        written_sinks = (sinks[each] for each in members)
        (folder / f"{name}.toml").write_text(toml(tables(bootstrap, *written_sinks)))
    chance = dice(11)
    clicks = [click(chance, number, START + number * HOUR / 10, HOUR / 10) for number in range(ALL)]
    bare = folder / "bare"
    venv.create(bare, symlinks=True)

    send(bootstrap, topic, clicks[:HALF], PARTITIONS)
    with program(folder / "with.log", executors_see(str(ROOT))) as run:
        first = run(folder / "kernels.toml")
        send(bootstrap, topic, clicks[HALF:], PARTITIONS)
        second = run(folder / "kernels.toml")
    without = {**executors_see(""), "PYSPARK_PYTHON": str(bare / "bin" / "python")}
    with program(folder / "without.log", without) as run:
        fallback = run(folder / "rows.toml")
        refused = run(folder / "kernels.toml")
    rows = {name: written(bootstrap, out) for name, out in outs.items()}
    return Ran(clicks, first, second, fallback, refused, rows)


@pytest.mark.timeout(1200)
def test_executors_with_seqmark_are_asked_and_sum_up_and_a_second_run_goes_on(ran: Ran) -> None:
    for run in (ran.first, ran.second):
        assert run["stopped"] == ""
        assert "asking the executors for their Python" in run["said"]
        assert sum(each.endswith("summed up as it is read") for each in run["said"]) == 2
    assert (ran.first["read"], ran.second["read"]) == (2 * HALF, 2 * (ALL - HALF))
    assert ran.rows["kernels"] == ran.rows["twin"] == expected(ran.clicks)


@pytest.mark.timeout(1200)
def test_on_executors_without_seqmark_spark_reads_and_the_reason_is_said(ran: Ran) -> None:
    assert ran.fallback["stopped"] == ""
    why = "no Python with this version of Seqmark: ModuleNotFoundError: No module named 'spark_sink'"
    assert any(each.endswith(f"event by event by Spark: executors have {why}") for each in ran.fallback["said"])
    assert ran.fallback["read"] == ALL
    assert ran.rows["rows"] == expected(ran.clicks)


@pytest.mark.timeout(1200)
def test_a_checkpoint_that_kernels_began_is_refused_on_executors_without_seqmark(ran: Ran) -> None:
    assert (
        "begun by Seqmark's own source, which alone can go on, and executors have no" in ran.refused["stopped"]
    )
    assert "No module named 'spark_sink'" in ran.refused["stopped"]
    assert ran.refused["read"] == 0


def test_executors_of_their_own_read_every_event(broker: Broker) -> None:
    topic = unique("clean")
    create_topic(broker.bootstrap_servers, topic, 4)
    clicks = [Click(START, "abc"[number % 3], "u", Decimal(1), number) for number in range(30)]
    send(broker.bootstrap_servers, topic, clicks, 4)

    reads = [sys.executable, "-m", "tests.spark.source.on_cluster", broker.bootstrap_servers, topic]
    done = subprocess.run(
        reads,
        cwd=ROOT,
        env=executors_see(str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"counted": {"a": 10, "b": 10, "c": 10}, "executors": 2, "partitions": "200"}
