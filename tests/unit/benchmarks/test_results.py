"""Do the benchmark's plan, its arithmetic and its pages hold together?"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from benchmarks.cases import LONG, STANDARD, choose, turns
from benchmarks.measure.cost import Figures, Sample, figures
from benchmarks.measure.processes import Tree, running
from benchmarks.options import Options
from benchmarks.pages import promises, publish, tables
from benchmarks.pages.picture import draw
from benchmarks.peers import PEERS, SEQMARK, Job, find_peer
from benchmarks.rest.results import read as read_rest
from benchmarks.results import Latency, Results, Run
from benchmarks.run import Bench

if TYPE_CHECKING:
    from benchmarks.peers import Guarantee

BOTH: tuple[Guarantee, ...] = ("exactly_once", "at_least_once")


def made(rate: float) -> Figures:
    return Figures(1_000_000, 0, 1.0, 4.0, 3.0, 2.0, 500_000, 1.0, 500_000 / rate, 10_000_000, 0.2, 0.21)


def results() -> Results:
    runs = [
        Run(STANDARD, SEQMARK, "exactly_once", number, made(rate))
        for number, rate in enumerate((2_000.0, 1_800.0, 2_200.0))
    ]
    runs += [
        Run(STANDARD, SEQMARK, "at_least_once", 0, made(2_100.0)),
        Run(STANDARD, "flink", "exactly_once", 0, made(400.0)),
        Run(STANDARD, "flink", "at_least_once", 0, failure="it ended by itself with 1"),
        Run("json", SEQMARK, "exactly_once", 0, made(500_000.0)),
    ]
    latency = [Latency(SEQMARK, "exactly_once", 500, 5_000, 90, 251, 300)]
    return Results("latest", machine={"cores": 2}, runs=runs, latency=latency, systems={"flink": "Flink 2"})


def looks(*committed: int) -> list[Sample]:
    """Return samples, one a second, each with two CPU seconds more."""
    return [Sample(float(at), 2.0 * at, 0.5 * at, records) for at, records in enumerate(committed)]


def test_the_second_half_goes_from_a_new_commit_to_the_last_but_one() -> None:
    found = figures(looks(0, 100, 100, 520, 520, 800, 800, 1_000), 0, 1, 0.2, 0.2)

    assert (found.half_records, found.half_wall_s, found.half_cpu_s) == (280, 2.0, 4.0)
    assert (found.first_s, found.wall_s, found.cpu_s) == (1.0, 7.0, 14.0)
    assert found.rate == pytest.approx(1_000 / 14)


@pytest.mark.parametrize(
    ("committed", "half"), [((0, 100, 600, 1_000), 400), ((0, 100, 1_000), 900), ((0, 0, 1_000), 1_000)]
)
def test_with_too_few_commits_it_goes_to_the_end(committed: tuple[int, ...], half: int) -> None:
    assert figures(looks(*committed), 0, 1, 0.2, 0.2).half_records == half


def test_systems_take_turns_and_each_round_begins_with_another() -> None:
    (standard,) = choose(STANDARD)

    made_turns = turns(standard, {SEQMARK: BOTH, "flink": ("at_least_once",)}, 3)

    rounds = [[turn for turn in made_turns if turn.repetition == number] for number in range(3)]
    assert {frozenset((turn.system, turn.guarantee) for turn in each) for each in rounds} == {
        frozenset({(SEQMARK, "exactly_once"), (SEQMARK, "at_least_once"), ("flink", "at_least_once")})
    }
    assert len({(each[0].system, each[0].guarantee) for each in rounds}) == 3


def test_other_cases_have_seqmark_exactly_once_and_one_peer_once() -> None:
    (case,) = choose("json")

    found = [
        (turn.system, turn.guarantee)
        for turn in turns(case, {SEQMARK: BOTH, "kafka_streams": BOTH, "flink": BOTH}, 3)
    ]

    assert found.count((SEQMARK, "exactly_once")) == 3
    assert found.count(("kafka_streams", "exactly_once")) == 1
    assert len(found) == 4


@pytest.mark.parametrize(("quick", "peers"), [("0", 2), ("1", 1)])
def test_a_quick_run_has_of_peers_what_they_promise_at_best(tmp_path: Path, quick: str, peers: int) -> None:
    bench = Bench(Options.read({"QUICK": quick}), results(), "h:1", None, tmp_path)
    both = find_peer(SEQMARK)

    assert bench.guarantees(both, brief=True) == BOTH[:peers]
    assert bench.guarantees(both, brief=False) == BOTH


def test_a_quick_run_has_an_eighth_of_the_records_and_no_peer_beside_the_standard_case() -> None:
    whole, quick = choose(""), choose("", quick=True)

    short = [case for case in whole if case.quick]
    assert [case.name for case in whole if not case.quick] == [LONG]
    assert [case.load.records * 8 for case in quick] == [case.load.records for case in short]
    assert not any(case.beside for case in quick)
    assert any(case.beside for case in whole)


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({}, "latest"),
        ({"QUICK": "1"}, "quick"),
        ({"PEERS": "none"}, "partial"),
        ({"CASES": STANDARD}, "partial"),
        ({"QUICK": "1", "RECORDS": "1000"}, "partial"),
        ({"SPARK": "0"}, "partial"),
    ],
)
def test_only_a_whole_run_is_the_latest(environ: dict[str, str], kind: str) -> None:
    assert Options.read(environ).kind == kind


def test_variables_choose() -> None:
    options = Options.read({"CASES": "json, standard", "PEERS": "flink", "RECORDS": "1000", "REPEAT": "2"})

    assert [case.name for case in options.cases] == ["json", STANDARD]
    assert {case.load.records for case in options.cases} == {1_000}
    assert (options.peers, options.repetitions) == (("flink",), 2)
    assert Options.read({"PEERS": "none"}).peers == ()
    assert Options.read({}).peers == PEERS


@pytest.mark.parametrize(
    "environ", [{"CASES": "jsn"}, {"PEERS": "storm"}, {"RECORDS": "0"}, {"RECORDS": "many"}, {"QUICK": "yes"}]
)
def test_a_wrong_variable_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"no (case|peer)|must be"):
        Options.read(environ)


def test_targets_are_judged_by_medians() -> None:
    assert tables.reached(1.0, 2.0, 3.0) == "no: 50% of it"
    assert tables.reached(2.0, 2.0, 3.0) == "yes"
    assert tables.reached(3.0, 2.0, 3.0) == "aim"
    assert tables.reached(None, 2.0, 3.0) == "-"
    standard, json_case = tables.cases(results()).rows
    assert standard[2] == "2,000 (1,800-2,200)"
    assert json_case[7] == "yes"


def test_a_second_half_of_a_few_looks_is_marked_and_judged_by_nobody() -> None:
    short = Results("quick", runs=[Run("json", SEQMARK, "exactly_once", 0, made(5_000_000.0))])

    (row,) = tables.cases(short).rows

    assert row[2] == "~5,000,000"
    assert row[7] == "-"


def test_what_was_too_short_to_be_measured_keeps_no_promise_and_breaks_none() -> None:
    short = results()
    short.kind = "quick"
    short.runs = [replace(run, figures=made(5_000_000.0)) for run in short.runs]

    assert {row[3] for row in promises.promises(short).rows} == {"-"}


def test_repetitions_that_were_too_short_are_left_out_of_what_is_promised() -> None:
    found = results()
    found.runs.append(Run(STANDARD, SEQMARK, "exactly_once", 9, made(5_000_000.0)))

    assert tables.steady_rate(found, STANDARD, SEQMARK) == tables.steady_rate(results(), STANDARD, SEQMARK)


def test_a_failed_run_has_no_figures_but_a_line() -> None:
    rows = {(row[0], row[1]): row for row in tables.standard(results()).rows}

    assert rows["Flink 2", "at least once"][2:4] == ("failed", "-")
    assert rows["Flink 2", "exactly once"][6] == "5.0"


def test_results_are_read_as_they_were_kept(tmp_path: Path) -> None:
    kept = results()

    assert Results.read(kept.keep(tmp_path)) == kept


def test_the_same_figures_draw_the_same_picture(tmp_path: Path) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    texts = set()
    for folder in folders:
        folder.mkdir()
        drawn = draw(results(), folder / "bench.svg")
        assert drawn is not None
        texts.add(drawn.read_text())

    assert len(texts) == 1
    assert draw(Results("latest"), tmp_path / "none.svg") is None


@pytest.mark.parametrize("page", publish.PAGES)
def test_a_page_says_what_the_results_say(page: str) -> None:
    text = (publish.ROOT / page).read_text()

    assert re.search(r"<!-- bench:[a-z-]+ -->", text)
    assert publish.filled(text, Results.read(publish.LATEST), publish.read_ids(), read_rest()) == text, (
        "run python -m benchmarks.pages.publish"
    )


def test_a_job_goes_over_a_command_line() -> None:
    job = Job("h:1", "a", "b", "g", 4, "exactly_once", Path("x y"), "json", "key")

    assert Job.from_json(job.to_json()) == job


def test_seqmark_is_a_peer_and_an_unknown_name_is_none(tmp_path: Path) -> None:
    peer = find_peer(SEQMARK)
    job = Job("h:1", "a", "b", "g", 4, "exactly_once", tmp_path, "json", "key")

    assert peer.supports(job)
    assert peer.record_limit is None
    assert str(tmp_path) in " ".join(peer.command(job))
    with pytest.raises(ValueError, match="no system"):
        find_peer("os")


def test_what_a_system_has_started_ends_with_it(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys, time\n"
        "while time.process_time() < 0.1: pass\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    log = tmp_path / "log"
    with running([sys.executable, "-c", program], {}, log) as process:
        tree = Tree(process.pid)
        while not log.read_text().endswith("\n"):
            tree.look()
        child = psutil.Process(int(log.read_text()))
        assert child in psutil.Process(process.pid).children()
        assert tree.look() > 0

    assert ended(child)
    assert process.poll() is not None


def ended(child: psutil.Process) -> bool:
    """Whether a process is over; somebody else's init may not have asked for its exit code yet."""
    try:
        return not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
