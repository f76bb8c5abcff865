"""Compares what Spark made of a stream with the records that must pass, by the hour and campaign.

Pure: rows that Spark has written go in. The truth is counted from the records of the source; neither the worker
nor Spark has a part in it.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from processor.demo.script import mark, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from processor.demo.script import DemoResult
    from processor.kafka.plain.consumer import Seen

HOUR_MS = 3_600_000

Key = tuple[int, str]
"""Start of the hour in ms since 1970, and the campaign."""
Amounts = tuple[int, int]
"""Events, and what was spent in hundredths."""


class StreamSums:
    """What the records that must pass come to, by source and truth alone; what collided is counted apart.

    Attributes:
        newest_ms: The latest time among them.
    """

    def __init__(self) -> None:
        self._events, self._cents, self._users = Counter[Key](), Counter[Key](), Counter[str]()
        self._collided = Counter[str]()
        self.newest_ms = 0

    def add(self, source: Sequence[Seen], truth: Sequence[Mapping[str, Any]]) -> None:
        """Add a partition."""
        for (_, value, _, time_ms, _), line in zip(source, truth, strict=False):
            if line["passes"]:
                event = orjson.loads(value or b"")
                key = time_ms // HOUR_MS * HOUR_MS, event["campaign"]
                self._events[key] += 1
                self._cents[key] += int(event["amount"].replace(".", ""))
                self._users[event["user_id"]] += 1
                self._collided[event["user_id"]] += line["kind"] == "collision"
                self.newest_ms = max(self.newest_ms, time_ms)

    def rows(self) -> dict[Key, Amounts]:
        """Return them by hour and campaign."""
        return {key: (events, self._cents[key]) for key, events in self._events.items()}

    def lost_words(self) -> str:
        """Say what would be missing where all that has the id of another record is dropped."""
        users = sum(self._collided[user] == number for user, number in self._users.items())
        events = f"{self._collided.total():,} of {self._users.total():,} events"
        lost = f"{events} and {users:,} of {len(self._users):,} users would have been lost"
        return f"had collisions been dropped as duplicates, {lost}"


def compare_hours(
    result: DemoResult, rows: Iterable[tuple[Key, Amounts]], sums: StreamSums, watermark_ms: int
) -> None:
    """Add to the result what an aggregate holds, and what is not as it must be.

    Args:
        result: Of the demo.
        rows: What Spark has written.
        sums: Of the stream.
        watermark_ms: An hour is written once its end is so far behind the newest event.
    """
    listed, truth = list(rows), sums.rows()
    times, found = Counter(key for key, _ in listed), dict(listed)
    closed = {key for key in truth if key[0] + HOUR_MS <= sums.newest_ms - watermark_ms}
    must = {key: truth[key] for key in closed}
    differences = [
        f"{_hour(key[0])} {key[1]}: {_words(found.get(key))}; must be: {_words(must.get(key))}"
        for key in sorted(found.keys() | must.keys())
        if found.get(key) != must.get(key)
    ]
    differences += [f"{_hour(key[0])} {key[1]}: {each} rows" for key, each in times.items() if each > 1]
    result.differ("the aggregate: ", differences)
    agree = sum(found.get(key) == row for key, row in must.items())
    hours, lines = {}, []
    for start_ms in sorted({start for start, _ in truth}):
        open_ = not any(start == start_ms for start, _ in closed)
        is_, right = ((0, 0) if open_ else _total(found, start_ms)), _total(truth, start_ms)
        hours[_hour(start_ms)] = {"open": open_, "spark": None if open_ else is_[0], "truth": right[0]}
        shown = ("", "") if open_ else (f"{is_[0]:,}", f"{is_[1] / 100:,.2f}")
        said = "open" if open_ else mark(ok=is_ == right)
        lines.append((_hour(start_ms), shown[0], f"{right[0]:,}", shown[1], f"{right[1] / 100:,.2f}", said))
    result.shown += [
        table(("hour (UTC)", "events: Spark", "truth", "revenue: Spark", "truth", ""), lines),
        f"{agree} of {len(must)} rows of closed hours agree with the truth; an open hour is not written yet",
    ]
    result.fields |= {"hours": hours, "aggregate": {"rows": len(listed), "truth": len(must), "agree": agree}}


def _total(rows: Mapping[Key, Amounts], start_ms: int) -> Amounts:
    found = [row for (start, _), row in rows.items() if start == start_ms]
    return sum(events for events, _ in found), sum(cents for _, cents in found)


def _hour(start_ms: int) -> str:
    return f"{datetime.fromtimestamp(start_ms / 1000, UTC):%Y-%m-%d %H:%M}"


def _words(row: Amounts | None) -> str:
    return "no row" if row is None else f"{row[0]:,} events, revenue {row[1] / 100:,.2f}"
