"""Does a config of batches say everything that is wrong with it, at once, and need nothing else?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from processor.config.load import load
from processor.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

RIGHT = """
[[batches]]
name = "a"
input = { format = "parquet", path = "raw" }
output = { format = "parquet", path = "clean" }
id = ["event_id", "device"]
event_time = "at"
window = "7d"
"""


def problems(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "my.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    return [f"{each.key}: {each.message}" for each in caught.value.problems]


def test_batches_alone_are_a_config_and_check_asks_no_broker(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(RIGHT)

    done = CliRunner().invoke(main, ["check", "-c", str(file)])

    assert done.exit_code == 0
    assert "names 1 batch, and every key is right" in done.stdout
    assert "the config and its topics are right" in done.stderr


def test_batches_alone_need_no_topics(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(RIGHT)

    done = CliRunner().invoke(main, ["topics", "-c", str(file)])

    assert done.exit_code == 0
    assert "names batches only: files at rest need no topics, and no broker was asked" in done.stderr


def test_beside_a_pipeline_the_tables_of_the_broker_are_needed(tmp_path: Path) -> None:
    pipeline = '[[pipelines]]\nname = "p"\nsource = "s"\nsink = "t"\ndedup = { mode = "watermark" }\n'
    found = problems(tmp_path, RIGHT + pipeline)
    assert {each.split(":")[0] for each in found} >= {"kafka", "worker"}


def test_a_batch_over_a_topic_needs_a_broker_and_no_worker(tmp_path: Path) -> None:
    files = 'input = { format = "parquet", path = "raw" }'
    text = RIGHT.replace(files, 'input = { format = "kafka", topic = "clicks" }')
    assert [each.split(":")[0] for each in problems(tmp_path, text)] == ["kafka"]

    kafka = '[kafka]\nbootstrap_servers = "localhost:9092"\n'
    file = tmp_path / "right.toml"
    file.write_text(kafka + text.replace('event_time = "at"', 'event_time = "kafka_timestamp"'))
    assert load(file, {}).batches[0].input.place == "topic clicks"

    wrong = kafka + text.replace("device", "kafka_key").replace('event_time = "at"', 'event_time = "kafka_key"')
    found = problems(tmp_path, wrong)
    assert found[0].startswith("batches.0.id.1: is kafka_key: an id is made of fields of the records' values")
    assert found[1].startswith("batches.0.event_time: is kafka_key, which is no time: write kafka_timestamp")
    unknown = RIGHT.replace(files, 'input = { format = "kafka", path = "raw" }')
    assert any(each.startswith("batches.0.input.topic: ") for each in problems(tmp_path, kafka + unknown))


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = """
[[batches]]
name = "a b"
input = { format = "json", path = "raw/*.json" }
output = { format = "delta", path = "s3://bucket/clean" }
duplicates = "raw/receipts"
id = ["event_id", "event_id", "seqmark_id"]
event_time = "at"
window = "0s"
rename_first = true

[[batches]]
name = "c"
input = { format = "json", path = "raw" }
output = { format = "parquet", path = "raw/clean" }
id = ["event_id", "device"]
event_time = "at"
window = "7d"
fingerprint = {}
on_collision = "rename"

[[batches]]
name = "d"
input = { format = "json", path = "more" }
output = { format = "hudi", path = "clean" }
id = ["event_id"]
event_time = "at"
window = "7d"
fingerprint = {}
on_collision = "quarantine"
rename = { to = "other" }
"""
    found = problems(tmp_path, text)
    for key, message in {
        "batches.0.name": "must be made of letters",
        "batches.0.input.path": "must be a folder or a file",
        "batches.0.output.path": "must be a path of a file system",
        "batches.0.id.2": "must not begin with seqmark_",
        "batches.0.window": "must be longer than 0",
        "batches.0.rename_first": "needs fingerprint",
        "batches.1.output.path": "lies in or around batches.c.input.path; each needs a folder of its own",
        "batches.1.rename": "is needed, for the id has several columns",
        "batches.2.output.format": 'must be "parquet", "delta" or "iceberg"',
        "batches.2.on_collision": '"quarantine" needs a folder for it',
        "batches.2.rename": 'has no effect with on_collision "quarantine"',
    }.items():
        assert any(each.startswith(f"{key}: {message}") for each in found), (key, found)


RENAMED = 'rename = { to = "device" }\nfingerprint = {}\non_collision = "rename"\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('id = ["a", "a"]', "batches.0.id.1: is a once more"),
        (
            'rename = { to = "x" }\nfingerprint = {}\non_collision = "rename"',
            "batches.0.rename.to: must be a column",
        ),
        ('duplicates = "clean/sub"', "batches.0.duplicates: lies in or around batches.a.output.path"),
        ('on_collision = "drop"', "batches.0.on_collision: needs fingerprint"),
        ('normalise = { at = "uuid" }', "batches.0.normalise.at: must be a column of the id: event_id, device"),
        (f'{RENAMED}normalise = {{ device = "lower" }}', "batches.0.normalise.device: cannot be normalised"),
    ],
)
def test_values_that_are_wrong_together_are_said(tmp_path: Path, line: str, message: str) -> None:
    text = RIGHT.replace('id = ["event_id", "device"]\n', "") if line.startswith("id") else RIGHT
    assert any(each.startswith(message) for each in problems(tmp_path, text + line + "\n"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('columns = { amount = "money" }', "batches.0.columns.amount: must be string, boolean, tinyint"),
        ('columns = { amount = "decimal(2,3)" }', "no more of them behind the point"),
        ('columns = { amount = "decimal(39,3)" }', "at most 38 digits"),
        ('columns = { seqmark_x = "int" }', "batches.0.columns.seqmark_x: must not begin with seqmark_"),
        ('schema = "events"', "batches.0.schema: must be MODULE:CLASS"),
        ('columns = { amount = "int" }', 'batches.0.columns: has no effect with format "parquet"'),
        ('schema = "schemas.events:ClickEvent"', 'batches.0.schema: has no effect with format "parquet"'),
    ],
)
def test_types_of_columns_are_of_a_form_and_of_json_alone(tmp_path: Path, line: str, message: str) -> None:
    assert any(message in each for each in problems(tmp_path, f"{RIGHT}{line}\n"))
