"""Adds up what the tasks of a run have returned, and compares it with what they have removed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from processor.errors import StopError
from spark_sink.batch.table.layout import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spark_sink.batch.inputs import RunInputs
    from spark_sink.batch.table.commits import DataFile, Snapshot
    from spark_sink.batch.tasks.extract import Extracted
    from spark_sink.batch.tasks.judge import JudgedBucket
    from spark_sink.batch.tasks.write import WrittenSplit

_MOST_DATES = 5


def counts_of(
    inputs: RunInputs,
    extracted: Sequence[Extracted],
    judged: Sequence[JudgedBucket],
    written: Sequence[WrittenSplit],
    action: str,
) -> dict[str, int]:
    """Return the counts of `spark_sink.batch.job.BatchOutcome`.

    Args:
        inputs: What the run reads.
        extracted: Of each split.
        judged: Of each bucket.
        written: Of each split; none of a dry run.
        action: What becomes of collisions.

    Raises:
        StopError: Not as many rows were written as are to be kept.
    """
    read, skipped = sum(each.rows for each in extracted), sum(each.skipped for each in extracted)
    faults = sum(each.faults for each in extracted)
    duplicates, collisions = sum(each.duplicates for each in judged), sum(each.collisions for each in judged)
    lost = collisions if action in {"quarantine", "drop"} else 0
    counts = {
        "files": len(inputs.names),
        "read": read,
        "skipped": skipped,
        "kept": read - skipped - faults - duplicates - lost,
        "duplicates": duplicates,
        "collisions": collisions,
        "renamed": sum(each.renamed for each in judged),
        "quarantined": faults + (collisions if action == "quarantine" else 0),
    }
    if inputs.expired:
        counts["expired"] = inputs.expired
    if written:
        kept = sum(file.rows for each in written for file in each.files[ROWS])
        if kept != counts["kept"]:
            raise StopError(
                f"{kept:,} rows were written and {counts['kept']:,} are to be kept: nothing counts; report it"
            )
        dates = {file.date for each in written for file in each.files.get(ROWS, [])}
        counts["dates"] = len(dates)
    return counts


def fewer_rows(snapshot: Snapshot, removed: Sequence[str], written: Iterable[DataFile]) -> str | None:
    """Return what to say where dates get fewer rows than they had, of too few inputs; None: nothing.

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
