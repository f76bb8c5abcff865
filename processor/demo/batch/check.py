"""Compares a clean table, its receipts and its quarantine with what they must hold, row by row.

Pure: rows as they were read go in, counts and differences come out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from processor.demo.batch.archive import COLLISIONS_AT_REST, CONTENT, COPIES_AT_REST, DAYS, RowKind, all_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from processor.demo.batch.archive import ArchiveRow

_SHOWN = 5  # differences per kind of rows: one fault can follow from another a thousand times
_WHERE_FROM = ("seqmark_file", "seqmark_row")
ROW_COLUMNS = (*CONTENT, "seqmark_run", "seqmark_original_id", *_WHERE_FROM)
RECEIPT_COLUMNS = ("run", "file", "row", "verdict", "id", "owner", "action", "new_id")
FAULT_COLUMNS = ("seqmark_error", "seqmark_source", "seqmark_line")


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """What has been done to the archive.

    Attributes:
        days: The rows of each day whose run has committed.
        runs: The names of these runs.
        again: The run by which the last date was made again, from corrected files; None: it was not.
    """

    days: list[list[ArchiveRow]]
    runs: list[str]
    again: str | None = None

    def run(self, row: ArchiveRow) -> str:
        """Return the run that a row's result is of."""
        if self.again is not None and (row.kind is RowKind.BAD or row.date == len(DAYS) - 1):
            return self.again
        return self.runs[row.day]


@dataclass(slots=True)
class ArchiveCheck:
    """What was found.

    Attributes:
        kept: Rows of the table that are as they must be, by kind.
        revenue: Their prices in cents, by the number of the date.
        by_date: How many they are, likewise.
        dropped: Rows that are not in the table and have the receipt that they must have, by kind.
        notes: Receipts of collisions that are as they must be.
        quarantined: Rows that are in quarantine as they must be.
        fate: The kept rows.
        differences: For people; empty where all is as it should be.
    """

    kept: Counter[RowKind] = field(default_factory=Counter)
    revenue: Counter[int] = field(default_factory=Counter)
    by_date: Counter[int] = field(default_factory=Counter)
    dropped: Counter[RowKind] = field(default_factory=Counter)
    notes: int = 0
    quarantined: int = 0
    fate: list[ArchiveRow] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


def check_archive(
    state: ArchiveState,
    kept: Iterable[Mapping[str, Any]],
    receipts: Iterable[Mapping[str, Any]],
    quarantine: Iterable[Mapping[str, Any]],
) -> ArchiveCheck:
    """Compare all that counts with what the state asks for.

    Args:
        state: What has been done.
        kept: The table's rows, `ROW_COLUMNS` of them.
        receipts: `RECEIPT_COLUMNS` of them.
        quarantine: `FAULT_COLUMNS` of its rows.
    """
    walk = _ArchiveWalk(state)
    walk.through_receipts(receipts)
    walk.through_kept(kept)
    walk.through_quarantine(quarantine)
    return walk.outcome


class _ArchiveWalk:
    """Takes what is expected away as it is found; what is left, or found once more, is a difference."""

    def __init__(self, state: ArchiveState) -> None:
        self._state = state
        self._rows = {(each.file, each.row): each for each in all_rows(state.days)}
        self._new_ids: dict[tuple[str, int], str] = {}
        self.outcome = ArchiveCheck()

    def through_receipts(self, receipts: Iterable[Mapping[str, Any]]) -> None:
        """Match receipts with copies and collisions."""
        told = {*COPIES_AT_REST, *COLLISIONS_AT_REST}
        left, wrong = self._expected(*told), list[str]()
        for receipt in receipts:
            place = (receipt["file"], receipt["row"])
            row = left.pop(place, None)
            if row is None or row.owner is None:
                wrong.append(f"a receipt of {_text(place)} must not be there, or not twice")
                continue
            collides = row.kind in COLLISIONS_AT_REST
            must = {
                "run": self._state.run(row),
                "verdict": "collision" if collides else "duplicate",
                "id": [row.id],
                "owner": {"file": row.owner.file, "row": row.owner.row, "run": self._state.run(row.owner)},
                "action": "rename" if collides else None,
            }
            if differ := {key: receipt[key] for key, value in must.items() if receipt[key] != value}:
                wrong.append(f"the receipt of {_text(place)} says {differ}, must say {must}")
            elif collides:
                self.outcome.notes += 1
                self._new_ids[place] = receipt["new_id"]
            else:
                self.outcome.dropped[row.kind] += 1
        self._end(wrong, left, "has no receipt")

    def through_kept(self, kept: Iterable[Mapping[str, Any]]) -> None:
        """Match the table with what was sent for the first time, and with collisions."""
        left, wrong = self._expected(RowKind.FIRST, *COLLISIONS_AT_REST), list[str]()
        ids = set[str]()
        for found in kept:
            place = (found["seqmark_file"], found["seqmark_row"])
            row = left.pop(place, None)
            if row is None:
                wrong.append(f"{_text(place)} is in the table, and must not be, or not twice")
                continue
            must = row.content(corrected=self._state.again is not None)
            must["seqmark_run"] = self._state.run(row)
            must["seqmark_original_id"] = None
            if row.kind in COLLISIONS_AT_REST:
                must |= {"event_id": self._new_ids.get(place), "seqmark_original_id": row.id}
            is_ = {key: value for key, value in found.items() if key not in _WHERE_FROM}
            if is_ != must or found["event_id"] in ids:
                wrong.append(f"{_text(place)} is {is_}, must be {must}, with an id of its own")
                continue
            ids.add(found["event_id"])
            self.outcome.kept[row.kind] += 1
            self.outcome.by_date[row.date] += 1
            self.outcome.revenue[row.date] += found["price"]
            self.outcome.fate.append(row)
        self._end(wrong, left, "is lost")

    def through_quarantine(self, quarantine: Iterable[Mapping[str, Any]]) -> None:
        """Match the quarantine with the rows that cannot be judged."""
        left, wrong = self._expected(RowKind.BAD), list[str]()
        for found in quarantine:
            file, _, number = found["seqmark_source"].rpartition(":")
            row = left.pop((file, int(number)), None)
            if row is None or (row.fault, row.line(corrected=False)) != (
                found["seqmark_error"],
                found["seqmark_line"],
            ):
                wrong.append(
                    f"{found['seqmark_source']} is in quarantine as {found['seqmark_error']}: not as it must"
                )
            else:
                self.outcome.quarantined += 1
        self._end(wrong, left, "is not in quarantine")

    def _expected(self, *kinds: RowKind) -> dict[tuple[str, int], ArchiveRow]:
        return {place: row for place, row in self._rows.items() if row.kind in kinds}

    def _end(self, wrong: list[str], left: Mapping[tuple[str, int], ArchiveRow], what: str) -> None:
        wrong += [f"{_text(place)} ({row.kind.value}) {what}" for place, row in left.items()]
        if len(wrong) > _SHOWN:
            wrong[_SHOWN:] = [f"and {len(wrong) - _SHOWN:,} more differences"]
        self.outcome.differences += wrong


def _text(place: tuple[str, int]) -> str:
    return f"{place[0]}:{place[1]}"
