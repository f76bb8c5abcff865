"""Names the topics of marks, and says what keeps marks from being written to one.

Two marks frame in the outputs what lay between them in the source (`schemas.changelog.marks`). Nothing depends
on these topics: where one is missing or of no use, a worker goes on without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.config import InternalTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from schemas.config import Pipeline, Settings

LEAST_BYTES = 1024
"""A batch of one mark has 140."""
LEAST_LIMIT_MS = 3_600_000
"""How far apart the clocks of a worker and a broker may be: Kafka's own default since 4.0."""
LIMITS = (
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms",
)
WITHOUT = "Without it `seqmark explain` searches longer; everything else is unaffected"


def index_topic(settings: Settings, pipeline: Pipeline) -> str:
    """Return the name of the topic of a pipeline's marks; with ``route`` of those of its second hop."""
    return InternalTopic.INDEX.of(settings.worker.application_id, pipeline.name)


def route_index_topic(settings: Settings, pipeline: Pipeline) -> str:
    """Return the name of the topic of the first hop's marks."""
    return InternalTopic.ROUTE_INDEX.of(settings.worker.application_id, pipeline.name)


def index_fault(configs: Mapping[str, str]) -> str | None:
    """Say why a broker could refuse a mark, and with it the transaction; None: it will not."""
    size = int(configs.get("max.message.bytes", LEAST_BYTES))
    if size < LEAST_BYTES:
        return f"max.message.bytes is {size}: at least {LEAST_BYTES} are needed"
    for limit in LIMITS:
        if int(configs.get(limit, LEAST_LIMIT_MS)) < LEAST_LIMIT_MS:
            return f"{limit} is {configs[limit]}: at least {LEAST_LIMIT_MS} are needed"
    return None


def index_warnings(configs: Mapping[str, str], partitions: int, wanted: int) -> Iterator[str]:
    """Say what an index topic lacks."""
    fault = index_fault(configs)
    if fault is not None:
        yield f"{fault}; nothing is written to it. {WITHOUT}"
    if "compact" in configs.get("cleanup.policy", ""):
        yield "cleanup.policy has compact: only the newest mark is kept; delete is better"
    if partitions < wanted:
        yield f"has {partitions} partitions, {wanted} are to be marked: the last ones are not"
