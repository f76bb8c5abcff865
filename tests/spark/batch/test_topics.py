"""Does a batch over a topic read each record once, whatever happens to it, and say what it cannot read?"""

from __future__ import annotations

import json
import re
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from processor.commands.cli import main
from processor.errors import StopError
from spark_sink import read_clean
from spark_sink.batch.job import BatchStep
from tests.spark.batch.test_kills import WAIT_S, command
from tests.support.batches.scene import DAY, START, ActsAt
from tests.support.batches.topics import TopicScene
from tests.support.kafka.topics import (
    New,
    admin,
    create_topic,
    delete_records,
    delete_topic,
    dice,
    open_transaction,
    produce_transaction,
)
from tests.support.spark_sink.job import ROOT
from tests.support.suite.pages import typed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

    Make = Callable[..., TopicScene]

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
RENAMES: dict[str, Any] = {"fingerprint": {"exclude": ["occurred_at"]}, "on_collision": "rename"}


@pytest.fixture
def make(spark: SparkSession, broker: Broker, tmp_path: Path) -> Make:
    """Give what makes a scene."""
    return lambda **more: TopicScene(spark, broker, tmp_path, **more)


def test_the_example_of_a_config_reads_what_has_come_since(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = make(partitions=1)
    monkeypatch.chdir(scene.folder)
    Path("examples").mkdir()
    Path("examples/batch-topic.toml").write_text((ROOT / "examples" / "batch-topic.toml").read_text())
    monkeypatch.setenv("SEQMARK_KAFKA__BOOTSTRAP_SERVERS", scene.bootstrap)
    monkeypatch.setenv("SEQMARK_BATCHES__0__INPUT__TOPIC", scene.topic)
    (line,) = typed(ROOT / "examples" / "batch-topic.toml")

    def run(*more: str) -> Any:
        return CliRunner().invoke(main, [*line.split()[1:], *more])

    scene.produce(0, [b'{"event_id": "a"}', b'{"event_id": "a"}', b'{"event_id": "b"}'], 1_767_261_600_000)
    told = json.loads(run("--json").stdout)
    assert (told["read"], told["kept"], told["duplicates"], told["commit"]) == (3, 2, 1, 1)
    scene.produce(0, [b'{"event_id": "b"}', b'{"event_id": "c"}'], 1_767_261_700_000)
    told = json.loads(run("--json").stdout)
    assert (told["read"], told["kept"], told["duplicates"], told["commit"]) == (2, 1, 1, 2)
    assert read_clean(scene.spark, "var/clean").count() == 3
    assert "input partitions" in run().stdout, "nothing has come since"
    refused = run("--input", "raw")
    assert refused.exit_code == 2
    assert f"--input: does not go with topic {scene.topic}, the input of the batch" in refused.stderr
    checked = CliRunner().invoke(main, ["check", "-c", "examples/batch-topic.toml"])
    assert "input.topic: was not looked at" in " ".join(checked.stdout.split())


def test_each_run_goes_on_where_the_last_one_has_ended(make: Make) -> None:
    scene, chance = make(**RENAMES), dice(5)
    rows = scene.send(0, chance, 40) + scene.send(1, chance, 30)
    produce_transaction(scene.bootstrap, scene.topic, [New(None, b"{}", (), 0)], partition=1, commit=False)
    # Its coordinator writes the marker by itself, a moment later, and a run ends before it until then.
    tp, latest = TopicPartition(scene.topic, 1), OffsetSpec.latest()
    client, stable = admin(scene.bootstrap), {"isolation_level": IsolationLevel.READ_COMMITTED}
    while client.list_offsets({tp: latest}, **stable)[tp].result(30).offset < 32:
        time.sleep(0.05)

    first = scene.next()

    scene.truth.run(first.run, rows)
    scene.assert_true()
    assert (first.counts["files"], first.counts["read"]) == (2, 70)
    again = scene.next()
    assert (again.run, again.earlier, again.commit) == (first.run, True, 1)

    pending = open_transaction(
        scene.bootstrap, scene.topic, [New(None, b'{"event_id": "open"}', (), 0)], partition=0
    )
    more = scene.send(1, chance, 30)
    second = scene.next(run="second")
    scene.truth.run("second", more)
    scene.assert_true()
    assert second.counts["read"] == 30, "records of an open transaction are for a later run"

    pending.abort_transaction(60)
    last = scene.send(0, chance, 30)
    # A scheduler that has lost the answer asks once more.
    retried = scene.next(run="second")
    assert (retried.earlier, retried.commit) == (True, 2)
    assert any(
        "offsets came after that: they are for a run of another name" in each for each in scene.audience.said
    )
    third = scene.next()
    scene.truth.run(third.run, last)
    scene.assert_true()


def test_rows_have_the_records_own_columns_and_what_cannot_be_judged_is_quarantined_as_it_came(
    make: Make,
) -> None:
    scene = make(partitions=1, event_time="kafka_timestamp")
    values = [
        b'{"event_id": "a", "n": {"x": 1}}',
        None,
        b"no json",
        b'{"event_id": null}',
        b'{"event_id": "a"}',
    ]
    at_ms = 1_767_261_600_123
    scene.produce(0, values, at_ms)

    scene.next(run="only")

    (kept,) = scene.rows()
    at = datetime.fromtimestamp(at_ms / 1000, UTC).replace(tzinfo=None)
    assert (bytes(kept["kafka_key"]), kept["kafka_partition"], kept["kafka_offset"]) == (b"k0", 0, 0)
    assert kept["kafka_timestamp"] == kept["seqmark_time"] == at
    assert (kept["event_id"], kept["n"]["x"]) == ("a", 1)
    assert (kept["seqmark_file"], kept["seqmark_row"]) == (f"{scene.topic}-0", 0)
    (receipt,) = scene.rows("duplicates")
    assert (receipt["file"], receipt["row"], receipt["owner"]["row"]) == (f"{scene.topic}-0", 4, 0)
    aside = {row["kafka_offset"]: row for row in scene.rows("quarantine")}
    assert {number: (row["seqmark_error"], row["seqmark_line"]) for number, row in aside.items()} == {
        1: ("value_missing", None),
        2: ("value_not_json", b"no json"),
        3: ("field_missing", b'{"event_id": null}'),
    }
    assert aside[2]["seqmark_source"] == f"{scene.topic}-0:2"
    assert bytes(aside[2]["kafka_key"]) == b"k2"

    scene.produce(0, [b'{"event_id": "b", "Kafka_Offset": 1}'])
    with pytest.raises(StopError, match="the values have a field Kafka_Offset"):
        scene.next()


def test_a_date_is_made_again_from_the_topic_and_moves_no_position(make: Make) -> None:
    scene, chance = make(partitions=1, **RENAMES), dice(6)
    with pytest.raises(StopError, match=r"no run has read topic .* yet, so there is nothing to make again"):
        scene.next(since="2026-01-02")
    rows = scene.send(0, chance, 60)
    scene.produce(0, [b"no json"])
    scene.next(run="first")
    scene.truth.run("first", rows)
    undated = scene.rows("quarantine")
    more = scene.send(0, chance, 30)

    again = scene.next(since="2026-01-02", run="again")

    scene.truth.run("again", rows, since=START + DAY)
    assert again.counts["read"] == 61, "what came later is for the next run"
    assert scene.rows("quarantine") == undated
    assert {(row["seqmark_run"], row["seqmark_row"]) for row in scene.rows()} == {
        (each.run, each.source.row) for each in scene.truth.kept
    }
    third = scene.next(run="third")
    assert third.counts["read"] == 30
    scene.truth.run("third", more)
    assert {(row["seqmark_run"], row["seqmark_row"]) for row in scene.rows()} == {
        (each.run, each.source.row) for each in scene.truth.kept
    }

    before = scene.rows()
    delete_records(scene.bootstrap, scene.topic, 50)
    with pytest.raises(
        StopError, match=r"-0:\d+ cannot be read again: retention has removed it.*name a date after"
    ):
        scene.next(since="2026-01-01")
    assert scene.rows() == before


def test_what_retention_has_removed_before_it_was_read_is_said_and_counted(make: Make) -> None:
    scene, chance = make(partitions=1), dice(7)
    rows = scene.send(0, chance, 20)
    scene.next(run="first")
    lost = scene.send(0, chance, 30)
    delete_records(scene.bootstrap, scene.topic, 35)

    second = scene.next(run="second")

    assert (second.counts["expired"], second.counts["read"]) == (15, 15)
    said = (
        f"retention has removed the offsets 20 to 34 of {scene.topic}:0, which no run has read: they are lost"
    )
    assert any(each.startswith(said) for each in scene.audience.said)
    scene.truth.run("first", rows)
    scene.truth.run("second", lost[15:])
    scene.assert_true()


def test_a_topic_is_known_by_its_id_and_a_run_by_its_topic(make: Make) -> None:
    scene, chance = make(partitions=1), dice(8)
    rows = scene.send(0, chance, 20)
    scene.next(run="first")
    scene.truth.run("first", rows)
    delete_topic(scene.bootstrap, scene.topic)
    create_topic(scene.bootstrap, scene.topic)
    others = scene.send(0, chance, 10)

    with pytest.raises(
        StopError, match=r"run first has committed over a topic .* that was deleted; this one was"
    ):
        scene.next(run="first")
    with pytest.raises(StopError, match=r"no run has read topic .* yet"):
        scene.next(run="again", since="2026-01-01")
    second = scene.next(run="second")

    assert any("was deleted and created again since the last run" in each for each in scene.audience.said)
    assert second.counts["read"] == 10
    scene.truth.run("second", others)
    scene.assert_true()
    # Rows of the old topic would be gone, with offsets that the new one has too.
    with pytest.raises(
        StopError, match="cannot be read again: retention has removed it, or another input had it"
    ):
        scene.next(run="again", since="2026-01-01")

    scene.topic = "nowhere"
    with pytest.raises(StopError, match=re.escape(f"there is no topic nowhere at {scene.bootstrap}")):
        scene.next()


def test_a_topic_that_is_created_again_while_a_run_begins_is_refused(make: Make) -> None:
    scene = make(partitions=1)
    scene.send(0, dice(9), 5)

    def replace() -> None:
        delete_topic(scene.bootstrap, scene.topic)
        create_topic(scene.bootstrap, scene.topic)

    with pytest.raises(StopError, match=r"was deleted and created again meanwhile; nothing of this run counts"):
        scene.job(ActsAt(BatchStep.NAMED, replace)).run()


STEPS = [BatchStep.INSPECTED, BatchStep.JUDGED, BatchStep.PUT, BatchStep.COMMITTED]


@pytest.mark.crash
@pytest.mark.timeout(2 * WAIT_S)
@pytest.mark.drawn("step")
@pytest.mark.parametrize("step", STEPS)
def test_a_run_over_a_topic_that_is_killed_leaves_its_position_with_its_rows(
    make: Make, step: BatchStep
) -> None:
    scene, chance = make(lake="delta", **RENAMES), dice(10)
    first = scene.send(0, chance, 30) + scene.send(1, chance, 30)
    scene.next(run="first")
    scene.truth.run("first", first)
    second = scene.send(0, chance, 30)

    killed = command(scene, "--run", "second", step=step)

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    more = scene.send(1, chance, 30)
    if step is BatchStep.COMMITTED:
        scene.truth.run("second", second)
        scene.assert_true()
        scene.truth.run("third", more)
    else:
        scene.assert_true()
        scene.truth.run("third", second + more)
    scene.next(run="third")
    scene.assert_true()
