"""Partitions of a slot that wait until all topics they are written to have them.

Partitions are added to the source and to the topics that are written to at different moments. Those that are in
all of them go on; the others wait, and begin once they can.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from processor.errors import RebuildError, SeqmarkError
from processor.kafka.client import METADATA_MAX_AGE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.pipeline.hop_kinds import HopKind
    from processor.pipeline.hops import Hop
    from processor.worker.context import Context

log = logging.getLogger(__name__)

LOOK_S = min(METADATA_MAX_AGE_MS / 1000, 10.0)
SAY_S = 60.0


class LatePartitions:
    """Tells the partitions of a slot that wait from those that can be worked on; ``numbers`` are both."""

    def __init__(self, context: Context, hop: Hop, name: str, numbers: list[int]) -> None:
        self._context = context
        self._hop = hop
        self._name = name
        self._numbers = numbers
        self._late: list[int] = []
        self._said_at = -math.inf
        self.waits = ""
        """Which partitions wait for which topics; empty if none do."""

    async def able(self) -> tuple[HopKind, list[int]]:
        """Return the work as the topics are, and the partitions that can begin; waits while there are none.

        Raises:
            StopError: A topic is not as it must be.
            RebuildError: The broker does not say.
        """
        while True:
            kind = await self._context.work(self._hop)
            topics, width = kind.topics, kind.topics.width
            able = [number for number in self._numbers if number < width]
            self._late = [number for number in self._numbers if number >= width]
            self.waits = (
                f"partitions {self._late} of {topics.source} wait: one of {', '.join(topics.needed)} "
                f"has {width} partitions only; add partitions to it"
                if self._late
                else ""
            )
            self._say()
            if able:
                return kind, able
            await asyncio.sleep(LOOK_S)
            self._context.look_again()

    async def watch(self, fail: Callable[[Exception], None]) -> None:
        """Have the slot rebuilt with the partitions that wait, once they can begin."""
        while self._late:
            await asyncio.sleep(LOOK_S)
            self._say()
            self._context.look_again()
            try:
                kind = await self._context.work(self._hop)
            except RebuildError:
                continue
            except SeqmarkError as error:
                fail(error)
                return
            if min(self._late) < kind.topics.width:
                fail(RebuildError("topics", f"partitions {self._late} need not wait any more"))
                return

    def _say(self) -> None:
        now = time.monotonic()
        if self.waits and now - self._said_at >= SAY_S:
            self._said_at = now
            log.warning("%s: %s", self._name, self.waits)
