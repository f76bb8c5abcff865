"""Reads the retained records of a source once, and lets each way of judging take them.

Nothing is written into Kafka and no group is joined. The partitions are read one after the other, the next
bytes are fetched while the last are judged. Unlike a worker, a simulation steps over what cannot be decoded,
and says so.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from processor.errors import RebuildError, StopError
from processor.inspection.go_on import NoteAndGoOn
from processor.inspection.proposal.observed import observe
from processor.inspection.proposal.sample import take_sample
from processor.inspection.simulate.forecast import Simulation
from processor.inspection.simulate.id_sample import MOST_ROWS
from processor.inspection.simulate.judging import IdWay, SequenceWay
from processor.inspection.simulate.ways import ways_of
from processor.kafka.client import TopicPartition, check_aiokafka, open_client
from processor.kafka.offsets import bounds, offsets_at
from processor.kafka.reader import PartitionReader
from processor.ops.status_text import count
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from processor.kafka.client import Client
    from schemas.config import Pipeline, Settings

CLIENT_ID = "seqmark-simulate"
LOOKED_AT = 5_000
"""Records that are taken apart for what could tell them from each other; Python looks at each."""
PROPOSED_RECORDS = 1_000_000
"""Records that the ways which are only proposed take: the configured one takes all."""


class ReadExtent(NamedTuple):
    """What is read of a source.

    Attributes:
        since_ms: From the first record at or after this time; None: from the earliest.
        records: About so many, the newest of each partition; None: all.
    """

    since_ms: int | None = None
    records: int | None = None


async def simulate(
    settings: Settings,
    pipeline: Pipeline,
    windows_ms: Sequence[int],
    extent: ReadExtent,
    progress: Callable[[int], Callable[[int], None]],
    most_rows: int = MOST_ROWS,
) -> Simulation:
    """Predict what one pipeline would do.

    Args:
        settings: The config.
        pipeline: One of it.
        windows_ms: For mode insert-id.
        extent: What to read.
        progress: Called once with the number of offsets; gives a function that takes how many were read.
        most_rows: The bound of the sample of ids, for each way.

    Raises:
        StopError: The broker cannot be reached, the topic is not there or has no records in the extent.
    """
    check_aiokafka()
    sample = await take_sample(settings.kafka, pipeline.source, LOOKED_AT, [])
    found = Simulation(pipeline.name, pipeline.source, sample.partitions, notes=list(sample.notes))
    observed = observe(sample.records)
    ways = ways_of(pipeline, observed, found)
    now_ms = time.time_ns() // 1_000_000
    judging: list[IdWay | SequenceWay] = [
        IdWay(way, windows_ms, now_ms, most_rows // len(ways))
        if way.dedup.mode == "insert-id"
        else SequenceWay(way)
        for way in ways
    ]
    async with open_client(settings.kafka, CLIENT_ID, [pipeline.source]) as client:
        try:
            spans = await _spans(client, pipeline.source, extent)
            if not any(start < stop for start, stop in spans.values()):
                raise StopError(f"{pipeline.source} has no records there: choose an earlier --since")
            began = time.process_time()
            await _read(client, spans, judging, found, progress(sum(max(0, b - a) for a, b in spans.values())))
        except RebuildError as error:
            raise StopError(f"{pipeline.source} cannot be read: {error}. Is the cluster well?") from error
    found.forecasts = [each.forecast() for each in judging]
    found.cpu_s = time.process_time() - began
    if not found.forecasts[0].judged.records:
        raise StopError(f"{pipeline.source} has no records in {count(len(spans), 'partition')} there")
    return found


async def _spans(client: Client, topic: str, extent: ReadExtent) -> dict[TopicPartition, tuple[int, int]]:
    """Return from which offset to before which each partition is read."""
    partitions = [TopicPartition(topic, number) for number in sorted(client.partitions(topic))]
    now = await bounds(client, partitions)
    begins = {tp: each.start for tp, each in now.items()}
    if extent.since_ms is not None:
        since = await offsets_at(client, partitions, extent.since_ms)
        begins = {
            tp: now[tp].stable if (at := since[tp]) is None else max(at, now[tp].start) for tp in partitions
        }
    there = sum(max(0, now[tp].stable - begins[tp]) for tp in partitions)
    if extent.records is not None and there > extent.records:
        # The same part of each partition: about the same stretch of time.
        for tp in partitions:
            share = -(-max(0, now[tp].stable - begins[tp]) * extent.records // there)
            begins[tp] = max(begins[tp], now[tp].stable - share)
    return {tp: (begins[tp], now[tp].stable) for tp in partitions}


async def _read(
    client: Client,
    spans: dict[TopicPartition, tuple[int, int]],
    judging: Sequence[IdWay | SequenceWay],
    found: Simulation,
    advance: Callable[[int], None],
) -> None:
    decoder, policy = Decoder(), NoteAndGoOn(client, found.notes.append)
    total = sum(max(0, stop - start) for start, stop in spans.values())
    for tp, (start, stop) in spans.items():
        if start >= stop:
            continue
        left = -(-(stop - start) * PROPOSED_RECORDS // total)
        at = start
        reader = PartitionReader(client, decoder, tp, policy, ahead=True)
        async with aclosing(reader.columns(start, stop)) as pieces:
            async for columns, after in pieces:
                judging[0].take(tp.partition, columns)
                if left > 0:
                    for each in judging[1:]:
                        each.take(tp.partition, columns.rows(0, min(left, len(columns))))
                    left -= len(columns)
                advance(after - at)
                at = after
