"""Fixtures of all tests; each is made where its part is at home."""

import os
import signal
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.chromium.browser import chromium
from tests.support.kafka.broker import broker, own_broker, seqmark_broker
from tests.support.kafka.cluster import cluster, running_cluster
from tests.support.spark_sink.postgres import database, own_postgres, postgres
from tests.support.spark_sink.spark import end_jvm
from tests.support.suite import extent, share, tiers
from tests.support.suite.closure import ROOT
from tests.support.suite.examples import USUAL
from tests.support.suite.logs import logging_as_at_the_start
from tests.support.suite.schedule import Schedule, long_first, where_time_went

__all__ = [
    "broker",
    "chromium",
    "cluster",
    "database",
    "logging_as_at_the_start",
    "own_broker",
    "own_postgres",
    "postgres",
    "running_cluster",
    "seqmark_broker",
]

# A JVM of the tests, broker or Spark, lives for minutes: what the second compiler would make faster is over
# before it is done. A broker takes half the CPU seconds without it.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
# As patient as everything else in the tests: one late broker would be an error in every test of its session.
os.environ.setdefault("SEQMARK_BROKER_START_TIMEOUT", "300")

EXAMPLES = {tiers.FAST: 25, tiers.CI: USUAL, tiers.ALL: 1000}
"""Of a property, where it says nothing else (`tests.support.suite.examples`)."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take ``--tier`` and ``--budget-s``."""
    share.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have properties try as many examples as the run is worth, others in each run; note what passes.

    How long an example takes, or its making, says something of the machine and nothing of the code.
    """
    _end_as_usual()
    run = config.getoption("tier")
    worth = tiers.CI if os.environ.get("CI") and run != tiers.ALL else run
    settings.register_profile(
        "seqmark",
        parent=settings.get_profile("default"),
        max_examples=EXAMPLES.get(worth, USUAL),
        derandomize=False,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("seqmark")
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = extent.seed(config)
    if run in {tiers.CI, tiers.ALL} and not hasattr(config, "workerinput"):
        config.pluginmanager.register(share.Prover(config))


def _end_as_usual() -> None:
    """Take back that signals are ignored, as in what a shell has started in the background."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_report_header(config: pytest.Config) -> str:
    """Say what repeats this run's draws."""
    return f"SEQMARK_TEST_SEED={extent.seed(config)} draws the same again"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file of which no test is wanted."""
    if config.getoption("tier") is None or not collection_path.match("test_*.py"):
        return None
    file = str(collection_path.relative_to(ROOT))
    return None if any(share.takes(config, file, tier) for tier in tiers.in_file(file)) else True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Schedule:
    """Hand out tests as `tests.support.suite.schedule` says."""
    return Schedule(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Let all processes draw the same."""
    node.workerinput["seed"] = extent.seed(node.config)
    if node.config.getoption("tier") in {tiers.CI, tiers.ALL}:
        node.workerinput["chosen"] = sorted(share.chosen(node.config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what was not drawn; with several processes, begin with what is long."""
    share.leave_out(config, items)
    extent.leave_out(config, items)
    if hasattr(config, "workerinput"):
        long_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Note what a test takes of a core."""
    began = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        item.user_properties.append((tiers.CPU_S, sum(os.times()[:4]) - began))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a process has noted."""
    for text in getattr(node, "workeroutput", {}).get("notes", []):
        extent.note(node.config, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out, and where the time went."""
    told = extent.notes(config)
    if told:
        terminalreporter.section("left out, make test-all runs it")
        for text in told:
            terminalreporter.write_line(text)
    where_time_went(terminalreporter)
    for nodeid, cpu_s in tiers.took(terminalreporter).items():
        said = f"{cpu_s:.1f} s of a core, a fast test has {tiers.OF_ITS_OWN_S:g}: make it less, or mark it core"
        terminalreporter.write_line(f"{nodeid}: {said}", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what lives as long as the process; hand over what was noted."""
    end_jvm()
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    slowest_s = max(tiers.took(reporter).values(), default=0.0) if reporter is not None else 0.0
    if session.exitstatus == pytest.ExitCode.OK and slowest_s > tiers.TOO_SLOW * tiers.OF_ITS_OWN_S:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["notes"] = extent.notes(session.config)
