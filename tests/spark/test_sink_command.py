"""Does ``seqmark aggregate`` do what its page says, as a process: run on, grow with its topic, tell, stop?"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import urllib.request
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import add_partitions, create_topic, dice, free_port, read_topic, unique, until
from tests.support.spark_sink.job import ROOT, process, sink, tables, toml
from tests.support.spark_sink.sinks import START, click, numbers, send, written_aside

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

WAIT_S = 300.0


def scrape(port: int) -> dict[str, float]:
    """Return the metrics by name, with their labels."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    return {name: float(value) for name, value in re.findall(r"^(seqmark_\S+) (\S+)$", text, re.MULTILINE)}


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_it_follows_its_topic_also_into_new_partitions_and_stops_with_exit_0(
    broker: Broker, tmp_path: Path
) -> None:
    bootstrap, topic, out, port = broker.bootstrap_servers, unique("clean"), unique("aggregate"), free_port()
    create_topic(bootstrap, topic)
    chance = dice(1)
    events = [click(chance, number, START, timedelta(minutes=30)) for number in range(100)]
    send(bootstrap, topic, events[:40], 1)
    config = tables(
        bootstrap, sink(tmp_path, topic, "hourly", {"kind": "kafka", "topic": out}, window="1 hour")
    )
    rows = 'seqmark_sink_rows_total{sink="hourly"}'
    with process(tmp_path, config, "--metrics-port", str(port), "--conf", "spark.ui.enabled=false") as running:
        until(lambda: scrape(port).get(rows) == 40 or running.code is not None, "the first 40 are read", WAIT_S)
        assert running.code is None, running.stderr
        add_partitions(bootstrap, topic, 3)

        send(bootstrap, topic, events[40:], 3)

        until(lambda: scrape(port).get(rows) == 100, "those in new partitions are read", WAIT_S)
        seen = scrape(port)
        assert running.end() == 0, running.stderr
    assert "Traceback" not in running.stderr
    assert seen['seqmark_sink_up{sink="hourly"}'] == 1
    assert seen['seqmark_sink_state_rows{sink="hourly"}'] == 3
    assert seen['seqmark_sink_last_batch{sink="hourly"}'] >= 1
    newest = {record.key: record.value for record in read_topic(bootstrap, out)}
    counts = [
        int(found[1]) for value in newest.values() if (found := re.search(rb'"events":(\d+)', value or b""))
    ]
    assert (len(counts), sum(counts)) == (3, 100)
    assert numbers(written_aside(tmp_path / "checkpoint-hourly-aside", "late")) == []


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_one_whose_python_worker_does_not_start_in_time_begins_again(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap, topic, out = broker.bootstrap_servers, unique("clean"), unique("aggregate")
    create_topic(bootstrap, topic)
    chance = dice(2)
    send(bootstrap, topic, [click(chance, number, START, timedelta(minutes=30)) for number in range(40)], 1)
    config = tables(
        bootstrap, sink(tmp_path, topic, "hourly", {"kind": "kafka", "topic": out}, window="1 hour")
    )
    # The first process of a stream comes later than Spark waits, as on a machine that has too much to do.
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
        case "$*" in *python_streaming_source_runner*) mkdir "$0.slow" 2>/dev/null && exec sleep 11 ;; esac
        exec {shlex.quote(sys.executable)} "$@"
        """
    )
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))

    with process(tmp_path, config, "--available-now") as running:
        until(lambda: running.code is not None, "it has ended", WAIT_S)

    assert running.code == 0, running.stderr
    assert running.stderr.count("begins again in 0.5 s") == 1
    newest = {record.key: json.loads(record.value or b"") for record in read_topic(bootstrap, out)}
    assert sum(row["events"] for row in newest.values()) == 40


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_leaves_nothing_in_the_working_folder_nor_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(temporary))
    program = """if True:
        from spark_sink.session import spark_session
        with spark_session("test", kafka=False) as spark:
            spark.sql("CREATE TABLE clicks USING parquet AS SELECT 1 AS number")
            assert spark.table("clicks").count() == 1
            at = spark.sparkContext.parallelize([0]).map(lambda _: __import__("pyspark").__file__).first()
            assert "pyspark.zip" not in at, at  # there it has no compiled modules
        """

    subprocess.run([sys.executable, "-c", program], cwd=here, check=True, timeout=240)

    assert list(here.iterdir()) == []
    assert list(temporary.glob("seqmark-*")) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"group_by": ["campain"]}, "did you mean campaign"),
        ({"aggregates": {"total": "sum:page"}}, "sum needs a number"),
    ],
)
def test_a_sink_that_does_not_fit_its_events_is_refused_before_spark_starts(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    file = tmp_path / "config.toml"
    wrong = sink(tmp_path, "clean", "hourly", {"kind": "console"}, window="1 hour") | change
    file.write_text(toml(tables("127.0.0.1:9", wrong)))

    result = CliRunner().invoke(main, ["aggregate", "-c", str(file)])

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


@pytest.mark.spark
def test_a_spark_that_does_not_start_is_told_in_a_line(tmp_path: Path) -> None:
    right = sink(tmp_path, "clean", "hourly", {"kind": "console"}, window="1 hour")
    with process(tmp_path, tables("127.0.0.1:9", right), "--memory", "nonsense") as running:
        until(lambda: running.code is not None, "it has ended", WAIT_S)
    assert running.code == 1
    assert "seqmark: Spark cannot start (" in running.stderr
    assert "Traceback" not in running.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--name", "nope"], "there is no aggregate nope; in this config: hourly"),
        (["--conf", "x"], "KEY=VALUE"),
    ],
)
def test_a_wrong_command_line_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    file = tmp_path / "config.toml"
    right = sink(tmp_path, "clean", "hourly", {"kind": "console"}, window="1 hour")
    file.write_text(toml(tables("127.0.0.1:9", right)))

    result = CliRunner().invoke(main, ["aggregate", "-c", str(file), *arguments])

    assert (result.exit_code, said in result.stderr) == (2, True)
