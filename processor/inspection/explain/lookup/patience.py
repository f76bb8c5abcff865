"""Looks again before it is said that topics contradict the rules.

The end of a transaction reaches one partition after another, and a running worker goes on between two requests.
So what is missing, or is there too soon, is looked at again: a few times at least, and for as long as
`seqmark verify` waits while a transaction is open.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from processor.inspection.explain.story import Story

PATIENCE_S = 3.0
"""For how long what must be there may stay invisible, as `seqmark verify` has it."""
POLL_S = 0.1


async def patiently(look: Callable[[], Awaitable[tuple[Story, bool]]], forget: Callable[[], None]) -> Story:
    """Return the first story without a contradiction; else the last one.

    Args:
        look: Returns what became of a record, and whether all that was written is to be seen.
        forget: Called before another look: what was asked of the brokers is to be asked again.
    """
    begun = time.monotonic()
    while True:
        story, settled = await look()
        waited_s = time.monotonic() - begun
        if not story.problems or waited_s > (2 * POLL_S if settled else PATIENCE_S):
            return story
        await asyncio.sleep(POLL_S)
        forget()
