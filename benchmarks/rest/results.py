"""Keeps what the comparison has measured: one entry per size, in ``benchmarks/results/rest.json``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.results import RESULTS

if TYPE_CHECKING:
    from pathlib import Path

LATEST, PARTIAL = RESULTS / "rest.json", RESULTS / "rest-partial.json"


@dataclass(frozen=True, slots=True)
class Phase:
    """What one part of a program took: CPU of all its processes, wall, and rows that were kept."""

    name: str
    rows: int
    kept: int
    cpu_s: float
    wall_s: float


@dataclass(slots=True)
class WayCost:
    """What one way took.

    Attributes:
        phases: ``started``, ``remembered``, and the steps by name.
        peak_rss_bytes: Of all its processes; pages that processes share count in each.
        lost: Events of the largest step that it drops though no copy of them is kept.
        failure: Why it did not end; empty: it did.
    """

    phases: dict[str, Phase] = field(default_factory=dict)
    peak_rss_bytes: int = 0
    lost: int = 0
    failure: str = ""


@dataclass(slots=True)
class RestResult:
    """One comparison.

    Attributes:
        at: When it began, UTC.
        commit: Of the checkout.
        memory_gb: What each way was told to take at most.
        noise_s: The fixed loop, before each way and after it.
        missing: Why a way did not take part, by name.
    """

    new: int
    old: int
    memory_gb: int
    at: str
    commit: str
    machine: dict[str, Any]
    noise_s: list[float] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    ways: dict[str, WayCost] = field(default_factory=dict)

    @classmethod
    def of(cls, kept: dict[str, Any]) -> RestResult:
        """Return what `keep` has written."""
        ways = {
            name: WayCost(**{**each, "phases": {key: Phase(**one) for key, one in each["phases"].items()}})
            for name, each in kept.pop("ways").items()
        }
        return cls(**kept, ways=ways)


def read(file: Path = LATEST) -> list[RestResult]:
    """Return all sizes that were measured, the smallest first."""
    if not file.is_file():
        return []
    return [RestResult.of(each) for each in json.loads(file.read_text())]


def keep(result: RestResult, file: Path = LATEST) -> Path:
    """Put a size in the place of what was measured of it before."""
    others = [each for each in read(file) if (each.new, each.old) != (result.new, result.old)]
    listed = sorted([*others, result], key=lambda each: (each.old, each.new))
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps([asdict(each) for each in listed], indent=1) + "\n")
    return file
