"""What is different about the work on each kind of hop?

A slot (`processor.worker.slot`) works on one hop, and most of that is the same for all of them. What is not, it
asks a `HopKind`: of a pipeline's only hop, or of one of the two of ``route = "by-id"``
(`processor.pipeline.hops`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import reset_command
from processor.judges.definition import definition, judged_by
from processor.judges.factory import make_judge
from processor.kafka.topics.plan import changelog_topic, limit_bytes
from processor.pipeline.hops import FirstHop, SecondHop, route_definition
from processor.pipeline.routed import FirstHopPipeline, RouteJudge, RouteTopics, SecondHopPipeline, first_topics
from processor.pipeline.slot_pipeline import SlotPipeline, Topics
from schemas.config import InsertIdDedup

if TYPE_CHECKING:
    from processor.judges.judge import Judge
    from processor.kafka.topics.plan import ClusterView
    from processor.ops.metrics import Metrics
    from processor.pipeline.slot_pipeline import TransactionOutput
    from processor.pipeline.turns import Turns
    from processor.wire.decode import Decoder
    from processor.wire.encode import Encoder
    from schemas.config import Pipeline, Settings


class HopKind:
    """Of a pipeline's only hop.

    Attributes:
        topics: The hop's, with what they take.
        upstream: The topic that another hop takes in for this one; None: none does. What lies in this one's
            source was taken out of there, so no part of it is passed over.
        only_positions: Whether its state is a position a partition and nothing else, and means the same in all.

    Args:
        config: The hop's.
        topics: See the attribute.
    """

    upstream: str | None = None
    only_positions = False

    def __init__(self, config: Pipeline, topics: Topics) -> None:
        self._config = config
        self.topics = topics

    @property
    def deletes(self) -> bool:
        """Whether what it needs no more is deleted: of its changelog, or of a source that is its own."""
        return isinstance(self._config.dedup, InsertIdDedup)

    @property
    def definition(self) -> bytes:
        """16 bytes that change when the meaning of its stored state changes."""
        return definition(self._config)

    @property
    def judged_by(self) -> str:
        """What the definition is made of, as people know it."""
        return ", ".join(judged_by(self._config))

    def judge(self) -> Judge:
        """Return a judge for one partition, with no state yet."""
        return make_judge(self._config)

    def pipeline(
        self, output: TransactionOutput, decoder: Decoder, encoder: Encoder, metrics: Metrics, turns: Turns
    ) -> SlotPipeline:
        """Return what chunks go through."""
        return SlotPipeline(self._config.name, self.topics, output, decoder, encoder, metrics, turns=turns)

    def reset(self, to: str) -> str:
        """Say how its state is made anew from the source."""
        return how_to_reset(self._config, to)


class FirstHopKind(HopKind):
    """Of the hop to an internal topic."""

    only_positions = True
    deletes = False

    def __init__(self, config: FirstHop, topics: RouteTopics) -> None:
        super().__init__(config, topics)
        self._hop, self._routed = config, topics

    @property
    def definition(self) -> bytes:
        """See `HopKind.definition`: it says where ids go."""
        return route_definition(self._hop, self._routed.internal_partitions)

    @property
    def judged_by(self) -> str:
        """See `HopKind.judged_by`."""
        return f"id, on_missing, the number of partitions of {self._hop.internal}"

    def judge(self) -> Judge:
        """See `HopKind.judge`."""
        assert isinstance(self._hop.dedup, InsertIdDedup)  # noqa: S101 - there is no other with route
        return RouteJudge(self._hop.dedup)

    def pipeline(
        self, output: TransactionOutput, decoder: Decoder, encoder: Encoder, metrics: Metrics, turns: Turns
    ) -> SlotPipeline:
        """See `HopKind.pipeline`."""
        return FirstHopPipeline(self._hop.name, self._routed, output, decoder, encoder, metrics, turns)


class SecondHopKind(HopKind):
    """Of the hop from an internal topic to the sink."""

    def __init__(self, config: SecondHop, topics: Topics) -> None:
        super().__init__(config, topics)
        self._hop = config
        self.upstream = config.routed_from

    def pipeline(
        self, output: TransactionOutput, decoder: Decoder, encoder: Encoder, metrics: Metrics, turns: Turns
    ) -> SlotPipeline:
        """See `HopKind.pipeline`."""
        return SecondHopPipeline(self._hop, self.topics, output, decoder, encoder, metrics, turns)


def work_of(settings: Settings, hop: Pipeline, view: ClusterView) -> HopKind:
    """Return the work on a hop, its topics being as they were looked at."""
    if isinstance(hop, FirstHop):
        return FirstHopKind(hop, first_topics(settings, hop, view))
    topics = topics_for(settings, hop, view)
    return SecondHopKind(hop, topics) if isinstance(hop, SecondHop) else HopKind(hop, topics)


def how_to_reset(pipeline: Pipeline, to: str) -> str:
    """Say how a pipeline's state is made anew from the source.

    Args:
        pipeline: Its config, or a hop's.
        to: Option that says from where on.
    """
    if isinstance(pipeline.dedup, InsertIdDedup) and pipeline.dedup.route is not None:
        return "no command does that yet with route"
    return reset_command(pipeline.name, to)


def topics_for(settings: Settings, hop: Pipeline, view: ClusterView) -> Topics:
    """Return the topics of a hop to a sink, with what they take."""
    quarantine, duplicates = hop.quarantine, hop.duplicates
    changelog = changelog_topic(settings, hop)
    written = [hop.sink, *filter(None, (duplicates, quarantine)), changelog]
    return Topics(
        hop.source,
        hop.sink,
        quarantine,
        changelog,
        limit_bytes(view, hop.sink),
        limit_bytes(view, quarantine) if quarantine else 0,
        limit_bytes(view, changelog),
        duplicates,
        limit_bytes(view, duplicates) if duplicates else 0,
        min(view[topic].partitions for topic in written),
    )
