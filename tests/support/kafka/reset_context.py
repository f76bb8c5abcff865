"""Makes what a reset works with, over logs in memory: one pipeline ``p``, source ``t``, one partition.

context = reset_context(LogClient(batches), {"mode": "watermark", ...})
facts = asyncio.run(learn(context, None, Bounds(0, 9, 9), 0, 5, has_offset=False))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from processor.kafka.topics.plan import TopicView, changelog_topic
from processor.pipeline.hops import hops_of
from processor.reset.context import ResetContext
from schemas.config import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping


def reset_context(client: Any, dedup: Mapping[str, Any], partitions: int = 1) -> ResetContext:
    """Return the context of a pipeline that judges by ``dedup``; every partition of ``client`` is the same."""
    pipeline = {"name": "p", "source": "t", "sink": "clean", "dedup": dict(dedup)}
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": "localhost:1"},
            "worker": {"application_id": "a"},
            "pipelines": [pipeline],
        }
    )
    (only,) = settings.pipelines
    topics = "t", "clean", changelog_topic(settings, only)
    view = {topic: TopicView(partitions, 1, {"max.message.bytes": "1048588"}) for topic in topics}
    return ResetContext(settings, client, view, hops_of(settings, only)[-1])
