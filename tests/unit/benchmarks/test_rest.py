"""Does the comparison over files at rest know what is right, and count what it says that it counts?"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from benchmarks.peers import ROOT
from benchmarks.rest.archive import RunShape, id_sum, write_history, write_run
from benchmarks.rest.pages import costs, judged_per_s, missing
from benchmarks.rest.protocol import ID, RestJob, RestStep
from benchmarks.rest.results import Phase, RestResult, WayCost, keep, read
from benchmarks.rest.run import main

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def cost(cpu_s: Mapping[str, float], rows: int = 1_000) -> WayCost:
    sizes = {"warm": rows // 10, "tenth": rows // 10, "all": rows, "day": rows // 30}
    phases = {name: Phase(name, sizes.get(name, 0), 0, each, 1.0) for name, each in cpu_s.items()}
    return WayCost({"remembered": Phase("remembered", 0, 0, 9.0, 1.0), **phases})


def result(old: int = 2_400_000, **ways: WayCost) -> RestResult:
    machine = {"cores": 2, "cpu": "c", "python": "3"}
    return RestResult(1_000, old, 4, "2026-01-01T00:00:00", "abc", machine, [0.2, 0.3], {}, dict(ways))


OURS = cost({"started": 4.0, "warm": 1.5, "tenth": 0.5, "all": 1.4, "copied": 0.6, "day": 0.1})


def rows_of(files: list[str]) -> list[dict[str, object]]:
    return [row for file in files for row in pq.read_table(file).to_pylist()]


@pytest.mark.parametrize("day", [None, 29])
def test_what_is_to_be_kept_is_what_a_naive_reader_keeps(tmp_path: Path, day: int | None) -> None:
    history = write_history(tmp_path, 4_000)
    made = [write_run(tmp_path, name, RunShape(at, 2_000, 4_000, 4_000 + 2_000 * at, day))
            for at, name in enumerate("ab")]  # fmt: skip
    old = rows_of(history)
    ids, contents = {row[ID] for row in old}, {(row[ID], row["amount"]) for row in old}
    assert len(history) == 4
    assert len(ids) == 4_000

    for each in made:
        rows = rows_of(each.files)
        new_ids = {row[ID] for row in rows} - ids
        new_contents = {(row[ID], row["amount"]) for row in rows} - contents
        ids, contents = ids | new_ids, contents | new_contents

        assert (len(rows), each.rows) == (2_000, 2_000)
        assert each.by_id.rows == len(new_ids)
        assert each.by_content.rows == len(new_contents) > len(new_ids)
        assert each.by_id.id_sum == sum(int(str(one)[16:], 16) for one in new_ids) % 2**64
        assert each.by_content.id_sum == sum(int(str(one)[16:], 16) for one, _ in new_contents) % 2**64
        assert id_sum(each.files).rows == 2_000
        if day is not None:
            assert {str(row["occurred_at"])[:10] for row in rows} == {"2026-01-30"}


def test_a_program_waits_at_each_mark_and_nothing_else_is_on_its_pipe() -> None:
    program = (
        "import os; from pathlib import Path; from benchmarks.rest.protocol import ProgramMarks\n"
        "marks = ProgramMarks(); print('chatter'); os.system('echo more')\n"
        "marks.say('one'); marks.say('two', [Path('f')])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        first = process.stdout.readline()
        assert process.poll() is None
        process.stdin.write("\n\n")
        rest, errors = process.communicate()

    assert json.loads(first) == {"mark": "one", "files": []}
    assert json.loads(rest) == {"mark": "two", "files": ["f"]}
    assert "chatter" in errors
    assert "more" in errors


def test_a_job_goes_over_a_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    job = RestJob("folder", ["a"], [RestStep("all", ["b"], "1d")], 4, fingerprints=True)
    monkeypatch.setattr(sys, "argv", ["program", job.to_json()])

    assert RestJob.of_arguments() == job
    assert job.heap == "3g"


def test_without_its_reading_and_writing_measured_beside_it_no_rate_of_judging_is_told() -> None:
    assert judged_per_s(OURS) == pytest.approx(1_250.0)
    assert judged_per_s(cost({"all": 1.4})) is None
    assert judged_per_s(cost({"all": 1.4, "copied": 1.4})) is None


def test_a_way_that_failed_has_no_figures_and_a_reason() -> None:
    failed = result(seqmark=OURS, polars=WayCost(failure="out of memory"))
    failed.missing["delta"] = "too long"

    ours, theirs = costs([failed]).rows

    assert ours[3] == "1,400"
    assert theirs[3:] == ("failed", *["-"] * 7)
    assert "polars" in missing([failed]).lower()
    assert "out of memory" in missing([failed])
    assert "too long" in missing([failed])


def test_a_size_that_is_measured_again_takes_the_place_of_the_former(tmp_path: Path) -> None:
    file = tmp_path / "rest.json"
    keep(result(100, seqmark=OURS), file)
    keep(result(10), file)
    keep(result(100), file)

    kept = read(file)

    assert [each.old for each in kept] == [10, 100]
    assert kept == [result(10), result(100)]
    assert keep(result(100, seqmark=OURS), file) == file
    assert read(file)[1].ways["seqmark"] == OURS


def test_an_unknown_way_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--ways", "paper"]) == 2
    assert "there is no way paper" in " ".join(capsys.readouterr().err.split())
