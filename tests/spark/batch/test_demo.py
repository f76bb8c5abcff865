"""The demo of files at rest agrees with its truth, kills a run on its way, and goes on with a worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from processor.commands.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.support.chromium.browser import Chromium
    from tests.support.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def ended(folder: Path, broker: Broker) -> Result:
    """Run the demo once for all tests."""
    options = ("--mode", "batch", "--records", "3000", "--directory", str(folder), "--json")
    return CliRunner().invoke(main, ["demo", *options, "--bootstrap-servers", broker.bootstrap_servers])


def test_everything_agrees_after_a_killed_run_and_a_date_that_was_made_again(ended: Result) -> None:
    assert ended.exit_code == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["ok"], told["differences"]) == (True, [])
    assert told["killed"]["signal"] == 9
    assert told["killed"]["files_left"] > 0
    assert list(told["runs"]) == ["monday", "tuesday", "wednesday", "wednesday-corrected"]
    assert [each["commit"] for each in told["runs"].values()] == [1, 2, 3, 4]
    assert told["runs"]["wednesday-corrected"]["skipped"] > 1_000
    counts = told["counts"]
    assert all(each["found"] == each["truth"] for each in counts.values())
    assert counts["dropped: copy of a row of an earlier run"]["found"] == 40
    assert counts["kept: collision"]["found"] == counts["noted: collision"]["found"] == 25
    assert counts["quarantined as field_missing: cannot be judged"]["found"] == 3
    assert counts["quarantined as value_not_json: cannot be judged"]["found"] == 3
    assert "5. Wednesday's prices were wrong" in ended.stderr
    assert ended.stderr.endswith("everything agrees with the truth\n")
    assert counts["topic, in"]["found"] == 1_000
    assert counts["topic, dropped: copy of a row of the files"]["found"] == 20
    assert counts["topic, dropped: copy within the topic"]["found"] == 30
    assert counts["topic, kept: collision"]["found"] == 10
    assert counts["topic, quarantined as value_not_json: first"]["found"] == 2


def test_its_report_shows_the_runs_in_a_browser(ended: Result, folder: Path, chromium: Chromium) -> None:
    assert ended.exit_code == 0, ended.stderr

    look = chromium.look((folder / "batch.html").as_uri(), lambda page: page.locator("body").inner_text())

    assert "wednesday-corrected, made again from 2026-03-04 on" in look.seen
    assert (look.errors, look.requests) == ([], [])
