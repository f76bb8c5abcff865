"""Finds another application that writes the same source into a sink: each record would be in it twice.

A topic of verdicts is a sink as well: who reads by it would go back to the source's beginning.

Each commit leaves a position in a changelog, which names its application, source and sink, by topic ids too
(`schemas.changelog.position`). The application with the newest commit owns the sink. One that has not committed
yet, or less recently, is refused, until it takes the sink over: its first commit makes it the owner.
What this principal may not read is not looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
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
"""Offsets at a changelog's end, in which the last commit's position stands; so many times more where all of
these were aborted."""
READ_S = 10.0
"""For the ends of all changelogs; what has not come by then is not looked at."""
AGAIN_S = 0.5
MOST_NAMED = 5
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
    async with open_client(settings.kafka, CLIENT_ID, []) as client:
        readable = [
            name
            for name, each in (await rights(client, None)).topics.items()
            if not lacking(each.operations, [Operation.READ])
        ]
    logs = [name for name in readable if name.endswith((CHANGELOG, POSITIONS))]
    topics = {topic for each in pipelines for topic in (each.source, *_sinks(each))}
    async with open_client(settings.kafka, CLIENT_ID, {*logs, *topics}) as client:
        newest, silent = await _newest_commits(client, logs)
        own_ms = [
            # What does not answer may have the newest commit of all.
            sys.maxsize if name in silent else newest[name].at_ms if name in newest else -1
            for name in (changelog_topic(settings, each) for each in pipelines)
        ]
        newer = [commit.partition for commit in newest.values() if commit.at_ms > min(own_ms, default=0)]
        found = await _positions(client, newer)
        ids = {name: TopicId.of(name, client.ids.get(name, UNKNOWN_ID)) for name in topics}
    problems = []
    for pipeline, since_ms in zip(pipelines, own_ms, strict=True):
        writers = [
            (newest[topic].at_ms, position.application, position.pipeline, sink)
            for topic, position in found.items()
            for sink in _sinks(pipeline)
            if newest[topic].at_ms > since_ms
            and (position.verdicts if sink == pipeline.verdicts else position.topics.sink).is_same(ids[sink])
            and _reads(found, position, ids[pipeline.source])
        ]
        _, application, name, sink = max(writers, default=(0, "", "", ""))
        if application not in {"", settings.worker.application_id}:
            problems.append(Problem(sink, _said(settings, pipeline, application, name)))
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


def _sinks(pipeline: Pipeline) -> list[str]:
    """Return the topics in which a pipeline says what its source holds once: records, verdicts or both."""
    records = [pipeline.clean_topic] if pipeline.writes_records else []
    return records if pipeline.verdicts is None else [*records, pipeline.verdicts]


def _reads(found: Mapping[str, Position], position: Position, source: TopicId) -> bool:
    """Whether the application that has left a position reads a source, directly or by way of a route."""
    routed = found.get(f"{position.application}-{position.pipeline}{POSITIONS}", position)
    return position.topics.source.is_same(source) or routed.topics.source.is_same(source)


async def _newest_commits(client: Client, logs: Iterable[str]) -> tuple[dict[str, _Commit], set[str]]:
    """Return the newest record of each changelog that has one, and those that have not answered in time."""
    left = {TopicPartition(topic, number) for topic in logs for number in client.partitions(topic)}
    newest: dict[str, _Commit] = {}
    deadline = time.monotonic() + READ_S
    while True:
        answered = await newest_timestamps(client, left)
        left -= answered.keys()
        for tp, at_ms in answered.items():
            if at_ms >= 0:
                newest[tp.topic] = max(newest.get(tp.topic, _Commit(-1, tp)), _Commit(at_ms, tp))
        if not left or time.monotonic() > deadline:
            break
        await asyncio.sleep(AGAIN_S)
        await client.refresh()
    silent = sorted({tp.topic for tp in left})
    if silent:
        more = f" and {len(silent) - MOST_NAMED} more" if len(silent) > MOST_NAMED else ""
        named = ", ".join(silent[:MOST_NAMED]) + more
        log.warning(
            "whether their applications write into the sinks is not known, for no leader answers: %s", named
        )
    return newest, set(silent)


async def _positions(client: Client, partitions: Sequence[TopicPartition]) -> dict[str, Position]:
    """Return by changelog the position of the last commit; other programs' have none."""
    try:
        limits = await bounds(client, partitions, READ_S)
    except RebuildError as error:
        log.warning("whether other applications write into the sinks is not known: %s", error)
        return {}
    found: dict[str, Position] = {}
    deadline, tail = time.monotonic() + READ_S, TAIL
    left = {tp: each for tp, each in limits.items() if each.stable > each.start}
    with contextlib.closing(Fetcher(client)) as fetcher:
        while left and time.monotonic() < deadline:
            ends = {tp: (max(each.start, each.stable - tail), each.stable) for tp, each in left.items()}
            spoken = await _read_tails(fetcher, ends, found, deadline)
            # Transactions that were aborted leave nothing that is read.
            left = {tp: each for tp, each in left.items() if tp not in spoken and ends[tp][0] > each.start}
            tail *= TAIL
    return found


async def _read_tails(
    fetcher: Fetcher,
    ends: Mapping[TopicPartition, tuple[int, int]],
    found: dict[str, Position],
    deadline: float,
) -> set[TopicPartition]:
    """Read changelogs from one offset to another, and note the last position; return those with any record."""
    left = {tp: first for tp, (first, _) in ends.items()}
    spoken: set[TopicPartition] = set()
    decoder = Decoder()
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
                    if len(piece.columns):
                        spoken.add(tp)
                    rows = rows_under(piece.columns, POSITION_KEY)
                    for _, value in piece.columns.items(rows[-1:]):
                        found[tp.topic] = Position.decode(value or b"")
            except (UndecodableError, CorruptStateError):
                spoken.add(tp)
                left[tp] = ends[tp][1]
            if not chunk.data or left[tp] >= ends[tp][1]:
                del left[tp]
    return spoken
