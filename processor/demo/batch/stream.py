"""Lets a worker go on from the archive on a topic: Thursday's clicks, some of which the files had before.

The pipeline begins with the clean table (`seqmark backfill`), so that what the files had is a duplicate for it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from processor.demo.batch.archive import make_stream
from processor.demo.batch.stream_check import TopicRecords, check_stream
from processor.demo.processes import drain, ran
from processor.errors import StopError
from processor.kafka.options import client_options
from processor.kafka.plain.consumer import read_partition
from processor.kafka.plain.producer import Sending, open_source, send

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from processor.demo.batch.archive import ArchiveRow
    from processor.demo.batch.plan import ArchivePlan
    from processor.demo.batch.stream_check import StreamCheck

BACKFILL = "archive"
"""Its name, in receipts."""


@dataclass(frozen=True, slots=True)
class StreamRun:
    """What came of the topic.

    Attributes:
        rows: That were sent.
        checked: What became of them.
        seconds: All together.
    """

    rows: list[ArchiveRow]
    checked: StreamCheck
    seconds: float


class _Rows:
    """The rows as records of one partition."""

    def __init__(self, rows: Sequence[ArchiveRow]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def records(self, start: int, stop: int) -> list[Any]:
        """Return some, as a producer takes them."""
        return [(None, each.line(corrected=True), (), each.sent_ms) for each in self._rows[start:stop]]


def go_on(
    plan: ArchivePlan,
    days: list[list[ArchiveRow]],
    seed: int,
    say: Callable[[str], None],
    stop: Callable[[], None],
) -> StreamRun:
    """Begin the pipeline with the clean table, send the clicks of a day, and check what a worker makes of them.

    Args:
        plan: Of this run.
        days: The rows of the archive.
        seed: Of the clicks.
        say: Told of each step.
        stop: Called between them; raises where the demo is to end.

    Raises:
        StopError: Backfill, worker or broker failed.
    """
    began, pipeline, kafka = time.monotonic(), plan.pipeline, plan.settings.kafka
    rows = make_stream(days, seed)
    say(f"6. from Thursday on clicks come by Kafka: {pipeline.source} begins with what the table knows")
    # Their timestamps are months old: no retention may take them meanwhile.
    asyncio.run(open_source(kafka, pipeline.source, 1, {"retention.ms": "-1"}))
    _backfill(plan, say)
    stop()
    asyncio.run(send(kafka, pipeline.source, [_Rows(rows)], Sending()))
    say("   $ seqmark worker --drain")
    drained = asyncio.run(drain(plan, len(rows), lambda _: None, say))
    say(f"   {len(rows):,} clicks made clean in {drained.seconds:.1f} s, the worker's start included")
    stop()
    checked = asyncio.run(_checked(plan, rows))
    agrees = "agree with the truth" if not checked.differences else "do NOT agree with the truth"
    say(f"   {checked.records:,} records of clean topic, receipts and quarantine {agrees}")
    stop()
    return StreamRun(rows, checked, time.monotonic() - began)


def _backfill(plan: ArchivePlan, say: Callable[[str], None]) -> None:
    """Run ``seqmark backfill`` as a user would."""
    arguments = ["-c", str(plan.config), "--pipeline", plan.pipeline.name, "--format", "batch"]
    arguments += ["--history", plan.batch.output.path, "--cut", "0:0", "--run", BACKFILL]
    say(f"   $ seqmark backfill {' '.join(arguments)}")
    done = ran(plan.environ, "backfill", *arguments)
    if done.returncode:
        raise StopError(f"seqmark backfill ended with exit code {done.returncode}:\n{done.stderr[-2_000:]}")


async def _checked(plan: ArchivePlan, rows: list[ArchiveRow]) -> StreamCheck:
    """Read all four topics with a plain consumer, and compare."""
    options, pipeline = client_options(plan.settings.kafka), plan.pipeline
    topics = (pipeline.source, pipeline.clean_topic, pipeline.duplicates or "", pipeline.quarantine or "")
    read = await asyncio.gather(*(read_partition(options, topic, 0) for topic in topics))
    return check_stream(pipeline.source, rows, TopicRecords(*read), BACKFILL)
