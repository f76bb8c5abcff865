"""Which ways does a record take through the worker, and from which topic to which?

A pipeline is one hop, from its source to its sink. With ``route = "by-id"`` it is two, each worked on as a
pipeline of its own, with slots, transactional ids, state and metrics of its own:

    first     NAME.route    source -> internal topic        a record finds the partition of its id
    second    NAME          internal topic -> sink          it is judged there, like any other

A configured name has no dot, so the first hop's cannot be another pipeline's.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import orjson

from processor.kafka.topics.plan import repartition_topic
from schemas.config import InsertIdDedup
from schemas.config.pipeline import Pipeline

if TYPE_CHECKING:
    from schemas.config import Settings

SUFFIX = ".route"


class FirstHop(Pipeline):
    """From the source to the internal topic; ``sink`` is the pipeline's, of whose limit it must know."""

    internal: str
    """The topic that it writes to."""
    of: str
    """Name of the pipeline."""


class SecondHop(Pipeline):
    """From the internal topic, its ``source``, to the sink."""

    routed_from: str
    """The pipeline's source: what receipts and messages name."""


def hops(settings: Settings) -> list[Pipeline]:
    """Return all that a worker works on, in the pipelines' order."""
    return [hop for pipeline in settings.pipelines for hop in hops_of(settings, pipeline)]


def hops_of(settings: Settings, pipeline: Pipeline) -> list[Pipeline]:
    """Return the one hop of a pipeline, itself, or its two."""
    if not isinstance(pipeline.dedup, InsertIdDedup) or pipeline.dedup.route is None:
        return [pipeline]
    internal = repartition_topic(settings, pipeline)
    # Not validated again: the name has a dot on purpose.
    first = FirstHop.model_construct(
        name=f"{pipeline.name}{SUFFIX}",
        source=pipeline.source,
        sink=pipeline.sink,
        quarantine=pipeline.quarantine,
        dedup=pipeline.dedup,
        internal=internal,
        of=pipeline.name,
    )
    second = SecondHop.model_construct(
        name=pipeline.name,
        source=internal,
        sink=pipeline.sink,
        duplicates=pipeline.duplicates,
        dedup=pipeline.dedup,
        routed_from=pipeline.source,
    )
    return [first, second]


def route_definition(hop: FirstHop, partitions: int) -> bytes:
    """Return 16 bytes that change when ids would go elsewhere: see `processor.judges.definition.definition`."""
    assert isinstance(hop.dedup, InsertIdDedup)  # noqa: S101 - `hops_of` made it of one
    fields = {
        "id": [part.model_dump(mode="json", by_alias=True) for part in hop.dedup.id],
        "on_missing": hop.dedup.on_missing,
        "partitions": partitions,
    }
    canonical = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(canonical, digest_size=16, person=b"seqmark route").digest()
