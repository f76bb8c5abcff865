"""Says which planted mistakes seeds alone notice, of those whose test needs a broker.

    python -m tests.simulation.planted [--seconds 60] [--seed N] [--all] [NAME ...]

Each is planted as its module is imported, in a process of its own, which then runs episodes until one fails. A
module that no episode imports is a part that the simulation has no model of, and is said to be so.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import subprocess
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from tests.crash.planted.mistakes import MISTAKES, Mistake

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType

ROOT = Path(__file__).parents[2]
CAUGHT, MISSED, NOT_REACHED = 0, 10, 11
"""Exit codes of a process with a mistake in it."""


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
        self.name = mistake.file.removesuffix(".py").replace("/", ".")

    @override
    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = _Planting(fullname, str(ROOT / self._mistake.file))
        loader.mistake = self._mistake
        return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)


def _with(mistake: Mistake, seed: int, cpu_s: float) -> int:
    """Run episodes with a mistake in this process, in which nothing of the program is imported yet."""
    finder = _Finder(mistake)
    sys.meta_path.insert(0, finder)
    run = importlib.import_module("tests.simulation.run").run
    if finder.name not in sys.modules:
        return NOT_REACHED
    try:
        run(seed, cpu_s)
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
    parser.add_argument("--all", action="store_true", help="also those whose test needs no broker")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.here:
        (mistake,) = (each for each in MISTAKES if each.name == asked.names[0])
        return _with(mistake, asked.seed, asked.seconds)
    named = tuple(asked.names or [""])
    wanted = [each for each in MISTAKES if (asked.all or each.broker) and each.name.startswith(named)]
    caught = 0
    for mistake in wanted:
        found, said = _in_a_process(mistake, asked.seed, asked.seconds)
        caught += found == "caught"
        print(f"{found:11} {mistake.name} [{mistake.file}] {said}", flush=True)
    print(f"{caught} of {len(wanted)} are caught by seeds alone")
    return 0


def _in_a_process(mistake: Mistake, seed: int, cpu_s: float) -> tuple[str, str]:
    options = ["--here", "--seed", str(seed), "--seconds", str(cpu_s), mistake.name]
    # Kernels are compiled for the sources on disk: one with a mistake in it runs as plain Python.
    plain = {"NUMBA_DISABLE_JIT": "1"} if mistake.file.startswith("processor/engine/") else {}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.planted", *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **plain},
            capture_output=True,
            text=True,
            timeout=20 * cpu_s + 120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "hangs", "no episode ends"
    kinds = {CAUGHT: "caught", MISSED: "missed", NOT_REACHED: "not reached"}
    lines = (done.stdout if done.returncode in kinds else done.stderr).splitlines() or [""]
    return kinds.get(done.returncode, "caught"), lines[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
