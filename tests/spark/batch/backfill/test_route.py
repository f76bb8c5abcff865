"""Files and tables are histories of a routed pipeline: their ids go where the worker sends its records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.backfill.route_fill import SINKS, SOURCES, RouteFill
from tests.support.batches.scene import BatchScene
from tests.support.kafka.topics import dice
from tests.support.worker.routed import RoutedRules

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
COUNT = 80
UNTIL = {0: 70, 1: 40}
IN_VALUE = {"from": "value", "pointer": "/event_id"}
TWO_PARTS = RoutedRules(id=(IN_VALUE, {"from": "header", "name": "id"}))
EVENTS = RoutedRules(id=(IN_VALUE,))


def write(folder: Path, kind: str, rows: list[dict[str, Any]]) -> str:
    """Write a history in any order; return its folder."""
    path = folder / f"history-{kind}"
    path.mkdir()
    mixed = dice(len(rows)).sample(rows, len(rows))
    if kind == "json":
        (path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mixed))
        return str(path)
    table = pa.Table.from_pylist(mixed)
    at = table.schema.get_field_index("at")
    table = table.set_column(at, "at", table["at"].cast(pa.timestamp("ms", "UTC")))
    pq.write_table(table, path / "all.parquet", row_group_size=17)
    return str(path)


@pytest.fixture(scope="module")
def scene(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> RouteFill:
    """Give a pipeline that nothing is loaded into, and its stream."""
    made = RouteFill(broker, tmp_path_factory.mktemp("routed"), EVENTS)
    made.stream(1, COUNT)
    return made


@pytest.mark.drawn("kind")
@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_backfill_of_files_and_routed_worker_go_on_wherever_the_rows_stood(
    broker: Broker, tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    del spark
    filled = RouteFill(broker, tmp_path, TWO_PARTS)
    filled.stream(2, COUNT)
    cuts = {0: 50, 1: 40}
    path = write(tmp_path, kind, filled.rows(UNTIL))

    told = filled.loaded(*filled.arguments(path, cuts, kind), "--columns", "time=at")

    assert [each["cut"] for each in told[SINKS:-1]] == [50, 40]
    assert sum(each["rows"] for each in told[:SINKS]) == sum(UNTIL.values())
    filled.drain()
    assert filled.assert_goes_on(filled.history(UNTIL), cuts) > 10


def test_offsets_say_the_cuts_of_the_source_and_what_lies_behind_them(
    scene: RouteFill, tmp_path: Path, spark: SparkSession
) -> None:
    del spark
    path = write(tmp_path, "parquet", scene.rows(UNTIL))
    columns = ["--columns", "time=at,partition=partition,offset=offset", "--dry-run"]

    told = scene.loaded(*scene.arguments(path, {}, "parquet"), *columns)

    assert [each["cut"] for each in told[SINKS:-1]] == list(UNTIL.values())
    assert known(told) == [each["sample"]["before"] for each in told[SINKS:-1]]

    told = scene.loaded(*scene.arguments(path, {0: 30, 1: 10}, "parquet"), *columns, "--up-to-cut")

    assert sum(each["rows"] for each in told[:SINKS]) == 40
    assert told[-1]["left_out"]["from_the_cut_on"] == sum(UNTIL.values()) - 40
    refused = scene.run(*scene.arguments(path, {0: 30, 1: 10}, "parquet"), "--columns", "time=at,offset=offset")
    assert refused.exit_code == 2
    assert "an offset says nothing without the partition" in " ".join(refused.stderr.split())


def known(told: list[dict[str, Any]]) -> list[int]:
    """Return by source partition how many ids right before the cut the history has where they are sent to."""
    found = [each["sample"]["before_known"] for each in told[SINKS:-1]]
    assert len(found) == SOURCES
    assert min(found) > 10
    return found


def test_a_delta_table_is_a_history_of_a_routed_pipeline(
    scene: RouteFill, tmp_path: Path, spark: SparkSession
) -> None:
    rows = [(row["event_id"], row["at"]) for row in scene.rows(UNTIL)]
    spark.createDataFrame(rows, "event_id string, at long").write.format("delta").save(str(tmp_path / "table"))

    told = scene.loaded(
        *scene.arguments(str(tmp_path / "table"), UNTIL, "delta"), "--columns", "time=at", "--dry-run"
    )

    assert told[-1]["rows"] == len(rows)
    assert known(told) == [each["sample"]["before"] for each in told[SINKS:-1]]


def test_of_a_clean_table_the_old_id_of_a_renamed_row_says_where_it_goes(
    scene: RouteFill, tmp_path: Path, spark: SparkSession
) -> None:
    files = BatchScene(
        spark,
        tmp_path,
        kind="json",
        event_time="at",
        fingerprint={"exclude": ["at", "partition", "offset", "id"]},
        on_collision="rename",
        rename_first=True,
    )
    # An ISO text, as an event time of a batch has to be.
    rows = [row | {"at": f"2023-11-14T23:13:{row['amount'] % 60:02}Z"} for row in scene.rows(UNTIL)]
    files.table["input"]["path"] = write(tmp_path, "json", rows)
    assert files.run().counts["renamed"] > 10

    told = scene.loaded(*scene.arguments(str(files.out), UNTIL, "batch"), "--dry-run")

    assert sum(each["ids"] for each in told[:SINKS]) == len({row["event_id"] for row in rows})
    assert known(told) == [each["sample"]["before"] for each in told[SINKS:-1]]
