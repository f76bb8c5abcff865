"""Reads the retained records of a source once, and lets each way of judging take them.

Nothing is written into Kafka and no group is joined. The partitions are read one after the other, the next
bytes are fetched while the last are judged. Unlike a worker, a simulation steps over what cannot be decoded,
and says so.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from processor.engine.ids.sink_clocks import MOST_CELLS
from processor.errors import RebuildError, StopError
from processor.inspection.go_on import NoteAndGoOn
from processor.inspection.proposal.observed import observe
from processor.inspection.proposal.sample import take_sample
from processor.inspection.simulate.forecast import Simulation
from processor.inspection.simulate.id_sample import MOST_ROWS
from processor.inspection.simulate.judging import MOST_SCOPE_BYTES, IdWay, SequenceWay
from processor.inspection.simulate.ways import ways_of
from processor.kafka.client import TopicPartition, check_aiokafka, open_client
from processor.kafka.offsets import spans_since
from processor.kafka.reader import PartitionReader
from processor.kafka.topics.plan import changelog_topic, repartition_topic
from processor.ops.status_text import count
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from processor.engine.batch.columns import Columns
    from processor.inspection.simulate.forecast import JudgingWay
    from processor.kafka.client import Client
    from schemas.config import Pipeline, Settings

CLIENT_ID = "seqmark-simulate"
LOOKED_AT = 5_000
"""Records that are taken apart for what could tell them from each other; Python looks at each."""
OTHER_RECORDS, _FEWEST_OTHER, _OTHER_SHARE = 1_000_000, 500_000, 20
"""Records that the ways beside the configured one take, all of them together: at most, at least (if so many are
there), and in between a 20th of what is read. The configured one takes all."""
_OTHER_SCOPE_BYTES = MOST_SCOPE_BYTES // 2
"""What scopes of all ways beside the configured one may take."""


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
    clean = _clean_topics(settings, pipeline)
    sample = await take_sample(settings.kafka, pipeline.source, LOOKED_AT, clean, optional=True)
    found = Simulation(pipeline.name, pipeline.source, sample.partitions, notes=list(sample.notes))
    sink = next((sample.existing[topic] for topic in clean if topic in sample.existing), sample.partitions)
    ways = ways_of(pipeline, observe(sample.records), found)
    judging = _judging(ways, windows_ms, (sample.partitions, sink), most_rows)
    async with open_client(settings.kafka, CLIENT_ID, [pipeline.source]) as client:
        try:
            spans = await _spans(client, pipeline.source, extent)
            if not any(start < stop for start, stop in spans.values()):
                raise StopError(f"{pipeline.source} has no records there: choose an earlier --since")
            began = time.process_time()
            offsets = sum(max(0, stop - start) for start, stop in spans.values())
            others = min(OTHER_RECORDS, max(_FEWEST_OTHER, offsets // _OTHER_SHARE)) // max(1, len(ways) - 1)
            await _read(client, spans, judging, others, found.notes.append, progress(offsets))
        except RebuildError as error:
            raise StopError(f"{pipeline.source} cannot be read: {error}. Is the cluster well?") from error
    found.forecasts = [each.forecast() for each in judging]
    found.cpu_s = time.process_time() - began
    if not found.forecasts[0].judged.records:
        raise StopError(f"{pipeline.source} has no records in {count(len(spans), 'partition')} there")
    return found


def _clean_topics(settings: Settings, pipeline: Pipeline) -> list[str]:
    """Return the topics of which the first that is there says how many partitions the sink has."""
    if not pipeline.routed:
        return []
    internal = repartition_topic(settings, pipeline), changelog_topic(settings, pipeline)
    return [topic for topic in (pipeline.sink, *internal) if topic]


def _judging(
    ways: Sequence[JudgingWay], windows_ms: Sequence[int], partitions: tuple[int, int], most_rows: int
) -> list[IdWay | SequenceWay]:
    """Return who judges in each way; the first is the configured one, and may keep more than all others."""
    now_ms, beside = time.time_ns() // 1_000_000, max(1, len(ways) - 1)
    judging: list[IdWay | SequenceWay] = []
    for n, way in enumerate(ways):
        if way.dedup.mode == "insert-id":
            rows = most_rows if n == 0 else min(most_rows, OTHER_RECORDS // beside)
            cells = MOST_CELLS if n == 0 else MOST_CELLS // beside
            judging.append(IdWay(way, windows_ms, now_ms, partitions, rows, cells))
        else:
            judging.append(SequenceWay(way, MOST_SCOPE_BYTES if n == 0 else _OTHER_SCOPE_BYTES // beside))
    return judging


async def _spans(client: Client, topic: str, extent: ReadExtent) -> dict[TopicPartition, tuple[int, int]]:
    """Return from which offset to before which each partition is read."""
    spans = await spans_since(client, topic, extent.since_ms)
    there = sum(max(0, stop - start) for start, stop in spans.values())
    if extent.records is not None and there > extent.records:
        # The same part of each partition: about the same stretch of time.
        for tp, (start, stop) in spans.items():
            share = -(-max(0, stop - start) * extent.records // there)
            spans[tp] = max(start, stop - share), stop
    return spans


async def _read(
    client: Client,
    spans: dict[TopicPartition, tuple[int, int]],
    judging: Sequence[IdWay | SequenceWay],
    others: int,
    note: Callable[[str], None],
    advance: Callable[[int], None],
) -> None:
    """Let the ways take the records; all but the first ``others``, the same part of each partition."""
    decoder, policy = Decoder(), NoteAndGoOn(client, note)
    total = sum(max(0, stop - start) for start, stop in spans.values())
    for tp, (start, stop) in spans.items():
        if start >= stop:
            continue
        left = -(-(stop - start) * others // total)
        at = start
        reader = PartitionReader(client, decoder, tp, policy, ahead=True)
        async with aclosing(reader.columns(start, stop)) as pieces:
            async for columns, after in pieces:
                left -= take_part(judging, tp.partition, columns, left)
                advance(after - at)
                at = after


def take_part(judging: Sequence[IdWay | SequenceWay], partition: int, columns: Columns, left: int) -> int:
    """Let the first way take some records, and the others up to ``left`` of them; returns how many those are.

    The first one notes which ones all have taken: what is compared is compared over the same records.
    """
    first, *others = judging
    some = min(left, len(columns))
    if some > 0:
        part = columns.rows(0, some)
        first.take(partition, part, shared=True)
        for each in others:
            each.take(partition, part)
    if some < len(columns):
        first.take(partition, columns.rows(some, len(columns)))
    return some
