"""Reads the marks of a pipeline, and holds them against what its topics hold.

assert_frames(config)               # neighbours frame what lay between them, and nothing else
frames_around(config, 0, [17, 18])  # as a command looks it up
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from processor.config.load import load
from processor.inspection.explain.lookup.log import LogReader
from processor.inspection.explain.lookup.marked import MarkLookup
from processor.kafka.client import open_client
from processor.kafka.topics.plan import marked, names
from schemas.changelog.marks import MARK_KEY, IndexMark
from tests.support.kafka.topics import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from processor.inspection.marks import MarkFrame
    from tests.support.worker.process import WorkerConfig

EVERY_COMMIT = {"SEQMARK_TEST_MARK_S": "0"}
"""The environment of a worker that marks each commit."""


def index_of(config: WorkerConfig, kind: str = "index") -> str:
    """Return the name of the topic of the first pipeline's marks."""
    return f"{config.application_id}-{config.pipelines[0].name}-{kind}"


def marks(config: WorkerConfig, kind: str = "index") -> dict[int, list[IndexMark]]:
    """Return the committed marks of the first pipeline by partition, in the topic's order."""
    found: dict[int, list[IndexMark]] = defaultdict(list)
    for record in read_topic(config.bootstrap_servers, index_of(config, kind)):
        assert record.key == MARK_KEY
        found[record.partition].append(IndexMark.decode(record.value or b""))
    return found


class _Fate(NamedTuple):
    """Where something of a source partition stands, and the source offset that it is of."""

    at: int
    source: int


def assert_frames(config: WorkerConfig) -> int:
    """Hold all neighbours against the topics, and return how many there are; values of the source are unique.

    Between two marks of one state stands in sink, duplicates and quarantine what became of the records between
    their offsets, all of it, and nothing else.
    """
    pipeline = config.pipelines[0]
    by_value: dict[tuple[int, bytes | None], int] = {}
    offsets: dict[int, list[int]] = defaultdict(list)
    for record in read_topic(config.bootstrap_servers, config.source):
        assert (record.partition, record.value) not in by_value
        by_value[record.partition, record.value] = record.offset
        offsets[record.partition].append(record.offset)
    fates: dict[tuple[str, int], list[_Fate]] = defaultdict(list)
    for each in read_topic(config.bootstrap_servers, config.sink):
        fates["sink", each.partition].append(_Fate(each.offset, by_value[each.partition, each.value]))
    for each in read_topic(config.bootstrap_servers, pipeline.duplicates) if pipeline.duplicates else ():
        fates["duplicates", each.partition].append(_Fate(each.offset, json.loads(each.value or b"")["offset"]))
    for each in read_topic(config.bootstrap_servers, pipeline.quarantine) if pipeline.quarantine else ():
        where = dict(each.headers)["seqmark.source"] or b""
        fates["quarantine", each.partition].append(_Fate(each.offset, int(where.rpartition(b":")[2])))
    count = 0
    for number, some in marks(config).items():
        for before, after in pairwise(some):
            assert before.since_ms <= after.since_ms
            if before.since_ms != after.since_ms:
                continue
            count += 1
            assert before.next_offset <= after.next_offset
            stands = sorted(
                fate.source
                for kind, first, end in zip(before.ends._fields, before.ends, after.ends, strict=True)
                for fate in fates[kind, number]
                if first <= fate.at < end
            )
            assert stands == [
                each for each in offsets[number] if before.next_offset <= each < after.next_offset
            ]
    return count


def frames_around(config: WorkerConfig, number: int, offsets: Iterable[int]) -> list[list[MarkFrame]]:
    """Return the frames of some source offsets of the first pipeline as `seqmark explain` looks them up."""
    settings = load(config.write())
    (pipeline, *_) = settings.pipelines

    async def found() -> list[list[MarkFrame]]:
        topics = [*names(settings), *marked(settings)]
        async with open_client(settings.kafka, "frames", topics) as client:
            lookup = MarkLookup(client, LogReader(client), settings)
            return [await lookup.around(pipeline, number, offset) for offset in offsets]

    return asyncio.run(found())
