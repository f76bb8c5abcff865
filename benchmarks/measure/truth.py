"""Compares what a system has written with what it had to write: byte for byte, per partition.

The sink is read back with read_committed through the project's decoder, and compared with the load made once
more: exactly equal and in order for exactly_once, each record at least once for at_least_once.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import numpy as np

from processor.kafka.client import Client, TopicPartition
from processor.kafka.offsets import bounds
from processor.kafka.reader import PartitionReader, StopReading
from processor.wire.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from numpy.typing import NDArray

    from benchmarks.load import Load
    from benchmarks.peers import Guarantee
    from processor.engine.batch.columns import Columns

PATIENCE_S = 15.0
"""A system may commit its offsets a moment before what it has written: Flink commits the sink after them."""
POLL_S = 0.2
_POLICY = StopReading(damage="", loss="")


class WrongOutputError(Exception):
    """A system has written something else than it had to."""


class MissingError(WrongOutputError):
    """Something is not there, or not yet."""


async def check(
    bootstrap_servers: str, topic: str, load: Load, guarantee: Guarantee, *, timestamps: bool = True
) -> int:
    """Compare a sink with what must have passed of a load; ``timestamps``: they have to be as they were.

    Returns:
        How many records are there more than once: 0 with exactly_once.

    Raises:
        WrongOutputError: Says which partition differs and how.
    """
    client = await Client.open({"bootstrap_servers": bootstrap_servers}, "bench-check", [topic])
    try:
        deadline = time.monotonic() + PATIENCE_S
        decoder, repeats = Decoder(), 0
        for partition in range(load.partitions):
            tp = TopicPartition(topic, partition)
            while True:
                try:
                    limits = (await bounds(client, [tp]))[tp]
                    reader = PartitionReader(client, decoder, tp, _POLICY, ahead=True)
                    pieces = reader.columns(limits.start, limits.stable)
                    repeats += await _check(pieces, tp, load, guarantee, timestamps=timestamps)
                    break
                except MissingError:
                    if time.monotonic() > deadline:
                        raise
                    await asyncio.sleep(POLL_S)
        return repeats
    finally:
        await client.close()


async def _check(
    pieces: AsyncIterator[tuple[Columns, int]],
    tp: TopicPartition,
    load: Load,
    guarantee: Guarantee,
    *,
    timestamps: bool,
) -> int:
    passing = load.passing(tp.partition)
    found = np.zeros(passing, np.int64)
    at = 0
    async for columns, _ in pieces:
        numbers = read_numbers(columns, load, tp.partition, timestamps=timestamps)
        if guarantee == "exactly_once":
            wanted = np.arange(at, at + numbers.size)
            if at + numbers.size > passing or not np.array_equal(numbers, wanted):
                where = int(np.argmax(numbers != wanted)) if numbers.size else 0
                raise WrongOutputError(
                    f"partition {tp.partition}: record {at + where} of the sink is number {numbers[where]}"
                )
        elif numbers.size and int(numbers.max()) >= passing:
            raise WrongOutputError(f"partition {tp.partition}: there is no number {int(numbers.max())}")
        np.add.at(found, numbers, 1)
        at += numbers.size
    if missing := int((found == 0).sum()):
        raise MissingError(f"partition {tp.partition}: {missing:,} of {passing:,} records are not in the sink")
    return int((found - 1).sum())


def read_numbers(columns: Columns, load: Load, partition: int, *, timestamps: bool = True) -> NDArray[np.int64]:
    """Return the numbers that records carry, int64[n], having compared all their bytes with the load's.

    Their timestamps are looked at only with ``timestamps``.

    Raises:
        WrongOutputError: A record is not one of the load's, or not as it was.
    """
    form = load.form
    if not bool((columns.end - columns.body == form.width).all()):
        raise WrongOutputError(f"partition {partition}: a record has another length than it had")
    bodies = columns.data[columns.body[:, None] + np.arange(form.width)]
    numbers = load.carried(bodies)
    if bool((numbers < 0).any()) or not np.array_equal(bodies, load.bodies(partition, np.maximum(numbers, 0))):
        raise WrongOutputError(f"partition {partition}: a record's key, value or headers are not as they were")
    if timestamps and not np.array_equal(columns.timestamp, load.stamps(numbers)):
        raise WrongOutputError(f"partition {partition}: a record's timestamp is not as it was")
    return numbers
