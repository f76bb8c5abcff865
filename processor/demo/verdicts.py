"""Takes the clean stream out of a source by its verdicts, and measures what a copy of it would have taken.

The first is pure, and as docs/verdicts.md tells it to whoever writes a reader: record by record, with none of
Seqmark's own readers. The second has `seqmark materialize` write the clean topic that the pipeline did not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from processor.demo.processes import ran
from processor.engine.batch.columns import SIZE
from processor.errors import EXIT_DONE, StopError
from processor.kafka.plain.topic_log import LogSpan, TopicLog, close_topics
from schemas.verdicts.ranges import VerdictRanges
from schemas.verdicts.record import CorruptVerdictError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from processor.demo.plan import DemoPlan
    from processor.kafka.plain.consumer import Seen
    from schemas.config import Kafka


class TopicBytes(NamedTuple):
    """Bytes of record batches, as they lie in a topic, one replica.

    Attributes:
        source: What producers wrote.
        clean: What the clean topic would have, and has now that it was written afterwards.
        verdicts: What was written in its place.
        records: Those of the source.
        copied: Those of the clean topic.
    """

    source: int
    clean: int
    verdicts: int
    records: int
    copied: int

    @property
    def saved(self) -> int:
        """What was not written."""
        return self.clean - self.verdicts


def clean_records(
    partition: int, source: Sequence[Seen], verdicts: Sequence[Seen]
) -> tuple[list[Seen], list[str]]:
    """Return what a reader takes from a partition of the source, and what is wrong with the verdicts."""
    ranges, at = VerdictRanges(partition), 0
    found: list[Seen] = []
    wrong: list[str] = []
    for _, value, _, _, offset in verdicts:
        try:
            verdict = ranges.take(value)
        except CorruptVerdictError as error:
            return found, [f"the verdict at offset {offset} of partition {partition}: {error}"]
        skipped, begin = set(verdict.skipped.tolist()), at
        while at < len(source) and source[at][4] < verdict.end:
            if source[at][4] not in skipped:
                found.append(source[at])
            at += 1
        if at - begin != verdict.sums.records:
            text = f"speaks of {verdict.sums.records:,} records, there are {at - begin:,}"
            wrong.append(f"the verdict at offset {offset} of partition {partition} {text}")
    if at < len(source):
        wrong.append(f"{len(source) - at:,} records at the end of partition {partition} have no verdict")
    return found, wrong


def copy_afterwards(plan: DemoPlan) -> TopicBytes:
    """Have the clean topic written, and return what it takes beside what was written without it.

    Raises:
        StopError: It was not written; quotes what the command said.
    """
    pipeline, sink = plan.pipeline, f"{plan.settings.worker.application_id}.clean"
    environ = {**plan.environ, "SEQMARK_PIPELINES__0__SINK": sink}
    words = ("materialize", "-c", str(plan.config), "--pipeline", pipeline.name, "--json")
    done = ran(environ, *words)
    if done.returncode != EXIT_DONE:
        raise StopError(f"seqmark materialize ended with exit code {done.returncode}:\n{done.stderr[-2_000:]}")
    told = list(_told(done.stdout))
    kafka = plan.settings.kafka
    try:
        source, clean, verdicts = (
            _bytes(kafka, each) for each in (pipeline.source, sink, pipeline.verdicts or "")
        )
    finally:
        close_topics()
    records = sum(each["records"] + each["skipped"] for each in told)
    return TopicBytes(source, clean, verdicts, records, sum(each["records"] for each in told))


def _told(text: str) -> Iterator[Mapping[str, int]]:
    """Yield the lines of partitions."""
    for line in text.splitlines():
        each = json.loads(line)
        if "partition" in each:
            yield each


def _bytes(kafka: Kafka, topic: str) -> int:
    log = TopicLog.open(kafka, topic)
    spans = [LogSpan(number, each.start, each.stable) for number, each in log.bounds().items()]
    return sum(int(piece.batches[:, SIZE].sum()) for span in spans for piece in log.pieces(span))
