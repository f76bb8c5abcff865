"""Does the log of a Delta or Iceberg table decide what counts, and nothing beside it?"""

from __future__ import annotations

import hashlib
import json
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.functions import lit

from processor.errors import StopError
from spark_sink.batch.compaction import compact
from spark_sink.batch.job import BatchJob, BatchOptions, BatchStep
from spark_sink.batch.reader import committed_files
from spark_sink.batch.table.commits import DataFile
from spark_sink.batch.table.counted import mark_of
from spark_sink.batch.table.layout import ROWS
from spark_sink.batch.table.log import TABLES
from spark_sink.batch.table.summary import KEPT, sum_up
from spark_sink.lake.table import LakeChange
from tests.support.batches.lakes import LAKES, Lake
from tests.support.batches.scene import DAY, START, ActsAt, Audience, BatchScene, some_rows
from tests.support.kafka.topics import dice

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
RENAMES: dict[str, Any] = {"fingerprint": {"exclude": ["occurred_at"]}, "on_collision": "rename"}


@pytest.fixture(params=[pytest.param(each, marks=pytest.mark.drawn("lake")) for each in LAKES])
def lake(request: pytest.FixtureRequest, spark: SparkSession) -> Lake:
    """Give what another program does to a table of a format."""
    return LAKES[request.param](spark)


class DiesError(Exception):
    """Ends a run where a kill would."""


def die() -> None:
    """End it."""
    raise DiesError


def run(scene: BatchScene, name: str, first_day: int = 0) -> str:
    """Let a run over a new file commit; return the file."""
    rows = some_rows(dice(40 + first_day), f"{name}.parquet", 40, first_day)
    path = scene.write(f"{name}.parquet", rows)
    scene.run([path], run=name)
    scene.truth.run(name, rows)
    return path


def test_rows_are_those_of_the_contract_whoever_merges_files_between_two_runs(
    lake: Lake, tmp_path: Path
) -> None:
    scene, chance = BatchScene(lake.spark, tmp_path, lake=lake.name, **RENAMES), dice(3)
    every, acts = [], [lake.merge, lambda _: compact(lake.spark, scene.batch, Audience()), lake.shorten]
    for number, act in enumerate(acts):
        rows = some_rows(chance, f"{number}.parquet", 60, first_day=(0, 2, 1)[number])
        scene.run([scene.write(f"{number}.parquet", rows)], run=f"run-{number}")
        scene.truth.run(f"run-{number}", rows)
        every += rows
        act(scene.out)
        scene.assert_true()

    scene.run(since="2026-01-02", run="again")

    scene.truth.run("again", every, since=START + DAY)
    scene.assert_true()
    told = sum_up(scene.batch)
    assert [each.number for each in told.runs] == [1, 2, 3, 4, 5]
    assert told.total(KEPT) == len(scene.truth.kept)


@pytest.mark.parametrize("step", [BatchStep.PUT, BatchStep.COMMITTED])
def test_a_run_that_dies_at_a_step_counts_by_the_tables_own_log_alone(
    lake: Lake, tmp_path: Path, step: BatchStep
) -> None:
    scene = BatchScene(lake.spark, tmp_path, lake=lake.name, **RENAMES)
    run(scene, "first")
    rows = some_rows(dice(2), "b.parquet", 40, first_day=1)
    path = scene.write("b.parquet", rows)

    with pytest.raises(DiesError):
        BatchJob(lake.spark, scene.batch, BatchOptions([path], "again"), ActsAt(step, die)).run()

    if committed := step is BatchStep.COMMITTED:
        scene.truth.run("again", rows)
    scene.assert_true()
    assert len(sum_up(scene.batch).runs) == (2 if committed else 1)
    # The dead run's inputs have changed meanwhile: its commit file must not be taken for that of the next.
    if not committed:
        rows = rows[:30]
        scene.write("b.parquet", rows)
    assert scene.run([path], run="again").earlier is committed
    if not committed:
        scene.truth.run("again", rows)
    run(scene, "third", first_day=2)
    scene.assert_true()


@pytest.mark.parametrize("ends", ["refused", "killed"])
def test_a_commit_of_a_dead_run_that_lands_late_is_not_taken_for_ones_own(
    lake: Lake, tmp_path: Path, ends: str
) -> None:
    scene = BatchScene(lake.spark, tmp_path, lake=lake.name)
    run(scene, "first")
    rows, others = (some_rows(dice(seed), f"{seed}.parquet", 40, first_day=1) for seed in (2, 3))
    path, other = (scene.write(f"{seed}.parquet", each) for seed, each in ((2, rows), (3, others)))
    with pytest.raises(DiesError):
        BatchJob(lake.spark, scene.batch, BatchOptions([path], "dead"), ActsAt(BatchStep.PUT, die)).run()
    text = (scene.out / "_seqmark" / "commits" / "00000002.json").read_bytes()
    left, mark = json.loads(text), mark_of(2, hashlib.sha256(text).hexdigest())

    def land() -> None:
        """Do what a JVM does that outlives its driver for a moment."""
        table = TABLES[lake.name](lake.spark, scene.out)
        table.begin()
        added = [DataFile(**each) for each in left["added"][ROWS]]
        table.commit(LakeChange(2, mark, "dead", left["schema"], added, [], same_rows=False))
        if ends == "killed":  # before it has put the dead run's file back
            die()

    overtaken = r"another run has committed to .* meanwhile: nothing of this one counts"
    with pytest.raises((StopError, DiesError), match="^$" if ends == "killed" else overtaken):
        BatchJob(lake.spark, scene.batch, BatchOptions([other], "other"), ActsAt(BatchStep.PUT, land)).run()

    scene.truth.run("dead", rows)
    scene.assert_true()
    assert scene.run([path], run="dead").earlier
    scene.run([other], run="other")
    scene.truth.run("other", others)
    scene.assert_true()


def test_a_run_is_refused_where_another_program_changes_the_table_meanwhile(lake: Lake, tmp_path: Path) -> None:
    scene = BatchScene(lake.spark, tmp_path, lake=lake.name)
    run(scene, "first")
    rows = some_rows(dice(2), "b.parquet", 40)
    path = scene.write("b.parquet", rows)
    merges = ActsAt(BatchStep.WRITTEN, lambda: lake.merge(scene.out))

    with pytest.raises(
        StopError, match=r"another program has changed .* meanwhile .*: nothing of this run counts"
    ):
        BatchJob(lake.spark, scene.batch, BatchOptions([path], "slow"), merges).run()

    scene.assert_true()
    scene.run([path], run="slow")
    scene.truth.run("slow", rows)
    scene.assert_true()


def test_readers_of_the_format_see_what_counts_and_what_counted_before(lake: Lake, tmp_path: Path) -> None:
    scene = BatchScene(lake.spark, tmp_path, lake=lake.name)
    run(scene, "first")
    first = {(row["seqmark_file"], row["seqmark_row"]) for row in scene.rows()}
    path = str(scene.raw / "first.parquet")

    scene.run([path], since="2026-01-01", run="again")
    run(scene, "third", first_day=1)

    found = lake.read(scene.out)
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, scene.rows()))
    some = lake.read(scene.out).where("seqmark_date = '2026-01-02' and seqmark_time >= '2026-01-02 12:00:00'")
    times = [row["seqmark_time"].replace(tzinfo=UTC) for row in scene.rows()]
    assert some.count() == sum(START + 1.5 * DAY <= each < START + 2 * DAY for each in times) > 0
    assert {(row["seqmark_file"], row["seqmark_row"]) for row in lake.at_first(scene.out).collect()} == first
    with pytest.raises(StopError, match=f"is a table of {lake.name}: its rows are read by its log, with Spark"):
        committed_files(str(scene.out))


def test_columns_of_every_type_come_and_are_read_by_the_format(lake: Lake, tmp_path: Path) -> None:
    scene = BatchScene(lake.spark, tmp_path, lake=lake.name)
    at = datetime(2026, 1, 1, 12, 30, 0, 123456, UTC).replace(tzinfo=None)
    columns = {
        "small": pa.array([7], pa.int8()),
        "unsigned": pa.array([2**64 - 1], pa.uint64()),
        "real": pa.array([1.5], pa.float32()),
        "exact": pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
        "raw": pa.array([b"\x00\xff"]),
        "there": pa.array([True]),
        "day": pa.array([at.date()]),
        "local": pa.array([at], pa.timestamp("us")),
        "sent": pa.array([at], pa.timestamp("ms", "UTC")),
        "tags": pa.array([["a", None]], pa.list_(pa.string())),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        "inner": pa.array([{"a": 1, "b": {"c": "d"}}]),
        "a.b": pa.array(["dotted"]),
    }
    run(scene, "first")
    new = {"event_id": pa.array(["new"]), "occurred_at": pa.array([START], pa.timestamp("us", "UTC"))}
    pq.write_table(pa.table({**new, **columns}), scene.raw / "new.parquet")

    scene.run([str(scene.raw / "new.parquet")], run="new")

    row = lake.read(scene.out).where("event_id = 'new'").first()
    assert row is not None
    assert (row["small"], row["unsigned"], row["real"]) == (7, Decimal(2**64 - 1), 1.5)
    assert (row["exact"], bytes(row["raw"]), row["there"]) == (Decimal("1.25"), b"\x00\xff", True)
    assert (row["day"], row["local"]) == (at.date(), at)
    assert row["sent"] == at.replace(microsecond=123000)
    assert (row["tags"], row["map"], row["a.b"]) == (["a", None], {"k": 1}, "dotted")
    assert row["inner"].asDict(recursive=True) == {"a": 1, "b": {"c": "d"}}
    assert row["amount"] is None
    lake.merge(scene.out)
    run(scene, "third")
    compact(lake.spark, scene.batch, Audience())
    assert lake.read(scene.out).where("event_id = 'new'").first() == row


def test_new_members_of_objects_are_read_by_the_format_at_any_depth(lake: Lake, tmp_path: Path) -> None:
    scene = BatchScene(lake.spark, tmp_path, "json", lake=lake.name)

    def lines(name: str, value: str) -> str:
        file = scene.raw / name
        file.write_text(f'{{"event_id": "{name}", "occurred_at": "2026-01-01", "o": {value}}}\n')
        return str(file)

    def members() -> dict[str, object]:
        return {row["event_id"]: row["o"].asDict(recursive=True) for row in lake.read(scene.out).collect()}

    scene.run([lines("a", '{"x": 1, "deep": [{"y": 1.5}], "in": {"a": "b"}}')])
    scene.run([lines("b", '{"new": true, "deep": [{"z": "t"}], "in": {"c": {"d": 2}}}')])
    # Delta refuses such names, and reads past them.
    unread = ', "a b": 1, "new in": {"c": 2}' if lake.name == "delta" else ""
    scene.run([lines("c", f'{{"x": 3{unread}}}')])
    lake.merge(scene.out)
    compact(lake.spark, scene.batch, Audience())

    assert members() == {
        "a": {"x": 1, "deep": [{"y": 1.5, "z": None}], "in": {"a": "b", "c": None}, "new": None},
        "b": {"x": None, "deep": [{"y": None, "z": "t"}], "in": {"a": None, "c": {"d": 2}}, "new": True},
        "c": {"x": 3, "deep": None, "in": None, "new": None},
    }
    assert {row["event_id"]: row["o"].asDict(recursive=True) for row in scene.rows()} == members()


def test_numbers_widen_by_the_tables_own_means_and_are_read_by_the_format(lake: Lake, tmp_path: Path) -> None:
    scene = BatchScene(lake.spark, tmp_path, lake=lake.name)

    def run(name: str, **columns: Any) -> None:
        ids, times = pa.array([name]), pa.array([START], pa.timestamp("us", "UTC"))
        more = {each: pa.array([value], kind) for each, (value, kind) in columns.items()}
        pq.write_table(pa.table({"event_id": ids, "occurred_at": times, **more}), scene.raw / f"{name}.parquet")
        scene.run([str(scene.raw / f"{name}.parquet")], run=name)

    inner = pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int64())])
    run("a", n=(1, pa.int32()), f=(0.5, pa.float32()), s=({"x": 1}, inner[0]))
    run("inside", s=({"x": 3}, inner[1]))
    if lake.name == "delta":
        told = lake.spark.sql(f"show tblproperties delta.`{scene.out}`").collect()
        assert ("delta.enableTypeWidening", "true") in [tuple(each) for each in told]
    run("b", n=(2**40, pa.int64()), f=(0.1, pa.float64()), s=({"x": 2**40}, inner[1]))
    run("c", n=(2, pa.int16()), f=(1.5, pa.float32()))

    read = lake.read(scene.out).selectExpr("event_id", "n", "f", "s.x")
    assert {tuple(each) for each in read.collect()} == {
        ("a", 1, 0.5, 1), ("inside", None, None, 3), ("b", 2**40, 0.1, 2**40), ("c", 2, 1.5, None),
    }  # fmt: skip
    assert [each.dataType.simpleString() for each in read.schema][1:] == ["bigint", "double", "bigint"]
    compact(lake.spark, scene.batch, Audience())
    assert lake.read(scene.out).selectExpr("sum(n)").collect()[0][0] == 2**40 + 3


def test_what_a_batch_does_not_read_is_refused_by_name(lake: Lake, tmp_path: Path) -> None:
    scene = BatchScene(lake.spark, tmp_path / "deleted", lake=lake.name)
    path = run(scene, "first")
    lake.mark_deleted(scene.out)
    with pytest.raises(StopError, match="rows that are deleted by delet"):
        scene.run([path], run="second")

    scene = BatchScene(lake.spark, tmp_path / "renamed", lake=lake.name)
    path = run(scene, "first")
    lake.rename_column(scene.out, "amount", "total")
    with pytest.raises(StopError, match=r"has no column amount any more|has column mapping"):
        scene.run([path], run="second")

    scene = BatchScene(lake.spark, tmp_path / "foreign", lake=lake.name)
    lake.make(scene.out)
    with pytest.raises(
        StopError, match=r"is a table of \w+ that no batch has made: name another folder as output"
    ):
        scene.run([path], run="first")

    scene = BatchScene(lake.spark, tmp_path / "other", lake="parquet")
    path = run(scene, "first")
    scene.table["output"]["format"] = lake.name
    with pytest.raises(StopError, match=f'format was "parquet" and is "{lake.name}"'):
        scene.run([path], run="second")


def test_commits_that_the_log_knows_and_nobody_finds_are_refused(lake: Lake, tmp_path: Path) -> None:
    scene = BatchScene(lake.spark, tmp_path, lake=lake.name)
    path = run(scene, "first")
    older = tmp_path / "older"
    shutil.copytree(scene.out, older, ignore=shutil.ignore_patterns("_seqmark"))
    run(scene, "second")
    last = scene.out / "_seqmark" / "commits" / "00000002.json"
    text = last.read_text()

    last.unlink()
    with pytest.raises(StopError, match=r"00000002\.json is missing, and the table's log says that it counts"):
        scene.run([path], run="third")
    last.write_text(text)
    scene.assert_true()

    log = {"delta": "_delta_log", "iceberg": "metadata"}[lake.name]
    shutil.rmtree(scene.out / log)
    shutil.copytree(older / log, scene.out / log)
    with pytest.raises(
        StopError, match=r"00000002\.json has counted, and the table's log knows those up to 1 only"
    ):
        scene.rows("duplicates")


def test_a_delta_table_is_an_input_as_it_is_when_the_run_begins(spark: SparkSession, tmp_path: Path) -> None:
    scene, lake = BatchScene(spark, tmp_path, "delta"), LAKES["delta"](spark)
    schema = "event_id string, occurred_at timestamp, amount bigint"
    rows = [(f"e{number % 4}", START, number) for number in range(6)]
    spark.createDataFrame(rows, schema).coalesce(1).write.format("delta").save(str(scene.raw))
    spark.createDataFrame([("gone", START, 0)], schema).write.format("delta").mode("append").save(
        str(scene.raw)
    )
    spark.sql(f"DELETE FROM delta.`{scene.raw}` WHERE event_id = 'gone'").collect()  # noqa: S608 - ours

    first = scene.run()
    again = scene.run()

    assert (first.counts["files"], first.counts["kept"], first.counts["duplicates"]) == (1, 4, 2)
    assert (again.run, again.earlier) == (first.run, True)
    assert {row["event_id"] for row in scene.rows()} == {"e0", "e1", "e2", "e3"}
    lake.mark_deleted(scene.raw, "amount = 1")
    with pytest.raises(
        StopError, match=r"input .*raw has rows that are deleted by deletion vectors \(REORG TABLE"
    ):
        scene.run()
    with pytest.raises(StopError, match=r"input .*clean is no Delta table; name its folder"):
        scene.run([str(scene.out)])


def test_columns_that_a_delta_table_is_parted_by_come_from_its_log(spark: SparkSession, tmp_path: Path) -> None:
    scene = BatchScene(spark, tmp_path, "delta", event_time="at")
    schema = (
        "event_id string, text string, day date, at timestamp, number int, exact decimal(9,2), there boolean"
    )
    day = START.date()
    rows = [
        ("a", "x y/%=\u00e9", day, START, 7, Decimal("1.25"), True),
        ("b", None, None, START + DAY, None, None, None),
        ("a", "other", day, START + DAY / 2, -7, Decimal("-1.00"), False),
    ]
    parts = ["text", "day", "at", "number", "exact", "there"]
    frame = spark.createDataFrame(rows, schema).withColumn("amount", lit(1))
    frame.write.format("delta").partitionBy(*parts).save(str(scene.raw))

    scene.run()

    found = {row["event_id"]: tuple(row[each] for each in parts) for row in scene.rows()}
    local = [START.replace(tzinfo=None), (START + DAY).replace(tzinfo=None)]
    assert found == {
        "a": ("x y/%=\u00e9", day, local[0], 7, Decimal("1.25"), True),
        "b": (None, None, local[1], None, None, None),
    }
    assert scene.rows("duplicates")[0]["event_time"].replace(tzinfo=UTC) == START + DAY / 2
    spark.conf.set("spark.databricks.delta.write.utcTimestampPartitionValues", "false")
    try:
        frame.write.format("delta").mode("append").save(str(scene.raw))
    finally:
        spark.conf.unset("spark.databricks.delta.write.utcTimestampPartitionValues")
    with pytest.raises(StopError, match=r"column at: .* is no timestamp .* is one of whoever wrote it"):
        scene.run()
