"""Compares what a run from a date on removes with what it makes again, for who has given it too few inputs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from spark_sink.batch.table.layout import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spark_sink.batch.table.commits import DataFile, Snapshot

_MOST_DATES = 5


def fewer_rows(snapshot: Snapshot, removed: Sequence[str], written: Iterable[DataFile]) -> str | None:
    """Return what to say where dates get fewer rows than they had; None: there is nothing to say.

    Args:
        snapshot: What counted before.
        removed: Paths of the rows that are made again.
        written: Files of rows in their place.
    """
    gone = set(removed)
    before = Counter[str]()
    for each in snapshot.files[ROWS]:
        if each.path in gone:
            before[each.date] += each.rows
    again = Counter[str]()
    for each in written:
        again[each.date] += each.rows
    fewer = sorted(date for date, rows in before.items() if again[date] < rows)
    if not fewer:
        return None
    told = [f"{date}: {before[date]:,} before, {again[date]:,} now" for date in fewer[:_MOST_DATES]]
    more = f", and {len(fewer) - _MOST_DATES} dates more" if len(fewer) > _MOST_DATES else ""
    return (
        f"fewer rows are kept than were removed ({'; '.join(told)}{more}). Unless the rules have changed, "
        "inputs of earlier runs are missing: make the same dates again with all of them"
    )
