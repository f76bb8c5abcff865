"""Finds another application that writes the same source into a sink: each record would be in it twice.

Each commit leaves a position in a changelog, which names its application, source and sink, by topic ids too
(`schemas.changelog.position`). The application with the newest commit owns the sink. One that has not committed
yet, or less recently, is refused, until it takes the sink over: its first commit makes it the owner.
What this principal may not read is not looked at.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from processor.errors import Problem, RebuildError, StopError
from processor.kafka.client import Client, TopicPartition, open_client
from processor.kafka.fetch import Fetcher, OutOfRangeError
from processor.kafka.offsets import bounds, newest_timestamps
from processor.kafka.protocol.codes import Operation, lacking
from processor.kafka.rights import rights
from processor.kafka.topics.plan import changelog_topic
from processor.state.changelog import rows_under
from processor.wire.decode import Decoder, UndecodableError
from schemas.changelog.position import Position
from schemas.changelog.topic_ids import UNKNOWN_ID, TopicId
from schemas.changelog.values import POSITION_KEY, CorruptStateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.config import Pipeline, Settings

log = logging.getLogger(__name__)

CLIENT_ID = "seqmark-writers"
CHANGELOG, POSITIONS = "-changelog", "-positions"
TAIL = 64
"""Offsets at a changelog's end, in which the last commit's position stands."""
READ_S = 10.0
"""For the ends of all changelogs; what has not come by then is not looked at."""
MOST_BYTES = 256 * 1024
"""Of one of them in one fetch."""


class _Commit(NamedTuple):
    """The newest record of a changelog."""

    at_ms: int
    partition: TopicPartition


async def other_writers(settings: Settings, pipelines: Sequence[Pipeline]) -> list[Problem]:
    """Return what there is to say of each sink that another application owns.

    Raises:
        StopError: No broker answers.
    """
    written = [each for each in pipelines if each.writes_records]
    async with open_client(settings.kafka, CLIENT_ID, []) as client:
        readable = [
            name
            for name, each in (await rights(client, None)).topics.items()
            if not lacking(each.operations, [Operation.READ])
        ]
    logs = [name for name in readable if name.endswith((CHANGELOG, POSITIONS))]
    topics = {topic for each in written for topic in (each.source, each.clean_topic)}
    async with open_client(settings.kafka, CLIENT_ID, {*logs, *topics}) as client:
        newest = await _newest_commits(client, logs)
        own_ms = [newest[name].at_ms if name in newest else -1 for name in _changelogs(settings, written)]
        newer = [commit.partition for commit in newest.values() if commit.at_ms > min(own_ms, default=0)]
        found = await _positions(client, newer)
        ids = {name: TopicId.of(name, client.ids.get(name, UNKNOWN_ID)) for name in topics}
    problems = []
    for pipeline, since_ms in zip(written, own_ms, strict=True):
        writers = [
            (newest[topic].at_ms, position.application, position.pipeline)
            for topic, position in found.items()
            if newest[topic].at_ms > since_ms
            and position.topics.sink.is_same(ids[pipeline.clean_topic])
            and _reads(found, position, ids[pipeline.source])
        ]
        _, application, name = max(writers, default=(0, "", ""))
        if application not in {"", settings.worker.application_id}:
            problems.append(Problem(pipeline.clean_topic, _said(settings, pipeline, application, name)))
    return problems


async def require_own_sinks(settings: Settings, pipelines: Sequence[Pipeline]) -> None:
    """Refuse to go on where another application owns a sink.

    Raises:
        StopError: Names each sink and its owner; or no broker answers.
    """
    if found := await other_writers(settings, pipelines):
        raise StopError("\n".join(map(str, found)))


def _said(settings: Settings, pipeline: Pipeline, application: str, name: str) -> str:
    return (
        f"application {application} (pipeline {name}) writes {pipeline.source} into it, and application "
        f"{settings.worker.application_id} would write all of it once more. Set worker.application_id back to "
        f"{application}, or name another sink; or stop the workers of {application} and start one here with "
        "--take-over-sink, which goes on from its own position"
    )


def _changelogs(settings: Settings, pipelines: Iterable[Pipeline]) -> list[str]:
    return [changelog_topic(settings, pipeline) for pipeline in pipelines]


def _reads(found: Mapping[str, Position], position: Position, source: TopicId) -> bool:
    """Whether the application that has left a position reads a source, directly or by way of a route."""
    routed = found.get(f"{position.application}-{position.pipeline}{POSITIONS}", position)
    return position.topics.source.is_same(source) or routed.topics.source.is_same(source)


async def _newest_commits(client: Client, logs: Iterable[str]) -> dict[str, _Commit]:
    """Return the newest record of each changelog; empty ones are left out."""
    every = [TopicPartition(topic, number) for topic in logs for number in client.partitions(topic)]
    newest: dict[str, _Commit] = {}
    for tp, at_ms in (await newest_timestamps(client, every)).items():
        newest[tp.topic] = max(newest.get(tp.topic, _Commit(-1, tp)), _Commit(at_ms, tp))
    return newest


async def _positions(client: Client, partitions: Sequence[TopicPartition]) -> dict[str, Position]:
    """Return by changelog the position of the last commit; other programs' have none."""
    try:
        limits = await bounds(client, partitions, READ_S)
    except RebuildError as error:
        log.warning("whether other applications write into the sinks is not known: %s", error)
        return {}
    left = {tp: max(each.start, each.stable - TAIL) for tp, each in limits.items() if each.stable > each.start}
    found: dict[str, Position] = {}
    decoder, deadline = Decoder(), time.monotonic() + READ_S
    with contextlib.closing(Fetcher(client)) as fetcher:
        while left and time.monotonic() < deadline:
            try:
                chunks = await fetcher.fetch(left, MOST_BYTES)
            except OutOfRangeError as error:  # trimmed meanwhile
                del left[error.partition]
                continue
            except RebuildError:  # a topic was deleted meanwhile
                break
            for chunk in chunks:
                tp = TopicPartition(chunk.topic, chunk.partition)
                try:
                    for piece in decoder.pieces(chunk):
                        left[tp] = piece.next_offset
                        rows = rows_under(piece.columns, POSITION_KEY)
                        for _, value in piece.columns.items(rows[-1:]):
                            found[tp.topic] = Position.decode(value or b"")
                except (UndecodableError, CorruptStateError):
                    left[tp] = limits[tp].stable
                if not chunk.data or left[tp] >= limits[tp].stable:
                    del left[tp]
    return found
