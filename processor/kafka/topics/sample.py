"""Names the topics by which workers share their samples of ids, and says how they are made.

Nothing depends on these topics: where one is missing or of no use, each worker goes by what it has judged
itself (`processor.pipeline.escapes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.ops.escaped import HORIZON_WINDOWS
from schemas.config import InternalTopic

if TYPE_CHECKING:
    from schemas.config import Pipeline, Settings

LEAST_RETENTION_MS = 3_600_000
MOST_RETENTION_MS = 90 * 86_400_000
RETENTION_BYTES = 128 * 1024 * 1024
"""Eight times what the rows of a full sample take, for there are those of every thinning before it."""
SEGMENT_BYTES = 16 * 1024 * 1024
"""Whole segments are deleted: with Kafka's 1 GiB the other limits would mean nothing."""


def sample_topic(settings: Settings, pipeline: Pipeline) -> str:
    """Return the name of the topic by which the workers of a pipeline share their sample."""
    return InternalTopic.SAMPLE.of(settings.worker.application_id, pipeline.name)


def sample_configs(pipeline: Pipeline) -> dict[str, str]:
    """Return the settings of one that is to be made: what is older than the horizon is of no use."""
    dedup = pipeline.id_dedup
    horizon_ms = 0 if dedup is None else HORIZON_WINDOWS * dedup.window
    return {
        "retention.ms": str(min(max(horizon_ms, LEAST_RETENTION_MS), MOST_RETENTION_MS)),
        "retention.bytes": str(RETENTION_BYTES),
        "segment.bytes": str(SEGMENT_BYTES),
    }
