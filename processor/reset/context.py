"""Holds what all parts of a reset share: the pipeline, its topics and the connections to them.

A context is of one hop of the pipeline, the one that judges. With ``route`` another hop reads the source for
it, and has a context of its own.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.kafka.client import TopicPartition, check_aiokafka, open_client
from processor.kafka.group.readers import readers
from processor.kafka.reader import ChangelogPartition
from processor.kafka.topics.ensure import ensure, look
from processor.pipeline.hop_kinds import kind_of
from processor.pipeline.hops import hops_of
from processor.state.belonging import named
from processor.wire.decode import Decoder
from schemas.changelog.topic_ids import NO_TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from processor.kafka.client import Client
    from processor.kafka.topics.plan import ClusterView
    from processor.pipeline.hop_kinds import HopKind
    from processor.pipeline.hops import Hop
    from processor.pipeline.ports import Topics
    from schemas.changelog.position import Position
    from schemas.changelog.topic_ids import TopicIds
    from schemas.config import Pipeline, Settings


@dataclass(frozen=True)
class ResetContext:
    """One pipeline that is being reset.

    Attributes:
        settings: Of the pipeline alone; its topics exist and are right.
        client: Connections to all its topics.
        view: Those topics.
        hop: Whose slots, changelog and positions it speaks of.
        decoder: Shared by all that is read, one partition after the other.
    """

    settings: Settings
    client: Client
    view: ClusterView
    hop: Hop
    decoder: Decoder = field(default_factory=Decoder)

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline's config."""
        (pipeline,) = self.settings.pipelines
        return pipeline

    @cached_property
    def first(self) -> ResetContext | None:
        """The same of the hop that reads the source for this one; None: this one reads it."""
        if self.hop.upstream is None:
            return None
        return replace(self, hop=hops_of(self.settings, self.pipeline)[0])

    @property
    def reading(self) -> ResetContext:
        """The same of the hop that reads the source."""
        return self.first or self

    @cached_property
    def kind(self) -> HopKind:
        """What differs from hop to hop."""
        return kind_of(self.settings, self.hop, self.view)

    @property
    def topics(self) -> Topics:
        """Where it reads and writes."""
        return self.kind.topics

    @cached_property
    def definition(self) -> bytes:
        """What it judges by now."""
        return self.kind.definition

    @property
    def application(self) -> str:
        """Whose state it is: the consumer group, too."""
        return self.settings.worker.application_id

    @property
    def transaction_timeout_s(self) -> float:
        """How long a worker's transaction can stay open."""
        return self.settings.worker.transaction_timeout_ms / 1000

    @property
    def partitions(self) -> int:
        """How many partitions the source of the hop has."""
        return self.view[self.topics.source].partitions

    def source(self, number: int) -> TopicPartition:
        """Return a partition of the source of the hop."""
        return TopicPartition(self.topics.source, number)

    def changelog(self, number: int) -> ChangelogPartition:
        """Return a partition of the changelog."""
        return ChangelogPartition(self.client, self.decoder, self.topics.changelog, number)

    def changelog_at(self, number: int) -> TopicPartition:
        """Return where a partition of the changelog is."""
        return TopicPartition(self.topics.changelog, number)

    def topics_now(self) -> TopicIds:
        """Return which topics there are now."""
        return self.topics.identified(self.client.ids)

    def named(self, position: Position) -> Position:
        """Return a position that names the topics that there are now, and whose it is."""
        found = named(position, self.topics_now(), self.application, self.hop.name)
        if found.verdicts.is_other(self.topics.verdicts_of(self.client.ids)):
            # Records of before stand in a topic that is gone: a worker begins anew in this one.
            found = replace(found, verdicts=NO_TOPIC_ID)
        return found

    async def require_stopped(self) -> None:
        """Look whether nobody in the group reads the pipeline's source: who reads one hop's reads the other's.

        Raises:
            StopError: Somebody does.
        """
        source = self.pipeline.source
        found = await readers(self.client, self.application, source)
        if found:
            names = "; ".join(map(str, found))
            raise StopError(
                f"pipeline {self.pipeline.name} is not stopped: of the group {self.application}, {names} "
                f"read{'s' if len(found) == 1 else ''} {source}. Stop its workers first; one that was killed, "
                "or that has a group_instance_id, counts until its session_timeout_ms is over"
            )


@asynccontextmanager
async def connected(
    settings: Settings, pipeline: Pipeline, purpose: str, again: str, *, create: bool
) -> AsyncIterator[ResetContext]:
    """Look at a pipeline's topics, connect, and give what works on it while it is stopped.

    Args:
        settings: The whole config.
        pipeline: One of it.
        purpose: What for, in the client's id.
        again: What a user does where the connection is lost.
        create: Create topics that are missing: a state needs its changelog.

    Raises:
        StopError: A topic is not right, or no broker answers.
    """
    check_aiokafka()
    alone = settings.model_copy(update={"pipelines": [pipeline]})
    report = await ensure(alone, create=create)
    report.require()
    view = await look(alone)
    client_id = f"{settings.worker.application_id}-{purpose}"
    async with open_client(settings.kafka, client_id, view, f"; {again}") as client:
        yield ResetContext(alone, client, view, hops_of(alone, pipeline)[-1])
