"""A Delta or Iceberg table gets each batch of its query once, and nothing that does not belong to it."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from processor.errors import StopError
from schemas.event import EventModel, aggregate_columns
from spark_sink.lake import iceberg
from spark_sink.lake.iceberg import OWN, IcebergRows
from spark_sink.lake.jvm import LakeError, translated
from spark_sink.lake.table import QueryBatch
from spark_sink.outputs.lake import NOTE, ClosedWindows
from spark_sink.outputs.output import OutputPlace
from spark_sink.reading.read_back import read_sinks
from spark_sink.values.schema import output_schema
from tests.support.spark_sink.job import settings, sink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from schemas.config import Settings

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
START = datetime(2026, 1, 5, 22, tzinfo=UTC)
HOUR = timedelta(hours=1)
LOGS = {"delta": "_delta_log", "iceberg": "metadata"}


class Scene:
    """One aggregate with its checkpoint and its table, without a topic: its batches are made here."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str) -> None:
        self.spark, self.kind = spark, kind
        self.table, self.checkpoint = folder / "table", folder / "checkpoint-hourly"
        self.settings: Settings = settings(
            "127.0.0.1:9", sink(folder, "t", "hourly", {"kind": kind, "path": str(self.table)}, window="1 hour")
        )
        declared = self.settings.aggregates[0]
        self.columns = aggregate_columns(declared, EventModel.load(declared.event))
        self.said: list[str] = []

    def output(self) -> ClosedWindows:
        """Open the output as a start does, without `prepare`."""
        place = OutputPlace(
            self.spark,
            self.settings.aggregates[0],
            self.settings.kafka,
            create_topics=False,
            say=self.said.append,
        )
        return ClosedWindows(place)

    def started(self) -> ClosedWindows:
        """Open it and check what is there."""
        output = self.output()
        output.prepare(self.columns)
        return output

    def plans(self, query: str, *numbers: int) -> None:
        """Let the checkpoint be of a query that has planned these batches and committed all but the last."""
        for folder in ("offsets", "commits"):
            (self.checkpoint / folder).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": query}))
        for number in numbers:
            (self.checkpoint / "offsets" / str(number)).touch()
            if number < max(numbers):
                (self.checkpoint / "commits" / str(number)).touch()

    def rows(self, *hours: int) -> DataFrame:
        """Return a batch with a row per hour; every other one has no campaign."""
        made = [
            (START + hour * HOUR, START + (hour + 1) * HOUR, "a" if hour % 2 else None, hour, Decimal(hour))
            for hour in hours
        ]
        schema = output_schema(self.columns)
        for field in schema.fields:
            field.nullable = True
        return self.spark.createDataFrame(made, schema)

    def found(self) -> list[int]:
        """Return the counts that are in the table, as its users read it."""
        rows = self.spark.read.format(self.kind).load(str(self.table)).select("events").collect()
        return sorted(row[0] for row in rows)

    def commits(self) -> int:
        """Return how many commits the table's log has."""
        return sum(not each.name.startswith(".") for each in (self.table / LOGS[self.kind]).glob("*.json"))


@pytest.fixture(params=[pytest.param(each, marks=pytest.mark.drawn("scene")) for each in LOGS])
def scene(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Scene:
    """Give an aggregate that has not begun."""
    return Scene(spark, tmp_path, request.param)


def batch(number: int, query: str = "q") -> QueryBatch:
    return QueryBatch(query, number, "hourly")


def test_a_batch_that_comes_again_is_in_the_table_once_and_one_without_rows_leaves_no_commit(
    scene: Scene,
) -> None:
    output = scene.started()
    assert output.write(scene.rows(0, 1, 2, 3), batch(0))
    before = scene.commits()
    assert not output.write(scene.rows(), batch(1))
    assert not output.write(scene.rows(0, 1, 2, 3), batch(0))
    scene.plans("q", 0, 1)

    again = scene.started()

    assert not again.write(scene.rows(0, 1, 2, 3), batch(0))
    assert scene.commits() == before
    assert again.write(scene.rows(4), batch(2))
    assert scene.found() == [0, 1, 2, 3, 4]
    assert json.loads((scene.checkpoint / NOTE).read_text()) == {"batch": 2}


def test_the_report_and_programs_read_the_rows_back(scene: Scene) -> None:
    (part,) = read_sinks(scene.settings)
    assert (part.summary, part.problems, part.notes) == (None, (), ("Nothing has been written there yet.",))
    output = scene.started()
    (part,) = read_sinks(scene.settings)
    assert part.problems == ()
    output.write(scene.rows(0, 1, 2), batch(0))

    (part,) = read_sinks(scene.settings)

    assert part.problems == ()
    assert part.summary is not None
    assert part.summary.rows == 3
    assert f"{scene.kind.capitalize()} table {scene.table}" in part.output
    first = round(START.timestamp() * 1000)
    assert [(row.start_ms - first, row.group, row.values) for row in part.summary.shown] == [
        (0, (None,), (0, Decimal(0))),
        (3_600_000, ("a",), (1, Decimal(1))),
        (7_200_000, (None,), (2, Decimal(2))),
    ]


def test_a_new_checkpoint_over_rows_is_refused_and_its_first_batch_is_not_taken_for_written(
    scene: Scene,
) -> None:
    scene.started().write(scene.rows(0), batch(0))
    shutil.rmtree(scene.checkpoint)

    with pytest.raises(
        StopError, match=r"table holds rows that the query of the checkpoint .* has not written"
    ):
        scene.started()
    with pytest.raises(
        StopError, match=r"table holds rows that the query of the checkpoint .* has not written"
    ):
        scene.output().write(scene.rows(1), batch(0, "other"))
    assert scene.found() == [0]


def test_a_table_that_is_gone_or_was_made_again_is_refused(scene: Scene) -> None:
    output = scene.started()
    output.write(scene.rows(0), batch(0))
    scene.plans("q", 0, 1)
    shutil.rmtree(scene.table)
    with pytest.raises(StopError, match=r"table .* is gone, but its checkpoint .* has counted up to batch 0"):
        scene.started()
    with pytest.raises(StopError, match=r"batch 1 is not written: the table .* is gone"):
        output.write(scene.rows(1), batch(1))

    shutil.rmtree(scene.table, ignore_errors=True)
    Scene(scene.spark, scene.checkpoint.parent / "other", scene.kind).started()
    shutil.copytree(scene.checkpoint.parent / "other" / "table", scene.table)
    with pytest.raises(StopError, match=r"has no batch of this aggregate, but batch 0 was written"):
        scene.output().write(scene.rows(1), batch(1))


def test_a_checkpoint_that_was_set_back_is_refused(scene: Scene) -> None:
    output = scene.started()
    for number in range(3):
        output.write(scene.rows(number), batch(number))
    scene.plans("q", 0, 1)
    (scene.checkpoint / NOTE).write_text('{"batch": 0}')

    with pytest.raises(
        StopError, match=r"has batch 2 already, but the checkpoint .* is at 1\. The checkpoint was"
    ):
        scene.started()
    with pytest.raises(StopError, match=r"batch 1 is not written to .*: it has batch 2 already"):
        scene.output().write(scene.rows(1), batch(1))
    assert scene.found() == [0, 1, 2]


def test_a_table_that_does_not_fit_is_refused_with_every_difference_and_files_of_others_too(
    scene: Scene,
) -> None:
    spark = scene.spark
    spark.sql(
        "SELECT timestamp'2026-01-05' AS window_start, 1L AS window_end, 'a' AS campaign, 1 AS extra"
    ).write.save(str(scene.table), format="delta" if scene.kind == "delta" else "parquet")
    if scene.kind == "iceberg":
        with pytest.raises(StopError, match="holds files that are no Iceberg table"):
            scene.started()
        shutil.rmtree(scene.table)
        other = Scene(spark, scene.checkpoint.parent / "other", "iceberg")
        schema = output_schema(other.columns)
        kinds: dict[str, Any] = {each.name: each for each in schema.fields}
        kinds["window_end"].dataType = kinds["events"].dataType
        kinds["events"].name = "extra"
        other.output().table.create(schema)
        shutil.copytree(other.table, scene.table)

    with pytest.raises(StopError, match="is a table that does not fit") as refused:
        scene.started()
    for told in (
        "window_end is bigint, should be timestamp",
        "events is missing (bigint)",
        "extra is no column of the aggregate",
    ):
        assert told in str(refused.value)


def test_a_driver_that_was_believed_dead_adds_nothing(scene: Scene) -> None:
    dead, alive = scene.started(), scene.output()
    dead.table.look("q")
    rows = scene.rows(0, 1)
    alive.write(rows, batch(0))

    if scene.kind == "iceberg":
        with pytest.raises(LakeError) as refused:
            dead.table.append(rows, batch(0))
        assert refused.value.conflict
    else:
        # Delta's own writer finds the batch in, and writes nothing.
        dead.table.append(rows, batch(0))

    assert scene.found() == [0, 1]
    attempts = list((scene.table / OWN / "q" / "0").glob("*"))
    assert len(attempts) == (1 if scene.kind == "iceberg" else 0)


class OvertakenRows(IcebergRows):
    """A table into which another program commits between the first look and our commit."""

    overtakes = 1

    def append(self, rows: DataFrame, batch: QueryBatch) -> None:
        """Let the other one commit first."""
        if self.overtakes:
            self.overtakes -= 1
            self._folder.tables.load(self._folder.path).updateProperties().set(
                "other", str(self.overtakes)
            ).commit()
        super().append(rows, batch)


def test_a_commit_of_another_program_in_between_costs_a_try_and_five_in_a_row_end_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = Scene(spark, tmp_path, "iceberg")
    output = scene.started()
    output.table = OvertakenRows(spark, output._files)
    left = scene.table / OWN / "q" / "0" / "left-by-a-kill"
    left.mkdir(parents=True)

    assert output.write(scene.rows(0), batch(0))

    assert scene.found() == [0]
    assert len(list(left.parent.iterdir())) == 1
    assert not left.exists()
    output.table.overtakes = 5
    with pytest.raises(StopError, match="5 times in a row another program has committed in between"):
        output.write(scene.rows(1), batch(1))
    assert scene.found() == [0]


def test_a_commit_whose_answer_is_lost_is_in_and_keeps_its_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(spark, tmp_path, "iceberg")
    output = scene.started()

    @contextmanager
    def unanswered() -> Iterator[None]:
        with translated():
            yield
        raise LakeError("CommitFailedException: no answer", conflict=True)

    monkeypatch.setattr(iceberg, "translated", unanswered)
    assert output.write(scene.rows(0, 1), batch(0))
    assert not output.write(scene.rows(0, 1), batch(0))
    assert scene.found() == [0, 1]


def test_of_two_new_queries_that_look_at_once_one_gets_a_delta_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = Scene(spark, tmp_path, "delta")
    one, other = scene.started(), scene.output()
    for each, query in ((one, "q"), (other, "other")):
        assert each._is_next(batch(0, query))
    one.table.append(scene.rows(0), batch(0))

    with pytest.raises(StopError, match="the table is that of the query q, and this is other"):
        other.table.append(scene.rows(0), batch(0, "other"))
    assert scene.found() == [0]


def test_dates_of_parts_are_utc_whatever_the_zone_of_the_session(scene: Scene) -> None:
    output, rows = scene.started(), scene.rows(1)
    zone = "spark.sql.session.timeZone"
    before = scene.spark.conf.get(zone)
    scene.spark.conf.set(zone, "Europe/Berlin")
    try:
        output.write(rows, batch(0))
    finally:
        scene.spark.conf.set(zone, str(before))

    where = {
        "delta": "window_date = date'2026-01-05'",
        "iceberg": "window_start < timestamp'2026-01-06 00:00:00Z'",
    }
    table = scene.spark.read.format(scene.kind).load(str(scene.table))
    assert table.where(where[scene.kind]).count() == 1


def test_a_table_whose_creation_was_cut_off_is_created_at_the_next_start(scene: Scene) -> None:
    (scene.table / LOGS[scene.kind]).mkdir(parents=True)
    (scene.table / LOGS[scene.kind] / "1f0c.metadata.json").touch()
    assert scene.started().write(scene.rows(0), batch(0))
    assert scene.found() == [0]
