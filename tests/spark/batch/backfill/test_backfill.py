"""A pipeline that begins with `seqmark backfill` goes on as a worker that has judged the history itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from spark_sink import read_clean
from spark_sink.batch.job import BatchJob, BatchOptions
from tests.support.batches.fill import RUN, WHEN_MS, FillScene
from tests.support.batches.scene import Audience, BatchScene
from tests.support.judges.fingerprints import FingerprintRules
from tests.support.judges.id_rules import IdRules
from tests.support.kafka.topics import create_topic, delete_records, dice

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
COUNT = 120
PLACED = "time=at,partition=partition"
EVENTS = IdRules(id=({"from": "value", "pointer": "/event_id"},))


def random_cuts(seed: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return how far a history comes in each partition, and where the stream goes on: there or before."""
    chance = dice(seed)
    until = {number: chance.randrange(COUNT // 2, COUNT + 1) for number in range(2)}
    return until, {number: chance.randrange(until[number] + 1) for number in range(2)}


def options(cuts: Mapping[int, int]) -> list[str]:
    return [option for number, cut in cuts.items() for option in ("--cut", f"{number}:{cut}")]


@pytest.mark.drawn("seed")
@pytest.mark.parametrize("seed", [1, 2])
def test_backfill_of_json_lines_and_worker_are_a_worker_over_all_of_it_at_any_cut(
    broker: Broker, tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    del spark
    scene = FillScene(broker, tmp_path)
    scene.stream(seed, COUNT)
    until, cuts = random_cuts(seed)
    path = scene.write("json", scene.history(until))

    told = scene.loaded(
        "--history", path, "--format", "json", "--columns", PLACED, "--run", RUN, *options(cuts)
    )

    assert [each["cut"] for each in told[:-1]] == [cuts[0], cuts[1]]
    assert (told[-1]["rows"], told[-1]["loaded"]) == (sum(until.values()), True)
    scene.drain()
    scene.assert_goes_on(until, cuts)


def test_offsets_of_the_rows_say_where_the_stream_goes_on(
    broker: Broker, tmp_path: Path, spark: SparkSession
) -> None:
    del spark
    scene = FillScene(broker, tmp_path)
    scene.stream(3, COUNT, numbers=False)
    until = {0: 70, 1: 0}
    path = scene.write("parquet", scene.history(until))

    told = scene.loaded("--history", path, "--columns", f"{PLACED},offset=offset", "--run", RUN)

    # Of what the history has nothing, the stream goes on at the beginning.
    assert [each["cut"] for each in told[:-1]] == [70, 0]
    assert [each["sample"]["after_known"] for each in told[:-1]][1] == 0
    scene.drain()
    scene.assert_goes_on(until, until)


def test_keys_say_the_partition_and_a_time_the_cut(broker: Broker, tmp_path: Path, spark: SparkSession) -> None:
    del spark
    scene = FillScene(broker, tmp_path)
    scene.stream(4, COUNT, numbers=False)
    until, cut = {0: COUNT, 1: 100}, 80
    path = scene.write("parquet", scene.history(until))
    since = scene.records[0][cut].timestamp

    told = scene.loaded(
        "--history", path, "--columns", "time=at,key=key", "--cut-time", str(since), "--run", RUN
    )

    assert [each["cut"] for each in told[:-1]] == [cut, cut]
    assert all(each["sample"]["after_known"] > 10 for each in told[:-1]), "they overlap"
    scene.drain()
    scene.assert_goes_on(until, {0: cut, 1: cut})


@pytest.mark.drawn("by")
@pytest.mark.parametrize("by", ["offset", "time"])
def test_an_archive_of_the_source_is_taken_up_to_the_cut_only(
    broker: Broker, tmp_path: Path, spark: SparkSession, by: str
) -> None:
    del spark
    scene = FillScene(broker, tmp_path, partitions=1)
    scene.stream(5, COUNT)
    path = scene.write("json", scene.history({0: COUNT}), files=1)
    cut = scene.records[0][50].timestamp
    where = ["--columns", "offset=offset", "--cut", "0:50"] if by == "offset" else ["--cut-time", str(cut)]

    told = scene.loaded(
        *("--history", path, "--format", "json", "--columns", "time=at", "--run", RUN, "--up-to-cut"), *where
    )

    assert told[-1]["left_out"]["from_the_cut_on"] == COUNT - 50
    scene.drain()
    scene.assert_goes_on({0: 50}, {0: 50})


@pytest.mark.parametrize("whose", ["its own", "another"])
def test_a_topic_is_a_history_and_the_source_itself_up_to_the_cut(
    broker: Broker, tmp_path: Path, whose: str
) -> None:
    scene = FillScene(broker, tmp_path)
    scene.stream(6, COUNT, late=True)
    until, cuts = random_cuts(6)
    topic = scene.config.source
    if whose == "its own":
        until = cuts
    else:
        topic = f"{topic}.before"
        create_topic(broker.bootstrap_servers, topic, 2)
        for number, stop in until.items():
            scene.produce(topic, number, scene.records[number][:stop])

    told = scene.loaded("--history", topic, "--format", "topic", "--run", RUN, *options(cuts))

    assert told[-1]["rows"] == sum(until.values())
    scene.drain()
    scene.assert_goes_on(until, cuts)


def test_the_clean_table_of_a_batch_is_a_history_by_its_own_hashes(
    broker: Broker, tmp_path: Path, spark: SparkSession
) -> None:
    scene = FillScene(broker, tmp_path, rules=EVENTS)
    scene.stream(7, COUNT, numbers=False)
    until = {0: 90, 1: 60}
    files = BatchScene(spark, tmp_path / "batch", kind="json", window="1h", event_time="at")
    files.table["input"]["path"] = scene.write("json", scene.history(until))
    job = BatchJob(spark, files.batch, BatchOptions(), Audience())
    kept = job.run().counts["kept"]

    told = scene.loaded(
        *("--history", str(files.out), "--format", "batch", "--columns", "partition=partition"),
        *("--run", RUN, *options(until)),
    )

    # Of ids that both partitions have, the batch has kept one: an id counts where it was kept.
    assert told[-1]["rows"] == kept < 150
    scene.drain()
    rows = sorted((row["partition"], row["offset"]) for row in read_clean(spark, str(files.out)).collect())
    scene.assert_knows(
        {at: [scene.records[at][offset] for number, offset in rows if number == at] for at in (0, 1)}, until
    )


def test_an_id_that_a_duplicate_renews_is_remembered_from_its_last_copy_on(
    broker: Broker, tmp_path: Path, spark: SparkSession
) -> None:
    del spark
    scene = FillScene(broker, tmp_path, rules=IdRules(id=EVENTS.id, refresh=True))
    scene.stream(8, COUNT)
    until = {0: 100, 1: 80}
    path = scene.write("json", scene.history(until))

    told = scene.loaded(
        "--history", path, "--format", "json", "--columns", PLACED, "--run", RUN, *options(until)
    )

    assert told[-1]["expired"] > 0
    assert told[0]["clock"] == WHEN_MS + 99 * 7_200_000 // COUNT
    scene.drain()
    scene.assert_goes_on(until, until)


@pytest.mark.drawn("kind")
@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_what_collides_with_a_history_is_told_from_its_copies(
    broker: Broker, tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    del spark
    rules = FingerprintRules(id=EVENTS.id, window="1h", fingerprint={"exclude": ["/sent"]})
    scene = FillScene(broker, tmp_path, rules=rules)
    scene.stream(9, COUNT, numbers=False)
    until = {0: 100, 1: 70}
    path = scene.write(kind, scene.history(until))
    # The rows of a table are no more than the value: what else they say is told.
    columns = f"{PLACED},ignore=at,device,key,offset"

    scene.loaded("--history", path, "--format", kind, "--columns", columns, "--run", RUN, *options(until))

    scene.drain()
    scene.assert_goes_on(until, until)


def test_a_gap_between_history_and_stream_is_warned_of(broker: Broker, tmp_path: Path) -> None:
    scene = FillScene(broker, tmp_path)
    scene.stream(10, COUNT)
    topic = f"{scene.config.source}.before"
    create_topic(broker.bootstrap_servers, topic, 2)
    for number, stop in {0: 10, 1: 100}.items():
        scene.produce(topic, number, scene.records[number][:stop])
    delete_records(broker.bootstrap_servers, scene.config.source, 60, partition=1)

    done = scene.run("--history", topic, "--format", "topic", *options({0: 100, 1: 50}), "--dry-run")

    assert done.exit_code == 0, done.output
    said = " ".join(done.stderr.split())
    assert re.search(r":0: a gap: of \d+ ids right before the cut the history has only \d+\.", said)
    assert ":1: a gap: 10 offsets from the cut on are no longer retained" in said
    assert said.count("a gap:") == 2
