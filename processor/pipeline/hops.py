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
    """From one topic to another, worked on by itself.

    Attributes:
        pipeline: Its config.
        name: What slots, transactional ids, state and metrics are named by.
        source: The topic that it reads.
        quarantine: Where it writes what cannot be judged; None: nowhere.
        duplicates: Where it writes receipts; None: nowhere.
    """

    pipeline: Pipeline
    name: str
    source: str
    quarantine: str | None
    duplicates: str | None

    @property
    def upstream(self) -> str | None:
        """The pipeline's source, where another hop reads it for this one; None: this one reads it."""
        return None if self.source == self.pipeline.source else self.pipeline.source

    @property
    def has_collisions(self) -> bool:
        """Whether records of one id are told apart here."""
        dedup = self.pipeline.id_dedup
        return dedup is not None and dedup.fingerprint is not None


@dataclass(frozen=True, slots=True)
class FirstHop(Hop):
    """From the source to the internal topic, of a pipeline with ``route``."""

    internal: str

    @property
    def dedup(self) -> InsertIdDedup:
        """The only mode that there is with route."""
        dedup = self.pipeline.id_dedup
        assert dedup is not None  # noqa: S101 - `hops_of` made the hop of one
        return dedup

    @property
    @override
    def has_collisions(self) -> bool:
        return False


def hops(settings: Settings) -> list[Hop]:
    """Return all that a worker works on, in the pipelines' order."""
    return [hop for pipeline in settings.pipelines for hop in hops_of(settings, pipeline)]


def hops_of(settings: Settings, pipeline: Pipeline) -> list[Hop]:
    """Return the one hop of a pipeline, or its two."""
    if not pipeline.routed:
        return [only_hop(pipeline)]
    name, internal = pipeline.name, repartition_topic(settings, pipeline)
    return [
        FirstHop(pipeline, f"{name}{SUFFIX}", pipeline.source, pipeline.quarantine, None, internal),
        Hop(pipeline, name, internal, _refused_to(pipeline), pipeline.duplicates),
    ]


def _refused_to(pipeline: Pipeline) -> str | None:
    """Return where a second hop writes what it refuses; None: what is routed has been found fit to be judged.

    Only judging tells which ids collide, and what their edits make too large.
    """
    dedup = pipeline.id_dedup
    judged = dedup is not None and dedup.fingerprint is not None and dedup.on_collision not in {"pass", "drop"}
    return pipeline.quarantine if judged else None


def only_hop(pipeline: Pipeline) -> Hop:
    """Return the hop of a pipeline without ``route``."""
    return Hop(pipeline, pipeline.name, pipeline.source, pipeline.quarantine, pipeline.duplicates)


def route_definition(hop: FirstHop, partitions: int) -> bytes:
    """Return 16 bytes that change when ids would go elsewhere: see `processor.judges.mode.Mode.definition`."""
    fields = {
        "id": [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in hop.dedup.id],
        "on_missing": hop.dedup.on_missing,
        "partitions": partitions,
    }
    canonical = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(canonical, digest_size=16, person=b"seqmark route").digest()
