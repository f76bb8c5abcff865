"""Fixtures of the tests that kill processes."""

from __future__ import annotations

import pytest

from tests.support.spark_sink.spark import spark
from tests.support.suite.extent import everything

__all__ = ["spark"]


@pytest.fixture
def whole(request: pytest.FixtureRequest) -> bool:
    """Say whether to kill as often as is worth it, not only as often as each change can wait for."""
    return everything(request.config)
