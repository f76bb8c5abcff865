"""Compares what Spark made of the stream with the truth, window by window and group by group.

Pure. The truth is counted from the columns that the stream was generated from: neither Kafka nor Spark, nor the
JSON of an event, has a part in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.generator import CAMPAIGNS, HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from processor.generator import StreamPartition

_SHOWN = 5  # differences of an output: one fault can spoil every row


class Amounts(NamedTuple):
    """One row of the aggregate."""

    events: int
    revenue: Decimal

    def __str__(self) -> str:
        return f"{self.events:,} events, revenue {self.revenue:,}"


NOTHING = Amounts(0, Decimal("0.00"))
Key = tuple[int, str]
"""Start of the hour in ms since 1970, and the campaign."""
Rows = dict[Key, Amounts]


def true_rows(stream: Sequence[StreamPartition]) -> Rows:
    """Return what an aggregate of the records that must pass has, by hour and campaign."""
    hours = np.concatenate([each.timestamp_ms[each.passes] for each in stream]) // HOUR_MS
    campaigns = np.concatenate([each.campaign[each.passes] for each in stream])
    cents = np.concatenate([each.cents[each.passes] for each in stream])
    groups, row = np.unique(hours * len(CAMPAIGNS) + campaigns, return_inverse=True)
    # As float64, which is exact up to 2^53 hundredths.
    counts, sums = np.bincount(row), np.bincount(row, cents).astype(np.int64)
    rows = {}
    for group, count, spent in zip(groups.tolist(), counts.tolist(), sums.tolist(), strict=True):
        hour, campaign = divmod(group, len(CAMPAIGNS))
        rows[hour * HOUR_MS, CAMPAIGNS[campaign]] = Amounts(count, Decimal(spent).scaleb(-2))
    return dict(sorted(rows.items()))


def newest_ms(stream: Iterable[StreamPartition]) -> int:
    """Return the latest event time of the records that must pass, 0 where there is none."""
    return max((int(each.timestamp_ms[each.passes].max(initial=0)) for each in stream), default=0)


def closed(rows: Rows, newest: int, watermark_ms: int) -> Rows:
    """Return the rows of the hours whose end is not above the watermark when all was read.

    The watermark follows ``watermark_ms`` behind ``newest``, the latest event time.
    """
    return {key: row for key, row in rows.items() if key[0] + HOUR_MS <= newest - watermark_ms}


class Hour(NamedTuple):
    """All campaigns of one hour."""

    start_ms: int
    found: Amounts
    """Nothing where the hour is still open."""
    truth: Amounts
    open: bool
    """Whether more clicks may come for it, so that it is not written yet."""

    @property
    def ok(self) -> bool:
        """Whether both agree; of an open hour there is nothing to agree on."""
        return self.found == (NOTHING if self.open else self.truth)

    @property
    def name(self) -> str:
        """Its start, UTC."""
        return _time(self.start_ms)


@dataclass(frozen=True, slots=True)
class Aggregated:
    """What Spark made of the clean topic, beside what it should have made.

    Attributes:
        found: The rows of the output, in its order.
        truth: What they should be: the hours that are closed.
        open: What the events are of the hours that are not, and so are not written yet.
        late: Events that were written aside because they came too late; there is no such one in the stream.
        bad: Records that were taken for no events; likewise.
        seconds: From Spark's start to its end.
    """

    found: Sequence[tuple[Key, Amounts]]
    truth: Rows
    open: Rows
    late: int
    bad: int
    seconds: float

    @property
    def agree(self) -> int:
        """Rows that are as they should be."""
        return sum(self.truth.get(key) == row for key, row in dict(self.found).items())

    @property
    def closed_hours(self) -> list[Hour]:
        """The hours that should be written, in order."""
        return [hour for hour in self.hours if not hour.open]

    @property
    def differences(self) -> list[str]:
        """Everything that is not as it should be, for people; empty where all is."""
        rows, said = dict(self.found), []
        for key in sorted(rows.keys() | self.truth.keys()):
            should, has = self.truth.get(key), rows.get(key)
            if should != has:
                said.append(f"{_place(key)}: {_told(has)}; must be: {_told(should)}")
        times = Counter(key for key, _ in self.found)
        said += [f"{_place(key)}: {number} rows" for key, number in times.items() if number > 1]
        if len(said) > _SHOWN:
            said[_SHOWN:] = [f"and {len(said) - _SHOWN:,} more differences"]
        if self.late or self.bad:
            said.append(f"{self.late:,} events counted as late and {self.bad:,} records as bad; there are none")
        return [f"the aggregate: {each}" for each in said]

    @property
    def hours(self) -> list[Hour]:
        """Every hour, in order."""
        found, done, still = (_by_hour(each) for each in (dict(self.found), self.truth, self.open))
        truth = done | still
        return [
            Hour(start, found.get(start, NOTHING), truth.get(start, NOTHING), start in still)
            for start in sorted(found.keys() | truth.keys())
        ]


def total(rows: Iterable[Amounts]) -> Amounts:
    """Return the sum of rows."""
    counts = list(rows)
    return Amounts(sum(row.events for row in counts), sum((row.revenue for row in counts), NOTHING.revenue))


def _by_hour(rows: Mapping[Key, Amounts]) -> dict[int, Amounts]:
    starts = {start for start, _ in rows}
    return {hour: total(row for (start, _), row in rows.items() if start == hour) for hour in starts}


def _time(start_ms: int) -> str:
    return f"{datetime.fromtimestamp(start_ms / 1000, UTC):%Y-%m-%d %H:%M}"


def _place(key: Key) -> str:
    return f"{_time(key[0])} {key[1]}"


def _told(row: Amounts | None) -> str:
    return "no row" if row is None else str(row)
