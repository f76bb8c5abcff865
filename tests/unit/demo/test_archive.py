"""The archive's own truth is that of the contract, and the check finds what differs from it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from processor.demo.batch.archive import (
    COLLISIONS_AT_REST,
    COPIES_AT_REST,
    DAYS,
    RowKind,
    all_rows,
    make_archive,
)
from processor.demo.batch.check import ArchiveState, check_archive
from tests.support.batches.truth import FileRow, Truth

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.demo.batch.archive import ArchiveRow

RUNS = ["monday", "tuesday", "wednesday"]
ROWS, SEED = 1_500, 3


def of_file(row: ArchiveRow) -> FileRow:
    """Return a row as the naive model takes it; no content but its own and its copies' has its time."""
    if row.kind is RowKind.BAD:
        return FileRow(row.file, row.row, row.id, None, 0)
    at = datetime.fromtimestamp(row.time_ms / 1000, UTC)
    return FileRow(row.file, row.row, row.id, at, row.time_ms)


def test_the_truth_is_what_the_rules_of_the_contract_come_to() -> None:
    days = make_archive(ROWS, SEED)
    model = Truth(timedelta(days=30), fingerprints=True, action="rename")
    for name, rows in zip(RUNS, days, strict=True):
        model.run(name, [of_file(each) for each in rows])
    model.run(
        "again", [of_file(each) for each in all_rows(days)], since=datetime.fromisoformat(f"{DAYS[-1]}T00:00Z")
    )
    state = ArchiveState(days, RUNS, "again")

    kept = {(each.source.file, each.source.row, each.run, each.renamed) for each in model.kept}
    receipts = {
        (each.source.file, each.source.row, each.run, each.verdict, each.owner) for each in model.receipts
    }

    told = [row for row in all_rows(days) if row.kind in {*COPIES_AT_REST, *COLLISIONS_AT_REST}]
    assert kept == {
        (row.file, row.row, state.run(row), row.kind in COLLISIONS_AT_REST)
        for row in all_rows(days)
        if row.kind in {RowKind.FIRST, *COLLISIONS_AT_REST}
    }
    assert receipts == {
        (
            *(
                row.file,
                row.row,
                state.run(row),
                "collision" if row.kind in COLLISIONS_AT_REST else "duplicate",
            ),
            (row.owner.file, row.owner.row, state.run(row.owner)),
        )
        for row in told
        if row.owner
    }
    assert {row.kind for row in all_rows(days)} == set(RowKind)


class Found:
    """A table, its receipts and its quarantine as they must be."""

    def __init__(self) -> None:
        self.state = ArchiveState(make_archive(ROWS, SEED), RUNS, "again")
        self.kept: list[dict[str, Any]] = []
        self.receipts: list[dict[str, Any]] = []
        self.quarantine: list[dict[str, Any]] = []
        for row in all_rows(self.state.days):
            self._add(row)

    def _add(self, row: ArchiveRow) -> None:
        collides, run = row.kind in COLLISIONS_AT_REST, self.state.run(row)
        new_id = f"new-{row.file}-{row.row}" if collides else None
        if row.kind is RowKind.BAD:
            told = {"seqmark_error": row.fault, "seqmark_source": f"{row.file}:{row.row}"}
            self.quarantine.append({**told, "seqmark_line": row.line(corrected=True)})
        elif row.kind not in COPIES_AT_REST:
            own = {"seqmark_run": run, "seqmark_file": row.file, "seqmark_row": row.row}
            own |= {"seqmark_original_id": row.id if collides else None}
            self.kept.append({**row.content(corrected=True), "event_id": new_id or row.id, **own})
        if row.owner is not None:
            self.receipts.append(
                {
                    "run": run,
                    "file": row.file,
                    "row": row.row,
                    "id": [row.id],
                    "new_id": new_id,
                    "verdict": "collision" if collides else "duplicate",
                    "owner": {"file": row.owner.file, "row": row.owner.row, "run": self.state.run(row.owner)},
                    "action": "rename" if collides else None,
                }
            )

    def differences(self) -> list[str]:
        """Return what the check says."""
        return check_archive(self.state, self.kept, self.receipts, self.quarantine).differences


def test_what_is_as_it_must_be_has_no_difference() -> None:
    assert Found().differences() == []


def change(rows: list[dict[str, Any]], **values: Any) -> None:
    rows[0] |= values


def copy_kept(found: Found) -> None:
    """Put a row into the table that must be dropped."""
    copy = next(each for each in found.receipts if each["verdict"] == "duplicate")
    found.kept.append({**found.kept[0], "seqmark_file": copy["file"], "seqmark_row": copy["row"]})


MISTAKES: dict[str, tuple[Callable[[Found], object], str]] = {
    "a row is lost": (lambda found: found.kept.pop(), "is lost"),
    "a row is there twice": (lambda found: found.kept.append(found.kept[0]), "must not be, or not twice"),
    "a copy is kept": (copy_kept, "is in the table, and must not be"),
    "a price is wrong": (lambda found: change(found.kept, price=-1), "must be"),
    "a row is of another run": (lambda found: change(found.kept, seqmark_run="tuesday"), "must be"),
    "an id is taken": (lambda found: change(found.kept, event_id=found.kept[1]["event_id"]), "must be"),
    "a receipt is lost": (lambda found: found.receipts.pop(), "has no receipt"),
    "an owner is another": (lambda found: change(found.receipts, owner=None), "must say"),
    "a bad row is lost": (lambda found: found.quarantine.pop(), "is not in quarantine"),
    "a bad row has another code": (
        lambda found: change(found.quarantine, seqmark_error="field_type"),
        "not as it must",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_named(mistake: str) -> None:
    make, said = MISTAKES[mistake]
    found = Found()
    make(found)

    assert any(said in each for each in found.differences())
