"""The example of docs/batch.md does what the page says, typed as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from spark_sink import read_clean
from spark_sink.session import lake_package
from tests.support.suite.pages import typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "batch.md"
_TEXT = PAGE.read_text()
MONDAY, TUESDAY = re.findall(r"^```json\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)
CONFIG = re.findall(r"^```toml\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)[0]
PRINTED = re.findall(r"^```text\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)[0]


def run(line: str, *more: str) -> str:
    """Run a line of the page in this process, where the tests' Spark is; return its result."""
    done = CliRunner().invoke(main, [*line.split()[1:], *more])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_the_example_of_the_page_comes_out_as_it_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("raw").mkdir()
    Path("raw/monday.jsonl").write_text(MONDAY)
    Path("raw/tuesday.jsonl").write_text(TUESDAY)
    Path("my.toml").write_text(CONFIG)
    monday, tuesday, again, since = (line for line in typed(PAGE) if line.startswith("seqmark "))

    run(monday)
    dry = json.loads(run(tuesday, "--dry-run", "--json"))
    printed = run(tuesday)

    assert printed == PRINTED
    assert dry["commit"] is None
    assert (dry["kept"], dry["duplicates"], dry["collisions"], dry["quarantined"]) == (2, 1, 1, 1)
    assert run(again) == printed
    rows = {(row["seqmark_file"], row["seqmark_row"]): row for row in read_clean(spark, "clean").collect()}
    assert {place: row["seqmark_original_id"] for place, row in rows.items()} == {
        ("monday.jsonl", 0): None,
        ("monday.jsonl", 1): None,
        ("tuesday.jsonl", 1): "a1",
        ("tuesday.jsonl", 3): None,
    }
    noted = [row for row in read_clean(spark, "receipts").collect() if row["verdict"] == "collision"]
    assert [row["new_id"] for row in noted] == [rows["tuesday.jsonl", 1]["event_id"]]
    aside = read_clean(spark, "quarantine").collect()
    assert [(row["seqmark_error"], row["seqmark_source"]) for row in aside] == [
        ("field_missing", "tuesday.jsonl:2")
    ]

    told = json.loads(run(since, "--json"))

    assert (told["commit"], told["skipped"], told["kept"], told["quarantined"]) == (3, 4, 2, 1)
    assert json.loads(run(since, "--json"))["committed_before"] is True
    made_again = {
        (row["seqmark_file"], row["seqmark_row"]): row for row in read_clean(spark, "clean").collect()
    }
    assert {place: row["event_id"] for place, row in made_again.items()} == {
        place: row["event_id"] for place, row in rows.items()
    }
    run("seqmark batch -c my.toml --input raw/monday.jsonl --run more")
    merged = json.loads(run("seqmark batch -c my.toml --compact", "--json"))
    assert (merged["commit"], merged["files"], merged["dates"]) == (5, 3, 1)


@pytest.mark.parametrize("name", ["batch.toml", "batch-delta.toml", "batch-iceberg.toml"])
def test_the_example_of_a_config_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples").mkdir()
    Path("examples", name).write_text((ROOT / "examples" / name).read_text())
    Path("var/raw").mkdir(parents=True)
    columns = {"event_id": ["a", "a", "a"], "sent_at": [1, 2, 3], "amount": [1, 1, 2]}
    pq.write_table(pa.table(columns | {"occurred_at": ["2026-01-01"] * 3}), "var/raw/a.parquet")
    (line,) = typed(ROOT / "examples" / name)

    told = json.loads(run(line, "--json"))

    assert all(lake_package(lake) in _TEXT for lake in ("delta", "iceberg"))
    assert (told["kept"], told["duplicates"], told["collisions"], told["renamed"]) == (2, 1, 1, 1)
    assert read_clean(spark, "var/clean").count() == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "archiv"], "--name: there is no batch archiv; did you mean archive?"),
        (["--from", "yesterday"], "--from: must be a date such as 2026-01-31, not yesterday"),
        (["--compact", "--run", "x"], "--compact: reads no input: it goes with no other option of a run"),
        (["--run", " "], "--run: must not be empty"),
    ],
)
def test_a_wrong_command_line_is_refused_with_exit_2(tmp_path: Path, options: list[str], message: str) -> None:
    file = tmp_path / "my.toml"
    file.write_text(CONFIG)

    done = CliRunner().invoke(main, ["batch", "-c", str(file), *options])

    assert done.exit_code == 2
    assert message in done.stderr


def test_what_is_refused_ends_with_exit_1_and_what_to_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    del spark  # it is used as this process's session
    Path("my.toml").write_text(CONFIG)

    done = CliRunner().invoke(main, ["batch", "-c", "my.toml"])

    assert done.exit_code == 1
    assert "input raw does not exist; name a file or a folder, or give others with --input" in done.stderr
