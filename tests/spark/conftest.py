"""Fixtures of the tests with Spark."""

from tests.support.spark_sink.spark import spark

__all__ = ["spark"]
