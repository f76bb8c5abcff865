"""Measures Seqmark and others on this machine: `make bench` prints tables and keeps figures.

Variables choose: ``QUICK=1`` (an eighth of the records, once), ``PEERS=none`` or
``PEERS=kafka_streams,flink``, ``CASES=standard,json``, ``RECORDS=200000`` (at most so many), ``REPEAT=3``,
``SPARK=0``, ``LATENCY=0`` and ``STARTS=0`` leave those parts out. What is left out stays out of the tables too:
``benchmarks/results/latest.json`` is only written by a whole run, ``quick.json`` by a quick one,
``partial.json`` by any other.

``python -m benchmarks rest`` (``make bench ARGS=rest``) compares ways to make files at rest clean, with options
of its own (`benchmarks.rest.run`).

``python -m benchmarks ids`` (``make bench ARGS=ids``) measures the cases with ids instead, with the same
variables and files of its own: ``ids.json``, ``ids-quick.json``, ``ids-partial.json``.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cluster import cluster
from benchmarks.options import Options
from benchmarks.pages import (
    durations,
    executor_tables,
    id_tables,
    promises,
    spark_tables,
    start_tables,
    tables,
)
from benchmarks.pages.picture import draw
from benchmarks.peers import FailedError
from benchmarks.rest.run import main as rest
from benchmarks.results import Results, commit, machine
from benchmarks.run import Bench
from benchmarks.studies.executors import run_executors
from benchmarks.studies.redis_ids import run_redis
from benchmarks.studies.restarts import run_restarts
from benchmarks.studies.spark import run_spark
from benchmarks.studies.starts import run_starts
from processor.commands.console import say, table_on_stdout
from processor.errors import EXIT_CONFIG, EXIT_FAILED, SeqmarkError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


IDS = "ids"
REST = "rest"
PARTS = {"starts", "restarts", "executors"}
"""What fails by itself, and what is measured beside it still counts."""


def main() -> int:
    """Run what the environment asks for; returns the exit code."""
    if sys.argv[1:2] == [REST]:
        return rest(sys.argv[2:])
    if sys.argv[1:] not in ([], [IDS]):
        say(f"there is one argument, {IDS} or {REST}, not {' '.join(sys.argv[1:])!r}", "bold red")
        return EXIT_CONFIG
    try:
        options = Options.read(os.environ, ids=sys.argv[1:] == [IDS])
    except ValueError as error:
        say(str(error), "bold red")
        return EXIT_CONFIG
    # So that what was started is ended, and what was measured is kept.
    signal.signal(signal.SIGTERM, _interrupt)
    results = Results(options.kind, commit=commit(), machine=machine(), repetitions=options.repetitions)
    began_s = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="seqmark-bench-") as folder, cluster(say) as (servers, broker):
            Bench(options, results, servers, broker, Path(folder)).run()
            if options.restart_ids:
                asked = servers, options.restart_ids, options.starts, say
                results.restarts = _part(results, "restarts", lambda: run_restarts(*asked))
            elif options.starts:
                results.starts = _part(results, "starts", lambda: run_starts(servers, options.starts, say))
        if options.redis_ids:
            say(f"Redis: {options.redis_ids:,} ids")
            results.redis = run_redis(options.redis_ids)
            if reason := results.redis.pop("missing", ""):
                results.missing["Redis"] = reason
        if options.spark_records:
            results.spark = run_spark(options.spark_records, say)
            given = options.executor_records, options.repetitions, say
            results.executors = _part(results, "executors", lambda: run_executors(*given))
    except (SeqmarkError, FailedError, KeyboardInterrupt) as error:
        results.kind = "ids-unfinished" if options.ids else "unfinished"
        say(f"stopped: {str(error) or 'interrupted'}; what was measured is in {results.keep()}", "bold red")
        return EXIT_FAILED
    results.minutes = (time.monotonic() - began_s) / 60
    file = results.keep()
    show(results)
    picture = draw(results, file.with_name(f"{results.kind}-systems.svg"))
    say(f"kept: {', '.join(str(each) for each in (file, picture) if each)}")
    failed = any(run.failure for run in results.runs) or results.missing.keys() & PARTS
    return EXIT_FAILED if failed else 0


def _part(results: Results, name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Measure a part without which the others still count: what failed is told, and it is empty."""
    try:
        return measure()
    except FailedError as error:
        results.missing[name] = str(error).partition("\n")[0]
        say(f"{name}: {error}", "bold red")
        return {}


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def show(results: Results) -> None:
    """Print all tables."""
    ids = results.kind.startswith(IDS)
    made = [tables.standard, tables.cases, tables.latency, spark_tables.ways, start_tables.kernels]
    made += [start_tables.starts, executor_tables.executors, executor_tables.aggregates, durations.durations]
    if ids:
        made += [id_tables.all_rates, id_tables.sizes, start_tables.restarts, id_tables.promises]
    else:
        made.append(promises.promises)
    for table in (make(results) for make in made):
        if table.rows:
            table_on_stdout(table.titles, table.rows, range(table.left, len(table.titles)))
    say(tables.noise(results))
    for system, why in results.missing.items():
        say(f"{system} did not take part: {why}", "yellow")
    for run in results.runs:
        if run.failure:
            say(f"{run.case}, {run.system}, {run.guarantee}: {run.failure}", "bold red")


if __name__ == "__main__":
    sys.exit(main())
