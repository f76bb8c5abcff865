"""Tables of the demo's findings beside the truth."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.table import Column, Table

from processor.demo.aggregate import total
from processor.demo.check import COPIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from processor.demo.aggregate import Aggregated, Amounts
    from processor.demo.check import Receipt
    from processor.demo.summary import SummaryLine
    from processor.demo.verdicts import TopicBytes

_NAMES = {
    "passed again": "passed again: its window was over",
    **{f"dropped: {kind.label}": f"dropped: {name}" for kind, name in COPIES.items()},
    "collisions passed": "passed under a new id: it collided",
    "Spark: events saved": "Spark: events that would have been lost",
    "Spark: users saved": "Spark: users that would have been lost",
    "dropped: first": "dropped although sent only once",
}


def aggregate_told(aggregated: Aggregated, watermark: str) -> list[str]:
    """Say how many rows agree, and which hours are not written yet, and why."""
    done = aggregated.closed_hours
    agree = f"{sum(hour.ok for hour in done)} of {len(done)} closed hours agree with the truth"
    said = [f"{agree}, {aggregated.agree} of {len(aggregated.truth)} rows by hour and campaign"]
    still = [hour for hour in aggregated.hours if hour.open]
    if still:
        names, events = ", ".join(hour.name for hour in still), sum(hour.truth.events for hour in still)
        said.append(
            f"{len(still)} still open ({names}, {events:,} events): an hour is written once, when its end is "
            f"{watermark} behind the newest click; until then more may come for it"
        )
    return said


def counts_table(lines: Sequence[SummaryLine]) -> Table:
    """Return what came in and what became of it, a line per question."""
    table = Table("records", Column("found", justify="right"), Column("truth", justify="right"), "")
    for line in lines:
        table.add_row(_NAMES.get(line.what, line.what), f"{line.found:,}", f"{line.truth:,}", mark(ok=line.ok))
    return table


def bytes_table(taken: TopicBytes) -> Table:
    """Return what was written, and what a clean topic would have been beside it."""
    table = Table("topic", Column("bytes", justify="right"), Column("per record in", justify="right"), "")
    rows = (
        ("source", taken.source, "written by producers"),
        ("verdicts", taken.verdicts, "written by the worker"),
        ("clean topic", taken.clean, "by seqmark materialize afterwards"),
        ("saved", taken.saved, f"{taken.saved / max(taken.clean, 1):.2%} of the clean topic"),
    )
    for name, size, said in rows:
        table.add_row(name, f"{size:,}", f"{size / max(taken.records, 1):.2f}", said)
    return table


def receipts_table(receipts: Sequence[Receipt]) -> Table:
    """Return some receipts of ids as they stand in the duplicates topic."""
    table = Table("dropped", "at", "its time (UTC)", "id", "had passed at", "expires (UTC)")
    for kind, told in receipts:
        if kind in COPIES:
            place, id_, owner = _places(told)
            times = [_clock_time(told[each]) for each in ("timestamp", "expires_at")]
            table.add_row(COPIES[kind], place, times[0], id_, owner, times[1])
    return table


def notes_table(receipts: Sequence[Receipt]) -> Table:
    """Return the notes of collisions among them."""
    table = Table("collided at", "id", "with", "their fingerprints", "passed as")
    for kind, told in receipts:
        if kind not in COPIES:
            place, id_, owner = _places(told)
            both = f"{told['fingerprint']} {told['owner_fingerprint']}"
            table.add_row(place, id_, owner, both, told["new_id"])
    return table


def _places(told: Mapping[str, Any]) -> tuple[str, str, str]:
    place, owner = (f"{each['partition']}:{each['offset']}" for each in (told, told["owner"]))
    return place, " ".join(map(str, told["id"])), owner


def _clock_time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%H:%M:%S.%f}"[:-3]


def hours_table(aggregated: Aggregated) -> Table:
    """Return the aggregate by the hour, all campaigns together, beside the truth."""
    done = aggregated.closed_hours
    agree = f"{sum(hour.ok for hour in done)} of {len(done)}"
    sums = total(hour.found for hour in done), total(hour.truth for hour in done)
    heads = ("hour (UTC)", "events: Spark", "truth", "revenue: Spark", "truth", "")
    columns = [
        Column(head, foot, justify="right" if 0 < place < 5 else "left")
        for place, (head, foot) in enumerate(zip(heads, _cells("all closed", *sums, agree), strict=True))
    ]
    table = Table(*columns, show_footer=True)
    for hour in aggregated.hours:
        waits = hour.open and hour.ok
        said = "open" if waits else mark(ok=hour.ok)
        table.add_row(*_cells(hour.name, None if waits else hour.found, hour.truth, said))
    return table


def _cells(name: str, found: Amounts | None, truth: Amounts, mark: str) -> tuple[str, ...]:
    events, revenue = ("", "") if found is None else (f"{found.events:,}", f"{found.revenue:,}")
    return name, events, f"{truth.events:,}", revenue, f"{truth.revenue:,}", mark


def mark(*, ok: bool) -> str:
    """Return what stands behind a comparison."""
    return "[green]ok[/green]" if ok else "[bold red]WRONG[/bold red]"
