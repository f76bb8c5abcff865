"""Does the demo see in mode insert-id what receipts say of owner, id and expiry, and what may pass again?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from processor.demo.check import CheckOutcome, Receipt, compare, id_grounds
from processor.demo.plan import ID_MEMBER, make_plan
from processor.demo.summary import DemoChecks, count_lines, examples
from processor.demo.tables import receipts_table
from processor.generator import RecordKind, StreamOptions, make_stream
from processor.generator.truth import Truth
from processor.generator.window import NOBODY, Judged
from schemas.config import InsertIdDedup

if TYPE_CHECKING:
    from pathlib import Path

    from processor.kafka.plain.consumer import Seen

NONE = np.zeros(0, np.int64)
# A B a b A: the last comes when its window is over, and passes.
NAMES = "ABabA"
KINDS = np.array(
    [RecordKind.FIRST, RecordKind.FIRST, RecordKind.RESEND, RecordKind.TAIL, RecordKind.LATE], np.uint8
)


def time_of(name: str) -> int:
    return ord(name.upper())


SOURCE: list[Seen] = [
    (b"u", json.dumps({ID_MEMBER: f"id-{name.upper()}"}).encode(), (), time_of(name), 10 + offset)
    for offset, name in enumerate(NAMES)
]
PASSES = np.array([name.isupper() for name in NAMES])
TRUTH = Truth(10 + np.arange(5), PASSES, KINDS, np.zeros(5, np.uint8))
NEVER = np.zeros(5, np.bool_)
JUDGED = Judged(
    PASSES, np.array([NOBODY, NOBODY, 0, 1, NOBODY]), np.array([0, 0, 5_000, 5_001, 0]), NEVER, NEVER
)
SINK = [record for record, passes in zip(SOURCE, PASSES, strict=True) if passes]


def receipt(row: int, passed: int, until_ms: int, **other: Any) -> Seen:
    place = {"topic": "t", "partition": 3}
    told = {
        **place,
        "pipeline": "p",
        "offset": 10 + row,
        "timestamp": time_of(NAMES[row]),
        "verdict": "duplicate",
    }
    told |= {"mode": "insert-id", "id": [f"id-{NAMES[row].upper()}"]}
    told |= {"owner": {**place, "offset": 10 + passed}, "expires_at": until_ms, **other}
    return (b"u", json.dumps(told).encode(), (), time_of(NAMES[row]), 0)


RIGHT = [receipt(2, 0, 5_000), receipt(3, 1, 5_001)]


def check(receipts: list[Seen]) -> CheckOutcome:
    return compare("t:3", SOURCE, TRUTH, SINK, receipts, [], id_grounds("t:3", SOURCE, JUDGED, ID_MEMBER))


def test_what_is_right_has_no_differences_and_gives_examples() -> None:
    outcome = check(RIGHT)
    assert outcome.differences == []
    assert outcome.receipts == 2
    assert [(kind, told["id"]) for kind, told in outcome.examples] == [
        (RecordKind.RESEND, ["id-A"]),
        (RecordKind.TAIL, ["id-B"]),
    ]


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ([0, 1], "t:3:14 (late) is lost"),
        ([0, 1, 3, 4], "t:3:13 (tail) passed, and must not have"),
        ([0, 1, 2, 4], "t:3: the sink has 1 records too many, from its offset 14 on"),
    ],
)
def test_a_record_that_passes_again_is_told_from_a_copy_that_must_not(sink: list[int], said: str) -> None:
    grounds = id_grounds("t:3", SOURCE, JUDGED, ID_MEMBER)
    outcome = compare("t:3", SOURCE, TRUTH, [SOURCE[row] for row in sink], RIGHT, [], grounds)
    assert outcome.differences[0] == said


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"owner": {"topic": "t", "partition": 3, "offset": 11}}, "must say {'owner': {'topic': 't', "),
        ({"owner": {"topic": "t", "partition": 2, "offset": 10}}, "must say {'owner': "),
        ({"expires_at": 4_999}, "must say {'expires_at': 5000}"),
        ({"expires_at": None}, "must say {'expires_at': 5000}"),
        ({"id": ["id-B"]}, "must say {'id': ['id-A']}"),
        ({"id": "id-A"}, "must say {'id': ['id-A']}"),
        ({"mode": "watermark"}, "must say {'mode': 'insert-id'}"),
        ({"verdict": "late"}, "must say {'verdict': 'duplicate'}"),
        ({"verdict": "pass"}, "has a receipt that is not right"),
    ],
)
def test_a_receipt_that_says_something_else_is_one_difference(other: dict[str, Any], said: str) -> None:
    (difference,) = check([receipt(2, 0, 5_000, **other), RIGHT[1]]).differences
    assert difference.startswith("t:3:12 (resend) has a receipt that is not right: {")
    assert said in difference


def test_what_passes_again_has_a_line_of_its_own_and_is_not_among_the_dropped() -> None:
    lines = count_lines([DemoChecks(check(RIGHT), NONE, NONE, KINDS)], [TRUTH])
    counted = {line.what: (line.found, line.truth) for line in lines}
    assert counted["passed"] == (3, 3)
    assert counted["passed again"] == (1, 1)
    assert counted["dropped: late"] == (0, 0)
    assert counted["receipts"] == (2, 2)


def test_without_any_that_passes_again_there_is_no_such_line() -> None:
    truth = Truth(10 + np.arange(5), PASSES & (KINDS == RecordKind.FIRST), KINDS, np.zeros(5, np.uint8))
    lines = count_lines([DemoChecks(CheckOutcome(), NONE, NONE, KINDS)], [truth])
    assert "passed again" not in {line.what for line in lines}


def test_a_few_receipts_of_each_kind_are_shown_with_owner_and_expiry() -> None:
    some = [DemoChecks(check(RIGHT), NONE, NONE, KINDS) for _ in range(3)]
    shown = examples(some)
    assert [receipt.kind for receipt in shown] == [RecordKind.RESEND] * 2 + [RecordKind.TAIL] * 2
    told = {**shown[0].told, "expires_at": 3_600_000 + 1_234}
    console = Console(width=120)
    with console.capture() as page:
        console.print(receipts_table([Receipt(RecordKind.LATE, told)]))
    row = page.get().splitlines()[3]
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "connector's late restart",
        "3:12",
        "00:00:00.065",
        "id-A",
        "3:10",
        "01:00:01.234",
    ]


def test_the_configs_of_both_modes_load_and_with_ids_some_pass_again(tmp_path: Path) -> None:
    assert make_plan(tmp_path, "localhost:1", "watermark", {}).pipeline.dedup.mode == "watermark"
    dedup = make_plan(tmp_path, "localhost:1", "insert-id", {}).pipeline.dedup
    assert isinstance(dedup, InsertIdDedup)
    stream = make_stream(dedup, StreamOptions(20_000, 0.05, 7, 4, 0))
    for part in stream:
        again = part.layout.kind != RecordKind.FIRST
        assert 0 < (part.passes & again).sum() < again.sum() / 4
        assert not any(record.headers for record in part.records(0, 100))


def test_with_fingerprints_no_id_expires_and_what_collides_is_renamed(tmp_path: Path) -> None:
    dedup = make_plan(tmp_path, "localhost:1", "fingerprint", {}).pipeline.dedup
    assert isinstance(dedup, InsertIdDedup)
    assert dedup.on_collision == "rename"
    stream = make_stream(dedup, StreamOptions(20_000, 0.05, 7, 4, 0, collisions=0.01))
    for part in stream:
        assert (part.passes == (part.layout.kind == RecordKind.FIRST)).all()
        assert (part.kind == RecordKind.COLLISION).sum() == 50
