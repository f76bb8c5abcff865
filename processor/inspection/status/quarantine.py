"""Reads the end of a quarantine: which codes are there of late, with an example of each.

Records keep the timestamps that they came with, so the last hour is that of their own clocks. What is read is
bounded, in records and in bytes. The newest few of each partition are looked at, however old they are: what was
quarantined just now may be of last year.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from processor.inspection.status.facts import QuarantineExample, QuarantineLook, QuarantineTally
from processor.kafka.offsets import offsets_at
from processor.kafka.plain.consumer import read_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from processor.kafka.client import Client, TopicPartition
    from processor.kafka.offsets import Bounds
    from processor.kafka.plain.consumer import Seen

MOST_RECORDS = 4_000
"""Of a quarantine, over all its partitions."""
MOST_BYTES = 32 * 1024 * 1024
LATEST_RECORDS = 20
"""Per partition, looked at in any case."""
HOUR_MS = 3_600_000
DEADLINE_S = 10.0
ERROR, DETAIL, SOURCE = "seqmark.error", "seqmark.detail", "seqmark.source"
"""As `processor.wire.quarantine.OURS`; a test holds them equal."""


class QuarantineReader:
    """Looks at quarantines, and reads one again only where something has come into it.

    ``options`` are those of an aiokafka client.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
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
        spans, cut = {}, False
        for tp, limit in limits.items():
            begin = first[tp]
            fewest = max(limit.start, limit.stable - most)
            cut |= begin is not None and begin < fewest
            latest = limit.stable - LATEST_RECORDS
            spans[tp] = max(fewest, latest if begin is None else min(begin, latest)), limit.stable
        records = await read_spans(self._options, spans, MOST_BYTES, DEADLINE_S)
        look = QuarantineLook(tallied(records, since_ms), cut)
        self._seen[topic] = state, look
        return look


def tallied(records: Iterable[tuple[TopicPartition, Seen]], since_ms: int) -> list[QuarantineTally]:
    """Count records by code, the most frequent of those from ``since_ms`` on first."""
    recent: dict[str, int] = defaultdict(int)
    older: dict[str, int] = defaultdict(int)
    newest: dict[str, QuarantineExample] = {}
    for tp, (_, _, headers, timestamp_ms, offset) in records:
        said = {name: (value or b"").decode(errors="replace") for name, value in headers}
        code = said.get(ERROR, "not written by a worker")
        (recent if timestamp_ms >= since_ms else older)[code] += 1
        if code not in newest or newest[code].timestamp_ms <= timestamp_ms:
            newest[code] = QuarantineExample(
                tp.topic, tp.partition, offset, timestamp_ms, said.get(SOURCE, ""), said.get(DETAIL, "")
            )
    counted = [QuarantineTally(code, recent[code], older[code], newest[code]) for code in newest]
    return sorted(counted, key=lambda tally: (-tally.recent, -tally.older, tally.code))
