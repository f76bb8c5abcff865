"""What cannot be backfilled is refused before anything is loaded, with what to do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.batches.fill import RUN, FillScene
from tests.support.worker.process import start_worker

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
COUNT = 40
CUTS = ("--cut", "0:20", "--cut", "1:20")
PLACED = "time=at,partition=partition"


@pytest.fixture(scope="module")
def scene(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> FillScene:
    """Give a pipeline that nothing is loaded into, and its history."""
    made = FillScene(broker, tmp_path_factory.mktemp("refusals"))
    made.stream(1, COUNT)
    made.write("json", made.history({0: 20, 1: 20}))
    made.write("parquet", made.history({0: 20, 1: 20}))
    return made


@pytest.mark.parametrize(
    ("kind", "options", "code", "message"),
    [
        ("json", ["--columns", "time=at", *CUTS], 2, "has 2 partitions, and ids are remembered by partition"),
        ("json", ["--columns", PLACED], 2, "where does the stream go on in partition 0, 1"),
        ("json", ["--columns", PLACED, "--cut", "0:20"], 2, "where does the stream go on in partition 1"),
        ("json", ["--columns", PLACED, "--cut", "5:1", *CUTS], 2, "there is no partition 5"),
        (
            "json",
            ["--columns", PLACED, "--cut", "0:41", "--cut", "1:0"],
            1,
            "the cut, offset 41, lies beyond the end",
        ),
        ("json", ["--columns", PLACED, "--cut-time", "yesterday"], 2, "is not a time such as"),
        ("json", ["--columns", PLACED, "--cut-time", "2026-01-01T00:00:00"], 2, "has no zone"),
        (
            "json",
            ["--columns", f"{PLACED},id=event_id", *CUTS],
            2,
            "id has 1 columns, and the ids of the pipeline",
        ),
        ("json", ["--columns", "partition=partition", *CUTS], 2, "time=COL is missing"),
        ("json", ["--columns", f"{PLACED},ofset=x", *CUTS], 2, "there is no ofset; did you mean offset?"),
        (
            "json",
            ["--columns", "time=at,partition=offset", *CUTS],
            1,
            ", the source has 2",
        ),
        ("json", ["--columns", "time=at,partition=none", *CUTS], 1, "row 0 has no partition"),
        ("json", ["--columns", "time=at,key=none", *CUTS], 1, "row 0 has no key"),
        ("json", ["--columns", PLACED, "--up-to-cut", *CUTS], 2, "needs the offsets, --columns offset=COL"),
        ("json", ["--columns", PLACED, "--run", "a/b", *CUTS], 2, "must be of letters, digits"),
        (
            "parquet",
            ["--columns", "time=when,partition=partition", *CUTS],
            1,
            "has no column when; name another",
        ),
        (
            "parquet",
            ["--columns", "time=device,partition=partition", *CUTS],
            1,
            "column device has the type binary",
        ),
        (
            "parquet",
            ["--columns", "time=at,partition=key", *CUTS],
            1,
            "column key has the type string, not whole",
        ),
        ("delta", ["--columns", PLACED, *CUTS], 1, "is no Delta table; name its folder"),
        ("topic", ["--columns", PLACED, *CUTS], 2, "goes with files, not with a topic"),
        ("batch", ["--columns", "partition=partition", *CUTS], 1, "is no clean table"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_loaded(
    scene: FillScene, spark: SparkSession, kind: str, options: list[str], code: int, message: str
) -> None:
    del spark
    path = scene.folder / f"history-{kind}"
    history = str(path if path.exists() else scene.folder)

    done = scene.run("--history", history, "--format", kind, *options)

    assert done.exit_code == code, done.output
    assert message in " ".join(done.stderr.split())
    assert not [each for each in scene.read(scene.config.changelog, 0) if each.value]


def test_a_cut_in_the_time_to_come_is_the_end_of_each_partition(scene: FillScene) -> None:
    told = scene.loaded(
        "--history", scene.config.source, "--format", "topic", "--cut-time", "2100-01-01T00:00:00Z", "--dry-run"
    )

    assert [(each["cut"], each["rows"]) for each in told[:-1]] == [(COUNT, COUNT)] * 2
    assert told[-1]["loaded"] is False


def test_a_working_pipeline_and_one_with_a_state_are_refused_before_the_history_is_read(
    broker: Broker, tmp_path: Path
) -> None:
    scene = FillScene(broker, tmp_path)
    scene.stream(2, COUNT)
    path = scene.write("json", scene.history({0: 20, 1: 20}))
    arguments = ("--history", path, "--format", "json", "--columns", PLACED, *CUTS)
    with start_worker(scene.config) as worker:
        worker.wait_ready()

        refused = scene.run(*arguments)

        assert refused.exit_code == 1
        assert "pipeline p is not stopped" in refused.stderr
        worker.terminate()
        worker.wait()

    refused = scene.run(*arguments)

    assert refused.exit_code == 1
    assert "has a state already: only a pipeline that has not begun can be backfilled" in refused.stderr
    assert "hashing" not in refused.stderr


def test_what_is_loaded_is_not_loaded_again_and_no_other_history_under_its_name(
    broker: Broker, tmp_path: Path
) -> None:
    scene = FillScene(broker, tmp_path)
    scene.stream(3, COUNT)
    arguments = ("--history", scene.config.source, "--format", "topic", "--run", RUN)

    looked = scene.run(*arguments, *CUTS, "--dry-run")
    assert looked.exit_code == 0, looked.output
    assert "nothing was loaded: --dry-run" in looked.stderr
    assert not [each for each in scene.read(scene.config.changelog, 0) if each.value]

    first = scene.run(*arguments, *CUTS)
    assert first.exit_code == 0, first.output
    assert f"backfill {RUN} is staged in" in first.stderr, "the dry run has staged it"
    assert f"backfill {RUN} is loaded" in first.stderr
    again = scene.run(*arguments, *CUTS, "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["loaded_before"] is True
    other = scene.run(*arguments, "--cut", "0:20", "--cut", "1:19")
    assert other.exit_code == 1
    assert "from another history (cut was [[0, 20], [1, 20]] and is [[0, 20], [1, 19]])" in " ".join(
        other.stderr.split()
    )
    left = {path.name for path in (scene.config.state_dir).rglob("*") if path.is_file()}
    assert left == {"history.json", f"{RUN}.lock"}, "what was staged holds the key of the hashes"
