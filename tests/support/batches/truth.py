"""Judges rows at rest by the words of the contract, one after the other, without Seqmark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime, timedelta


class FileRow(NamedTuple):
    """One row of an input file.

    Attributes:
        file: The file's base name.
        row: Its number there.
        id: None: the column is null.
        at: The event's time; None: null.
        amount: Its content.
    """

    file: str
    row: int
    id: str | None
    at: datetime | None
    amount: int


class KeptRow(NamedTuple):
    """A row that is in the table."""

    source: FileRow
    run: str
    renamed: bool


class Receipt(NamedTuple):
    """A row that was dropped, or that collided."""

    source: FileRow
    run: str
    verdict: str
    owner: tuple[str, int, str]
    action: str | None


@dataclass
class Truth:
    """What a table, its receipts and its quarantine should hold."""

    window: timedelta
    fingerprints: bool = False
    action: str = "pass"
    rename_first: bool = False
    kept: list[KeptRow] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    quarantine: list[tuple[str, FileRow]] = field(default_factory=list)

    def run(self, name: str, rows: list[FileRow], since: datetime | None = None) -> None:
        """Let a run over these rows commit."""
        if since is not None:
            self._forget(since, {each.file for each in rows})
            rows = [each for each in rows if each.at is None or each.at >= since]
        before = list(self.kept)
        mine: list[KeptRow] = []
        bad = [each for each in rows if each.id is None or each.at is None]
        self.quarantine += [("field_missing", each) for each in bad]
        good = [each for each in rows if each.id is not None and each.at is not None]
        for row in sorted(good, key=lambda each: (each.at, each.file, each.row)):
            self._judge(row, name, before, mine)
        self.kept += mine

    def _forget(self, since: datetime, files: set[str]) -> None:
        def stays(row: FileRow) -> bool:
            return row.at < since if row.at is not None else row.file not in files

        self.kept = [each for each in self.kept if stays(each.source)]
        self.receipts = [each for each in self.receipts if stays(each.source)]
        self.quarantine = [each for each in self.quarantine if stays(each[1])]

    def _judge(self, row: FileRow, run: str, before: list[KeptRow], mine: list[KeptRow]) -> None:
        assert row.at is not None
        near = [
            each
            for each in [*before, *mine]
            if each.source.id == row.id and each.source.at and abs(each.source.at - row.at) < self.window
        ]
        # The earliest; of one time the one that was there before this run.
        near.sort(key=lambda each: (each.source.at, each in mine, each.source.file, each.run, each.source.row))
        alike = [each for each in near if not self.fingerprints or each.source.amount == row.amount]
        if alike:
            self._tell(row, run, "duplicate", alike[0], None)
        elif near:
            self._tell(row, run, "collision", near[0], self.action)
            if self.rename_first and near[0] in mine:
                first = mine.index(near[0])
                mine[first] = mine[first]._replace(renamed=True)
            if self.action == "quarantine":
                self.quarantine.append(("id_collision", row))
            if self.action not in {"quarantine", "drop"}:
                mine.append(KeptRow(row, run, self.action == "rename"))
        else:
            mine.append(KeptRow(row, run, False))

    def _tell(self, row: FileRow, run: str, verdict: str, owner: KeptRow, action: str | None) -> None:
        place = (owner.source.file, owner.source.row, owner.run)
        self.receipts.append(Receipt(row, run, verdict, place, action))
