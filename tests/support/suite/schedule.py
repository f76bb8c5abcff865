"""Which process of several runs which tests, and in which order.

A unit of work runs in one process: the tests of a file, since they share what a module's fixtures make; all
tests of ``tests/spark``, since a Spark takes the most memory and gets quicker the longer it lives (those of
``tests/spark/batch`` apart, or all others would wait for them at the end); all of ``tests/cluster``, which
share three brokers, and of ``tests/install``, which share a wheel; and in ``tests/crash`` and
``tests/simulation`` each test by itself, where only the broker is shared. Long units come first, so that at
the end there are short ones for whoever is free.

pytest-xdist's own groups are of no use here: 3.8 writes them into an attribute that pytest 9.2 does not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped] # it types its hooks only

if TYPE_CHECKING:
    import pytest

LONG = (
    "tests/spark/batch/",
    "tests/spark/",
    "tests/broker/commands/test_demo.py",
    "tests/postgres/test_driver_kills.py",
    "tests/cluster/",
    "tests/crash/",
    "tests/simulation/",
    "tests/postgres/",
    "tests/install/",
    "tests/broker/",
)
"""From the longest on, by the table in tests/README.md; everything else takes seconds. In a fresh clone the
demo compiles the kernels, with the most patience, while the others are busy with Spark."""
FOLDERS = ("tests/spark/batch/", "tests/spark/", "tests/cluster/", "tests/install/")
"""Each is one unit, the first that fits."""
APART = ("tests/crash/", "tests/simulation/")
TOGETHER = ("tests/crash/planted/test_planted_mistakes.py",)
"""Files there whose tests share something after all."""


class Schedule(LoadScopeScheduling):  # type: ignore[misc] # likewise
    """Hands out units of work, in the order in which their first tests stand."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def unit(nodeid: str) -> str:
    """Return the unit of work that a test belongs to."""
    file = nodeid.partition("::")[0]
    for folder in FOLDERS:
        if file.startswith(folder):
            return folder
    return nodeid if file.startswith(APART) and file not in TOGETHER else file


def long_first(items: list[pytest.Item]) -> None:
    """Put long units first; the tests of a unit stay in their order."""
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    return next((rank for rank, start in enumerate(LONG) if nodeid.startswith(start)), len(LONG))


def where_time_went(reporter: pytest.TerminalReporter) -> None:
    """Print tests, and the seconds that processes were busy with them, by folder."""
    counts: dict[str, set[str]] = {}
    seconds: dict[str, float] = {}
    for reports in reporter.stats.values():
        for report in reports:
            if not hasattr(report, "duration") or not getattr(report, "nodeid", ""):
                continue
            group = _group(report.nodeid)
            counts.setdefault(group, set()).add(report.nodeid)
            seconds[group] = seconds.get(group, 0.0) + report.duration
    if len(counts) < 2:
        return
    reporter.section("where the time went")
    for group in sorted(counts, key=lambda each: -seconds[each]):
        reporter.write_line(f"{seconds[group]:8.0f} s  {len(counts[group]):5} tests  {group}")
    reporter.write_line(f"{sum(seconds.values()):8.0f} s  {sum(map(len, counts.values())):5} tests  together")


def _group(nodeid: str) -> str:
    """Return the folder; planted mistakes, and files that start a Spark of their own, are named."""
    folder, _, file = nodeid.partition("::")[0].rpartition("/")
    own = ("test_planted_mistakes.py", "test_demo.py", "test_driver_kills.py", "test_sink_kills.py")
    return f"{folder}/{file}" if file in own else folder
