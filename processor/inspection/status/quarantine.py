"""Reads the end of a quarantine: which codes are there of late, with an example of each.

Records keep the timestamps that they came with, so the last hour is that of their own clocks. What is read is
bounded, in records, in bytes and in time, and read from the end: where a bound is met, what is older is
missing, and the look says so. The newest few of each partition are looked at, however old they are: what was
quarantined just now may be of last year.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from processor.inspection.status.facts import QuarantineExample, QuarantineLook, QuarantineTally
from processor.kafka.offsets import offsets_at
from processor.kafka.plain.consumer import read_spans
from schemas.redriven import REDRIVEN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Any

    from processor.kafka.client import Client, TopicPartition
    from processor.kafka.offsets import Bounds
    from processor.kafka.plain.consumer import Seen

    SpanReader = Callable[
        [Mapping[str, Any], Mapping[TopicPartition, tuple[int, int]], int, float],
        Awaitable[list[tuple[TopicPartition, Seen]]],
    ]

MOST_RECORDS = 4_000
"""Of a quarantine, over all its partitions."""
MOST_BYTES = 32 * 1024 * 1024
LATEST_RECORDS = 20
"""Per partition, looked at in any case."""
NEWEST_OFFSETS = 2
"""Per partition, read before all others: a record, and the end of its transaction."""
HOUR_MS = 3_600_000
DEADLINE_S = 10.0
ERROR, DETAIL, SOURCE = "seqmark.error", "seqmark.detail", "seqmark.source"
"""As `processor.wire.quarantine.OURS`; a test holds them equal."""


class QuarantineReader:
    """Looks at quarantines, and reads one again only where something has come into it.

    Args:
        options: Those of an aiokafka client.
        read: Reads spans of partitions, as `read_spans` does.
    """

    def __init__(self, options: Mapping[str, Any], read: SpanReader = read_spans) -> None:
        self._options = options
        self._read = read
        self._seen: dict[str, tuple[object, QuarantineLook]] = {}

    async def look(
        self, client: Client, limits: Mapping[TopicPartition, Bounds], now_ms: int
    ) -> QuarantineLook:
        """Return what stands at the end of a quarantine, of which these are the partitions, with their bounds.

        Raises:
            RebuildError, StopError: It cannot be read.
        """
        topic = next(iter(limits)).topic
        # With the minute: what was of the last hour is older some time.
        state = {tp: each.stable for tp, each in limits.items()}, now_ms // 60_000
        if topic in self._seen and self._seen[topic][0] == state:
            return self._seen[topic][1]
        since_ms = now_ms - HOUR_MS
        first = await offsets_at(client, limits, since_ms, DEADLINE_S)
        most = max(1, MOST_RECORDS // len(limits))
        begins, cut = {}, False
        for tp, limit in limits.items():
            begin = first[tp]
            fewest = max(limit.start, limit.stable - most)
            cut |= begin is not None and begin < fewest
            latest = limit.stable - LATEST_RECORDS
            begins[tp] = max(fewest, latest if begin is None else min(begin, latest))
        records, whole = await self._from_the_end(
            {tp: (begins[tp], limit.stable) for tp, limit in limits.items()}
        )
        cut |= not whole and any(begin is not None for begin in first.values())
        look = QuarantineLook(tallied(records, since_ms), cut)
        self._seen[topic] = state, look
        return look

    async def _from_the_end(
        self, spans: Mapping[TopicPartition, tuple[int, int]]
    ) -> tuple[list[tuple[TopicPartition, Seen]], bool]:
        """Return the records of some spans, the newest surely, and whether those are all."""
        found: list[tuple[TopicPartition, Seen]] = []
        left_bytes, deadline_s = MOST_BYTES, time.monotonic() + DEADLINE_S
        ends, whole = {tp: stop for tp, (_, stop) in spans.items()}, True
        for offsets in (NEWEST_OFFSETS, LATEST_RECORDS, MOST_RECORDS):
            parts = {tp: (max(start, stop - offsets), ends[tp]) for tp, (start, stop) in spans.items()}
            if not whole or all(start >= stop for start, stop in parts.values()):
                break
            records = await self._read(self._options, parts, left_bytes, deadline_s - time.monotonic())
            found += records
            left_bytes -= sum(len(key or b"") + len(value or b"") for _, (key, value, *_) in records)
            ends = {tp: start for tp, (start, _) in parts.items()}
            whole = left_bytes > 0 and time.monotonic() < deadline_s
        return sorted(found, key=lambda each: (each[0], each[1][-1])), whole


def tallied(records: Iterable[tuple[TopicPartition, Seen]], since_ms: int) -> list[QuarantineTally]:
    """Count records by code and source, the most frequent of those from ``since_ms`` on first."""
    recent: dict[tuple[str, str], int] = defaultdict(int)
    older: dict[tuple[str, str], int] = defaultdict(int)
    newest: dict[tuple[str, str], QuarantineExample] = {}
    for tp, (_, _, headers, timestamp_ms, offset) in records:
        said = {name: (value or b"").decode(errors="replace") for name, value in headers}
        if REDRIVEN.decode() in said and ERROR not in said:
            continue  # a note, and no record
        source = said.get(SOURCE, "")
        kind = said.get(ERROR, "not written by a worker"), source.rsplit(":", 2)[0]
        (recent if timestamp_ms >= since_ms else older)[kind] += 1
        if kind not in newest or newest[kind].timestamp_ms <= timestamp_ms:
            newest[kind] = QuarantineExample(
                tp.topic, tp.partition, offset, timestamp_ms, source, said.get(DETAIL, "")
            )
    counted = [
        QuarantineTally(code, recent[code, topic], older[code, topic], example, topic)
        for (code, topic), example in newest.items()
    ]
    return sorted(counted, key=lambda tally: (-tally.recent, -tally.older, tally.code, tally.source_topic))
