"""The steps of the demo.

1. produce a stream with known duplicates, 2. let a worker make it clean, 3. read everything with a plain
consumer and compare it with the truth, record by record. Then come Spark (`processor.demo.sinks`), and the
command's own: certificate, report, telling.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from processor.demo.check import Seen, compare, id_grounds
from processor.demo.drain import Drained, drain
from processor.demo.plan import ID_MEMBER
from processor.demo.summary import DemoChecks
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

PARTITIONS = 4
DUPLICATES = 0.05
# A handful: 25 of the 475,000 originals of a run of the usual size.
_MALFORMED = 25 / 475_000


class DemoAudience(Protocol):
    """Who is told."""

    def say(self, text: str) -> None:
        """Tell of a step."""
        ...

    def bar(self, what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Show progress; gives a function that takes what was done since its last call."""
        ...


@dataclass(frozen=True, slots=True)
class DemoRun:
    """What came of the steps."""

    stream: Sequence[StreamPartition]
    truths: Sequence[Truth]
    drained: Drained
    checked: Sequence[DemoChecks]


async def run(plan: DemoPlan, records: int, seed: int, audience: DemoAudience) -> DemoRun:
    """Do the three steps.

    Raises:
        StopError: The broker or the worker failed.
    """
    kafka, pipeline = plan.settings.kafka, plan.pipeline
    options = StreamOptions(records, DUPLICATES, seed, PARTITIONS, 0, malformed=_MALFORMED)
    stream = make_stream(pipeline.dedup, options.ending_by(int(time.time() * 1000)))
    await open_source(kafka, pipeline.source, PARTITIONS)
    audience.say(f"1. producing {records:,} clicks into {pipeline.source}")
    began = time.monotonic()
    with audience.bar("produced", records) as advance:
        truths = await produce(kafka, pipeline.source, stream, Sending(), advance)
    truth_file.write(plan.truth, truths)
    audience.say(f"   {records / (time.monotonic() - began):,.0f} records/s; the truth: {plan.truth}")
    audience.say("2. the worker makes it clean (seqmark worker --drain)")
    with audience.bar("made clean", records) as advance:
        drained = await drain(plan, records, advance)
    audience.say(f"   done in {drained.seconds:.1f} s; its log: {plan.worker_log}")
    audience.say("3. a plain consumer compares every record with the truth")
    began = time.monotonic()
    with audience.bar("compared", records) as advance:
        checked = [
            await _check(plan, number, stream[number], part, advance) for number, part in enumerate(truths)
        ]
    audience.say(f"   done in {time.monotonic() - began:.1f} s")
    return DemoRun(stream, truths, drained, checked)


async def _check(
    plan: DemoPlan, partition: int, stream: StreamPartition, truth: Truth, progress: Callable[[int], None]
) -> DemoChecks:
    """Read one partition of the three topics and compare; one partition at a time bounds the memory."""
    options, pipeline = client_options(plan.settings.kafka), plan.pipeline
    topics = (pipeline.source, pipeline.sink, pipeline.duplicates or "", pipeline.quarantine or "")
    source, sink, receipts, quarantine = await asyncio.gather(
        *(read_partition(options, topic, partition) for topic in topics)
    )
    place = f"{pipeline.source}:{partition}"
    grounds = None if stream.judged is None else id_grounds(place, source, stream.judged, ID_MEMBER)
    outcome = compare(place, source, truth, sink, receipts, quarantine, grounds)
    progress(len(truth))
    return DemoChecks(outcome, _times(source), _times(sink), truth.kind)


def _times(records: Sequence[Seen]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.fromiter((record[3] for record in records), np.int64, len(records))
