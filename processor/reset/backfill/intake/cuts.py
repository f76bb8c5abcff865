"""Decides at which offset of each partition the stream goes on.

The cut is the first offset that the history may lack. An overlap is safe: what the history has delivered from
the cut on is a duplicate in the stream, and what it lacks passes. A gap is not: what was delivered in it passes
again when it comes again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from processor.errors import ConfigError, Problem
from processor.kafka.offsets import bounds, offsets_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from processor.reset.context import ResetContext


class CutChoice(NamedTuple):
    """What a user says of the cut.

    Attributes:
        offsets: By partition; empty: nothing.
        time_ms: Of the first record with at least this timestamp; None: nothing.
        leave_out: Whether what the history has from the cut on is left out.
    """

    offsets: Mapping[int, int]
    time_ms: int | None = None
    leave_out: bool = False


async def chosen_cuts(context: ResetContext, choice: CutChoice, *, has_offsets: bool) -> dict[int, int | None]:
    """Return the cut of each partition; None where only the history's offsets say it.

    Args:
        context: Of the hop that reads the source.
        choice: The user's.
        has_offsets: Whether the history's rows have offsets of the source.

    Raises:
        ConfigError: A partition that there is not, or one whose cut nobody says.
        RebuildError: The broker does not answer.
    """
    numbers, topic = range(context.partitions), context.topics.source
    if choice.time_ms is not None:
        sources = [context.source(number) for number in numbers]
        # The ends come first: what comes before the second answer lies behind them, and is the stream's.
        limits = await bounds(context.client, sources)
        found = await offsets_at(context.client, sources, choice.time_ms)
        # Where no record is as late, the stream goes on at the end.
        return {tp.partition: limits[tp].stable if found[tp] is None else found[tp] for tp in sources}
    if odd := sorted(set(choice.offsets) - set(numbers)):
        there = f"{topic} has the partitions 0 to {context.partitions - 1}"
        raise ConfigError([Problem("--cut", f"there is no partition {odd[0]}: {there}")])
    cuts = {number: choice.offsets.get(number) for number in numbers}
    lacking = [number for number, cut in cuts.items() if cut is None]
    if lacking and not has_offsets:
        which = ", ".join(map(str, lacking[:10]))
        raise ConfigError(
            [
                Problem(
                    "--cut",
                    f"where does the stream go on in partition {which} of {topic}? Give --cut P:O per "
                    "partition, the first offset that the history may lack, or --cut-time T, or the column "
                    "with the offsets: --columns offset=COL",
                )
            ]
        )
    return cuts


def cuts_after(cuts: Mapping[int, int | None], ends: Sequence[int]) -> dict[int, int]:
    """Return all cuts, once it is known where the history ends; a partition that it has nothing of begins at 0.

    Args:
        cuts: Of `chosen_cuts`.
        ends: By partition, the highest offset of the history and one more; 0 where it has none.
    """
    return {number: ends[number] if cut is None else cut for number, cut in cuts.items()}
