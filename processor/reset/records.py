"""Reads the records in source and quarantine that a reset rests on."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from processor.engine.verdict import Fault
from processor.kafka.offsets import bounds, offsets_at
from processor.kafka.reader import PartitionReader, StepOver, StopReading
from processor.wire.quarantine import called

if TYPE_CHECKING:
    from processor.kafka.client import Client, TopicPartition
    from processor.wire.decode import Decoder

_LOSS = ": retention has removed it meanwhile. Run the same reset again"
_UNKNOWN = ", nor is it known where the next one begins: "
_WINDOW = StepOver(
    damage=f"{_UNKNOWN}so nobody can tell whether what is retained lasts for a window. With --forget the state "
    "begins empty",
    loss=_LOSS,
    # Later records last for a window less easily.
    to_the_end=False,
)
_RECOMPUTED, _KEPT = (
    StepOver(
        damage=f"{_UNKNOWN}the state cannot be recomputed. With --forget it begins empty",
        loss=_LOSS,
        to_the_end=to_the_end,
    )
    for to_the_end in (False, True)
)
_QUARANTINE = StopReading(
    # What was too large would be remembered as if it were in the sink, and its resend dropped.
    damage=": without it which records were too large for the sink is not known, and the state cannot be made. "
    "With --forget it begins empty",
    loss=_LOSS,
)


def replayed_source(client: Client, decoder: Decoder, tp: TopicPartition, *, kept: bool) -> PartitionReader:
    """Return what reads the records to judge; a worker has stopped at a damaged batch, and is reset past it.

    Args:
        client: Connections of its own.
        decoder: Nobody else's while it reads.
        tp: Of the source.
        kept: The state is kept, and goes on behind a damaged batch wherever the next one begins.
    """
    return PartitionReader(client, decoder, tp, _KEPT if kept else _RECOMPUTED)


async def window_end_ms(
    client: Client, decoder: Decoder, tp: TopicPartition, span: tuple[int, int], window_ms: int
) -> int | None:
    """Return the timestamp a window after a span's first record; None where the span does not last so long."""
    start, stop = span
    first_ms: int | None = None
    async with aclosing(PartitionReader(client, decoder, tp, _WINDOW).columns(start, stop)) as pieces:
        async for columns, _ in pieces:
            if len(columns):
                first_ms = int(columns.timestamp[0])
                break
    if first_ms is None:
        return None
    last_ms = first_ms + window_ms
    after = (await offsets_at(client, [tp], last_ms))[tp]
    return None if after is None or after >= stop else last_ms


async def too_large(client: Client, decoder: Decoder, tp: TopicPartition, source: str) -> set[tuple[int, int]]:
    """Return offset and timestamp of source records that were too large for the sink, which may take more now.

    The quarantine ``tp`` says so, see `called`.
    """
    found = set[tuple[int, int]]()
    limits = (await bounds(client, [tp]))[tp]
    reader = PartitionReader(client, decoder, tp, _QUARANTINE)
    async with aclosing(reader.columns(limits.start, limits.stable)) as pieces:
        async for columns, _ in pieces:
            found.update(called(columns, Fault.TOO_LARGE, f"{source}:{tp.partition}"))
    return found
