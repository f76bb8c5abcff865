"""The hops of a pipeline: from which topic to which a record goes through the worker.

A pipeline is one hop, from its source to its sink. With ``route = "by-id"`` it is two, with slots,
transactional ids, state and metrics of their own:

    first     NAME.route    source -> internal topic        a record finds the partition of its id
    second    NAME          internal topic -> sink          it is judged there, like any other

A configured name has no dot, so the first hop's cannot be another pipeline's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson
from typing_extensions import override

from processor.kafka.topics.plan import repartition_topic

if TYPE_CHECKING:
    from schemas.config import InsertIdDedup, Pipeline, Settings

SUFFIX = ".route"


@dataclass(frozen=True, slots=True)
class Hop:
    """The only hop of a pipeline."""

    pipeline: Pipeline
    """Its config."""

    @property
    def name(self) -> str:
        """What slots, transactional ids, state and metrics are named by."""
        return self.pipeline.name

    @property
    def source(self) -> str:
        """The topic that it reads."""
        return self.pipeline.source

    @property
    def quarantine(self) -> str | None:
        """Where it writes what cannot be judged; None: nowhere."""
        return self.pipeline.quarantine

    @property
    def duplicates(self) -> str | None:
        """Where it writes receipts; None: nowhere."""
        return self.pipeline.duplicates


@dataclass(frozen=True, slots=True)
class FirstHop(Hop):
    """From the source to the internal topic, of a pipeline with ``route``."""

    internal: str
    """The topic that it writes to."""

    @property
    @override
    def name(self) -> str:
        return f"{self.pipeline.name}{SUFFIX}"

    @property
    @override
    def duplicates(self) -> None:
        return None

    @property
    def dedup(self) -> InsertIdDedup:
        """The only mode that there is with route."""
        dedup = self.pipeline.id_dedup
        assert dedup is not None  # noqa: S101 - `hops_of` made the hop of one
        return dedup


@dataclass(frozen=True, slots=True)
class SecondHop(Hop):
    """From the internal topic to the sink, of a pipeline with ``route``."""

    internal: str
    """The topic that it reads."""

    @property
    @override
    def source(self) -> str:
        return self.internal

    @property
    @override
    def quarantine(self) -> None:
        return None


def hops(settings: Settings) -> list[Hop]:
    """Return all that a worker works on, in the pipelines' order."""
    return [hop for pipeline in settings.pipelines for hop in hops_of(settings, pipeline)]


def hops_of(settings: Settings, pipeline: Pipeline) -> list[Hop]:
    """Return the one hop of a pipeline, or its two."""
    if not is_routed(pipeline):
        return [Hop(pipeline)]
    internal = repartition_topic(settings, pipeline)
    return [FirstHop(pipeline, internal), SecondHop(pipeline, internal)]


def is_routed(pipeline: Pipeline) -> bool:
    """Whether a pipeline has two hops."""
    return pipeline.id_dedup is not None and pipeline.id_dedup.route is not None


def route_definition(hop: FirstHop, partitions: int) -> bytes:
    """Return 16 bytes that change when ids would go elsewhere: see `processor.judges.definition.definition`."""
    fields = {
        "id": [part.model_dump(mode="json", by_alias=True) for part in hop.dedup.id],
        "on_missing": hop.dedup.on_missing,
        "partitions": partitions,
    }
    canonical = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(canonical, digest_size=16, person=b"seqmark route").digest()
