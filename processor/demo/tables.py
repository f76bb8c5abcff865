"""Tables of the demo's findings beside the truth."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.table import Table

from processor.demo.aggregate import total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.demo.aggregate import Aggregated, Amounts
    from processor.demo.check import Receipt
    from processor.demo.summary import SummaryLine

_NAMES = {
    "passed again": "passed again: its window was over",
    "dropped: resend": "dropped: immediate resend",
    "dropped: tail": "dropped: resent tail after a crash",
    "dropped: late": "dropped: connector's late restart",
    "dropped: first": "dropped although sent only once",
}


def aggregate_told(aggregated: Aggregated, watermark: str) -> list[str]:
    """Say how many rows agree, and which hours are not written yet, and why."""
    hours = aggregated.hours
    done = [hour for hour in hours if not hour.open]
    agree = f"{sum(hour.ok for hour in done)} of {len(done)} closed hours agree with the truth"
    said = [f"{agree}, {aggregated.agree} of {len(aggregated.truth)} rows by hour and campaign"]
    still = [hour for hour in hours if hour.open]
    if still:
        names, events = ", ".join(hour.name for hour in still), sum(hour.truth.events for hour in still)
        said.append(
            f"{len(still)} still open ({names}, {events:,} events): an hour is written once, when its end is "
            f"{watermark} behind the newest click; until then more may come for it"
        )
    return said


def counts_table(lines: Sequence[SummaryLine]) -> Table:
    """Return what came in and what became of it, a line per question."""
    table = Table("records", "found", "truth", "")
    for column in table.columns[1:3]:
        column.justify = "right"
    for line in lines:
        table.add_row(_NAMES.get(line.what, line.what), f"{line.found:,}", f"{line.truth:,}", _mark(ok=line.ok))
    return table


def receipts_table(receipts: Sequence[Receipt]) -> Table:
    """Return some receipts of ids as they stand in the duplicates topic."""
    table = Table("dropped", "at", "its time (UTC)", "id", "had passed at", "expires (UTC)")
    for kind, told in receipts:
        name = _NAMES[f"dropped: {kind.label}"].removeprefix("dropped: ")
        place, owner = (f"{each['partition']}:{each['offset']}" for each in (told, told["owner"]))
        times = [_clock_time(told[each]) for each in ("timestamp", "expires_at")]
        table.add_row(name, place, times[0], " ".join(map(str, told["id"])), owner, times[1])
    return table


def _clock_time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%H:%M:%S.%f}"[:-3]


def hours_table(aggregated: Aggregated) -> Table:
    """Return the aggregate by the hour, all campaigns together, beside the truth."""
    table = Table("hour (UTC)", "events: Spark", "truth", "revenue: Spark", "truth", "", show_footer=True)
    for column in table.columns[1:5]:
        column.justify = "right"
    hours = aggregated.hours
    done = [hour for hour in hours if not hour.open]
    for hour in hours:
        found = ("", "") if hour.open and hour.ok else _cells(hour.found)
        truth = _cells(hour.truth)
        mark = "open" if hour.open and hour.ok else _mark(ok=hour.ok)
        table.add_row(hour.name, found[0], truth[0], found[1], truth[1], mark)
    found, truth = _cells(total(hour.found for hour in done)), _cells(total(hour.truth for hour in done))
    footer = (
        "all closed",
        found[0],
        truth[0],
        found[1],
        truth[1],
        f"{sum(hour.ok for hour in done)} of {len(done)}",
    )
    for column, text in zip(table.columns, footer, strict=True):
        column.footer = text
    return table


def _cells(amounts: Amounts) -> tuple[str, str]:
    return f"{amounts.events:,}", f"{amounts.revenue:,}"


def _mark(*, ok: bool) -> str:
    return "[green]ok[/green]" if ok else "[bold red]WRONG[/bold red]"
