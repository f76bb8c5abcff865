"""Answers `seqmark explain` for an id, a key or fields: the state's word first, then the time line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from processor.errors import RebuildError, StopError
from processor.inspection.explain.explainer import Explainer
from processor.inspection.timeline.held import HeldQuestion, held, partition_secret, scope_of, words_of
from processor.inspection.timeline.line import Timeline, tell
from processor.inspection.timeline.scan import Scan, ScanOrder
from processor.inspection.timeline.wanted import wanted_id
from processor.kafka.client import open_client
from processor.kafka.topics.plan import changelog_topic, marked, names
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from processor.inspection.timeline.held import Bar, HeldPartition
    from processor.inspection.timeline.wanted import Wanted
    from processor.kafka.client import Client
    from schemas.config import Pipeline, Settings

CLIENT_ID = "seqmark-explain"


@dataclass(frozen=True)
class TimelineQuestion:
    """What was asked for, of one pipeline.

    Attributes:
        pipeline: It.
        wanted: Which records.
        words: The words of an id.
        key: The word of a key.
        begin_ms: Only from this time on, by the records' timestamps.
        end_ms: Only up to before this time.
        limit: So many of the first records are shown, and of the last.
    """

    pipeline: Pipeline
    wanted: Wanted
    words: Sequence[str] = ()
    key: str | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    limit: int = 20


def connected(settings: Settings) -> AbstractAsyncContextManager[Client]:
    """Connect to the brokers, with the topics of marks known too: they make the look for each record short."""
    return open_client(settings.kafka, CLIENT_ID, [*names(settings), *marked(settings)])


async def timeline(settings: Settings, question: TimelineQuestion, bar: Bar) -> Timeline:
    """Return what became of the records that were asked for; ``bar`` shows how far a long scan is.

    Raises:
        StopError: No broker answers, or a topic or a state cannot be read.
        ConfigError: Files of certificates or keys are wrong.
    """
    pipeline, wanted = question.pipeline, question.wanted
    bounded = question.begin_ms is not None or question.end_ms is not None
    line = Timeline(pipeline.name, wanted.text, wanted.ambiguous, bounded=bounded)

    def connect() -> AbstractAsyncContextManager[Client]:
        return connected(settings)

    try:
        async with connect() as client:
            line.state = await _state(settings, question, client, bar)
            order = ScanOrder(pipeline, wanted, question.begin_ms, question.end_ms, question.limit)
            if wanted.by_content:
                order = replace(order, secrets=await _secrets(settings, pipeline, client))
            scan = Scan(order, connect, line.notes.append)
            total = await scan.open(client)
            with bar("looking", total) as advance:
                found = await scan.run(advance)
            explainer = Explainer(settings, client)
            try:
                await tell(line, found, explainer, question.limit)
            finally:
                explainer.close()
    except RebuildError as error:
        raise StopError(f"the topics cannot be read: {error}. Is the cluster well?") from error
    return line


async def _state(
    settings: Settings, question: TimelineQuestion, client: Client, bar: Bar
) -> list[HeldPartition] | None:
    asked = asked_of_state(question)
    return None if asked is None else await held(settings, asked, client, bar)


def asked_of_state(question: TimelineQuestion) -> HeldQuestion | None:
    """Return what the state is asked: for an id, which a key may be, or for a scope; None: it cannot be."""
    pipeline = question.pipeline
    if pipeline.id_dedup is None:
        scope = scope_of(pipeline, question.wanted.key)
        return None if scope is None else HeldQuestion(pipeline, scope=scope)
    words = words_of(pipeline, question.words, question.key)
    # Words of a key are read as those of an id that is one.
    return HeldQuestion(pipeline, wanted_id(pipeline, words).ids, words) if words else None


async def _secrets(settings: Settings, pipeline: Pipeline, client: Client) -> dict[int, bytes]:
    topic, decoder = changelog_topic(settings, pipeline), Decoder()
    found = {
        number: await partition_secret(client, decoder, topic, number)
        for number in sorted(client.partitions(topic))
    }
    return {number: secret for number, secret in found.items() if secret is not None}
