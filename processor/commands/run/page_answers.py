"""Answers for a worker's page what the worker itself does not know: the story of a record, the last receipts.

Each answer is made in a thread, over connections of its own: whatever it takes, the worker's own loop goes on,
and commits. Invariant: without ``worker.web_receipts`` nothing that came out of records is in an answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from processor.inspection.explain.ask import read_ref
from processor.inspection.explain.explainer import explain_position
from processor.inspection.explain.show import rows
from processor.inspection.read.newest import newest_receipts
from processor.worker.web.site import Answers
from processor.worker.web.views import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from schemas.config import Settings

Answered = TypeVar("Answered")
GIVE_UP_S = WAIT_S - 2
"""Before whoever waits for it does: a thread cannot be ended from outside."""


def answers_for(settings: Settings) -> Answers:
    """Return the answers of one application."""
    topics = {each.name: each.duplicates for each in settings.pipelines if each.duplicates is not None}

    async def receipts(name: str, count: int) -> Sequence[Mapping[str, Any]]:
        return await _beside(lambda: newest_receipts(settings.kafka, topics[name], count))

    async def explain(position: str) -> Mapping[str, Any]:
        return await _beside(lambda: _story(settings, position))

    return Answers(explain=explain, receipts=receipts)


async def _story(settings: Settings, position: str) -> dict[str, Any]:
    contents = settings.worker.web_receipts
    story = await explain_position(settings, read_ref(position))
    return {
        "sentence": story.sentence if contents else story.bare_sentence,
        "rows": list(rows(story, contents=contents)),
        "story": story.as_json(contents=contents),
    }


async def _beside(ask: Callable[[], Coroutine[Any, Any, Answered]]) -> Answered:
    """Return what ``ask`` finds, in a loop of its own.

    Raises:
        TimeoutError: It takes too long.
    """

    async def bounded() -> Answered:
        async with asyncio.timeout(GIVE_UP_S):
            return await ask()

    return await asyncio.to_thread(lambda: asyncio.run(bounded()))
