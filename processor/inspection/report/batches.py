"""Writes the section of a batch: its runs, and what became of the rows by date."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from typing import TYPE_CHECKING

from processor.inspection.report.markup import Html, bullets, element, table
from processor.inspection.report.plots import MOST_DATES, DateCounts, draw_dates

if TYPE_CHECKING:
    from spark_sink.batch.table.summary import BatchPart, TableRun

TABLE_DATES = 366
"""A year; longer tables are not read: their beginning is one row."""
_RUN = ("read", "skipped", "kept", "duplicates", "collisions", "quarantined", "dates")
_NAMES = {
    "kept": "kept",
    "duplicate": "duplicates",
    "collision": "collisions dropped",
    "quarantined": "quarantined",
    "collided": "collisions kept or quarantined",
}
"""What rows are counted as, and its name; the last ones are counted as kept or quarantined as well."""


def batch_section(name: str, batch: BatchPart) -> Html:
    """Return the section of one batch; ``name`` is its anchor."""
    parts = [
        element("h2", "Batch ", element("code", batch.name)),
        element("p", element("code", batch.input), " → ", element("code", batch.output), class_="soft"),
    ]
    if batch.runs:
        parts.append(_tiles(batch))
        parts.append(element("p", _MEANINGS, class_="soft"))
    parts.append(bullets([*batch.problems, *batch.notes]))
    if batch.runs:
        parts += [element("h3", "Runs, in order"), _runs_table(batch)]
    if any(batch.dates):
        parts += [_picture(name, batch), element("h3", "By date"), _dates_table(batch)]
    return element("section", *parts, id=name)


_MEANINGS = (
    "What counts now, by the time of the events. Kept: in the clean table; duplicates: their id was kept "
    "before, dropped; collisions: their id was kept with other content; quarantined: cannot be judged, or "
    "collided where the config says so."
)


def _shown(batch: BatchPart) -> list[str]:
    """Return what this batch tells apart."""
    always = {"kept", "quarantined", *(["duplicate"] if batch.receipts else [])}
    return [what for what in _NAMES if what in always or batch.total(what)]


def _tiles(batch: BatchPart) -> Html:
    classes = {"kept": "clean", "collided": "collision"}
    tiles = [("raw", sum(each.is_run for each in batch.runs), "runs")]
    tiles += [(classes.get(what, what), batch.total(what), _NAMES[what]) for what in _shown(batch)]
    made = (
        element("li", element("b", f"{count:,}"), element("span", what), class_=kind)
        for kind, count, what in tiles
    )
    return element("ul", *made, class_="tiles")


def _runs_table(batch: BatchPart) -> Html:
    titles = ("rows read", "of earlier dates", *_RUN[2:-1], "dates with new rows")
    rows = [[each.number, _told(each), *(each.counts.get(key) for key in _RUN)] for each in batch.runs]
    return table(f"Runs of {batch.name}", ["commit", "run", *titles], rows, texts=2)


def _told(run: TableRun) -> str:
    if not run.is_run:
        return f"{run.run}: {run.counts.get('files', 0):,} files merged"
    return run.run if run.since is None else f"{run.run}, made again from {run.since} on"


def _days(batch: BatchPart) -> list[str]:
    """Return all dates from the first to the last, those without a row included."""
    known = [date.fromisoformat(each) for each in batch.dates if each]
    first, last = min(known), max(known)
    return [(first + timedelta(days)).isoformat() for days in range((last - first).days + 1)]


def _picture(name: str, batch: BatchPart) -> Html:
    days = _days(batch)
    shown, nothing = days[-MOST_DATES:], Counter[str]()
    counts = {what: [batch.dates.get(day, nothing)[what] for day in shown] for what in _NAMES}
    told = ", ".join(f"{batch.total(what):,} {_NAMES[what]}" for what in _shown(batch))
    alt = f"Rows of batch {batch.name} by date from {shown[0]} to {shown[-1]} (UTC): {told}. The table has all."
    caption = "Above: the grey area was kept out of the clean table. Below: why."
    if batch.total("collided"):
        caption += " Dotted: collisions that are in the clean table or in quarantine."
    if len(shown) < len(days):
        caption += f" The newest {len(shown):,} of {len(days):,} dates."
    drawn = Html(draw_dates(shown, DateCounts(**counts), name))
    return element("figure", element("div", drawn, role="img", aria_label=alt), element("figcaption", caption))


def _dates_table(batch: BatchPart) -> Html:
    whats, days = _shown(batch), sorted(each for each in batch.dates if each)
    shown = days[-TABLE_DATES:]
    rows: list[list[object]] = []
    if len(shown) < len(days):
        before = (sum(batch.dates[day][what] for day in days[: -len(shown)]) for what in whats)
        rows.append([f"before {shown[0]}", *before])
    rows += [[day, *(batch.dates[day][what] for what in whats)] for day in shown]
    if "" in batch.dates:
        rows.append(["without a date", *(batch.dates[""][what] for what in whats)])
    foot = ["all", *map(batch.total, whats)]
    return table(
        f"Rows of {batch.name} by date", ["date (UTC)", *(_NAMES[what] for what in whats)], rows, foot=foot
    )
