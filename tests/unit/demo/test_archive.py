"""The archive's own truth is that of the contract, and the comparison finds what differs from it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from processor.demo.archive import BAD, COPY, COPY_ACROSS, DAYS, Archive, Row
from processor.demo.truth import COLLISION, FIRST, DemoResult
from tests.support.batches.truth import FileRow, Truth

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, SEED = 1_500, 3
KINDS = {FIRST, COPY, COPY_ACROSS, COLLISION, BAD}


def of_file(row: Row) -> FileRow:
    """Return a row as the naive model takes it; no content but its own and its copies' has its time."""
    at = None if row.kind == BAD else datetime.fromtimestamp(row.time_ms / 1000, UTC)
    file, _, number = row.place.partition(":")
    return FileRow(file, int(number), row.id, at, row.time_ms)


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_is_what_the_rules_of_the_contract_come_to(seed: int) -> None:
    archive = Archive(ROWS, seed)
    model = Truth(timedelta(days=30), fingerprints=True, action="rename")
    for name, rows in zip(("monday", "tuesday", "wednesday"), archive.days, strict=False):
        model.run(name, [of_file(each) for each in rows])
    files = [row for rows in archive.days[:-1] for row in rows]
    model.run("again", [of_file(each) for each in files], since=datetime.fromisoformat(f"{DAYS[-1]}T00:00Z"))
    # What the topic brings is judged as one more run would judge it; the stream's window does not end in it.
    model.run("thursday", [of_file(each) for each in archive.days[-1]])

    rows = [*files, *archive.days[-1]]
    fates = {(f"{each.source[0]}:{each.source[1]}", "kept") for each in model.kept}
    told = {"duplicate": "dropped", "collision": "noted"}
    fates |= {(f"{each.source[0]}:{each.source[1]}", told[each.verdict]) for each in model.receipts}
    bad = {row.place: row.code for row in rows if row.kind == BAD}  # to the model all of them lack a time
    places = [f"{each[0]}:{each[1]}" for _, each in model.quarantine]
    fates |= {(place, f"quarantined as {bad[place]}") for place in places}

    assert fates == {(row.place, fate) for row in rows for fate in row.fates}
    assert {row.kind for row in rows} == KINDS
    assert {f"{each.source[0]}:{each.source[1]}" for each in model.kept if each.renamed} == {
        row.place for row in rows if row.kind == COLLISION
    }


def test_on_the_topic_a_copy_and_a_collision_come_behind_what_had_their_id_first() -> None:
    firsts: set[str] = set()
    archive = Archive(ROWS, SEED)
    for row in (row for rows in archive.days for row in rows if row.kind != BAD):
        assert (row.id in firsts) == (row.kind != FIRST)
        firsts.add(row.id)
    assert [each.line(at)["offset"] for at, each in enumerate(archive.days[-1])] == list(range(ROWS // 3))


class Outputs:
    """A table, its receipts and its quarantine as they must be."""

    def __init__(self) -> None:
        self.archive = Archive(ROWS, SEED)
        self.archive.corrected = True
        self.table: list[dict[str, Any]] = []
        self.receipts: list[dict[str, Any]] = []
        self.quarantine: list[dict[str, Any]] = []
        for row in (row for rows in self.archive.days[:-1] for row in rows):
            file, _, text = row.place.partition(":")
            number = int(text)
            for fate in row.fates:
                if row.kind == BAD:
                    self.quarantine.append({"seqmark_source": f"{file}:{number}", "seqmark_error": row.code})
                elif fate == "kept":
                    content = {**row.content(corrected=True), "seqmark_file": file, "seqmark_row": number}
                    renamed = {"event_id": f"new-{file}-{number}", "seqmark_original_id": row.id}
                    self.table.append(
                        {"seqmark_original_id": None, **content} | (renamed if row.kind == COLLISION else {})
                    )
                else:
                    verdict = {"noted": "collision", "dropped": "duplicate"}[fate]
                    self.receipts.append({"file": file, "row": number, "verdict": verdict})

    def check(self) -> DemoResult:
        result = DemoResult()
        agrees = self.archive.compare(result, "", 3, [self.table, self.receipts, self.quarantine], "")
        assert agrees == result.ok
        return result


def test_what_is_as_it_must_be_has_no_difference() -> None:
    check = Outputs().check()
    assert check.differences == []
    assert check.found == check.truth
    assert check.found["dropped: copy of a row of an earlier run"] == 20


def change(rows: list[dict[str, Any]], **values: Any) -> None:
    rows[0] |= values


def copy_kept(outputs: Outputs) -> None:
    """Put a row into the table that must be dropped."""
    copy = next(each for each in outputs.receipts if each["verdict"] == "duplicate")
    outputs.table.append({**outputs.table[0], "seqmark_file": copy["file"], "seqmark_row": copy["row"]})


MISTAKES: dict[str, tuple[Callable[[Outputs], object], str]] = {
    "a row is lost": (lambda o: o.table.pop(), "must be kept, and is not"),
    "a row is there twice": (lambda o: o.table.append(o.table[0]), "is kept, and must not be, or not twice"),
    "a copy is kept": (copy_kept, "is kept, and must not be"),
    "a price is wrong": (lambda o: change(o.table, price=-1), "is not what was written"),
    "an id is taken": (lambda o: change(o.table, event_id=o.table[1]["event_id"]), "is in the table 2 times"),
    "a first is renamed": (lambda o: change(o.table, seqmark_original_id="1"), "is not what was written"),
    "a receipt is lost": (lambda o: o.receipts.pop(), ", and is not"),
    "a receipt says another verdict": (lambda o: change(o.receipts, verdict="other"), ", and is not"),
    "a bad row is lost": (lambda o: o.quarantine.pop(), "must be quarantined as "),
    "a bad row has another code": (
        lambda o: change(o.quarantine, seqmark_error="field_type"),
        "as field_type, and",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_named(mistake: str) -> None:
    make, said = MISTAKES[mistake]
    outputs = Outputs()
    make(outputs)

    assert any(said in each for each in outputs.check().differences)
