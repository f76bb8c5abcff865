"""The numbers on the page are those of the topics, as a plain consumer sees them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import (
    Record,
    create_topic,
    delete_records,
    delete_topic,
    open_transaction,
    produce_transaction,
)
from tests.support.worker.process import New, WorkerConfig, new, new_config, produce, read_topic, run_drain
from tests.unit.inspection.report.test_page import Page

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from click.testing import Result

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

HOUR_MS = 3_600_000
START_MS = 472_222 * HOUR_MS


def at(sequence: int, minutes: int) -> New:
    return new(sequence, timestamp=START_MS + minutes * 60_000)


def report(config: WorkerConfig, env: dict[str, str] | None = None) -> tuple[Result, Page]:
    output = config.folder / "report.html"
    arguments = ["report", "-c", str(config.write()), "--output", str(output), "--json"]
    done = CliRunner().invoke(main, arguments, env=receipts(config) if env is None else env)
    return done, Page(output.read_text(encoding="utf-8"))


def by_hour(records: Iterable[Record]) -> Counter[int]:
    return Counter(record.timestamp // HOUR_MS for record in records)


@pytest.fixture
def config(broker: Broker, tmp_path: Path) -> WorkerConfig:
    return new_config(broker.bootstrap_servers, tmp_path, partitions=2).with_quarantine()


def receipts(config: WorkerConfig) -> dict[str, str]:
    """Return the variable that gives the pipeline a duplicates topic."""
    return {"SEQMARK_PIPELINES__0__DUPLICATES": f"{config.application_id}.duplicates"}


def drain(config: WorkerConfig) -> None:
    ended = run_drain(config, env=receipts(config))
    assert ended.code == 0, ended.stderr


def fill(config: WorkerConfig) -> None:
    """Send three hours of records to two partitions, with duplicates, late and unreadable ones."""
    for partition in range(2):
        passing = [at(number, number // 10) for number in range(1500 + partition)]
        again = [at(1499 + partition, 149), at(5, 1), at(700, 70), at(1499 + partition, 150)]
        bad = [New(b'"verdict":"late"', b"v", (), START_MS + 60_000 * minutes) for minutes in (1, 61, 62)]
        for codec, records in (("lz4", passing), ("none", again), ("zstd", bad)):
            produce(config.bootstrap_servers, config.source, records, partition=partition, codec=codec)


def test_the_numbers_of_page_and_programs_are_those_of_the_topics(config: WorkerConfig) -> None:
    fill(config)
    drain(config)

    done, page = report(config)

    assert done.exit_code == 0, done.stderr
    topics = {
        "raw": config.source,
        "clean": config.sink,
        "duplicates": f"{config.application_id}.duplicates",
        "quarantined": config.quarantine,
    }
    seen = {name: read_topic(config.bootstrap_servers, topic) for name, topic in topics.items()}
    late = [r for r in seen["duplicates"] if json.loads(r.value or b"")["verdict"] == "late"]
    counted = {
        "raw": by_hour(seen["raw"]),
        "clean": by_hour(seen["clean"]),
        "duplicate": by_hour(seen["duplicates"]) - by_hour(late),
        "late": by_hour(late),
        "quarantined": by_hour(seen["quarantined"]),
        "not judged yet": Counter[int](),
    }
    # The truth of `fill`, in case that all readers are wrong together.
    assert {name: each.total() for name, each in counted.items()} == {
        "raw": 3015, "clean": 3001, "duplicate": 4, "late": 4, "quarantined": 6, "not judged yet": 0,
    }  # fmt: skip
    head, *rows, foot = page.tables["Records of p by the hour"]
    assert head[1:] == list(counted)
    found = {row[0][11:13]: [int(cell.replace(",", "")) for cell in row[1:]] for row in rows}
    hours = sorted(counted["raw"])
    assert list(found.values()) == [[each[number] for each in counted.values()] for number in hours]
    assert foot[1:] == ["3,015", "3,001", "4", "4", "6", "0"]
    assert "It adds up" in page.text
    pipeline, end = map(json.loads, done.stdout.splitlines())
    assert pipeline == {
        "pipeline": "p", "raw": 3015, "clean": 3001, "duplicate": 4, "late": 4, "quarantined": 6, "waiting": 0,
        "unexplained": 0,
    }  # fmt: skip
    assert end == {"output": str(config.folder / "report.html"), "ok": True, "problems": []}

    # What no worker has judged is told apart.
    produce(config.bootstrap_servers, config.source, [at(9000 + number, 170) for number in range(7)])

    _, page = report(config)

    foot = page.tables["Records of p by the hour"][-1]
    assert foot[1:] == ["3,022", "3,001", "4", "4", "6", "7"]
    assert "It adds up" in page.text


def test_aborted_and_open_transactions_are_not_counted(config: WorkerConfig) -> None:
    produce_transaction(config.bootstrap_servers, config.source, [at(1, 0)], commit=False)
    produce_transaction(config.bootstrap_servers, config.source, [at(2, 0)])
    drain(config)
    held = open_transaction(config.bootstrap_servers, config.source, [at(3, 0)])

    done, page = report(config)
    held.abort_transaction(30)

    assert done.exit_code == 0, done.stderr
    assert page.tables["Records of p by the hour"][-1][1:] == ["1", "1", "0", "0", "0", "0"]
    assert page.tables["What was read for p"][1] == [config.source, "0", "0", "4", "1"]


SHOWN = {
    "pass": {"clean": 5, "quarantined": 0, "collisions in clean": 2},
    "drop": {"clean": 3, "collision": 2, "quarantined": 0},
    "quarantine": {"clean": 3, "quarantined": 2, "collisions in quarantine": 2},
}


@pytest.mark.drawn("action")
@pytest.mark.parametrize("action", SHOWN)
def test_collisions_are_counted_where_they_went(config: WorkerConfig, action: str) -> None:
    forged = b'"verdict":"late","action":"drop"'
    told = {"fingerprint": {"of": "bytes"}, "on_collision": action}
    dedup = {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h", **told}
    config = replace(config, pipelines=(replace(config.pipelines[0], dedup=dedup),))
    sent = [(b"a", b"1"), (b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (forged, b"1"), (forged, b"2")]
    produce(config.bootstrap_servers, config.source, [New(*each, (), START_MS) for each in sent])
    drain(config)

    done, page = report(config)

    assert done.exit_code == 0, done.stderr
    head, *_, foot = page.tables["Records of p by the hour"]
    expected = {"raw": 6, "duplicate": 1, "not judged yet": 0, **SHOWN[action]}
    assert dict(zip(head[1:], map(int, foot[1:]), strict=True)) == expected
    assert "It adds up" in page.text
    said = json.loads(done.stdout.splitlines()[0])
    assert said["collision"] + said["collision_clean"] + said["collision_quarantined"] == 2
    assert said["unexplained"] == 0


def test_without_a_duplicates_topic_what_is_missing_was_dropped(config: WorkerConfig) -> None:
    fill(config)
    assert run_drain(config).code == 0

    _, page = report(config, env={})

    head, *_, foot = page.tables["Records of p by the hour"]
    assert head[1:] == ["raw", "clean", "dropped", "quarantined", "not judged yet"]
    assert foot[1:] == ["3,015", "3,001", "8", "6", "0"]
    assert "there are no receipts" in page.text


def test_what_retention_removed_and_a_topic_that_is_missing_are_told(config: WorkerConfig) -> None:
    fill(config)
    drain(config)
    delete_records(config.bootstrap_servers, config.source, 1000)

    done, page = report(config)

    assert done.exit_code == 0, done.stderr
    assert page.tables["What was read for p"][1] == [config.source, "0", "1,000", "1,507", "507"]
    assert "1,000 more than came" in page.text
    assert f"Retention has removed the beginning of {config.source}" in page.text

    delete_topic(config.bootstrap_servers, config.quarantine)

    done, page = report(config)

    assert done.exit_code == 1
    assert f"The topic {config.quarantine} does not exist." in done.stderr
    assert page.tables["Records of p by the hour"][-1][2] == "3,001"
    assert "It adds up" not in page.text


def test_a_pipeline_that_has_not_begun_is_told_and_makes_no_topic(config: WorkerConfig) -> None:
    done, page = report(config)

    assert done.exit_code == 1
    assert f"The topic {config.sink} does not exist." in page.text
    create_topic(config.bootstrap_servers, config.sink)  # fails where the report has made it


def test_no_broker_is_exit_1_and_an_older_page_stays(config: WorkerConfig) -> None:
    output = config.folder / "report.html"
    output.write_text("old")
    path = replace(config, bootstrap_servers="127.0.0.1:9").write()

    done = CliRunner().invoke(main, ["report", "-c", str(path), "--output", str(output)])

    assert done.exit_code == 1
    assert "no broker at 127.0.0.1:9" in done.stderr
    assert output.read_text() == "old"
