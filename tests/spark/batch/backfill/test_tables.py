"""A Delta table is a history, and so is the clean table of a batch, of any format and with renamed rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.partitioner import murmur2

from tests.support.batches.fill import RUN, WHEN_MS, FillScene
from tests.support.batches.lakes import LAKES
from tests.support.batches.scene import BatchScene
from tests.support.judges.id_rules import IdRules
from tests.support.kafka.topics import New

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
EVENTS = IdRules(id=({"from": "value", "pointer": "/event_id"},), window="1h")
IDS, COPIES = 20, 3
RENAMES: dict[str, Any] = {
    "fingerprint": {"exclude": ["at", "partition", "offset", "key", "device"]},
    "on_collision": "rename",
    "rename_first": True,
}


@pytest.fixture(scope="module")
def keyed(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> FillScene:
    """Give a stream whose producers chose partitions by the id; each id comes with three contents."""
    scene = FillScene(broker, tmp_path_factory.mktemp("keyed"), rules=EVENTS)
    scene.records = {0: [], 1: []}
    for at in range(IDS * COPIES):
        event = b"e%d" % (at % IDS)
        value = b'{"event_id": "%s", "amount": %d}' % (event, at // IDS)
        number = (murmur2(event) & 0x7FFFFFFF) % 2
        scene.records[number].append(New(event, value, (("device", b"d"),), WHEN_MS + at * 1000))
    for number, records in scene.records.items():
        scene.produce(scene.config.source, number, records)
    return scene


def everything(scene: FillScene) -> dict[int, int]:
    """Return how many records each partition has: up to there the history comes."""
    return {number: len(records) for number, records in scene.records.items()}


def cuts(scene: FillScene) -> Iterator[str]:
    """Return the options that put the cut there."""
    for number, count in everything(scene).items():
        yield from ("--cut", f"{number}:{count}")


def test_a_row_with_a_new_id_is_of_the_partition_that_its_old_one_was_sent_to(
    keyed: FillScene, tmp_path: Path, spark: SparkSession
) -> None:
    files = BatchScene(spark, tmp_path, kind="json", event_time="at", **RENAMES)
    files.table["input"]["path"] = keyed.write("json", keyed.history(everything(keyed)))
    assert files.run().counts["renamed"] == IDS * COPIES

    told = keyed.loaded(
        *("--history", str(files.out), "--format", "batch", "--columns", "key=event_id", "--run", "renamed"),
        *("--dry-run", *cuts(keyed)),
    )

    for number, each in enumerate(told[:-1]):
        count = len(keyed.records[number])
        assert (each["rows"], each["ids"]) == (count, count // COPIES)
        assert each["sample"]["before_known"] == each["sample"]["before"] == count // COPIES


def test_a_renamed_row_whose_id_has_several_columns_is_refused(
    keyed: FillScene, tmp_path: Path, spark: SparkSession
) -> None:
    files = BatchScene(
        spark,
        tmp_path,
        kind="json",
        event_time="at",
        **RENAMES | {"id": ["event_id", "device"], "rename": {"to": "event_id"}},
    )
    files.table["input"]["path"] = keyed.write("json", keyed.history(everything(keyed)))
    files.run()
    two = IdRules(id=(*EVENTS.id, {"from": "value", "pointer": "/device"}), window="1h")
    scene = FillScene(keyed.broker, tmp_path, rules=two)

    refused = scene.run(
        *("--history", str(files.out), "--format", "batch", "--columns", "key=event_id", "--run", RUN),
        *("--cut", "0:0", "--cut", "1:0"),
    )

    assert refused.exit_code == 1, refused.output
    said = " ".join(refused.stderr.split())
    assert "has rows that the batch has renamed (seqmark_original_id)" in said
    assert "--columns partition=COL" in said


@pytest.mark.drawn("lake")
@pytest.mark.parametrize("lake", list(LAKES))
def test_of_a_clean_table_in_a_lake_the_files_that_its_log_names_are_the_history(
    keyed: FillScene, tmp_path: Path, spark: SparkSession, lake: str
) -> None:
    files = BatchScene(spark, tmp_path, kind="json", lake=lake, event_time="at")
    rows = keyed.history(everything(keyed))
    for some in (rows[::2], rows[1::2]):
        files.run([keyed.write("json", some)])
    LAKES[lake](spark).merge(files.out)  # what it has merged still lies there

    told = keyed.loaded(
        *("--history", str(files.out), "--format", "batch", "--columns", "partition=partition"),
        *("--run", lake, "--dry-run", *cuts(keyed)),
    )

    assert told[-1]["rows"] == IDS
    for number, each in enumerate(told[:-1]):
        assert each["ids"] == len(keyed.records[number]) // COPIES
        assert each["sample"]["before_known"] == each["sample"]["before"] == each["ids"]


def test_a_delta_table_is_a_history_as_it_is_now(keyed: FillScene, tmp_path: Path, spark: SparkSession) -> None:
    table, schema = str(tmp_path / "delivered"), "event_id string, at timestamp, partition int"
    rows = [(row["event_id"], row["at"], row["partition"]) for row in keyed.history(everything(keyed))]
    frame = spark.createDataFrame(rows, schema)
    frame.write.format("delta").partitionBy("partition").save(table)
    gone = [(f"gone{number}", rows[0][1], 0) for number in range(9)]
    spark.createDataFrame(gone, schema).write.format("delta").mode("append").save(table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE event_id LIKE 'gone%'").collect()  # noqa: S608 - ours
    columns = ("--columns", "time=at,partition=partition", "--run", "plain-delta", "--dry-run")

    told = keyed.loaded("--history", table, "--format", "delta", *columns, *cuts(keyed))

    assert told[-1]["rows"] == IDS * COPIES
    for number, each in enumerate(told[:-1]):
        assert each["rows"] == len(keyed.records[number])
        assert each["sample"]["before_known"] == each["sample"]["before"] == each["ids"]
    folders = str(tmp_path / "folders")
    frame.write.partitionBy("partition").parquet(folders)
    by_name = keyed.loaded("--history", folders, "--format", "parquet", *columns, *cuts(keyed))
    assert [each["ids"] for each in by_name[:-1]] == [each["ids"] for each in told[:-1]]


def test_a_table_is_refused_by_name_where_its_log_would_be_passed_over(
    keyed: FillScene, tmp_path: Path, spark: SparkSession
) -> None:
    for lake, other in LAKES.items():
        other(spark).make(tmp_path / lake)
    (tmp_path / "batch" / "_seqmark").mkdir(parents=True)
    (tmp_path / "batch" / "_seqmark" / "table.json").touch()
    for name, kind, message in (
        ("delta", "parquet", "is a Delta table, whose log says which files count"),
        ("iceberg", "parquet", "is an Iceberg table"),
        ("iceberg", "delta", "is no Delta table"),
        ("iceberg", "batch", "is no clean table"),
        ("batch", "parquet", "is the clean table of a batch"),
    ):
        refused = keyed.run(
            *("--history", str(tmp_path / name), "--format", kind, "--columns", "time=at,partition=id"),
            *cuts(keyed),
        )

        assert refused.exit_code == 1, refused.output
        assert message in " ".join(refused.stderr.split())
