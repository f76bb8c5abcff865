"""Fixtures of all tests; each is made where its part is at home."""

from hypothesis import HealthCheck, settings

from tests.support.broker import broker, own_broker
from tests.support.postgres import database, own_postgres, postgres
from tests.support.spark import end_jvm

__all__ = ["broker", "database", "own_broker", "own_postgres", "postgres"]

# How long an example takes, or its making, says something of the machine and nothing of the code. With CI set
# hypothesis has a profile that says the same, and tries the same examples each time.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if settings.get_current_profile_name() == "default":
    settings.load_profile("any machine")


def pytest_sessionfinish() -> None:
    """End what lives as long as the process."""
    end_jvm()
