"""Decides where each partition goes and what becomes of its state, or refuses.

Pure: what is known of a partition and where it shall go in, a `PartitionStep` or a refusal out. The rule behind
all of them: the state at an offset T is what the records before T have made it, and nothing else. So it is

    kept         where T is at or behind the position: the committed state, and the records up to T
    recomputed   where T is before it: an empty state, and the records from where the old one began up to T
    empty        where nothing lies before T, or the caller gives the memory up (``--forget``)

and refused where records that it needs are no longer retained. Ids need those of a window: where that much is
retained before T, the state is recomputed from the first record there is, as if it had begun there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from processor.errors import ConfigError, Problem, StopError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from processor.kafka.offsets import Bounds
    from schemas.changelog.position import Origin, Position


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """To the first record that is retained."""


@dataclass(frozen=True, slots=True)
class ToTime:
    """To the first record with at least this timestamp, in ms since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """To these offsets, by partition; the others stay where they are."""

    offsets: Mapping[int, int]


Target = ToEarliest | ToTime | ToOffsets


class ResetState(StrEnum):
    """What becomes of a partition's state."""

    KEPT = "kept"
    RECOMPUTED = "recomputed"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What is known of one partition before it is reset.

    Attributes:
        name: ``topic:partition`` of the source, for messages.
        limits: Bounds of the source.
        position: From the changelog; None where no worker has run.
        origin: Likewise; None also where the state is of before there were origins.
        lost: There is no position, but the group has committed an offset: a state that was here is gone.
        window_end_ms: In mode insert-id: where a window ends that begins with what is retained, if that lies
            before the new place; else None.
        backfill: The name of the backfill that the state began with; empty where there was none. Without a
            position it is not loaded to its end.
        changelog_end: Where its changelog ended when nobody else could write to it any more.
        renewals_said: False where filters renew ids: an id that comes again in its own bucket is not written
            again. By what is written it would be forgotten up to a bucket too soon.
    """

    name: str
    limits: Bounds
    position: Position | None
    origin: Origin | None
    lost: bool = False
    window_end_ms: int | None = None
    renewals_said: bool = True
    backfill: str = ""
    changelog_end: int = 0


@dataclass(frozen=True, slots=True)
class PartitionStep:
    """What is done to one partition.

    Attributes:
        partition: Its number.
        state: What becomes of its state.
        from_offset: Its position until now; None where no worker has run.
        to_offset: Its position from now on.
        judge_from: The records from here to ``to_offset`` are judged, and their output is not written.
        known_from: The first source offset that the state knows afterwards.
        rewritten: The state is written again even where nothing moves: it does not name the topics of now.
    """

    partition: int
    state: ResetState
    from_offset: int | None
    to_offset: int
    judge_from: int
    known_from: int
    rewritten: bool = False

    @property
    def offsets(self) -> int:
        """How many source offsets have to be judged."""
        return self.to_offset - self.judge_from

    @property
    def stays(self) -> bool:
        """Whether the partition is there already, with the state that it should have: nothing is written."""
        return self.state is ResetState.KEPT and self.to_offset == self.from_offset and not self.rewritten


def wanted(target: ToEarliest | ToOffsets, starts: Mapping[int, int], topic: str) -> dict[int, int]:
    """Return the offset that each partition shall go to; `ToTime` has to be asked of the broker.

    ``starts`` has the first retained offset of each partition of the source ``topic``.

    Raises:
        ConfigError: A partition is named that there is not.
    """
    if isinstance(target, ToEarliest):
        return dict(starts)
    missing = sorted(target.offsets.keys() - starts.keys())
    if missing:
        there = f"{topic} has the partitions 0 to {max(starts)}"
        raise ConfigError(
            [Problem("--to-offset", f"there is no partition {each}: {there}") for each in missing]
        )
    return dict(target.offsets)


def decide(number: int, known: PartitionFacts, to: int, definition: bytes, *, forget: bool) -> PartitionStep:
    """Say what a reset of partition ``number`` to offset ``to`` does.

    ``definition`` is that of the pipeline as it is configured now. With ``forget`` the state begins empty,
    whatever lies before ``to``.

    Raises:
        StopError: It cannot be done; says from where on it could.
    """
    _check_range(known, to)
    position = known.position
    before = None if position is None else position.next_offset
    if forget:
        return PartitionStep(number, ResetState.EMPTY, before, to, to, to)
    known_from = begin(known)
    if position is not None and to >= position.next_offset:
        same = position.definition == definition
        if same and (known.renewals_said or to == position.next_offset):
            # What retention has taken of it a worker would have passed over as well.
            judge_from = max(position.next_offset, known.limits.start)
            return PartitionStep(number, ResetState.KEPT, before, to, judge_from, known_from)
        if to > position.next_offset:
            why = "its dedup definition differs from the one that its state was made with, so the state"
            if same:
                why = "with refresh Bloom filters do not say when an id was last renewed, so the state"
            raise StopError(
                f"{known.name}: {why} cannot be kept for offset {to}. Go to {position.next_offset} or before, "
                "which recomputes it, or add --forget, which begins with an empty one"
            )
    if known.backfill:
        raise StopError(_brought(known, to))
    if to <= known_from:
        return PartitionStep(number, ResetState.EMPTY, before, to, to, to)
    if known.limits.start > known_from:
        if known.window_end_ms is None:
            raise StopError(_gone(known, known_from, to))
        known_from = known.limits.start
    return PartitionStep(number, ResetState.RECOMPUTED, before, to, known_from, known_from)


def _check_range(known: PartitionFacts, to: int) -> None:
    start, stable, end = known.limits
    if to < start:
        raise StopError(f"{known.name}: offset {to} is no longer retained: the first one there is is {start}")
    if to > end:
        raise StopError(f"{known.name}: offset {to} lies beyond the end, which is {end}")
    if to > stable:
        raise StopError(
            f"{known.name}: offset {to} lies behind offset {stable}, where a transaction is still open: wait "
            "until it ends"
        )


def begin(known: PartitionFacts) -> int:
    """Return where what the state knows begins."""
    if known.origin is not None:
        return known.origin.known_from
    # Where no worker has run nothing was ever known: what is retained is as much as there can be. A state that
    # is lost, or of before there were origins, may have known everything.
    return known.limits.start if known.position is None and not known.lost else 0


def _brought(known: PartitionFacts, to: int) -> str:
    why = f"backfill {known.backfill} is not loaded to its end: load it again, and it goes on where it was"
    if known.position is not None:
        why = (
            f"the state began with backfill {known.backfill}, which the source cannot give back: the state at "
            f"offset {to} cannot be made"
        )
    return (
        f"{known.name}: {why}. With --forget it begins with an empty state, and what the backfill brought "
        "passes again"
    )


def _gone(known: PartitionFacts, known_from: int, to: int) -> str:
    start = known.limits.start
    text = (
        f"{known.name}: the state at offset {to} rests on the records from offset {known_from} on, and the "
        f"source holds none before {start} any more."
    )
    if known.position is not None:
        text += f" Its committed state can be kept from its position on, which is {known.position.next_offset}."
    return (
        f"{text} With --forget it begins with an empty state: records of before {to} that are sent once more "
        "then pass"
    )


def touched(steps: Collection[PartitionStep], slots: int) -> dict[int, list[PartitionStep]]:
    """Return the steps by slot, those of one slot by partition."""
    by_slot: dict[int, list[PartitionStep]] = {}
    for step in sorted(steps, key=lambda step: step.partition):
        by_slot.setdefault(step.partition % slots, []).append(step)
    return by_slot
