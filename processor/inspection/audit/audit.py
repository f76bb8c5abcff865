"""Reads what is retained of a topic once, counts what it holds twice, and tries rules on it.

Nothing is written into Kafka and no group is joined. Where not all is read, the oldest, the newest and what
lies between are, of each partition; a rule begins anew in each of these stretches.

A second pass follows where the first shows that records which seemed to differ are copies: of those that an id
was taken for, some differ in nothing but times and numbers of their sending.
"""

from __future__ import annotations

import math
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.errors import RebuildError, StopError
from processor.inspection.audit.causes import Cause, causes
from processor.inspection.audit.collected import Collected
from processor.inspection.audit.trial import best
from processor.inspection.go_on import NoteAndGoOn
from processor.inspection.proposal.choose import with_window
from processor.inspection.proposal.near import differing
from processor.inspection.proposal.observed import observe
from processor.inspection.proposal.sample import take_sample
from processor.inspection.proposal.shapes import why_no_rule
from processor.inspection.topic_records import records
from processor.kafka.client import TopicPartition, check_aiokafka, open_client
from processor.kafka.offsets import spans_since
from processor.kafka.reader import PartitionReader
from processor.ops.status_text import count
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from numpy.typing import NDArray

    from processor.inspection.audit.rows import Copies
    from processor.inspection.audit.trial import RuleOutcome
    from processor.inspection.proposal.record_parts import RecordPart
    from processor.inspection.topic_records import TopicRecord
    from processor.kafka.client import Client
    from schemas.config import Kafka

CLIENT_ID = "seqmark-audit"
LOOKED_AT = 5_000
"""Records that are taken apart for what could tell them from each other; Python looks at each."""
TRIED = 1_000_000
"""Records that rules are tried on, spread over the stretches."""
WINDOWS_MS = (60_000, 3_600_000, 86_400_000, 7 * 86_400_000, 30 * 86_400_000)


class AuditExtent(NamedTuple):
    """What is read of a topic.

    Attributes:
        since_ms: From the first record at or after this time; None: from the earliest.
        records: About so many; None: all.
        seconds: For about so long; None: until all is read.
    """

    since_ms: int | None = None
    records: int | None = None
    seconds: float | None = None


class ReadStretch(NamedTuple):
    """Consecutive offsets of a partition."""

    tp: TopicPartition
    start: int
    stop: int


@dataclass
class Audit:
    """What was found out about a topic.

    Attributes:
        topic: Its name.
        copies: The records that say what another one says.
        partitions: How many it has.
        existing: Those of the other topics that were asked about which exist.
        retained: How many offsets it has in the extent.
        records: How many records were read.
        records_bytes: Their keys and values.
        whole: Whether that is all that is retained.
        distinct: How many different contents they have.
        changing: The parts in which copies differ from their originals.
        causes: What made the copies.
        tried: How many records the rules were tried on.
        outcomes: What rules would do, in the order in which they are proposed.
        chosen: The best that loses nothing; None: there is none.
        why_none: Why there is no rule, where there is none.
        notes: What people should know.
        cpu_s: What it took.
    """

    topic: str
    copies: Copies
    partitions: int = 1
    existing: Collection[str] = ()
    retained: int = 0
    records: int = 0
    records_bytes: int = 0
    whole: bool = True
    distinct: int = 0
    changing: Sequence[str] = ()
    causes: list[Cause] = field(default_factory=list)
    tried: int = 0
    outcomes: list[RuleOutcome] = field(default_factory=list)
    chosen: RuleOutcome | None = None
    why_none: str = ""
    notes: list[str] = field(default_factory=list)
    cpu_s: float = 0.0

    @property
    def copies_bytes(self) -> int:
        """Bytes of the copies' keys and values."""
        return round(int(self.copies.rows.size[self.copies.places].sum()) / self.copies.rate)

    @property
    def exact(self) -> int:
        """How many copies are equal in everything."""
        return round(int(self.copies.is_exact.sum()) / self.copies.rate)

    @property
    def gaps_ms(self) -> NDArray[np.int64]:
        """How long after the first each copy came, rising."""
        rows, at = self.copies.rows, self.copies.places
        copy, first = rows.reading_ms[at], rows.reading_ms[self.copies.owner[at]]
        timed = (copy > 0) & (first > 0)  # others have no timestamps
        return np.sort(np.abs(copy - first)[timed])


async def audit(
    kafka: Kafka,
    topic: str,
    extent: AuditExtent,
    others: Collection[str],
    progress: Callable[[int], Callable[[int], None]],
) -> Audit:
    """Audit one topic.

    Args:
        kafka: How the cluster is reached.
        topic: Its name.
        extent: What to read.
        others: Topics of which it is asked whether they exist.
        progress: Called before each pass with the number of offsets; gives a function that takes how many were
            read.

    Raises:
        StopError: The broker cannot be reached, the topic is not there or has no records in the extent.
    """
    check_aiokafka()
    began = time.process_time()
    sample = await take_sample(kafka, topic, LOOKED_AT, others, optional=True)
    async with open_client(kafka, CLIENT_ID, [topic]) as client:
        try:
            plan, retained = await _plan(client, topic, extent)
            reader = _Reader(client, plan, extent.seconds)

            async def collect(collected: Collected) -> None:
                await reader.collect(collected, progress, TRIED)

            collected = await collected_twice(sample.records, collect, reader.record)
        except RebuildError as error:
            raise StopError(f"{topic} cannot be read: {error}. Is the cluster well?") from error
    whole = retained <= sum(each.stop - each.start for each in plan) and not reader.cut
    found = judged(topic, collected, whole=whole)
    found.partitions, found.existing, found.retained = sample.partitions, sample.existing, retained
    found.notes = [*sample.notes, *dict.fromkeys(reader.notes)]
    if reader.cut:
        found.notes.append(f"time was up in {reader.cut} of {len(plan)} stretches before their end")
    found.cpu_s = time.process_time() - began
    return found


async def collected_twice(
    sample: Sequence[TopicRecord],
    collect: Callable[[Collected], Awaitable[None]],
    record: Callable[[int, int], Awaitable[TopicRecord | None]],
) -> Collected:
    """Collect what there is; once more where records that seemed to differ are copies, or a sequence wraps.

    Args:
        sample: Some records.
        collect: Has all records that are read be taken.
        record: Gives one of them, by partition and offset.
    """
    collected = Collected(observe(sample))
    await collect(collected)
    more: set[RecordPart] = set()
    for outcome, *pair in collected.examples():
        both = [each for each in [await record(*place) for place in pair] if each is not None]
        more |= differing(observe(both), outcome.proposal.chosen) if len(both) == len(pair) else set()
    wraps = [each for each in collected.outcomes() if each.wraps and not each.is_safe]
    if more or wraps:
        also = [each.proposal.wrapping(each.wraps) for each in wraps]
        collected = Collected(observe(sample, frozenset(more)), also)
        await collect(collected)
    return collected


def judged(topic: str, collected: Collected, *, whole: bool) -> Audit:
    """Say what was collected, and choose a rule; ``whole``: it is all that is retained."""
    found = Audit(
        topic,
        collected.keeper.copies(),
        records=collected.keeper.records,
        records_bytes=collected.size,
        whole=whole,
        distinct=collected.keeper.distinct,
        changing=sorted(map(str, collected.changing)),
        tried=collected.tried.near.size,
        outcomes=collected.outcomes(),
    )
    found.causes = causes(found.copies, found.distinct)
    found.why_none = why_no_rule(collected.observed)
    chosen = best(found.outcomes)
    if found.why_none:
        return found
    if chosen is None:
        found.why_none = _why_none(found)
    elif not chosen.proposal.is_named and chosen.caught > chosen.records / 2:
        share = 100 * chosen.caught / chosen.records
        found.why_none = (
            f"{share:.0f} % of the records say what an earlier one says; nothing in them tells resends from "
            "events or states that repeat: have the producer write an id or a sequence"
        )
    else:
        gaps = found.gaps_ms
        if not found.copies.count:
            chosen.proposal.notes.insert(0, "no copies were seen: what this rule would catch is a guess")
        longest = int(gaps[-1]) if gaps.size else None
        with_window(chosen.proposal, longest, chosen.crossing, whole=whole)
        drops = f"{chosen.caught:,}, each equal to an earlier one" if chosen.caught else "none"
        if chosen.caught and not chosen.proposal.is_named:
            chosen.proposal.notes.insert(
                0,
                f"{count(chosen.caught, 'record')} would be dropped that have no id of their own: are they "
                "resends, or events that are alike? Only the producer's people know (docs/content-ids.md)",
            )
        chosen.proposal.reasons["mode"] += (
            f"; of {chosen.records:,} records that it was tried on it drops {drops}"
        )
        found.chosen = chosen
    return found


def _why_none(found: Audit) -> str:
    """Say why no rule was chosen."""
    safe = [each for each in found.outcomes if each.is_safe]
    if not found.outcomes:
        return "the records have neither values nor anything else that tells them apart"
    if safe:
        lacking = min(sum(each.faults.values()) for each in safe)
        return (
            f"the rules that lose nothing cannot judge {lacking:,} of {found.tried:,} records, which would be "
            "quarantined: they lack what the others are judged by"
        )
    return "every rule that was tried would drop records that never passed"


async def _plan(client: Client, topic: str, extent: AuditExtent) -> tuple[list[ReadStretch], int]:
    """Return the stretches to read, and how many offsets there are.

    Raises:
        StopError: There are none.
    """
    retained = await spans_since(client, topic, extent.since_ms)
    spans = {tp: (start, stop) for tp, (start, stop) in retained.items() if start < stop}
    if not spans:
        raise StopError(f"{topic} has no records there: choose an earlier --since, or wait for its producer")
    there = sum(stop - start for start, stop in spans.values())
    return stretches(spans, there if extent.records is None else extent.records, extent.seconds), there


def stretches(
    spans: dict[TopicPartition, tuple[int, int]], most: int, seconds: float | None
) -> list[ReadStretch]:
    """Return what to read of some spans: all, or the oldest, the newest and the middle of each.

    Args:
        spans: From which offset to before which the partitions go.
        most: How many offsets to read.
        seconds: Whether time may end before all is read: then each of the three is as long as it can be.
    """
    there = sum(stop - start for start, stop in spans.values())
    if most >= there and seconds is None:
        return [ReadStretch(tp, start, stop) for tp, (start, stop) in spans.items()]
    found = []
    for tp, (start, stop) in spans.items():
        third = max(1, math.ceil((stop - start) * min(most, there) / there / 3))
        middle = max(start + third, (start + stop - third) // 2)
        newest = max(min(middle + third, stop), stop - third)
        found += [
            (tp, start, min(start + third, stop)),
            (tp, middle, min(middle + third, stop)),
            (tp, newest, stop),
        ]
    return [ReadStretch(*each) for each in found if each[1] < each[2]]


class _Reader:
    """Reads the stretches of a topic.

    Attributes:
        notes: What was left out.
        cut: How many stretches were not read to their end for lack of time.
    """

    def __init__(self, client: Client, plan: Sequence[ReadStretch], seconds: float | None) -> None:
        self.notes: list[str] = []
        self.cut = 0
        self._client, self._plan, self._seconds = client, plan, seconds
        self._decoder, self._policy = Decoder(), NoteAndGoOn(client, self.notes.append)

    async def collect(
        self, collected: Collected, progress: Callable[[int], Callable[[int], None]], tried: int
    ) -> None:
        """Read all of it; about ``tried`` records of it are for the rules."""
        self.cut, ends_s = 0, math.inf if self._seconds is None else time.monotonic() + self._seconds
        advance = progress(sum(each.stop - each.start for each in self._plan))
        for number, stretch in enumerate(self._plan):
            now_s = time.monotonic()
            share_s = max(0.0, ends_s - now_s) / (len(self._plan) - number)
            collected.begin(stretch.tp.partition, -(-tried // len(self._plan)))
            await self._read(stretch, collected, advance, now_s + share_s)

    async def _read(
        self, stretch: ReadStretch, collected: Collected, advance: Callable[[int], None], ends_s: float
    ) -> None:
        tp, at, stop = stretch
        reader = PartitionReader(self._client, self._decoder, tp, self._policy, ahead=True)
        async with aclosing(reader.columns(at, stop)) as pieces:
            async for columns, after in pieces:
                collected.take(columns)
                advance(after - at)
                at = after
                if time.monotonic() > ends_s and at < stop:
                    self.cut += 1
                    return

    async def record(self, partition: int, offset: int) -> TopicRecord | None:
        """Return a record; None: it is not there any more."""
        tp = TopicPartition(self._plan[0].tp.topic, partition)
        reader = PartitionReader(self._client, self._decoder, tp, self._policy)
        async with aclosing(records(reader, tp, offset, offset + 1)) as found:
            async for some in found:
                return some[0]
        return None
