"""Counts what a topic holds twice, and tries rules on it.

A second pass follows where the first shows that records which seemed to differ are copies: of those that an id
was taken for, some differ in nothing but times and numbers of their sending. A rule begins anew in each stretch
that is read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from processor.inspection.audit.causes import Cause, causes
from processor.inspection.audit.read import opened
from processor.inspection.audit.trial import Collected, best
from processor.inspection.proposal.near import differing
from processor.inspection.proposal.observed import observe
from processor.inspection.proposal.shapes import why_no_rule
from processor.ops.status_text import count

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from numpy.typing import NDArray

    from processor.inspection.audit.read import Progress, ReadExtent
    from processor.inspection.audit.rows import Copies
    from processor.inspection.audit.trial import RuleOutcome
    from processor.inspection.proposal.record_parts import RecordPart
    from processor.inspection.topic_records import TopicRecord
    from schemas.config import Kafka

TRIED = 1_000_000
"""Records that rules are tried on, spread over the stretches."""
WINDOWS_MS = (60_000, 3_600_000, 86_400_000, 7 * 86_400_000, 30 * 86_400_000)


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
    kafka: Kafka, topic: str, extent: ReadExtent, others: Collection[str], progress: Progress
) -> Audit:
    """Audit one topic.

    Args:
        kafka: How the cluster is reached.
        topic: Its name.
        extent: What to read.
        others: Topics of which it is asked whether they exist.
        progress: Shows each pass.

    Raises:
        StopError: The broker cannot be reached, the topic is not there or has no records in the extent.
    """
    began = time.process_time()
    async with opened(kafka, "seqmark-audit", topic, others) as reader:
        plan, retained = await reader.plan(extent)

        async def collect(collected: Collected) -> None:
            await reader.run(plan, collected, TRIED, progress, extent.seconds)

        collected = await collected_twice(reader.sample, collect, reader.record)
    whole = retained <= sum(each.stop - each.start for each in plan) and not reader.cut
    found = judged(topic, collected, whole=whole)
    found.partitions, found.existing, found.retained = reader.partitions, reader.existing, retained
    found.notes = reader.notes
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
    wraps = [each for each in collected.outcomes if each.wraps and not each.is_safe]
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
        outcomes=collected.outcomes,
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
        seen = "all that is retained" if whole else "what was read"
        chosen.proposal.set_window(longest, chosen.crossing, seen)
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
