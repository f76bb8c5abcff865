"""Kinds of topics as people have them, as records with resends."""

from __future__ import annotations

import json
import random
import struct
import uuid
from typing import TYPE_CHECKING, Any

from processor.inspection.topic_records import TopicRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from processor.wire.quarantine import Header

START_MS = 1_772_344_800_000
STEP_MS = 700
AGAIN = 20
"""One record of so many is sent again."""


def uuids(seed: int) -> Callable[[], str]:
    """Return what makes random ids, the same for the same seed."""
    dice = random.Random(seed)
    return lambda: str(uuid.UUID(int=dice.getrandbits(128), version=4))


def record(
    partition: int,
    at_ms: int,
    value: Any = None,
    key: str | None = None,
    headers: Iterable[Header] = (),
) -> TopicRecord:
    """Return a record; ``value`` is bytes, or what JSON is made of."""
    raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return TopicRecord(
        "t", partition, 0, at_ms, False, None if key is None else key.encode(), raw, list(headers)
    )


class Stream:
    """Makes a topic's records one by one; resends go where the record went, a little later.

    Args:
        partitions: How many there are.
        again: One record of so many is sent again; 0: none.
        behind: How many records later.
    """

    def __init__(self, partitions: int = 2, again: int = AGAIN, behind: int = 3) -> None:
        self.partitions = partitions
        self.again = again
        self.behind = behind
        self.new_id = uuids(1)
        self.dice = random.Random(2)

    def records(
        self,
        count: int,
        make: Callable[[int, int], dict[str, Any]],
        resent: Callable[[TopicRecord, int], TopicRecord] = lambda each, _: each,
    ) -> list[TopicRecord]:
        """Return records by what ``make`` gives for number and partition: arguments of `record`."""
        made = list(self._sent(count, make, resent))
        return sorted(
            (each._replace(offset=index) for index, each in enumerate(made)), key=lambda each: each.partition
        )

    def _sent(
        self,
        count: int,
        make: Callable[[int, int], dict[str, Any]],
        resent: Callable[[TopicRecord, int], TopicRecord],
    ) -> Iterator[TopicRecord]:
        sent: list[TopicRecord] = []
        for number in range(count):
            at_ms = START_MS + number * STEP_MS
            partition = number % self.partitions
            sent.append(record(partition, at_ms, **make(number, partition)))
            yield sent[-1]
            if self.again and number % self.again == self.again - 1 and number >= self.behind:
                yield resent(sent[-self.behind]._replace(timestamp=at_ms + 1), at_ms + 1)


def int64(number: int) -> bytes:
    """Return a header of format int64."""
    return struct.pack(">q", number)


def int32(number: int) -> bytes:
    """Return a header of format int32."""
    return struct.pack(">i", number)
