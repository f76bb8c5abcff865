"""A look at the topics that has failed is not remembered: who asks next has the broker asked anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from processor.errors import RebuildError, StopError
from processor.kafka.client import KafkaError
from processor.worker import context
from processor.worker.context import Context


@pytest.mark.parametrize(
    "failure", [RebuildError("topics", "no"), StopError("no"), KafkaError("no"), TimeoutError()]
)
def test_a_failed_look_is_asked_again_and_one_that_succeeds_is_shared(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [failure, {"topic": "as it is"}]

    async def look(settings: object) -> Any:
        del settings
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(context, "look", look)
    asked: Any = object.__new__(Context)
    asked._looked, asked.settings = None, None

    async def run() -> None:
        for found in await asyncio.gather(asked._view(), asked._view(), return_exceptions=True):
            assert found is failure
        for found in await asyncio.gather(asked._view(), asked._view()):
            assert found == {"topic": "as it is"}

    asyncio.run(run())
    assert not answers
