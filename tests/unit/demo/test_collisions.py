"""The demo sees every fault in what collided: in the new id, in the old one, in the rest, in the note."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from processor.demo.check import CheckOutcome, compare
from processor.demo.collisions import ORIGINAL_ID, comparable
from processor.demo.plan import ID_MEMBER
from processor.demo.summary import DemoChecks, count_lines, examples
from processor.demo.tables import notes_table, receipts_table
from processor.generator import RecordKind
from processor.generator.truth import Truth
from processor.generator.window import NOBODY, Judged

if TYPE_CHECKING:
    from processor.kafka.plain.consumer import Seen

NONE = np.zeros(0, np.int64)
NEVER = np.zeros(5, np.bool_)
NEW_ID = "0cfabfee-b5b7-8af3-b704-4fe4a19a0b66"
VERSION_4 = "0cfabfee-b5b7-4af3-b704-4fe4a19a0b66"
# By id and page: A1 B1 A2 A2 B1. The third collides with the first, the next is a copy of it.
NAMES = ("A1", "B1", "A2", "A2", "B1")
KINDS = np.array(
    [RecordKind.FIRST, RecordKind.FIRST, RecordKind.COLLISION, RecordKind.RESEND, RecordKind.TAIL], np.uint8
)
PASSES = np.array([True, True, True, False, False])
TRUTH = Truth(10 + np.arange(5), PASSES, KINDS, np.zeros(5, np.uint8))
JUDGED = Judged(
    PASSES,
    np.array([NOBODY, NOBODY, 0, 2, 1]),
    np.array([0, 0, 5_000, 5_000, 4_000]),
    KINDS == RecordKind.COLLISION,
    NEVER,
)


def seen(row: int, id_: str = "", page: str = "", old: str | None = None) -> Seen:
    name = NAMES[row]
    value = {ID_MEMBER: id_ or f"id-{name[0]}", "page": page or name[1]}
    kept = () if old is None else ((ORIGINAL_ID, old.encode()),)
    return (b"u", json.dumps(value).encode(), kept, 1_000 + row, 10 + row)


SOURCE = [seen(row) for row in range(5)]
RENAMED = seen(2, NEW_ID, old="id-A")


def receipt(row: int, passed: int, expires_ms: int, **other: Any) -> Seen:
    place = {"topic": "t", "partition": 3}
    told = {**place, "offset": 10 + row, "timestamp": 1_000 + row, "verdict": "duplicate"}
    told |= {"mode": "insert-id", "id": [f"id-{NAMES[row][0]}"]}
    told |= {"owner": {**place, "offset": 10 + passed}, "expires_at": expires_ms, **other}
    return (b"u", json.dumps(told).encode(), (), 1_000 + row, 0)


def note(**other: Any) -> Seen:
    told = {"verdict": "collision", "fingerprint": "00000000000000ab", "owner_fingerprint": "00000000000000cd"}
    return receipt(2, 0, 5_000, **{**told, "action": "rename", "new_id": NEW_ID, **other})


COPIES = [receipt(3, 2, 5_000), receipt(4, 1, 4_000)]


def check(third: Seen | None = RENAMED, noted: Seen | None = None, first: Seen = SOURCE[0]) -> CheckOutcome:
    sink = [first, SOURCE[1], *([] if third is None else [third])]
    ready = comparable("t:3", SOURCE, JUDGED, sink, ID_MEMBER)
    receipts = [noted or note(), *COPIES]
    return compare("t:3", ready.source, TRUTH, ready.sink, receipts, [], ready.grounds)


def test_what_is_right_has_no_differences_and_counts_notes_apart_from_receipts() -> None:
    outcome = check()
    assert outcome.differences == []
    assert outcome.passed == Counter({RecordKind.FIRST: 2, RecordKind.COLLISION: 1})
    assert outcome.dropped == Counter({RecordKind.RESEND: 1, RecordKind.TAIL: 1})
    assert (outcome.receipts, outcome.notes) == (2, 1)


@pytest.mark.parametrize(
    ("third", "said"),
    [
        (None, "is lost"),
        (SOURCE[2], "was changed: value, headers"),
        (seen(2, NEW_ID), "was changed: value, headers"),
        (seen(2, VERSION_4, old="id-A"), "was changed: value"),
        (seen(2, NEW_ID.upper(), old="id-A"), "was changed: value"),
        (seen(2, "id-A", old="id-A"), "was changed: value"),
        (seen(2, NEW_ID, old="id-B"), "was changed: headers"),
        (seen(2, NEW_ID, page="3", old="id-A"), "was changed: value"),
    ],
)
def test_a_collision_without_a_new_id_its_old_one_or_its_content_is_named(
    third: Seen | None, said: str
) -> None:
    differences = check(third).differences
    assert differences[0] == f"t:3:12 (collision) {said}"
    # Its note names an id that nothing in the sink has.
    assert [difference.rpartition(";")[2] for difference in differences[1:]] == [" must say {'new_id': None}"]


def test_a_record_that_did_not_collide_and_was_renamed_is_named() -> None:
    assert check(first=seen(0, NEW_ID, old="id-A")).differences == [
        "t:3:10 (first) was changed: value, headers"
    ]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"new_id": NEW_ID.replace("0cf", "0ce")}, f"must say {{'new_id': '{NEW_ID}'}}"),
        ({"action": "pass"}, "must say {'action': 'rename'}"),
        ({"fingerprint": "AB"}, "must say {'fingerprint': "),
        ({"fingerprint": 171}, "must say {'fingerprint': "),
        ({"owner_fingerprint": None}, "must say {'owner_fingerprint': "),
        ({"owner": {"topic": "t", "partition": 3, "offset": 11}}, "must say {'owner': "),
        ({"expires_at": 4_999}, "must say {'expires_at': 5000}"),
        ({"verdict": "duplicate"}, "has a receipt that is not right"),
    ],
)
def test_a_note_that_says_something_else_is_one_difference(other: dict[str, Any], said: str) -> None:
    outcome = check(noted=note(**other))
    (difference,) = outcome.differences
    assert difference.startswith("t:3:12 (collision) has a receipt that is not right: {")
    assert said in difference
    assert (outcome.receipts, outcome.notes) == (2, 0)


def test_collisions_have_lines_of_their_own_and_are_not_among_those_that_pass_again() -> None:
    lines = count_lines([DemoChecks(check(), NONE, NONE, KINDS)], [TRUTH])
    counted = {line.what: (line.found, line.truth) for line in lines}
    assert counted["passed"] == (3, 3)
    assert counted["collisions passed"] == counted["notes of collisions"] == (1, 1)
    assert counted["receipts"] == (2, 2)
    assert "passed again" not in counted


def test_receipts_and_notes_are_shown_in_tables_of_their_own() -> None:
    shown = examples([DemoChecks(check(), NONE, NONE, KINDS)])
    assert [each.kind for each in shown] == [RecordKind.RESEND, RecordKind.TAIL, RecordKind.COLLISION]
    assert receipts_table(shown).row_count == 2
    console = Console(width=140)
    with console.capture() as page:
        console.print(notes_table(shown))
    (row,) = page.get().splitlines()[3:-1]
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == ["3:12", "id-A", "3:10", "00000000000000ab 00000000000000cd", NEW_ID]
