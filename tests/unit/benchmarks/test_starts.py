"""Do starts, kernels, executors and aggregates stand in tables as they were measured?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.cases import ID_CASES, LONG, RESTART_IDS, SIZES, STANDARD, choose, turns
from benchmarks.measure.cost import Figures
from benchmarks.options import EXECUTOR_RUNS, Options
from benchmarks.pages import executor_tables, id_tables, publish, spark_tables, start_tables
from benchmarks.peers import SEQMARK, SHIPPED, Job, find_peer
from benchmarks.results import Results, Run
from benchmarks.studies.executors import WAYS
from processor.engine.shipped import processor

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.peers import Guarantee

BOTH: tuple[Guarantee, ...] = ("exactly_once", "at_least_once")
NEW = (
    "starts",
    "kernels",
    "ids-kernels",
    "executors",
    "aggregates",
    "durations",
    "ids-durations",
    "ids-restarts",
)


def line(way: str, fixed_s: float, each_us: float, wall_us: float) -> list[dict[str, Any]]:
    """Return what a way takes of two topics, three times, in which one run was slow."""
    return [
        {
            "way": way,
            "records": records,
            "wall_s": 5 + records * wall_us / 1e6 + late,
            "cpu_s": fixed_s + records * each_us / 1e6 + late,
        }
        for records in (100_000, 2_000_000)
        for late in (0.0, 9.0, 0.0)
    ]


@pytest.mark.parametrize(
    ("cores", "cpu_us", "wall_us", "judged"),
    [
        (2, 3.3, 1.9, "by CPU, 1.18 times at most: yes"),
        (2, 3.6, 1.0, "by CPU, 1.18 times at most: no"),
        (8, 3.6, 1.1, "by rate, 1.7 times at least: yes"),
        (8, 3.0, 1.9, "by rate, 1.7 times at least: no"),
    ],
)
def test_a_second_executor_is_judged_by_rate_where_cores_allow(
    cores: int, cpu_us: float, wall_us: float, judged: str
) -> None:
    costs = [*line("one", 20.0, 3.0, 2.0), *line("two", 25.0, cpu_us, wall_us)]
    results = Results("latest", machine={"cores": cores}, executors={"costs": costs})

    one, two, both = executor_tables.executors(results).rows

    assert one[1:] == ("2,000,000", "20.0", "3.00", "5.00", "500,000", "-")
    assert two[0] == "aggregate, two"
    assert (both[3], both[-1]) == (f"{cpu_us / 3:.2f} times", judged)


def test_what_no_run_has_measured_yet_is_said() -> None:
    empty = Results("latest", machine={"cores": 2})

    assert {publish.block(name, empty, empty) for name in NEW} == {"Not measured yet."}


def test_a_wheels_kernels_are_measured_where_a_second_half_is_long() -> None:
    made = Figures(2_000_000, 0, 1.0, 4.0, 3.0, 2.0, 1_000_000, 1.0, 0.5, 10_000_000, 0.2, 0.21)
    runs = [Run(LONG, SEQMARK, "exactly_once", 0, made)]
    runs += [Run(LONG, SHIPPED, "exactly_once", 0, replace(made, half_cpu_s=0.6))]
    short = [replace(run, figures=replace(made, half_cpu_s=0.2)) for run in runs]

    (row,) = start_tables.kernels(Results("latest", runs=runs)).rows
    (too_short,) = start_tables.kernels(Results("latest", runs=short)).rows

    assert row[2:] == ("600", "500", "1,670,000", "2,000,000", "20%")
    assert too_short[-3:] == ("~5,000,000", "~5,000,000", "-")
    for case in (*choose(f"{LONG},{STANDARD}"), *choose(SIZES[1], among=ID_CASES)):
        systems = [turn.system for turn in turns(case, {SEQMARK: BOTH, SHIPPED: BOTH[:1]}, 2)]
        assert systems.count(SHIPPED) == (2 if case.shipped else 0), case.name
        assert case.shipped == (case.name != STANDARD)


def test_a_worker_with_a_wheels_kernels_names_what_these_were_compiled_for(tmp_path: Path) -> None:
    known, job = processor(), Job("h:1", "a", "b", "g", 4, "exactly_once", tmp_path)
    assert known is not None

    named = find_peer(SHIPPED).environment(job)

    assert (named["NUMBA_CPU_NAME"], named["NUMBA_CPU_FEATURES"]) == (known.name, known.more)
    assert "NUMBA_CPU_NAME" not in find_peer(SEQMARK).environment(job)


def test_far_slower_peers_take_part_in_the_first_round_only() -> None:
    (standard,) = choose(STANDARD)

    systems = [turn.system for turn in turns(standard, {"quix": BOTH, "flink": BOTH}, 3)]

    assert (systems.count("quix"), systems.count("flink")) == (2, 6)


def test_starts_and_executors_belong_to_a_whole_run() -> None:
    whole = Options.read({})

    assert (whole.starts, whole.executor_records) == (3, EXECUTOR_RUNS * whole.spark_records)
    assert Options.read({"QUICK": "1"}).starts == 0
    assert whole.restart_ids == 0
    assert (Options.read({}, ids=True).starts, Options.read({}, ids=True).restart_ids) == (3, RESTART_IDS)
    assert Options.read({"STARTS": "0"}, ids=True).restart_ids == 0
    assert Options.read({"RECORDS": "1000"}, ids=True).restart_ids == 1000
    assert Options.read({"QUICK": "1"}, ids=True).restart_ids == 0
    assert Options.read({"STARTS": "0"}).kind == "partial"
    assert (Options.read({"STARTS": "1", "QUICK": "1"}).starts, len({way.name for way in WAYS})) == (1, 6)


def again(ids: int, ready_s: float) -> dict[str, Any]:
    return {"ids": ids, "ready_s": ready_s, "cpu_s": 3.0}


def test_fewer_ids_than_were_promised_keep_no_promise() -> None:
    results = Results("ids-partial", restarts={"restarts": [again(1_000_000, 1.0)]})

    assert id_tables.promises(results).rows == []


def costs(sink_us: float, alone_us: float) -> dict[str, Any]:
    """Return ways that take so much in the later half of a million records, of which the worker takes 1 µs."""

    def way(cpu_us: float) -> dict[str, float]:
        return {"cpu_s": 1.0, "half_rows": 500_000, "half_cpu_s": cpu_us / 2, "rows": 1_000_000}

    return {"worker": {"cpu_s": 1.0}, "sink": way(sink_us), "alone": way(alone_us)}


def test_a_later_half_that_nobody_saw_keeps_no_promise() -> None:
    short = costs(4.0, 30.0)
    short["sink"]["half_rows"] = 0

    rows = spark_tables.promises(Results("latest", spark={"records": 1_000_000, "costs": short}))

    assert [row[2:] for row in rows] == [("-", "-")] * 3
