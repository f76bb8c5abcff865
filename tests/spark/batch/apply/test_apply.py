"""Is a table what its raw topic is without what the verdicts skip, however late its rows come?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from processor.commands.spark.apply_verdicts import AppliedVerdicts
from processor.config.load import load
from spark_sink.batch.lake.apply.job import RANGE_COST, ApplyJob, ApplyOptions, ApplyStep
from spark_sink.batch.lake.apply.rows import PositionRows
from spark_sink.batch.lake.apply.tables import open_table
from tests.support.batches.applied import AppliedScene, said
from tests.support.batches.lakes import LAKES, Lake
from tests.support.batches.scene import ActsAt, Audience
from tests.support.kafka.topics import create_topic, delete_records, delete_topic
from tests.support.spark_sink.job import ROOT
from tests.support.worker.process import run_drain
from tests.support.worker.verdicts import read_clean

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

    Make = Callable[..., AppliedScene]

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
WAIT_S = 300


@pytest.fixture(params=[pytest.param(each, marks=pytest.mark.drawn("lake")) for each in LAKES])
def lake(request: pytest.FixtureRequest, spark: SparkSession) -> Lake:
    """Give what another program does to a table of a format."""
    return LAKES[request.param](spark)


@pytest.fixture
def make(lake: Lake, broker: Broker, tmp_path: Path) -> Make:
    """Give what makes a scene."""
    return lambda **more: AppliedScene(lake, broker, tmp_path, **more)


@pytest.fixture
def scene(spark: SparkSession, broker: Broker, tmp_path: Path) -> AppliedScene:
    """Give a scene of one format, with a topic of verdicts: what is asked has nothing to do with formats."""
    made = AppliedScene(LAKES["iceberg"](spark), broker, tmp_path)
    made.make_verdicts()
    return made


def test_the_table_is_the_clean_stream_however_far_its_loader_lags(make: Make) -> None:
    scene = make(partitions=2)
    # A transaction ends both partitions: no row has the offset of its marker.
    for partition in range(2):
        scene.produce([1, 2, 2, 3, 1], partition)
        scene.produce([4, 4, 5, 5], partition, transaction=True)
    assert run_drain(scene.config).code == 0
    scene.load(upto=3)

    first = scene.applied()

    assert scene.positions() == [(number, at) for number in range(2) for at in (0, 1)]
    assert [(each["deleted"], each["waits"], each["dry_run"]) for each in first.values()] == [
        (1, True, False)
    ] * 2
    scene.load()
    told = scene.applied("--dry-run")
    assert [each["deleted"] for each in told.values()] == [3, 3]
    assert scene.applied() == {n: {**each, "dry_run": False} for n, each in told.items()}
    clean = [(each.partition, each.offset) for each in read_clean(scene.config)]
    assert scene.positions() == clean
    assert len(clean) == 10
    again = scene.applied()
    assert [(each["deleted"], each["from"] == each["to"], each["waits"]) for each in again.values()] == [
        (0, True, False)
    ] * 2
    # A quiet partition's verdicts expire, and the markers of their transactions; no run has missed any.
    for number, each in again.items():
        delete_records(scene.bootstrap, scene.config.verdicts, each["to"], number)
    assert [each["deleted"] for each in scene.applied().values()] == [0, 0]


def test_a_run_that_is_killed_behind_the_delete_is_gone_on_with(make: Make) -> None:
    scene = make()
    scene.make_verdicts()
    scene.produce([1, 2, 2, 3])
    scene.load()
    scene.say(said(0, 0, [], begins=True), said(0, 4, [2]))
    typed = [sys.executable, "-m", "processor", *scene.words()]
    environ = os.environ | {"SEQMARK_FAULT_STEP": ApplyStep.DELETED}

    ended = subprocess.run(
        typed, check=False, cwd=ROOT, env=environ, text=True, capture_output=True, timeout=WAIT_S
    )

    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert scene.positions() == [(0, 0), (0, 1), (0, 3)]
    told = scene.applied()[0]
    assert (told["from"], told["to"], told["deleted"]) == (0, 2, 0)


class DiesError(Exception):
    """Ends a run where a kill would."""


def die() -> None:
    """End it."""
    raise DiesError


def test_a_run_in_many_deletes_that_dies_between_two_misses_nothing(scene: AppliedScene) -> None:
    scene.produce(range(12))
    scene.load()
    scene.say(said(0, 0, [], begins=True), *(said(at, at + 3, [at, at + 2]) for at in range(0, 12, 3)))
    settings = load(scene.config.write())
    two = 2 * (2 + RANGE_COST)

    def job(audience: Audience) -> ApplyJob:
        table = open_table(scene.spark, str(scene.table), None)
        (pipeline,) = settings.pipelines
        topic = AppliedVerdicts(settings.kafka, pipeline, skip_expired=False, say=audience.say)
        rows = PositionRows(scene.spark, table, pipeline.source, {})
        return ApplyJob("p", topic, table, rows, ApplyOptions(), audience)

    with pytest.raises(DiesError):
        job(ActsAt(ApplyStep.DELETED, die)).run(most=two)

    assert scene.positions() == [(0, at) for at in (1, 4, *range(6, 12))]
    (done,) = job(Audience()).run(most=two)
    assert (done.start, done.stop, done.deleted, done.applied_to) == (0, 5, 4, 12)
    assert scene.positions() == [(0, at) for at in range(1, 12, 3)]


def test_rows_that_come_out_of_order_are_found_by_applying_all_again(scene: AppliedScene) -> None:
    scene.produce(range(6))
    scene.load(leave_out=[(0, 1)])
    scene.say(said(0, 0, [], begins=True), said(0, 6, [1, 4]))
    assert scene.applied()[0]["deleted"] == 1
    scene.append([(scene.config.source, 0, 1, "late")])

    assert scene.applied()[0]["deleted"] == 0
    assert scene.applied("--again")[0]["deleted"] == 1
    assert scene.positions() == [(0, at) for at in (0, 2, 3, 5)]


def test_behind_a_reset_the_newest_verdicts_of_an_offset_count(scene: AppliedScene) -> None:
    scene.produce(range(8))
    scene.load()
    # Judged again from 3 on, as far as 6: nobody has judged 6 and 7 by the rules of now.
    scene.say(said(0, 0, [], begins=True), said(0, 8, [1, 3, 5, 7]))
    scene.say(said(3, 3, [], begins=True), said(3, 6, [4]))

    assert scene.applied()[0]["applied_to"] == 6
    assert scene.positions() == [(0, at) for at in (0, 2, 3, 5, 6, 7)]
    scene.say(said(6, 8, [6]))
    scene.applied()
    assert scene.positions() == [(0, at) for at in (0, 2, 3, 5, 7)]


def test_verdicts_that_are_lost_or_of_another_topic_are_not_passed_over_unasked(scene: AppliedScene) -> None:
    scene.produce(range(6))
    scene.load()
    scene.say(said(0, 0, [], begins=True), said(0, 2, [1]))
    scene.applied()
    before = scene.positions()

    def refused(*more: str) -> str:
        ended = scene.run(*more)
        assert ended.exit_code == 1, ended.output
        assert scene.positions() == before
        return ended.stderr

    scene.say(said(2, 4, [2]), said(4, 6, [4]))
    delete_records(scene.bootstrap, scene.config.verdicts, 3)
    assert "begins at offset 3, and 2 would be next: verdicts have expired unread" in refused()
    told = scene.applied("--skip-expired", "--dry-run")[0]
    assert (told["from"], told["to"], told["deleted"]) == (3, 4, 1)

    delete_topic(scene.bootstrap, scene.config.verdicts)
    scene.make_verdicts()
    scene.say(said(4, 4, [], begins=True), said(4, 6, [4], topic_id=b"o" * 16))
    assert "was deleted and made anew since it was applied" in refused()
    assert "it was made from another topic by the source's name" in refused("--again")
    assert scene.applied("--again", "--skip-expired")[0]["skipped"] == 0
    scene.say(said(4, 4, [], begins=True), said(6, 7, []))
    assert "leaves a gap" in refused()

    delete_topic(scene.bootstrap, scene.config.source)
    create_topic(scene.bootstrap, scene.config.source)
    assert "positions do not tell rows of the two topics apart" in refused()


def test_only_rows_of_the_source_are_touched_by_the_names_that_a_table_has(make: Make) -> None:
    scene = make()
    scene.make_verdicts()
    scene.produce(range(3))
    scene.load()
    scene.append([("another", 0, 1, "stays"), (scene.config.source, 1, 1, "not covered")])
    scene.say(said(0, 0, [], begins=True), said(0, 3, [1]))
    view = scene.lake.read(scene.table)
    named = "partition=partition, offset=offset, topic=value"
    assert scene.applied("--columns", named, "--dry-run")[0]["deleted"] == 0, "no row is of it by that column"

    assert scene.applied()[0]["deleted"] == 1
    assert scene.positions() == [(0, 0), (0, 2), (1, 1)]
    assert view.where("topic = 'another'").count() == 1

    wrong = scene.run("--columns", "offset=pos")
    assert wrong.exit_code == 1
    assert "has no column pos: which one has the offset of the raw topic?" in wrong.stderr
    wrong = scene.run("--columns", "offset=value")
    assert "has string in column value" in wrong.stderr
    assert scene.run("--columns", "place=x").exit_code == 2
    assert scene.run("--spark-conf", "a").exit_code == 2
    missing = scene.run(table=str(scene.table.with_name("none")))
    assert (missing.exit_code, "is no Delta or Iceberg table" in missing.stderr) == (1, True)
    before = replace(scene.config, pipelines=scene.config.with_verdicts("records").pipelines)
    scene.config = replace(before, pipelines=(replace(before.pipelines[0], sink="clean"),))
    assert scene.run().exit_code == 2


def test_a_table_is_known_by_its_name_in_a_catalog(make: Make) -> None:
    scene = make()
    scene.make_verdicts()
    scene.produce(range(3))
    scene.load()
    scene.say(said(0, 0, [], begins=True), said(0, 3, [1]))
    if scene.lake.name == "delta":
        name = f"applied_{os.urandom(4).hex()}"
        scene.spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{scene.table}'")
        settings: list[str] = []
    else:
        name, key = "lakehouse.table", "spark.sql.catalog.lakehouse"
        pairs = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "hadoop",
            ".warehouse": scene.table.parent,
        }
        settings = [word for each, value in pairs.items() for word in ("--spark-conf", f"{key}{each}={value}")]

    ended = scene.run("--json", *settings, table=name)

    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["deleted"] == 1
    assert scene.positions() == [(0, 0), (0, 2)]
    if scene.lake.name == "delta":
        scene.spark.sql(f"DROP TABLE {name}")
