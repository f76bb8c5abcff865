"""Finds states that a worker would refuse: of other rules than the config has now, of others, of other topics.

A worker finds that out when it takes a partition over, and stops. Asked before, it can be said in time. Each
commit ends with a position, which names the rules and whose it is; so only the last records of a changelog are
read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import Problem
from processor.judges.factory import mode_of
from processor.kafka.client import Client, open_client
from processor.kafka.reader import ChangelogPartition
from processor.kafka.topics.ensure import connected, describe
from processor.kafka.topics.plan import changelog_topic, names
from processor.pipeline.hop_kinds import how_to_reset
from processor.pipeline.hops import hops_of
from processor.state.belonging import foreign, refusal
from processor.state.changelog import last_position
from processor.wire.decode import Decoder
from schemas.changelog.topic_ids import UNKNOWN_ID, TopicId, TopicIds

if TYPE_CHECKING:
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
        found = [
            await _problem(client, settings, pipeline, f"pipelines.{index}", view[topic].partitions)
            for index, (pipeline, topic) in enumerate(zip(settings.pipelines, topics, strict=True))
            if topic in view
        ]
    return [problem for problem in found if problem is not None]


async def _problem(
    client: Client, settings: Settings, pipeline: Pipeline, key: str, partitions: int
) -> Problem | None:
    decoder, topic = Decoder(), changelog_topic(settings, pipeline)
    for number in range(partitions):
        position = await last_position(ChangelogPartition(client, decoder, topic, number))
        if position is None:
            continue
        if theirs := foreign(position, settings.worker.application_id, pipeline.name):
            message = f"{topic}:{number} {theirs}; see 'Names that run together' in docs/operations.md"
            return Problem(f"{key}.name", message)
        if other := _other_topic(client, settings, pipeline, position, number):
            return Problem(key, f"{other}: a worker refuses the state")
        if position.definition != mode_of(pipeline).definition():
            keys = ", ".join(mode_of(pipeline).judged_by())
            message = (
                f"differs from what the state of {pipeline.source}:{number} was made with ({keys}): a worker "
                "refuses that state. Set it back, or have the state rebuilt: "
                f"{how_to_reset(pipeline, '--to-earliest')}; see 'Reprocessing' and 'Beginning anew' in "
                "docs/operations.md"
            )
            return Problem(f"{key}.dedup", message)
    return None


def _other_topic(
    client: Client, settings: Settings, pipeline: Pipeline, position: Position, number: int
) -> str | None:
    """Say which topic of a pipeline is another than its state was made with."""
    hop, sink = hops_of(settings, pipeline)[-1], pipeline.sink if pipeline.writes_records else None
    topics = hop.source, changelog_topic(settings, pipeline), sink, hop.duplicates, hop.quarantine
    now = TopicIds(*(TopicId.of(topic, client.ids.get(topic or "", UNKNOWN_ID)) for topic in topics))
    named = dict(zip(TopicIds._fields, topics, strict=True))
    named["verdicts"] = pipeline.verdicts
    verdicts = TopicId.of(pipeline.verdicts, client.ids.get(pipeline.verdicts or "", UNKNOWN_ID))
    where = f"{hop.source}:{number}"
    return refusal(position, now, named.get, where, lambda to: how_to_reset(pipeline, to), verdicts)
