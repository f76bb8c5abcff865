"""Fixtures of all tests; each is made where its part is at home."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.kafka.broker import broker, own_broker, seqmark_broker
from tests.support.kafka.cluster import cluster, running_cluster
from tests.support.spark_sink.postgres import database, own_postgres, postgres
from tests.support.spark_sink.spark import end_jvm
from tests.support.suite import extent
from tests.support.suite.browser import chromium
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

# How long an example takes, or its making, says something of the machine and nothing of the code. With CI set
# hypothesis has a profile that says the same, and tries the same examples each time.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if settings.get_current_profile_name() == "default":
    settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take ``--all``, which `tests.support.suite.extent.everything` asks for."""
    extent.add_option(parser)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Schedule:
    """Hand out tests as `tests.support.suite.schedule` says."""
    return Schedule(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Let all processes draw the same."""
    node.workerinput["seed"] = extent.seed(node.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what was not drawn; with several processes, begin with what is long."""
    extent.leave_out(config, items)
    if hasattr(config, "workerinput"):
        long_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a process has noted."""
    for text in getattr(node, "workeroutput", {}).get("notes", []):
        extent.note(node.config, text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out, and where the time went."""
    told = extent.notes(config)
    if told:
        terminalreporter.section("left out, --all runs it")
        for text in told:
            terminalreporter.write_line(text)
    where_time_went(terminalreporter)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what lives as long as the process; hand over what was noted."""
    end_jvm()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["notes"] = extent.notes(session.config)
