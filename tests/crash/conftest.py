"""Fixtures of the tests that kill processes."""

from tests.support.spark import spark

__all__ = ["spark"]
