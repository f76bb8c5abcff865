"""`seqmark check` refuses a sink that does not fit its events, all faults at once, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from processor.commands.cli import main

ROOT = Path(__file__).parents[3]
# Nothing listens on the discard port.
CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:9"

[worker]
application_id = "clicks"

[[aggregates]]
name = "hourly"
topic = "clicks.clean"
event = "{event}"
time_field = "{time_field}"
window = "1 hour"
watermark = "2 hours"
group_by = [{group_by}]
aggregates = {{ events = "count", made = "{aggregate}" }}
output = {{ kind = "console" }}
checkpoint = "var/checkpoints/hourly"
"""
MODEL = """
import datetime as dt
from pydantic import AwareDatetime, BaseModel, NaiveDatetime

class User(BaseModel):
    country: str | None = None
    tags: list[str]

class Order(BaseModel):
    at: AwareDatetime
    seen: AwareDatetime | None
    local: NaiveDatetime
    user: User
    price: float
    raw: str

class Wrong(BaseModel):
    at: AwareDatetime
    data: bytes
    what: int | str
"""


def config(tmp_path: Path, **changes: str) -> str:
    right = {
        "event": "schemas.events:ClickEvent",
        "time_field": "occurred_at",
        "group_by": '"campaign"',
        "aggregate": "sum:amount",
    }
    path = tmp_path / "aggregates.toml"
    path.write_text(CONFIG.format(**(right | changes)))
    return str(path)


def found(path: str) -> tuple[int, dict[str, str]]:
    result = CliRunner().invoke(main, ["check", "--json", "-c", path])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return result.exit_code, {line["key"]: line["message"] for line in lines if line["level"] == "problem"}


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a module of the user's own, in the folder that he works in."""
    name = f"orders_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return name


def test_a_sink_that_fits_its_events_is_right(tmp_path: Path) -> None:
    assert found(config(tmp_path)) == (0, {})


def test_a_model_of_the_user_s_own_is_found_in_the_working_folder(tmp_path: Path, orders: str) -> None:
    changes = {"time_field": "at", "group_by": '"user.country"', "aggregate": "p99.9:price"}
    assert found(config(tmp_path, event=f"{orders}:Order", **changes)) == (0, {})


def test_every_fault_is_said_at_once_with_the_nearest_name(tmp_path: Path) -> None:
    wrong = config(tmp_path, time_field="occured_at", group_by='"campain"', aggregate="sum:user_id")
    code, faults = found(wrong)
    assert code == 2
    assert "did you mean occurred_at?" in faults["aggregates.0.time_field"]
    assert "did you mean campaign?" in faults["aggregates.0.group_by.0"]
    assert "user_id is a string: sum needs a number" in faults["aggregates.0.aggregates.made"]


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"time_field": "raw"}, "time_field", "it must be a point in time"),
        ({"time_field": "local"}, "time_field", "time without a zone"),
        ({"time_field": "seen"}, "time_field", "may be null"),
        ({"group_by": '"user.tags"'}, "group_by.0", "list of string"),
        ({"group_by": '"user"'}, "group_by.0", "object"),
        ({"aggregate": "avg:at"}, "aggregates.made", "avg needs a number"),
        ({"aggregate": "p50:raw"}, "aggregates.made", "a percentile needs a number"),
        ({"aggregate": "max:user.tags"}, "aggregates.made", "max needs a number, a time"),
        ({"aggregate": "max:user.age"}, "aggregates.made", "has no column user.age"),
    ],
)
def test_a_column_of_the_wrong_kind_is_refused(
    tmp_path: Path, orders: str, changes: dict[str, str], key: str, message: str
) -> None:
    right = {"time_field": "at", "group_by": '"user.country"', "aggregate": "sum:price"}
    code, faults = found(config(tmp_path, event=f"{orders}:Order", **(right | changes)))
    assert (code, list(faults)) == (2, [f"aggregates.0.{key}"])
    assert message in faults[f"aggregates.0.{key}"]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("nowhere.at.all:X", "no module nowhere.at.all"),
        ("schemas.evnets:ClickEvent", "did you mean schemas.events?"),
        ("shemas.events:ClickEvent", "did you mean schemas?"),
        ("schemas.events:KlickEvent", "did you mean ClickEvent? models in it: ClickEvent"),
        ("schemas.events:Purchase", "has no Purchase; models in it: ClickEvent"),
        ("schemas.events:Decimal", "is no pydantic model; models in it: ClickEvent"),
        ("json:dumps", "is no pydantic model; there is no model in it"),
    ],
)
def test_a_model_that_is_not_there_is_named(tmp_path: Path, event: str, message: str) -> None:
    code, faults = found(config(tmp_path, event=event))
    assert (code, list(faults)) == (2, ["aggregates.0.event"])
    assert message in faults["aggregates.0.event"]


def test_a_model_that_cannot_be_read_is_refused_with_every_field(tmp_path: Path, orders: str) -> None:
    result = CliRunner().invoke(main, ["check", "-c", config(tmp_path, event=f"{orders}:Wrong")])
    assert result.exit_code == 2
    assert "data is bytes" in result.stderr
    assert "what is a union" in result.stderr


def test_check_does_not_import_spark(tmp_path: Path) -> None:
    program = (
        "import sys; from click.testing import CliRunner; from processor.commands.cli import main\n"
        f"print(CliRunner().invoke(main, ['check', '-c', {config(tmp_path)!r}]).exit_code)\n"
        "print('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False"]
