"""Counts what became of a pipeline's records, from the times in its topics alone.

Unlike a worker, a report goes on where it can: what could not be read becomes a sentence for its reader.
Only a record's hour is kept, so that a topic of any size needs the same memory, and no Python runs per record.

The topics are read one after the other while a worker may go on writing. So all ends are taken before, and
with them the group's position in the source: what lies below it has been judged, and the transaction that
moved it wrote the rest as well. Where something moved while the ends were taken, the report says so.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.bytes.varints import sized
from processor.errors import RebuildError, StopError
from processor.inspection.go_on import NoteAndGoOn
from processor.inspection.report.hours import Fate, Flow, Hours, Stretch
from processor.kafka.client import Client, TopicPartition, open_client
from processor.kafka.offsets import Bounds, bounds, committed
from processor.kafka.reader import PartitionReader
from processor.kafka.topics.ensure import connected, describe
from processor.wire.decode import Decoder
from processor.wire.quarantine import OBSERVED, OURS
from processor.wire.receipt_values import receipt_kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from schemas.config import Pipeline, Settings

SNAPSHOTS = 5
"""Looks until nothing moves between two; a worker at work commits every 0.1 s, and is not waited for."""
_OBSERVED_HEADER = re.compile(re.escape(b"".join(map(sized, (*OBSERVED, OURS[0])))))
_NO_RECEIPTS = (
    "There is no duplicates topic: what was dropped is computed as what was judged and is in no other topic, "
    "and its kinds are counted as one."
)
_VERDICTS = (
    "The worker writes verdicts in place of a clean topic: what is clean is computed as what was judged and is "
    "in no other topic."
)
_VERDICTS_ALONE = (
    "The worker writes verdicts in place of a clean topic, and no receipts: by the hour nobody knows here what "
    "was dropped, and it counts as clean. `seqmark verify` counts it."
)
_NO_NOTES = "Nor are there notes: which records came with the id of other content nobody knows."
_NO_QUARANTINE = "There is no quarantine topic: the worker stops at a record that cannot be judged."
_BUSY = (
    "A worker was at work while the ends of the topics were taken: counts can differ by what it did in that "
    "moment."
)


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """Where the topics of a pipeline began and ended at one moment.

    Attributes:
        bounds: Of every partition that exists.
        judged: The group's position by partition of the source; none where it has not committed.
        quiet: Whether no worker committed or wrote meanwhile.
    """

    bounds: Mapping[TopicPartition, Bounds]
    judged: Mapping[int, int]
    quiet: bool

    def spans(self, topic: str) -> dict[TopicPartition, tuple[int, int]]:
        """Return where each partition of a topic begins, and its last stable offset.

        The offsets are asked for one after the other. Where a topic was made again in between, or a replica
        that had less was elected, the second can lie before the first: then there is nothing to read.
        """
        ordered = sorted(self.bounds.items(), key=lambda item: item[0].partition)
        return {tp: (each.start, max(each.start, each.stable)) for tp, each in ordered if tp.topic == topic}

    @property
    def offsets(self) -> int:
        """How many offsets there are to read."""
        return sum(max(each.stable - each.start, 0) for each in self.bounds.values())


async def read_flows(settings: Settings, total: Callable[[int], Callable[[int], None]]) -> list[Flow]:
    """Count all pipelines of a config.

    Args:
        settings: Checked already.
        total: Called once with the number of offsets that there are to read; gives a function that takes
            how many were done since its last call.

    Raises:
        StopError: The broker cannot be reached, or stops answering.
        ConfigError: Files of certificates or keys are wrong.
    """
    wanted = [topic for pipeline in settings.pipelines for topic in _topics(pipeline)]
    async with connected(settings.kafka) as admin:
        existing = frozenset(await describe(admin, wanted))
    async with open_client(settings.kafka, "seqmark-report", existing) as client:
        group = settings.worker.application_id
        taken = [await _snapshot(client, group, pipeline, existing) for pipeline in settings.pipelines]
        decoder, progress = Decoder(), total(sum(each.offsets for each in taken))
        return [
            await _flow(client, decoder, pipeline, at, progress)
            for pipeline, at in zip(settings.pipelines, taken, strict=True)
        ]


async def _snapshot(client: Client, group: str, pipeline: Pipeline, existing: frozenset[str]) -> TopicSnapshot:
    topics = [topic for topic in _topics(pipeline) if topic in existing]
    partitions = [TopicPartition(topic, number) for topic in topics for number in client.partitions(topic)]
    sources = [tp for tp in partitions if tp.topic == pipeline.source]
    outputs = [tp for tp in partitions if tp.topic != pipeline.source]
    try:
        position = await committed(client, group, sources)
        found, quiet = await bounds(client, partitions), False
        for _ in range(SNAPSHOTS):
            before, position = position, await committed(client, group, sources)
            # An open transaction ends an output's stable part before its end.
            quiet = before == position and all(found[tp].stable == found[tp].end for tp in outputs)
            if quiet:
                break
            found = await bounds(client, partitions)
    except RebuildError as error:
        raise StopError(f"pipeline {pipeline.name} cannot be read: {error}") from error
    return TopicSnapshot(found, {tp.partition: offset for tp, offset in position.items()}, quiet)


async def _flow(
    client: Client, decoder: Decoder, pipeline: Pipeline, at: TopicSnapshot, progress: Callable[[int], None]
) -> Flow:
    raw, fates = Hours(), {fate: Hours() for fate in Fate}
    clean = pipeline.sink if pipeline.writes_records else None
    topics = (pipeline.source, clean, pipeline.duplicates, pipeline.quarantine)
    flow = Flow(
        pipeline.name,
        *topics,
        raw,
        fates,
        notes=_notes(pipeline, at),
        on_collision=_action(pipeline),
        by_sequence=pipeline.id_dedup is None,
    )

    def source(partition: int, columns: Columns) -> None:
        raw.add(columns.timestamp)
        fates[Fate.WAITING].add(columns.timestamp[columns.offset >= at.judged.get(partition, 0)])

    def receipts(_: int, columns: Columns) -> None:
        # What was observed is in the clean topic, and counted there.
        said = receipt_kinds(columns)
        flow.observed += int(np.count_nonzero(said.observed))
        gone, collided = ~said.observed, said.collided
        # A note is none of a dropped record, unless it says so.
        for hours, rows in (
            (fates[Fate.DUPLICATE], ~said.late & ~collided),
            (fates[Fate.LATE], said.late),
            (fates[Fate.COLLISION], collided & said.dropped),
            (flow.collided[Fate.QUARANTINED], collided & said.quarantined),
            (flow.collided[Fate.CLEAN], collided & ~said.dropped & ~said.quarantined),
        ):
            hours.add(columns.timestamp[rows & gone])

    def aside(_: int, columns: Columns) -> None:
        copies = _observed_copies(columns)
        flow.observed += int(np.count_nonzero(copies))
        fates[Fate.QUARANTINED].add(columns.timestamp[~copies])

    takers = (source, _into(fates[Fate.CLEAN]), receipts, aside)
    for topic, take in zip(topics, takers, strict=True):
        if topic is None:
            continue
        spans = at.spans(topic)
        if not spans:
            flow.problems.append(f"The topic {topic} does not exist.")
            continue
        for tp, (start, stop) in spans.items():
            reader = PartitionReader(client, decoder, tp, NoteAndGoOn(client, flow.problems.append), ahead=True)
            records = await _read(reader, start, stop, partial(take, tp.partition), progress)
            flow.stretches.append(Stretch(topic, tp.partition, start, stop, records))
    flow.notes += _observed_note(flow.observed)
    _conclude(flow, raw, fates)
    return flow


def _conclude(flow: Flow, raw: Hours, fates: dict[Fate, Hours]) -> None:
    """Count what no topic holds as what is left of the source."""
    if flow.sink is not None and flow.duplicates is not None:
        return
    left = Fate.CLEAN if flow.sink is None else Fate.DUPLICATE
    fates[left] = raw.less(*(fates[fate] for fate in Fate if fate is not left))
    if flow.sink is None:
        flow.notes.append(_VERDICTS if flow.duplicates else _VERDICTS_ALONE)


async def _read(
    reader: PartitionReader,
    start: int,
    stop: int,
    take: Callable[[Columns], None],
    progress: Callable[[int], None],
) -> int:
    """Give every record from ``start`` to before ``stop`` to ``take``, once; return how many there were."""
    records, at = 0, start
    try:
        async with aclosing(reader.columns(start, stop)) as pieces:
            async for columns, after in pieces:
                take(columns)
                records += len(columns)
                progress(after - at)
                at = after
    except RebuildError as error:
        raise StopError(f"a topic cannot be read: {error}. Is the cluster well?") from error
    progress(stop - at)
    return records


def _observed_note(records: int) -> list[str]:
    said = (
        f"The pipeline observed: {records:,} receipts and copies in quarantine are of records that would have "
        "been dropped or quarantined, and passed all the same. They are counted as clean."
    )
    return [said] if records else []


def _observed_copies(columns: Columns) -> NDArray[np.bool_]:
    """Return bool[n]: which records of a quarantine have passed, as a header behind their values says."""
    found = np.zeros(len(columns), np.bool_)
    if not len(columns):
        return found
    first, last = int(columns.body[0]), int(columns.end[-1])
    text = columns.data[first:last].tobytes()
    at = np.fromiter((match.start() for match in _OBSERVED_HEADER.finditer(text)), np.int64) + first
    row = np.searchsorted(columns.body, at, side="right") - 1
    found[row[at >= columns.headers[row]]] = True
    return found


def _into(hours: Hours) -> Callable[[int, Columns], None]:
    return lambda _, columns: hours.add(columns.timestamp)


def _topics(pipeline: Pipeline) -> Iterable[str]:
    return (pipeline.source, *pipeline.outputs)


def _action(pipeline: Pipeline) -> str | None:
    """Return what becomes of collisions; None: nothing tells records of one id apart."""
    dedup = pipeline.id_dedup
    return None if dedup is None or dedup.fingerprint is None else dedup.on_collision


def _notes(pipeline: Pipeline, at: TopicSnapshot) -> list[str]:
    notes = []
    if pipeline.duplicates is None and pipeline.writes_records:
        notes.append(_NO_RECEIPTS)
        if _action(pipeline) is not None:
            notes.append(_NO_NOTES)
    if pipeline.quarantine is None:
        notes.append(_NO_QUARANTINE)
    if not at.quiet:
        notes.append(_BUSY)
    trimmed = sorted({tp.topic for tp, each in at.bounds.items() if each.start > 0})
    if trimmed:
        notes.append(f"Retention has removed the beginning of {', '.join(trimmed)}: what is left was counted.")
    return notes
