"""The steps of the demo.

1. produce a stream with known duplicates, 2. let a worker make it clean, or say what of it to skip, 3. read
everything with a plain consumer and compare it with the truth, record by record. Then come Spark
(`processor.demo.sinks`), and the command's own: certificate, report, telling.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from processor.demo.check import compare, id_grounds
from processor.demo.collisions import comparable
from processor.demo.plan import ID_MEMBER
from processor.demo.processes import Drained, drain
from processor.demo.summary import DemoChecks
from processor.demo.verdicts import clean_records
from processor.generator import StreamOptions, make_stream
from processor.generator import truth as truth_file
from processor.kafka.options import client_options
from processor.kafka.plain.consumer import read_partition
from processor.kafka.plain.producer import Sending, open_source, produce

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from processor.demo.plan import DemoPlan
    from processor.generator import StreamPartition
    from processor.generator.truth import Truth

    Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]

PARTITIONS = 4
DUPLICATES = 0.05
COLLISIONS = 0.01
# A handful: 25 of the 475,000 originals of a run of the usual size.
_MALFORMED = 25 / 475_000


@dataclass(frozen=True, slots=True)
class DemoRun:
    """What came of the steps."""

    stream: Sequence[StreamPartition]
    truths: Sequence[Truth]
    drained: Drained
    checked: Sequence[DemoChecks]


async def run(plan: DemoPlan, records: int, seed: int, say: Callable[[str], None], bar: Bar) -> DemoRun:
    """Do the three steps; ``say`` is told of each, ``bar`` takes what is done and how often, and shows it.

    Raises:
        StopError: The broker or the worker failed.
    """
    kafka, pipeline = plan.settings.kafka, plan.pipeline
    collisions = COLLISIONS if plan.mode == "fingerprint" else 0.0
    options = StreamOptions(
        records, DUPLICATES, seed, PARTITIONS, 0, malformed=_MALFORMED, collisions=collisions
    )
    stream = make_stream(pipeline.dedup, options.ending_by(int(time.time() * 1000)))
    await open_source(kafka, pipeline.source, PARTITIONS)
    say(f"1. producing {records:,} clicks into {pipeline.source}")
    began = time.monotonic()
    with bar("produced", records) as advance:
        truths = await produce(kafka, pipeline.source, stream, Sending(), advance)
    truth_file.write(plan.truth, truths)
    say(f"   {records / (time.monotonic() - began):,.0f} records/s; the truth: {plan.truth}")
    by_verdicts = plan.mode == "verdicts"
    what = "says what of it to skip" if by_verdicts else "makes it clean"
    say(f"2. the worker {what} (seqmark worker --drain)")
    with bar("judged" if by_verdicts else "made clean", records) as advance:
        drained = await drain(plan, records, advance, say)
    say(f"   done in {drained.seconds:.1f} s; its log: {plan.worker_log}")
    say("3. a plain consumer compares every record with the truth")
    began = time.monotonic()
    with bar("compared", records) as advance:
        checked = [
            await _check(plan, number, stream[number], part, advance) for number, part in enumerate(truths)
        ]
    say(f"   done in {time.monotonic() - began:.1f} s")
    return DemoRun(stream, truths, drained, checked)


async def _check(
    plan: DemoPlan, partition: int, stream: StreamPartition, truth: Truth, progress: Callable[[int], None]
) -> DemoChecks:
    """Read one partition of the three topics and compare; one partition at a time bounds the memory."""
    options, pipeline = client_options(plan.settings.kafka), plan.pipeline
    by_verdicts = plan.mode == "verdicts"
    out = (pipeline.verdicts or "") if by_verdicts else pipeline.clean_topic
    topics = (pipeline.source, out, pipeline.duplicates or "", pipeline.quarantine or "")
    source, sink, receipts, quarantine = await asyncio.gather(
        *(read_partition(options, topic, partition) for topic in topics)
    )
    wrong: list[str] = []
    if by_verdicts:
        sink, wrong = clean_records(partition, source, sink)
    place = f"{pipeline.source}:{partition}"
    source_ms, sink_ms = (np.array([record[3] for record in each], np.int64) for each in (source, sink))
    sink_offset = np.array([record[4] for record in sink], np.int64)
    grounds = None
    if stream.judged is not None and plan.mode == "fingerprint":
        source, sink, grounds = comparable(place, source, stream.judged, sink, ID_MEMBER)
    elif stream.judged is not None:
        grounds = id_grounds(place, source, stream.judged, ID_MEMBER)
    outcome = compare(place, source, truth, sink, receipts, quarantine, grounds)
    outcome.differences += wrong
    progress(len(truth))
    return DemoChecks(outcome, source_ms, sink_ms, truth.kind, sink_offset)
