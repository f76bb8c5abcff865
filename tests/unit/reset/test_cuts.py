"""Between the history and the stream there is no gap, whatever comes while the cut is asked for."""

from __future__ import annotations

import asyncio
from typing import Any

from processor.kafka.protocol.requests import ListOffsetsRequest
from processor.reset.backfill.intake.cuts import CutChoice, chosen_cuts
from tests.support.kafka.log import LogClient
from tests.support.kafka.reset_context import reset_context

WHEN_MS = 1_700_000_000_000


class BusyClient(LogClient):
    """A leader whose records are all older than anybody asks for; more come after each answer."""

    async def request(self, node: int, request: Any, *, timeout_s: float, coordination: bool = False) -> Any:
        """Answer, and let five records come."""
        assert isinstance(request, ListOffsetsRequest)
        answer = await super().request(node, request, timeout_s=timeout_s, coordination=coordination)
        topics: Any = request._fields[2]
        for topic, rows, _ in topics:
            if rows[0][2] >= 0:
                found: Any = [(partition, 0, -1, -1, -1, {}) for partition, *_ in rows]
                answer.topics = [(topic, found, {})]
        self._end += 5
        return answer


def test_what_comes_while_the_cut_is_asked_for_by_time_lies_behind_it() -> None:
    client = BusyClient([], end=10)
    context = reset_context(client, {"mode": "watermark", "sequence": {"from": "value", "pointer": "/n"}})
    cuts = asyncio.run(chosen_cuts(context, CutChoice({}, WHEN_MS), has_offsets=False))
    assert cuts == {0: 15}, "the end as it was said, before the answer that no record is as late"
