"""Measures all ways over the same files: ``make bench ARGS="rest --new 600000 --old 2400000 --memory 4"``.

Each way is one process tree from a cold start: it starts, remembers the history, and then makes three inputs
clean, of a tenth of the rows twice and of all of them once. The first warms it up; the difference of the other
two says what a row costs, and what a run costs whatever it reads. Seqmark does two more, of a thirtieth of the
rows, all of one date, and reads and writes once more what it has read and written of the largest. CPU is that
of all processes, reading and writing Parquet included. What each way keeps is compared with what it should keep
by its number and by the sum of the ids.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from benchmarks.measure.processes import Tree, noise_s
from benchmarks.peers import ROOT, FailedError
from benchmarks.rest.archive import DAYS, RestInput, RunShape, id_sum, write_history, write_run
from benchmarks.rest.pages import costs, goals
from benchmarks.rest.protocol import COPIED, REMEMBERED, STARTED, RestJob, RestStep
from benchmarks.rest.results import LATEST, PARTIAL, Phase, RestResult, WayCost, keep
from benchmarks.rest.ways import OURS, WAYS, CleaningWay
from benchmarks.results import commit, machine
from processor.commands.console import say, table_on_stdout
from processor.errors import EXIT_CONFIG, EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOK_S = 0.25
WARM, TENTH, ALL, DAY, DAY_WIDE = "warm", "tenth", "all", "day", "day_wide"
WIDE, NARROW = "180d", "1d"


class RestScene(NamedTuple):
    """The files: those that are remembered, and by step those that are made clean, with its window."""

    history: list[str]
    inputs: dict[str, tuple[RestInput, str]]


def main(arguments: Sequence[str]) -> int:
    """Measure what the arguments say; return the exit code."""
    options = _options(arguments)
    wanted = options.ways.split(",") if options.ways else list(WAYS)
    if unknown := [each for each in wanted if each not in WAYS]:
        say(f"there is no way {', '.join(unknown)}; there are {', '.join(WAYS)}", "bold red")
        return EXIT_CONFIG
    result = RestResult(
        new=options.new,
        old=options.old,
        memory_gb=options.memory,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit(),
        machine=machine(),
    )
    file = PARTIAL
    with tempfile.TemporaryDirectory(prefix="seqmark-rest-", dir=options.folder) as folder:
        say(f"writing {options.old:,} rows that are remembered, and {options.new:,} new ones")
        scene = _scene(Path(folder), options.new, options.old)
        result.missing |= {name: "left out, for it would take too long" for name in WAYS if name not in wanted}
        for name in wanted:
            if reason := WAYS[name].prepare(say):
                result.missing[name] = reason
                say(f"{WAYS[name].title} does not take part: {reason}", "yellow")
                continue
            result.noise_s.append(noise_s())
            once = name in options.once.split(",")
            result.ways[name] = _way(WAYS[name], scene, Path(folder), options.memory, once=once)
            result.noise_s.append(noise_s())
            file = keep(result, LATEST if options.keep or not options.ways else PARTIAL)
    for made in (costs([result]), goals([result])):
        table_on_stdout(made.titles, made.rows, range(made.left, len(made.titles)))
    say(f"kept: {file}")
    return EXIT_FAILED if any(each.failure for each in result.ways.values()) else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("make bench ARGS=rest", description="Compare ways to clean files at rest.")
    parser.add_argument("--new", type=int, default=600_000, help="rows of the largest run")
    parser.add_argument("--old", type=int, default=2_400_000, help="ids that are remembered")
    parser.add_argument("--memory", type=int, default=4, help="GB that a way is told to take at most")
    parser.add_argument("--ways", default="", help=f"some of {','.join(WAYS)}")
    parser.add_argument("--once", default="", help="ways that make the largest input clean only")
    parser.add_argument("--keep", action="store_true", help="keep what some of the ways took as a whole run")
    parser.add_argument("--folder", default=None, help="where files are made; the temporary one otherwise")
    return parser.parse_args(arguments)


def _scene(folder: Path, new: int, old: int) -> RestScene:
    history = write_history(folder, old)
    first, inputs = old, {}
    steps = ((WARM, new // 10, WIDE), (TENTH, new // 10, WIDE), (ALL, new, WIDE))
    days = ((DAY, new // DAYS, NARROW), (DAY_WIDE, new // DAYS, WIDE))
    for number, (name, rows, window) in enumerate((*steps, *days)):
        day = DAYS - 1 if name in {DAY, DAY_WIDE} else None
        inputs[name] = write_run(folder, name, RunShape(number, rows, old, first, day)), window
        first += rows
    return RestScene(history, inputs)


def _way(way: CleaningWay, scene: RestScene, folder: Path, memory_gb: int, *, once: bool) -> WayCost:
    cost, place = WayCost(), folder / way.name
    place.mkdir()
    names = [*scene.inputs] if way.name == OURS else [ALL] if once else [WARM, TENTH, ALL]
    copied = ALL if way.kind == "ours" else ""
    steps = [
        RestStep(name, scene.inputs[name][0].files, scene.inputs[name][1], copied=name == copied)
        for name in names
    ]
    job = RestJob(str(place), scene.history, steps, memory_gb, way.fingerprints)
    say(f"{way.title}: starting")
    try:
        with _Program(way, job, folder / f"{way.name}.log") as program:
            cost.phases[STARTED] = program.phase(STARTED, 0)[0]
            cost.phases[REMEMBERED] = program.phase(REMEMBERED, 0)[0]
            for name in names:
                given = scene.inputs[name][0]
                phase, files = program.phase(name, given.rows)
                cost.phases[name] = replace(phase, kept=_kept(name, files, given, way))
                say(f"  {name}: {phase.cpu_s / max(given.rows, 1) * 1e6:.2f} µs of CPU per row")
                if name == copied:
                    cost.phases[COPIED] = program.phase(COPIED, given.rows)[0]
            cost.peak_rss_bytes = program.tree.peak_rss_bytes
    except FailedError as error:
        cost.failure = str(error)
        say(f"{way.title}: {error}", "bold red")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    whole = scene.inputs[ALL][0]
    cost.lost = 0 if way.fingerprints else whole.by_content.rows - whole.by_id.rows
    return cost


def _kept(name: str, files: Sequence[str], given: RestInput, way: CleaningWay) -> int:
    """Return how many rows files have, which must be those that are right."""
    found, right = id_sum(files), given.by_content if way.fingerprints else given.by_id
    # A day's rows have other times than the history's, so a narrow window keeps what came before.
    if name != DAY and found != right:
        raise FailedError(f"{name}: it keeps {found.rows:,} rows, which are not the {right.rows:,} right ones")
    return found.rows


class _Program:
    """One way's process tree; it stands still between its phases."""

    def __init__(self, way: CleaningWay, job: RestJob, log: Path) -> None:
        self._log = log
        call = [way.python, "-m", f"benchmarks.rest.programs.{way.program}", job.to_json()]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                call, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output
            )
        self.tree = Tree(self._process.pid)
        self._cpu_s, self._at = 0.0, time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The JVM ends when this process has, and the workers with the JVM.
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(LOOK_S * 120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def phase(self, name: str, rows: int) -> tuple[Phase, list[str]]:
        """Let it go on to its next mark; return what that took, and the files that it names.

        Raises:
            FailedError: It ended before.
        """
        source, answer = self._process.stdout, self._process.stdin
        assert source is not None  # noqa: S101 - pipes were asked for
        assert answer is not None  # noqa: S101 - as above
        with selectors.DefaultSelector() as ready:
            ready.register(source, selectors.EVENT_READ)
            while not ready.select(LOOK_S):
                self.tree.look()
        line = source.readline()
        if not line:
            text = self._log.read_text(errors="replace")[-2_000:]
            raise FailedError(f"it ended in {name}. The end of its log:\n{text}")
        cpu_s, at = self.tree.look(), time.monotonic()
        made = Phase(name, rows, 0, cpu_s - self._cpu_s, at - self._at)
        self._cpu_s, self._at = cpu_s, at
        files: list[str] = json.loads(line)["files"]
        answer.write(b"\n")
        answer.flush()
        return made, files
