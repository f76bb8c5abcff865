"""Keeps what a benchmark has measured, and says what repetitions come to.

One file a kind of run under ``benchmarks/results/``: ``latest.json`` of the full one, ``quick.json`` of a
quick one, ``partial.json`` of one with chosen cases or peers. Tables, plots and pages are made from these
files alone.
"""

from __future__ import annotations

import json
import platform
import shutil
import statistics
import subprocess
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.measure.cost import Figures
from benchmarks.peers import BLOOM, SEQMARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one system; without figures where it failed, and then with the reason."""

    case: str
    system: str
    guarantee: str
    repetition: int
    figures: Figures | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Latency:
    """From produce to visible at a fixed rate; ``records`` are those that were looked at."""

    system: str
    guarantee: str
    rate: int
    records: int
    p50_ms: float
    p99_ms: float
    most_ms: float


@dataclass(slots=True)
class Results:
    """All of a benchmark.

    Attributes:
        kind: Name of its file.
        at: When it began, UTC.
        commit: Of the checkout, with a + where that was changed; empty where git does not say.
        systems: Name with version, by module name.
        settings: What was set, by module name and guarantee; as in the standard case.
        missing: Why a system did not take part, by module name.
        records: By case, what its source held for Seqmark.
        runs: In the order in which they were made.
        spark: The comparison with Spark alone, as `benchmarks.studies.spark` returns it.
        redis: Bytes per id, as `benchmarks.studies.redis_ids` returns it.
        took: By case, the seconds of all of it (``all_s``) and of making its sources (``producing_s``).
        starts: Starts of a worker, as `benchmarks.studies.starts` returns them.
        restarts: Starts with many ids, as `benchmarks.studies.restarts` returns them.
        executors: What a second executor and a second aggregate cost, as `benchmarks.studies.executors` has it.
    """

    kind: str
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    minutes: float = 0.0
    commit: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    repetitions: int = 1
    systems: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    latency: list[Latency] = field(default_factory=list)
    spark: dict[str, Any] = field(default_factory=dict)
    redis: dict[str, Any] = field(default_factory=dict)
    took: dict[str, dict[str, float]] = field(default_factory=dict)
    starts: dict[str, Any] = field(default_factory=dict)
    restarts: dict[str, Any] = field(default_factory=dict)
    executors: dict[str, Any] = field(default_factory=dict)

    def _runs(self, case: str, system: str, guarantee: str) -> Iterator[Run]:
        wanted = case, system, guarantee
        return (run for run in self.runs if (run.case, run.system, run.guarantee) == wanted)

    def of(self, case: str, system: str, guarantee: str = "exactly_once") -> list[Figures]:
        """Return the figures of a system's good runs of a case."""
        return [run.figures for run in self._runs(case, system, guarantee) if run.figures]

    def failed(self, case: str, system: str) -> bool:
        """Tell whether a run of a case failed, exactly once."""
        return any(run.failure for run in self._runs(case, system, "exactly_once"))

    def entries(self, case: str) -> list[tuple[str, str]]:
        """Return (system, guarantee) that took part in a case, Seqmark's own first, then by their rates."""
        found = dict.fromkeys((run.system, run.guarantee) for run in self.runs if run.case == case)

        def rank(entry: tuple[str, str]) -> tuple[bool, bool, float]:
            system = entry[0]
            rate = median(self.of(case, *entry), lambda each: each.half_rate) or 0
            return system != SEQMARK, system != BLOOM, -rate

        return sorted(found, key=rank)

    def title(self, system: str) -> str:
        """Return a system's name with its version."""
        return self.systems.get(system, system)

    def keep(self, folder: Path = RESULTS) -> Path:
        """Write the file anew and return it."""
        folder.mkdir(exist_ok=True)
        file = folder / f"{self.kind}.json"
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return file

    @classmethod
    def read(cls, file: Path) -> Results:
        """Read what `keep` has written."""
        known = {each.name for each in fields(cls)}
        kept = {name: value for name, value in json.loads(file.read_text()).items() if name in known}
        runs = [
            Run(**{**run, "figures": Figures(**run["figures"]) if run["figures"] else None})
            for run in kept.pop("runs")
        ]
        latency = [Latency(**each) for each in kept.pop("latency")]
        return cls(**kept, runs=runs, latency=latency)


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """Return median and range; None of nothing."""
        listed = list(values)
        return cls(statistics.median(listed), min(listed), max(listed), len(listed)) if listed else None


def median(figures: Iterable[Figures], what: Callable[[Figures], float]) -> float | None:
    """Return the median of one figure over repetitions; None where there is none."""
    listed = [what(each) for each in figures]
    return statistics.median(listed) if listed else None


def machine() -> dict[str, Any]:
    """Return what figures are measured on."""
    return {
        "cpu": _cpu(),
        "cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.system(),
        "python": platform.python_version(),
    }


def commit() -> str:
    """Return what is measured, as `Results.commit` has it."""
    git = shutil.which("git")

    def said(*words: str) -> str:
        call = [git or "git", *words]
        return subprocess.run(call, cwd=RESULTS, capture_output=True, text=True, check=False).stdout.strip()

    # The results of one benchmark are no change to the next.
    changed = git and said("status", "--porcelain", "--", ":/", ":!/benchmarks/results")
    return said("rev-parse", "--short", "HEAD") + ("+" if changed else "") if git else ""


def _cpu() -> str:
    """Return the processor's name as Linux tells it, else its architecture."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
