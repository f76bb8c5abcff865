"""Says in a sentence how a pipeline stands: who works on it, how far it is behind, and what is wrong.

Pure. What costs records or stands still is a problem; what may become one, or was not to be known, a warning.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from processor.ops.status_text import count, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from processor.inspection.status.facts import ApplicationProgress, HopProgress, PipelineProgress
    from processor.kafka.transactions.listing import OpenTransaction

HANGS_S = 900.0
"""The longest that brokers let a transaction be open by default (transaction.max.timeout.ms)."""
MOST_NUMBERS = 12
"""Of partitions, in a sentence."""


class Level(StrEnum):
    """How much a sentence wants to be read."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Statement(NamedTuple):
    """What is to be said, whole or as a part of a sentence."""

    level: Level
    text: str


def sentence(pipeline: PipelineProgress, application: ApplicationProgress) -> Statement:
    """Return the sentence about a pipeline: what is most important about it."""
    standing = list(_standing(pipeline, application))
    known = not application.unreachable and bool(pipeline.hops[0].partitions)
    wrong = list(_wrong(pipeline, application)) if known else []
    order = list(Level)
    level = max((each.level for each in (*standing, *wrong)), key=order.index)
    said = [", ".join(each.text for each in standing), *(each.text for each in wrong)]
    text = f"{pipeline.pipeline.name}: {'; '.join(said)}"
    return Statement(level, f"{text}; ok" if level is Level.OK else text)


def _standing(pipeline: PipelineProgress, application: ApplicationProgress) -> Iterator[Statement]:
    if application.unreachable:
        yield Statement(Level.PROBLEM, "nothing is known, no broker answers")
        return
    source = pipeline.hops[0]
    if not source.partitions:
        gone = any(each.key == source.source for each in pipeline.problems)
        why = "does not exist" if gone else "is not seen: it does not exist, or may not be described"
        yield Statement(Level.PROBLEM, f"its source {source.source} {why}")
        return
    yield _owners(pipeline, application)
    yield from _lag(pipeline.hops)
    if pipeline.pipeline.observe:
        yield Statement(Level.OK, "observing (every record passes)")


def _owners(pipeline: PipelineProgress, application: ApplicationProgress) -> Statement:
    group = application.group
    if group is None:
        return Statement(Level.WARNING, "who works on it is not known")
    total = sum(len(hop.partitions) for hop in pipeline.hops)
    if not group.members:
        waits = any(hop.lag or hop.unbegun for hop in pipeline.hops)
        return Statement(Level.PROBLEM if waits else Level.WARNING, "no worker runs")
    unowned = [(hop.source, hop.unowned) for hop in pipeline.hops if hop.unowned]
    if not unowned:
        have = "has" if total == 1 else "have"
        return Statement(Level.OK, f"{total:,} of {count(total, 'partition')} {have} an owner")
    if not group.stable:
        return Statement(Level.WARNING, f"the group is rebalancing ({group.state})")
    missing = sum(len(numbers) for _, numbers in unowned)
    where = "; ".join(f"{topic}: {_numbers(numbers)}" for topic, numbers in unowned)
    return Statement(Level.PROBLEM, f"nobody works on {missing:,} of {count(total, 'partition')} ({where})")


def _lag(hops: Sequence[HopProgress]) -> Iterator[Statement]:
    known = [hop.lag for hop in hops if hop.lag is not None]
    if known:
        yield Statement(Level.OK, f"lag {count(sum(known), 'record')}" if sum(known) else "no lag")
    unbegun = sum(hop.unbegun for hop in hops)
    if unbegun or not known:
        begun = "nothing is committed yet" if not known else "nothing is committed yet of some partitions"
        # Offsets: a transaction's marker has one too, and so has what was aborted.
        waiting = f", up to {count(unbegun, 'record')} there" if unbegun else ""
        yield Statement(Level.OK, f"{begun}{waiting}")


def _wrong(pipeline: PipelineProgress, application: ApplicationProgress) -> Iterator[Statement]:
    expired = sum(partition.expired for hop in pipeline.hops for partition in hop.partitions)
    if expired:
        said = f"retention has removed {count(expired, 'record')} before they were read"
        yield Statement(Level.PROBLEM, said)
    source = pipeline.hops[0].source
    held = {each.number: each.held for each in pipeline.hops[0].partitions}
    for transaction in pipeline.open:
        topic, number = transaction.partition
        if topic == source and held.get(number):
            age = age_s(transaction, application.at_ms)
            level = Level.PROBLEM if age is not None and age > HANGS_S else Level.WARNING
            since = "" if age is None else f" for {duration(age)}"
            text = f"a transaction open{since} holds back {count(held[number], 'record')} of {topic}:{number}"
            yield Statement(level, text)
    if pipeline.quarantine.recent:
        most = "more than " if pipeline.quarantine.cut else ""
        done = "would have been quarantined" if pipeline.pipeline.observe else "quarantined"
        text = f"{most}{count(pipeline.quarantine.recent, 'record')} {done} in the last hour"
        yield Statement(Level.WARNING, text)
    if pipeline.states:  # each of which has a line of its own
        are = "is" if len(pipeline.states) == 1 else "are"
        yield Statement(Level.WARNING, f"{count(len(pipeline.states), 'worker')} {are} not ready for it")
    if pipeline.problems:
        yield Statement(Level.PROBLEM, f"{count(len(pipeline.problems), 'problem')} with its topics")


def age_s(transaction: OpenTransaction, now_ms: int) -> float | None:
    """Return for how long a transaction has been open, by its coordinator; None where that does not say."""
    return None if transaction.began_ms is None else max(0.0, (now_ms - transaction.began_ms) / 1000)


def _numbers(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:MOST_NUMBERS]))
    left = len(partitions) - MOST_NUMBERS
    return f"{shown} and {left:,} more" if left > 0 else shown
