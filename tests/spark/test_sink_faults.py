"""What does the job say when what it builds upon is gone?"""

from __future__ import annotations

import json
import shutil
import threading
import time
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener

from processor.errors import StopError
from schemas.event import TextType
from schemas.event.written import read_model, written_model
from spark_sink.files import Files
from spark_sink.outputs import console
from spark_sink.query import checkpoint as checkpoints
from spark_sink.query import running
from spark_sink.query.checkpoint import checkpoint_lock
from tests.support.kafka.topics import create_topic, delete_records, delete_topic, dice, unique
from tests.support.spark_sink.job import run, settings, sink
from tests.support.spark_sink.sinks import HOUR, START, Click, click, numbers, send, written_aside

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from schemas.config import Settings
    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def sending(broker: Broker, topic: str, start: int, stop: int) -> None:
    chance = dice(start)
    events = [
        click(chance, number, START + number * HOUR, timedelta(minutes=59)) for number in range(start, stop)
    ]
    send(broker.bootstrap_servers, topic, events, 1)


def filled(broker: Broker, count: int) -> str:
    """Return a new topic with so many events, an hour apart."""
    topic = unique("clean")
    create_topic(broker.bootstrap_servers, topic)
    sending(broker, topic, 0, count)
    return topic


def to_files(broker: Broker, folder: Path, topic: str, **more: Any) -> Settings:
    output = {"kind": "parquet", "path": str(folder / "files")}
    return settings(broker.bootstrap_servers, sink(folder, topic, "files", output, window="1 hour", **more))


def total(spark: SparkSession, folder: Path) -> int:
    return int(spark.read.parquet(str(folder / "files")).agg({"events": "sum"}).first()[0])


def test_expired_offsets_end_it_and_are_left_out_only_when_asked(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = filled(broker, 10)
    config = to_files(broker, tmp_path, topic)
    run(config)
    sending(broker, topic, 10, 20)
    delete_records(broker.bootstrap_servers, topic, 15)

    with pytest.raises(StopError, match=f"retention .*--accept-loss.* of {topic}:0 is gone"):
        run(config)
    run(config, accept_loss=True)

    # Of 20 events five are lost; the newest one's window is still open.
    assert total(spark, tmp_path) == 20 - 5 - 1


class HeldUp(StreamingQueryListener):  # type: ignore[misc]  # untyped to mypy, see pyproject.toml
    """Holds up all reports behind the first batch's, until a query is started again."""

    def __init__(self) -> None:
        super().__init__()
        self._again = threading.Event()
        self._started = 0

    def onQueryStarted(self, _event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        self._started += 1
        if self._started == 2:
            self._again.set()

    def onQueryProgress(self, _event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        self._again.wait(120)

    def onQueryIdle(self, _event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, _event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        pass


def test_an_end_that_spark_reports_late_does_not_end_the_next_run(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LOOK_S", 0.2)
    monkeypatch.setattr(running, "_REPORTS_S", 0.2)
    topic = filled(broker, 10)
    config = to_files(broker, tmp_path, topic)
    held_up = HeldUp()
    spark.streams.addListener(held_up)
    try:
        run(config)
        sending(broker, topic, 10, 20)
        run(config)
    finally:
        spark.streams.removeListener(held_up)

    # The newest event's window is still open.
    assert total(spark, tmp_path) == 20 - 1


class Behind(HeldUp):
    """Holds up each batch's report until its query has been gone for a while."""

    def onQueryProgress(self, _event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        time.sleep(3.0)


def test_reports_that_come_after_the_end_are_waited_for(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LOOK_S", 0.2)
    topic = filled(broker, 10)
    behind = Behind()
    spark.streams.addListener(behind)
    try:
        done = run(to_files(broker, tmp_path, topic))
    finally:
        spark.streams.removeListener(behind)

    assert done.totals["files"].rows == 10


@pytest.mark.usefixtures("spark")
def test_a_checkpoint_that_is_gone_is_said_before_anything_is_counted_twice(
    broker: Broker, tmp_path: Path
) -> None:
    topic = filled(broker, 3)
    config = to_files(broker, tmp_path, topic)
    run(config)
    shutil.rmtree(tmp_path / "checkpoint-files")
    before = sorted(tmp_path.rglob("*.parquet"))

    with pytest.raises(StopError, match=r"checkpoint .* is gone, but query .* up to batch 1\. .*begin anew"):
        run(config)
    # Even where what was written aside is gone too: the files' own log tells.
    shutil.rmtree(tmp_path / "checkpoint-files-aside")
    shutil.rmtree(tmp_path / "checkpoint-files", ignore_errors=True)
    with pytest.raises(StopError, match="was written by a query whose checkpoint is gone"):
        run(config)

    assert sorted(tmp_path.rglob("*.parquet")) == before


@pytest.mark.usefixtures("spark")
def test_a_topic_that_does_not_exist_is_named(broker: Broker, tmp_path: Path) -> None:
    topic = unique("missing")
    with pytest.raises(StopError, match=f"aggregate files: topic {topic} does not exist"):
        run(to_files(broker, tmp_path, topic))


@pytest.mark.usefixtures("spark")
def test_files_of_somebody_else_are_not_mixed_with_ours(broker: Broker, tmp_path: Path) -> None:
    topic = unique("any")
    create_topic(broker.bootstrap_servers, topic)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "theirs.parquet").write_bytes(b"x")
    with pytest.raises(StopError, match="holds files that no aggregate has written"):
        run(to_files(broker, tmp_path, topic))


def test_a_sink_runs_once_at_a_time(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "WAIT_S", 0.0)
    config = to_files(broker, tmp_path, unique("any"))
    checkpoint = config.aggregates[0].checkpoint
    with (
        checkpoint_lock(spark, checkpoint, "files"),
        pytest.raises(StopError, match="another process runs on its checkpoint"),
    ):
        run(config)
    with checkpoint_lock(spark, checkpoint, "files"):
        pass


@pytest.mark.usefixtures("spark")
def test_a_batch_that_was_written_and_not_committed_leaves_its_bad_records_aside_all_the_same(
    broker: Broker, tmp_path: Path
) -> None:
    topic, bootstrap = filled(broker, 3), broker.bootstrap_servers
    send(bootstrap, topic, [Click(START, "", "", Decimal(0), 3, b"{", bad=True)], 1)
    config = to_files(broker, tmp_path, topic)
    run(config)
    aside = tmp_path / "checkpoint-files-aside"
    assert numbers(written_aside(aside, "bad")) == [3]
    kill_before_the_first_commit(tmp_path)
    shutil.rmtree(aside / "bad")

    run(config)
    assert numbers(written_aside(aside, "bad")) == [3]

    # Another model judged that batch before, and one before it: what is bad by any of them is aside, once.
    kill_before_the_first_commit(tmp_path)
    shutil.rmtree(aside / "bad")
    note = aside / "_seqmark" / "state.json"
    told = json.loads(note.read_text())
    before = [strict(told["model"], *names) for names in (("e0", "e1", "e3"), ("e1", "e2", "e3"))]
    note.write_text(json.dumps(told | {"model": before[0], "earlier_models": before[1:]}))

    run(config)
    assert numbers(written_aside(aside, "bad")) == [0, 2, 3]
    assert json.loads(note.read_text())["model"] == told["model"]
    assert json.loads(note.read_text())["earlier_models"] == []


def kill_before_the_first_commit(folder: Path) -> None:
    """Leave all as a kill does after the files' log has batch 0, and before the commit log has it."""
    for name in ("commits/0", "commits/1", "offsets/1"):
        for file in (folder / "checkpoint-files" / name, folder / "checkpoint-files" / crc(name)):
            file.unlink(missing_ok=True)
    for file in (folder / "files" / "_spark_metadata").glob("*1*"):
        file.unlink()
    note = folder / "checkpoint-files-aside" / "_seqmark" / "state.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | {"seen": -1}))


def strict(told: dict[str, Any], *ids: str) -> dict[str, Any]:
    """Return a model, as it is written down, by which only these ids are events."""
    model = read_model(told)
    only = replace(model.root.members["event_id"], type=TextType(values=ids))
    root = replace(model.root, members={**model.root.members, "event_id": only})
    return written_model(replace(model, root=root))


def test_windows_that_a_kill_left_open_are_written_when_the_batch_comes_again(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = filled(broker, 10)
    config = to_files(broker, tmp_path, topic)
    run(config)
    kill_before_the_first_commit(tmp_path)
    for file in (tmp_path / "files").glob("window_date=*"):
        shutil.rmtree(file)

    run(config)

    # The newest event's window is still open.
    assert total(spark, tmp_path) == 10 - 1


@pytest.mark.usefixtures("spark")
def test_files_of_another_query_are_refused_by_a_checkpoint_that_has_counted_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    topic, other = filled(broker, 3), filled(broker, 3)
    run(to_files(broker, tmp_path, topic))
    # As of a first start that was killed before its first batch was planned.
    (tmp_path / "killed" / "checkpoint-files").mkdir(parents=True)
    (tmp_path / "killed" / "checkpoint-files" / "metadata").write_text(
        '{"id":"6a6e5a1e-0000-4000-8000-000000000000"}'
    )
    checkpoint = str(tmp_path / "killed" / "checkpoint-files")
    before = sorted(tmp_path.rglob("*.parquet"))

    with pytest.raises(StopError, match=r"has batch 1 already, but the checkpoint .* has counted nothing"):
        run(to_files(broker, tmp_path, other, checkpoint=checkpoint))

    assert sorted(tmp_path.rglob("*.parquet")) == before


@pytest.mark.usefixtures("spark")
def test_a_sink_that_counts_something_else_is_refused_with_every_difference(
    broker: Broker, tmp_path: Path
) -> None:
    topic = filled(broker, 3)
    run(to_files(broker, tmp_path, topic))
    beside, before = tmp_path / "checkpoint-files" / "seqmark.json", sorted(tmp_path.rglob("*.parquet"))
    means = json.loads(beside.read_text())["means"]

    changed = {"aggregates": {"events": "count", "revenue": "max:amount"}, "group_by": ["page"]}
    with pytest.raises(StopError) as caught:
        run(to_files(broker, tmp_path, topic, **changed))
    assert "group_by was campaign (string), is page (string); " in str(caught.value)
    assert "aggregates.revenue was sum:amount (decimal(28,2)), is max:amount (decimal(28,2)). " in str(
        caught.value
    )

    with pytest.raises(StopError, match=f"topic was {topic}, is other"):
        run(to_files(broker, tmp_path, "other"))
    run(to_files(broker, tmp_path, topic, watermark="10 hours", max_ahead="2 hours"))
    assert json.loads(beside.read_text())["means"] == means
    written = beside.read_text()
    beside.unlink()
    with pytest.raises(StopError, match=r"has no seqmark\.json, which says what it has counted: put it back"):
        run(to_files(broker, tmp_path, topic))
    beside.write_text(written)

    shutil.rmtree(before[0].parent)
    with pytest.raises(
        StopError, match=r"lacks files that its log names, such as window_date=.*never come again"
    ):
        run(to_files(broker, tmp_path, topic))
    shutil.rmtree(tmp_path / "files")
    with pytest.raises(
        StopError, match=r"files is empty or gone, but the checkpoint .* has counted up to batch \d"
    ):
        run(to_files(broker, tmp_path, topic))


def test_a_topic_made_anew_is_refused_and_read_from_its_beginning_only_when_asked(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, bootstrap = filled(broker, 3), broker.bootstrap_servers
    config = to_files(broker, tmp_path, topic, watermark="1 second")
    run(config)
    make_anew(bootstrap, topic)
    # More than the old one had: by the offsets nothing is to be seen.
    sending(broker, topic, 10, 15)

    with pytest.raises(
        StopError, match=f"aggregate files: topic {topic} was deleted and made anew: .*--accept-loss"
    ):
        run(config)
    run(config, accept_loss=True)
    run(config)

    # The newest one's window is still open.
    assert total(spark, tmp_path) == 3 + 5 - 1


@pytest.mark.usefixtures("spark")
def test_a_topic_made_anew_in_the_middle_of_a_batch_keeps_it_from_the_commit_log(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, bootstrap = filled(broker, 3), broker.bootstrap_servers
    printing = console.Terminal._print

    def made_anew(self: console.Terminal, rows: DataFrame, batch: int) -> None:
        printing(self, rows, batch)
        make_anew(bootstrap, topic)

    monkeypatch.setattr(console.Terminal, "_print", made_anew)
    config = settings(bootstrap, sink(tmp_path, topic, "shown", {"kind": "console"}, window="1 hour"))

    with pytest.raises(StopError, match=rf"^aggregate shown: topic {topic} was deleted and made anew.*folder$"):
        run(config)
    assert not list((tmp_path / "checkpoint-shown" / "commits").glob("[0-9]*"))

    # The batch that was planned of the old topic comes to nothing, and the new one's are all counted.
    monkeypatch.undo()
    capsys.readouterr()
    sending(broker, topic, 1, 4)
    run(config, accept_loss=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    counted = {row["window_start"]: row["events"] for row in rows}
    assert counted == {f"2026-01-05T0{hour}:00:00.000000Z": 1 for hour in (1, 2, 3)}


def make_anew(bootstrap: str, topic: str) -> None:
    """Delete a topic and create it again."""
    delete_topic(bootstrap, topic)
    create_topic(bootstrap, topic)


def crc(name: str) -> str:
    """Return where Hadoop keeps the checksum of a file."""
    folder, _, file = name.rpartition("/")
    return f"{folder}/.{file}.crc"


def test_a_note_that_a_kill_has_left_beside_the_checksum_of_the_one_before_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    # What builds before left, that renamed a file and then its checksum.
    (tmp_path / "state.json").write_text("new")
    (tmp_path / ".state.json.crc").write_bytes(bytes.fromhex("6372630000000200") + b"old!")
    files = Files(spark, str(tmp_path))
    assert files.read("state.json") == "new"
    files.write("state.json", "newer")
    files.write("todo/7.json", "{}")
    assert (files.read("state.json"), files.names("todo")) == ("newer", ["7.json"])
    files.remove("todo/7.json")
    # Nobody finds a checksum that contradicts what was written, not even who reads as Hadoop does.
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["state.json", "todo"]
