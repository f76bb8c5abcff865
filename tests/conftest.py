"""Fixtures of all tests; each is made where its part is at home."""

import pytest
from hypothesis import HealthCheck, settings

from tests.support.broker import broker, own_broker
from tests.support.cluster import cluster, running_cluster
from tests.support.extent import add_option
from tests.support.postgres import database, own_postgres, postgres
from tests.support.spark import end_jvm

__all__ = ["broker", "cluster", "database", "own_broker", "own_postgres", "postgres", "running_cluster"]

# How long an example takes, or its making, says something of the machine and nothing of the code. With CI set
# hypothesis has a profile that says the same, and tries the same examples each time.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if settings.get_current_profile_name() == "default":
    settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take ``--all``; a test asks `tests.support.extent.everything`."""
    add_option(parser)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Say what one process of several has to run: the tests of a file, all with Spark, all with the cluster.

    Brokers, databases and what the tests of a file share are made once a process, a Spark and a cluster in one
    of them only, for they take the most memory. xdist reads the mark before any hook that sees all items is
    called.
    """
    if item.get_closest_marker("spark") is not None:
        group = "spark"
    elif "running_cluster" in getattr(item, "fixturenames", ()):
        group = "cluster"
    else:
        group = item.nodeid.partition("::")[0]
    item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let one process of several begin with Spark, so that nobody waits for it at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def pytest_sessionfinish() -> None:
    """End what lives as long as the process."""
    end_jvm()
