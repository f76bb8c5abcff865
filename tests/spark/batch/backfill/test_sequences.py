"""A pipeline of mode watermark that begins with `seqmark backfill` goes on as a worker over its history."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.batches.sequence_fill import HISTORIES, WHEN_MS, SequenceScene
from tests.support.kafka.topics import dice

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
COUNT = 120
CUTS = ("--cut", "0:20", "--cut", "1:20")


def test_backfill_and_worker_are_a_worker_over_all_of_it_whatever_the_format_and_the_scope(
    broker: Broker, tmp_path: Path, spark: SparkSession
) -> None:
    del spark
    scene, chance = SequenceScene(broker, tmp_path, COUNT), dice(1)
    told, spans = {}, {}
    for name, (kind, _, columns) in HISTORIES.items():
        until = [chance.randrange(COUNT // 2, COUNT + 1) for _ in range(2)]
        cuts = [chance.randrange(each + 1) for each in until]
        arguments = ["--history", scene.history(name, until), "--format", kind, "--run", name]
        if columns:
            arguments += ["--columns", columns]
        if "offset=" in columns:
            cuts = until  # the rows say it
        else:
            arguments += ["--cut", f"0:{cuts[0]}", "--cut", f"1:{cuts[1]}"]
        told[name], spans[name] = scene.loaded(name, *arguments), (until, cuts)

    scene.drain()

    for name, (until, cuts) in spans.items():
        known = scene.assert_goes_on(name, until, cuts)
        parts, whole = told[name][:-1], told[name][-1]
        assert [(each["cut"], each["rows"], each["scopes"]) for each in parts] == [
            *zip(cuts, until, known, strict=True)
        ]
        assert (whole["rows"], whole["scopes"], whole["loaded"]) == (sum(until), sum(known), True)
        assert not any(each["sample"]["gap"] for each in parts), "the history comes up to the cut, or beyond"


@pytest.fixture(scope="module")
def scene(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> SequenceScene:
    """Give pipelines that nothing is loaded into, with a history each."""
    names = "plain", "keys", "producers", "topic"
    made = SequenceScene(broker, tmp_path_factory.mktemp("sequences"), 40, *names)
    for name in names[:-1]:
        made.history(name, [20, 20])
    return made


@pytest.mark.parametrize(
    ("name", "columns", "code", "message"),
    [
        ("plain", "id=number,partition=part", 2, "there is no id; There are sequence, epoch, scope, key"),
        ("plain", "epoch=epoch,partition=part", 2, "epoch names a column, and the pipeline has no epoch"),
        ("plain", "scope=key,partition=part", 2, 'the pipeline\'s scope is "partition"'),
        ("keys", "scope=key,partition=part", 2, 'the pipeline\'s scope is "key": its column is key=COL'),
        ("plain", "time=time,partition=part", 2, "time is not needed: sequences have none"),
        ("plain", "sequence=number", 2, "has 2 partitions, and sequences are remembered by partition"),
        ("plain", "partition=part", 1, "has no column seq; name another with --columns"),
        ("plain", "sequence=text,partition=part", 1, "column text has the type string, not whole numbers"),
        ("keys", "sequence=number,partition=part,key=time", 1, "a key is made of texts"),
    ],
)
def test_what_does_not_fit_the_pipeline_is_said_and_nothing_is_loaded(
    scene: SequenceScene, spark: SparkSession, name: str, columns: str, code: int, message: str
) -> None:
    del spark
    history = str(scene.folder / f"history-{name}")

    done = scene.run(name, "--history", history, "--columns", columns, *CUTS)

    assert done.exit_code == code, done.output
    assert message in " ".join(done.stderr.split())


def test_the_table_of_a_batch_is_no_history_of_sequences(scene: SequenceScene) -> None:
    done = scene.run("plain", "--history", str(scene.folder), "--format", "batch", *CUTS)

    assert done.exit_code == 2
    assert "a batch remembers ids, and the pipeline is of mode watermark" in " ".join(done.stderr.split())


def test_an_archive_is_taken_up_to_the_cut_and_what_has_no_number_is_left_out(
    scene: SequenceScene, spark: SparkSession
) -> None:
    del spark
    history = scene.folder / "history-producers"
    rest: dict[str, object] = {"at": {"partition": 0}, "time": WHEN_MS}
    odd: list[dict[str, object]] = [
        {"who": "p", "digits": "1.5", "epoch": "0"},
        {"who": "p", "digits": 2**63, "epoch": "0"},
        # The stream reads no number where its epoch is a text.
        {"who": "p", "digits": "1", "epoch": 0},
        {"digits": "1", "epoch": "0"},
        {"who": "p", "digits": None, "epoch": "0"},
    ]
    (history / "odd.jsonl").write_text("".join(json.dumps(each | rest) + "\n" for each in odd))
    columns = "scope=who,partition=/at/partition,time=time"
    arguments = ["--history", str(history), "--format", "json", "--columns", columns, "--run", "archive"]

    done = scene.run(
        "producers", *arguments, "--cut-time", str(WHEN_MS + 15_000), "--up-to-cut", "--dry-run", "--json"
    )

    assert done.exit_code == 0, done.output
    *parts, whole = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["cut"], each["rows"]) for each in parts] == [(15, 15), (15, 15)]
    assert whole["left_out"] == {"unjudged": len(odd), "from_the_cut_on": 10}
    assert whole["loaded"] is False
    assert f"{len(odd)} of {40 + len(odd)} rows cannot be judged" in " ".join(done.stderr.split())


def test_what_is_loaded_is_not_loaded_again_and_no_other_history_under_its_name(scene: SequenceScene) -> None:
    arguments = ("--history", scene.pipeline("topic").source, "--format", "topic", "--run", "archive")

    looked = scene.run("topic", *arguments, *CUTS, "--dry-run")
    assert looked.exit_code == 0, looked.output
    titles = [each.strip() for each in looked.stdout.splitlines()[1].strip("┃").split("┃")]
    assert titles == ["partition", "rows", "scopes", "cut", "gap", "before the cut", "from the cut on"]
    first = scene.run("topic", *arguments, *CUTS)
    assert first.exit_code == 0, first.output
    assert "backfill archive is staged in" in first.stderr, "the dry run has staged it"
    again = scene.run("topic", *arguments, *CUTS)
    assert again.exit_code == 0
    assert "partition 0 began with 5 scopes at offset 20" in again.stdout
    other = scene.run("topic", *arguments, "--cut", "0:20", "--cut", "1:19")
    assert other.exit_code == 1
    assert "from another history (cut was" in " ".join(other.stderr.split())
