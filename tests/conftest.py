"""Fixtures of all tests; each is made where its part is at home."""

from tests.support.broker import broker, own_broker
from tests.support.spark import end_jvm

__all__ = ["broker", "own_broker"]


def pytest_sessionfinish() -> None:
    """End what lives as long as the process."""
    end_jvm()
