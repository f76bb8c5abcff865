"""Makes a source, and verdicts as a naive worker leaves them, through resets, gaps and aborted transactions."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np

from schemas.config import Settings
from schemas.verdicts.record import SourceSums, VerdictRecord
from seqmark.in_memory.cluster import MemoryLog
from tests.simulation.brokers.kafka.cluster import Brokers
from tests.simulation.brokers.streams.tapes import SOURCE, VERDICTS, World
from tests.simulation.scenario import BEGIN_MS, HOUR_MS, filled
from tests.simulation.truth.oracle import read
from tests.support.wire import batches

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.support.kafka.topics import Record

_CRC = struct.Struct(">I")
MINUTE_MS = 60_000


def settings() -> Settings:
    """Return the config of the pipeline whose verdicts are drawn."""
    topics = {"source": SOURCE, "sink": "sink", "duplicates": "receipts", "verdicts": VERDICTS}
    dedup = {"mode": "insert-id", "window": "1h", "id": [{"from": "key"}]}
    pipeline = {"name": "p", "output": "both", "quarantine": "quarantine", "dedup": dedup, **topics}
    return Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": "nowhere:9092"},
            "worker": {"application_id": "sim"},
            "pipelines": [pipeline],
        }
    )


def drawn_world(dice: random.Random, *, by_verdicts: bool) -> World:
    """Make a world with a source, and its verdicts."""
    world, partitions = World(dice), dice.choice((1, 1, 2, 3))
    shown = max(1, partitions - dice.choice((0, 0, 1)))
    world.create(SOURCE, sources(dice, partitions), None if by_verdicts else shown)
    if by_verdicts:
        _judge(dice, world)
        world.show(VERDICTS, shown)
    return world


def made_again(dice: random.Random, world: World, topic: str) -> None:
    """Delete a topic and create it again, with content of its own."""
    if topic == SOURCE:
        world.create(SOURCE, sources(dice, len(world.tapes(SOURCE))))
        return
    for tape in world.tapes(SOURCE):
        tape.play(tape.left)
    _judge(dice, world)


def _judge(dice: random.Random, world: World) -> None:
    topic_id = world.brokers.topics[SOURCE].topic_id
    world.create(VERDICTS, [verdicts(dice, log, n, topic_id) for n, log in enumerate(world.wholes(SOURCE))])


def sources(dice: random.Random, partitions: int) -> list[MemoryLog]:
    """Return partitions with events: JSON with a time, which goes up but for some, and a number."""
    made = Brokers(dice)
    made.create(SOURCE, partitions, {})

    def event(at: int) -> batches.Record:
        time = BEGIN_MS - HOUR_MS + at * MINUTE_MS - dice.choice((0, 0, 0, 3 * MINUTE_MS))
        value = json.dumps({"at": time, "n": dice.randrange(100)}).encode()
        value = dice.choice((b"{}", b"x", b"")) if dice.random() < 0.05 else value
        return batches.Record(0, time, b"%d" % dice.randrange(9), value)

    for number in range(partitions):
        filled(dice, made, number, event)
    return [made.log(SOURCE, number) for number in range(partitions)]


def verdicts(dice: random.Random, source: MemoryLog, number: int, topic_id: bytes) -> MemoryLog:
    """Return what a worker says of a source partition, which was reset now and then."""
    made = Brokers(dice)
    made.create(SOURCE, number + 1, {})
    made.logs = {tp: source if tp.partition == number else log for tp, log in made.logs.items()}
    records, log = read(made, SOURCE, number), MemoryLog()
    resets, gaps = dice.choice((0, 0, 1, 2)), dice.choice((0, 0, 0, 1))
    at, begins = source.start, True
    skips = _drawn(dice, records)
    while True:
        stop = min(
            source.end, at + dice.choice((0, 1, 3, 10, 30)) if begins else at + dice.choice((1, 3, 10, 30))
        )
        said = _verdict(source, records, number, topic_id, at, stop, skips, begins=begins)
        _written(dice, log, said)
        at, begins = stop, False
        if at >= source.end and not resets:
            return log
        if resets and dice.random() < (1.0 if at >= source.end else 0.1):
            resets, at, begins, skips = resets - 1, dice.randint(source.start, at), True, _drawn(dice, records)
        elif gaps and dice.random() < 0.2:
            gaps, at, begins = 0, dice.randint(at, source.end), True


def _drawn(dice: random.Random, records: Sequence[Record]) -> set[int]:
    share = dice.choice((0.0, 0.2, 0.5))
    return {each.offset for each in records if dice.random() < share}


def _verdict(
    source: MemoryLog,
    records: Sequence[Record],
    number: int,
    topic_id: bytes,
    base: int,
    end: int,
    skips: set[int],
    *,
    begins: bool,
) -> VerdictRecord:
    inside = [each for each in records if base <= each.offset < end]
    times, crcs = 0, list[int]()
    for each in inside:
        times ^= each.timestamp & (2**64 - 1)
    offsets = {each.offset for each in inside}
    for after, batch in source._batches:
        first = batches.HEADER.unpack_from(batch)[0]
        if base < after <= end and any(at in offsets for at in range(max(base, first), after)):
            crcs.append(batches.HEADER.unpack_from(batch)[4] & (2**32 - 1))
    sums = SourceSums(len(inside), times, len(crcs), google_crc32c.value(b"".join(map(_CRC.pack, crcs))))
    skipped = np.array([each.offset for each in inside if each.offset in skips], np.int64)
    return VerdictRecord(number, base, end, sums, topic_id, begins, skipped)


def _written(dice: random.Random, log: MemoryLog, said: VerdictRecord) -> None:
    """Write a record in a transaction of its own, perhaps behind one that was not to be."""
    if dice.random() < 0.2:
        _attempt(log, said, commit=False)
    _attempt(log, said, commit=True)


def _attempt(log: MemoryLog, said: VerdictRecord, *, commit: bool) -> None:
    record = batches.Record(0, BEGIN_MS, None, said.encode())
    first = log.append(batches.transaction([record], 1))
    end = log.append(batches.marker(0, 1, commit=commit))
    if not commit:
        log.aborted.append((1, first, end))
