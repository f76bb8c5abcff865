"""A receipt and a quarantined record say in a sentence what became of a record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from processor.inspection.read.sentences import (
    quarantine_sentence,
    receipt_sentence,
    time_text,
    verdict_sentence,
)
from tests.unit.schemas.test_verdicts import MADE

PLACE = {"pipeline": "p", "topic": "clicks.raw", "partition": 3, "offset": 8150, "timestamp": 1}
OWNER = {"topic": "clicks.raw", "partition": 3, "offset": 8101}
EXPIRES_MS = 1_772_344_800_123


def said(**fields: Any) -> str | None:
    return receipt_sentence(json.dumps(PLACE | fields).encode())


def by_id(verdict: str = "duplicate", **fields: Any) -> str | None:
    return said(verdict=verdict, mode="insert-id", id=["click-17"], **fields)


def by_sequence(verdict: str, **fields: Any) -> str | None:
    return said(verdict=verdict, mode="watermark", **fields)


def test_a_duplicate_names_the_record_that_passed_and_when_its_id_passes_again() -> None:
    assert by_id(owner=OWNER, expires_at=EXPIRES_MS) == (
        "dropped: duplicate of clicks.raw:3:8101, which passed; its id passes again from "
        '2026-03-01T06:00:00.123Z (clicks.raw:3:8150, id "click-17")'
    )


def test_a_duplicate_of_a_filter_has_no_owner() -> None:
    assert by_id() == (
        "dropped: duplicate of a record inside the window, which one is not known "
        '(clicks.raw:3:8150, id "click-17")'
    )


def test_a_duplicate_of_a_backfill_names_its_run() -> None:
    assert "duplicate of a record of backfill night, which passed" in str(by_id(owner={"backfill": "night"}))


@pytest.mark.parametrize(
    ("verdict", "fields", "sentence"),
    [
        ("late", {"sequence": 7690, "watermark": 7741},
         "dropped: late: sequence 7690 is not above the sequence watermark 7741"),
        ("duplicate", {"sequence": 7741, "watermark": 7741},
         "dropped: duplicate: sequence 7741 is the sequence watermark, it came before"),
        ("duplicate", {"sequence": 7690, "watermark": 7741},
         "dropped: duplicate: sequence 7690 came before (the sequence watermark is 7741)"),
        ("late", {"sequence": 9000, "watermark": 12, "epoch": 2},
         "dropped: late: epoch 2 is over, a higher one has begun"),
        ("late", {"sequence": 7, "watermark": 12, "epoch": 2},
         "dropped: late: sequence 7 is not above the sequence watermark 12"),
        ("late", {"sequence": 9000, "watermark": 12, "epoch": "boot-2"},
         'dropped: late: epoch "boot-2" is over, another one has begun'),
        ("late", {"sequence": 7, "watermark": 12, "epoch": "boot-2"},
         ('dropped: late: sequence 7 is not above the sequence watermark 12, or epoch "boot-2" is over, another'
         " one has begun")),
    ],
)  # fmt: skip
def test_a_sequence_is_compared_with_the_sequence_watermark(
    verdict: str, fields: dict[str, Any], sentence: str
) -> None:
    assert by_sequence(verdict, **fields) == f"{sentence} (clicks.raw:3:8150)"


def test_where_numbers_wrap_a_higher_one_may_be_late_for_itself_or_for_its_epoch() -> None:
    late = PLACE | {"verdict": "late", "mode": "watermark", "sequence": 9000, "watermark": 12}
    for receipt, or_over in ((late, ""), (late | {"epoch": 2}, ", or epoch 2 is over, a higher one has begun")):
        assert receipt_sentence(json.dumps(receipt).encode(), wraps=True) == (
            f"dropped: late: sequence 9000 is not above the sequence watermark 12{or_over} (clicks.raw:3:8150)"
        )


@pytest.mark.parametrize(
    ("action", "more", "done"),
    [
        ("pass", {}, "it passed as it came"),
        ("tag", {}, "it passed with the header seqmark.collision"),
        ("rename", {"new_id": "0b-8"}, "it passed with the new id 0b-8"),
        ("quarantine", {}, "it is in quarantine"),
        ("drop", {}, "it was dropped"),
    ],
)
def test_a_collision_says_what_was_done_with_it(action: str, more: dict[str, str], done: str) -> None:
    note = by_id("collision", owner=OWNER, action=action, **more)

    assert note == (
        f"collision: clicks.raw:3:8101 passed with this id and other content; {done} "
        '(clicks.raw:3:8150, id "click-17")'
    )


def test_a_remembered_collision_says_until_when() -> None:
    note = by_id("collision", owner=OWNER, action="pass", expires_at=EXPIRES_MS)

    assert "it passed as it came; this content passes again from 2026-03-01T06:00:00.123Z" in str(note)


def test_a_long_id_is_shortened_and_parts_that_are_no_text_stand_as_in_the_receipt() -> None:
    long = said(verdict="duplicate", mode="insert-id", id=["x" * 4096])
    digest = said(verdict="duplicate", mode="insert-id", id=["a", {"sha256": "ab", "bytes": 9}])

    assert len(str(long)) < 250
    assert 'id "a", {"sha256":"ab","bytes":9})' in str(digest)


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"no JSON", b"[]", b"null", b'"late"', b"{}", b'{"verdict":"late"}', b"\xff",
        json.dumps(PLACE | {"verdict": "duplicate", "mode": "insert-id", "id": 7}).encode(),
        json.dumps(PLACE | {"verdict": "collision", "mode": "insert-id", "id": [], "action": []}).encode(),
        json.dumps(PLACE | {"verdict": "duplicate", "mode": "insert-id", "owner": 7}).encode(),
    ],
)  # fmt: skip
def test_what_is_no_receipt_has_no_sentence(value: bytes | None) -> None:
    assert receipt_sentence(value) is None


def test_a_quarantined_record_says_why_and_where_it_came_from() -> None:
    ours = [
        (b"seqmark.error", b"header_missing"),
        (b"seqmark.detail", b"no header seq"),
        (b"seqmark.source", b"clicks.raw:0:17"),
    ]

    assert quarantine_sentence([(b"own", b"1"), *ours]) == (
        "quarantined: header_missing: no header seq, came from clicks.raw:0:17"
    )
    assert quarantine_sentence([*ours, (b"own", b"1")]) is None
    assert quarantine_sentence([]) is None


def test_times_beyond_the_calendar_and_missing_ones_are_a_dash() -> None:
    assert [time_text(0), time_text(-1), time_text(2**62)] == ["1970-01-01T00:00:00.000Z", "-", "-"]


def test_a_verdict_record_says_its_range_and_what_it_skips() -> None:
    assert {name: verdict_sentence(record.encode()) for name, record in MADE.items()} == {
        "begins": "the ranges begin at offset 17",
        "nothing is dropped": "offsets 17 to 1016: of 1000 records 1000 pass",
        "gaps": "offsets 1017 to 2016: of 1000 records 995 pass, skipped: 1017, 1020, 1148, 1276, 2016",
        "runs": (
            "offsets 2017 to 3016: of 1000 records 699 pass, skipped: 2100, 2101, 2102, 2103, 2104 and 296 more"
        ),
        "bitmap": (
            "offsets 3017 to 3056: of 40 records 20 pass, skipped: 3017, 3019, 3021, 3023, 3025 and 15 more"
        ),
        "quarantine and collisions": (
            "offsets 3057 to 4056: of 1000 records 996 pass, skipped: 3060, 3061, 3900, 4000; in quarantine: "
            "1 value_not_json, 1 id_collision"
        ),
    }
    assert verdict_sentence(b"no verdict record") is None
    assert verdict_sentence(None) is None
