"""The summary of an aggregate's output: newest windows of its largest groups, and counts of all.

Bounded, however large the output is. Without pyspark, so that who draws it need not have it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

MOST_WINDOWS = 240
"""Ten days of hours: more cannot be told apart in a picture of this width."""
MOST_GROUPS = 6
"""Colours that stay apart for people who see few of them."""

Value = int | float | Decimal | str | bool | date | datetime | None


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One row of the output.

    Attributes:
        start_ms: Begin of its window, ms since 1970.
        end_ms: End of its window, ms since 1970.
        group: Values of the ``group_by`` columns.
        values: Values of the aggregates.
    """

    start_ms: int
    end_ms: int
    group: tuple[Value, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """One group over all windows.

    Attributes:
        group: Values of the ``group_by`` columns.
        windows: In how many rows it stands.
        totals: Per aggregate its sum over all windows; None where sums of it mean nothing.
    """

    group: tuple[Value, ...]
    windows: int
    totals: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class SinkSummary:
    """An aggregate's output, summed up.

    Attributes:
        group_by: Names of its columns.
        aggregates: Likewise.
        rows: How many there are in all.
        windows: How many different ones.
        groups: How many different ones.
        first_ms: Start of the first window; None where there is no row.
        last_ms: End of the last one.
        everything: All groups as one.
        largest: The largest groups, by the first aggregate that can be summed, else by windows.
        shown: Rows of the largest groups in the newest windows, by window and group.
    """

    group_by: tuple[str, ...]
    aggregates: tuple[str, ...]
    rows: int = 0
    windows: int = 0
    groups: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    everything: Group | None = None
    largest: tuple[Group, ...] = ()
    shown: tuple[SummaryRow, ...] = ()


@dataclass(frozen=True, slots=True)
class SinkPart:
    """One aggregate in the report.

    Attributes:
        name: Name of the aggregate.
        topic: Topic that it reads.
        window: How its windows are cut, in words.
        output: Where it writes, in words without secrets.
        summary: What is there; None where it could not be looked at.
        notes: What a reader has to know, sentences.
        problems: What could not be read, sentences.
    """

    name: str
    topic: str
    window: str
    output: str
    summary: SinkSummary | None = None
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())
