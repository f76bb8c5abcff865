"""Finds states that a worker would refuse: of other rules than the config has now, of others, of other topics.

A worker finds that out when it takes a partition over, and stops. Asked before, it can be said in time. Each
commit ends with a position, which names the rules and whose it is; so only the last records of a changelog are
read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import Problem
from processor.judges.definition import definition, judged_by
from processor.kafka.changelog import ChangelogPartition
from processor.kafka.client import Client, open_client
from processor.kafka.topics.ensure import connected, describe
from processor.kafka.topics.plan import changelog_topic, names
from processor.pipeline.hop_kinds import how_to_reset
from processor.pipeline.hops import hops_of
from processor.state.belonging import foreign, refusal
from processor.state.changelog_head import last_position
from processor.wire.decode import Decoder
from schemas.changelog.topic_ids import UNKNOWN_ID, TopicId, TopicIds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.kafka.topics.plan import ClusterView
    from schemas.changelog.position import Position
    from schemas.config import Pipeline, Settings

CLIENT_ID = "seqmark-check"


async def changed(settings: Settings) -> list[Problem]:
    """Return what there is to say of each pipeline whose state a worker would refuse.

    Raises:
        StopError: No broker answers, or a changelog is corrupt.
        RebuildError: One cannot be read.
    """
    topics = [changelog_topic(settings, pipeline) for pipeline in settings.pipelines]
    async with connected(settings.kafka) as admin:
        view = await describe(admin, topics)
    if not view:
        return []
    async with open_client(settings.kafka, CLIENT_ID, names(settings)) as client:
        return [
            problem
            for index, (pipeline, topic) in enumerate(zip(settings.pipelines, topics, strict=True))
            for problem in await _of_pipeline(client, view, settings, (index, pipeline, topic))
        ]


async def _of_pipeline(
    client: Client, view: ClusterView, settings: Settings, what: tuple[int, Pipeline, str]
) -> Sequence[Problem]:
    index, pipeline, topic = what
    if topic not in view:
        return ()
    decoder, mine = Decoder(), definition(pipeline)
    for number in range(view[topic].partitions):
        position = await last_position(ChangelogPartition(client, decoder, topic, number))
        theirs = position and foreign(position, settings.worker.application_id, pipeline.name)
        if theirs:
            message = f"{topic}:{number} {theirs}; see 'Names that run together' in docs/operations.md"
            return (Problem(f"pipelines.{index}.name", message),)
        other = position and _other_topic(client, settings, pipeline, position, number)
        if other:
            return (Problem(f"pipelines.{index}", f"{other}: a worker refuses the state"),)
        if position is not None and position.definition != mine:
            keys = ", ".join(judged_by(pipeline))
            message = (
                f"differs from what the state of {pipeline.source}:{number} was made with ({keys}): a worker "
                "refuses that state. Set it back, or have the state rebuilt: "
                f"{how_to_reset(pipeline, '--to-earliest')}; see 'Reprocessing' and 'Beginning anew' in "
                "docs/operations.md"
            )
            return (Problem(f"pipelines.{index}.dedup", message),)
    return ()


def _other_topic(
    client: Client, settings: Settings, pipeline: Pipeline, position: Position, number: int
) -> str | None:
    """Say which topic of a pipeline is another than its state was made with."""
    hop = hops_of(settings, pipeline)[-1]
    topics = hop.source, changelog_topic(settings, pipeline), pipeline.sink, hop.duplicates, hop.quarantine
    now = TopicIds(*(TopicId.of(topic, client.ids.get(topic or "", UNKNOWN_ID)) for topic in topics))
    named = dict(zip(TopicIds._fields, topics, strict=True))
    return refusal(position, now, named.get, f"{hop.source}:{number}", lambda to: how_to_reset(pipeline, to))
