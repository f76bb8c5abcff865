"""Says which planted mistakes seeds alone notice, of those whose test needs a broker.

    python -m tests.simulation.planted [--seconds 60] [--seed N] [--all] [NAME ...]

Each is planted as its module is imported, in a process of its own, which then runs episodes until one fails. A
module that no episode imports is a part that the simulation has no model of, and is said to be so.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from tests.crash.planted.mistakes import MISTAKES, Mistake

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import CodeType

ROOT = Path(__file__).parents[2]
CAUGHT, MISSED, NOT_REACHED, BROKEN = 0, 10, 11, 12
"""Exit codes of a process with a mistake in it."""
KINDS = {CAUGHT: "caught", MISSED: "missed", NOT_REACHED: "not reached", BROKEN: "broken"}
UNTRIED = "not tried"
TABLE = Path(__file__).with_name("caught.json")
PRELOADED = (
    "aiokafka.admin",
    "confluent_kafka.admin",
    "cramjam",
    "hypothesis",
    "numba",
    "pyarrow",
    "pydantic",
    "pyspark.sql",
    "pytest",
)
"""What takes long to import and is not ours: once for all mistakes."""
WAIT_SHARE, WAIT_S, MOST_CHARACTERS = 20, 120, 300

BY_FILE: Mapping[str, str] = {
    "processor/commands/spark/": "histories in files and tables at rest: Spark",
    "processor/kafka/protocol/connections.py": "sockets and SASL: nothing lies below a request",
    "processor/state/home.py": "folders: local state is in memory",
    "spark_sink/side_output.py": "Spark's SQL: by it what was not counted is told apart and written",
    "spark_sink/": "Spark: episodes read and plan as it does, and have none of its tables",
}
"""Which fault the simulation has no model of, by a file, or the folder it is in."""


def lacking(mistake: Mistake) -> str:
    """Return what the simulation lacks to notice a mistake; empty: nothing that is known."""
    return next((why for place, why in BY_FILE.items() if mistake.file.startswith(place)), "")


class _Planting(SourceFileLoader):
    """Loads a module with a mistake in it."""

    mistake: Mistake

    @override
    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        assert source.count(self.mistake.old) == 1, "the list of planted mistakes is out of date"
        return compile(source.replace(self.mistake.old, self.mistake.new), self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, mistake: Mistake) -> None:
        self._mistake = mistake
        self.name = _module(mistake)

    @override
    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = _Planting(fullname, str(ROOT / self._mistake.file))
        loader.mistake = self._mistake
        return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)


def _with(mistake: Mistake | None, seed: int, cpu_s: float, step: int) -> int:
    """Run episodes with a mistake in this process, in which nothing of the program is imported yet."""
    if mistake is None:
        importlib.import_module("tests.simulation.run").run(seed, cpu_s)
        return MISSED
    finder = _Finder(mistake)
    sys.meta_path.insert(0, finder)
    if mistake.file.startswith("processor/engine/"):
        # Kernels are compiled for the sources on disk: one with a mistake in it runs as plain Python.
        importlib.import_module("numba").config.DISABLE_JIT = 1
    run = importlib.import_module("tests.simulation.run").run
    if finder.name not in sys.modules:
        return NOT_REACHED
    try:
        run(seed, cpu_s, step=step)
    except Exception as error:  # noqa: BLE001 - whatever it is, an episode has noticed
        note = " ".join(getattr(error, "__notes__", ()))
        print(f"{type(error).__name__}: {str(error)[:150]!r} ({note})")
        return CAUGHT
    return MISSED


def main(arguments: Sequence[str]) -> int:
    """Plant one mistake after the other; print what becomes of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted", description=__doc__)
    parser.add_argument("names", nargs="*", help="only mistakes whose names begin so")
    parser.add_argument("--seconds", type=float, default=60.0, help="of CPU, for each")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode")
    parser.add_argument("--step", type=int, default=1, help="2: only one of the two kinds of episodes")
    parser.add_argument("--all", action="store_true", help="also those whose test needs no broker")
    parser.add_argument("--write", action="store_true", help=f"what was found into {TABLE.name}")
    asked = parser.parse_args(arguments)
    for name in PRELOADED:
        importlib.import_module(name)
    named = tuple(asked.names or [""])
    wanted = [each for each in MISTAKES if (asked.all or each.broker) and each.name.startswith(named)]
    wanted.sort(key=lambda each: next(at for at, name in enumerate(named) if each.name.startswith(name)))
    found, reached = dict[str, str](), _reached()
    for mistake in wanted:
        what, said = "not reached", ""
        if _module(mistake) in reached:
            what, said = _in_a_process(mistake, asked.seed, asked.seconds, asked.step)
            again = re.search(r"--seed (\d+)", said)
            if what == "caught" and (again is None or _in_a_process(None, int(again[1]), 0, 1)[0] != "missed"):
                what = "unsure"  # the same seed fails without the mistake
        found[mistake.name] = what
        print(f"{what:11} {mistake.name} [{mistake.file}] {said}", flush=True)
        if asked.write:
            TABLE.write_text(json.dumps({**noted(), **found}, indent=1) + "\n")
    caught = [name for name, what in found.items() if what == "caught"]
    print(f"{len(caught)} of {len(wanted)} are caught by seeds alone")
    return 0


def _reached() -> set[str]:
    """Return the modules that episodes import, as another process says."""
    code = "import sys, tests.simulation.run; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def _module(mistake: Mistake) -> str:
    return mistake.file.removesuffix(".py").replace("/", ".")


def noted() -> dict[str, str]:
    """Return what was found when somebody last looked, of each mistake whose test needs a broker."""
    known: dict[str, str] = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    return {mistake.name: known.get(mistake.name, UNTRIED) for mistake in MISTAKES if mistake.broker}


def _in_a_process(mistake: Mistake | None, seed: int, cpu_s: float, step: int) -> tuple[str, str]:
    """Run in a fork, which has what others have written, and nothing of the program."""
    sys.stdout.flush()
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(into, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        # It is ended where no episode ends.
        signal.alarm(int(WAIT_SHARE * cpu_s + WAIT_S))
        code = BROKEN
        try:
            code = _with(mistake, seed, cpu_s, step)
        except BaseException as error:  # noqa: BLE001 - no episode has noticed it
            print(f"{type(error).__name__}: {error}"[:MOST_CHARACTERS])
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.close(into)
    with os.fdopen(out) as lines:
        said = lines.read().splitlines() or [""]
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "hangs", "no episode ends"
    return KINDS[os.waitstatus_to_exitcode(status)], said[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
