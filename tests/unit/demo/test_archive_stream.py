"""What the demo at rest compares the topic behind its files by: each fault of a worker is found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from processor.demo.batch.archive import (
    COLLISIONS_AT_REST,
    COPIES_AT_REST,
    DAYS,
    ArchiveRow,
    RowKind,
    make_archive,
    make_stream,
)
from processor.demo.batch.stream_check import StreamCheck, TopicRecords, check_stream

if TYPE_CHECKING:
    from processor.kafka.plain.consumer import Seen

TOPIC, BACKFILL = "raw", "archive"
ROWS = make_stream(make_archive(3_000, 7), 7)


def seen(
    row: ArchiveRow, value: bytes | None = None, headers: tuple[tuple[str, bytes | None], ...] = ()
) -> Seen:
    return None, row.line(corrected=True) if value is None else value, headers, row.sent_ms, row.row


def renamed(row: ArchiveRow) -> Seen:
    value = json.dumps(row.content(corrected=True) | {"event_id": f"new-{row.row}"}).encode()
    return seen(row, value, (("seqmark.original_id", row.id.encode()),))


def receipt(row: ArchiveRow) -> dict[str, Any]:
    assert row.owner is not None
    within = row.owner.day == len(DAYS)
    owner = {"topic": TOPIC, "partition": 0, "offset": row.owner.row} if within else {"backfill": BACKFILL}
    said = {"offset": row.row, "verdict": "duplicate", "id": [row.id], "owner": owner}
    collided = {"verdict": "collision", "action": "rename", "new_id": f"new-{row.row}"}
    return said | (collided if row.kind in COLLISIONS_AT_REST else {})


class Outputs:
    """What a worker makes of the rows; a test spoils it."""

    def __init__(self) -> None:
        passes = {RowKind.FIRST, *COLLISIONS_AT_REST}
        self.sink = [
            seen(row) if row.kind is RowKind.FIRST else renamed(row) for row in ROWS if row.kind in passes
        ]
        told = {*COPIES_AT_REST, *COLLISIONS_AT_REST}
        self.receipts = [receipt(row) for row in ROWS if row.kind in told]
        self.quarantine = [
            seen(row, headers=(("seqmark.error", b"value_not_json"),))
            for row in ROWS
            if row.kind is RowKind.BAD
        ]

    def checked(self) -> StreamCheck:
        told = [(None, json.dumps(each).encode(), (), 0, at) for at, each in enumerate(self.receipts)]
        topics = TopicRecords([seen(row) for row in ROWS], self.sink, told, self.quarantine)
        return check_stream(TOPIC, ROWS, topics, BACKFILL)


def test_what_a_worker_makes_of_it_agrees_and_is_counted_by_kind() -> None:
    checked = Outputs().checked()
    assert checked.differences == []
    assert checked.became.total() == len(ROWS)
    assert all(checked.became[kind] for kind in RowKind)


def test_a_copy_is_sent_behind_its_first_and_equal_seeds_make_equal_streams() -> None:
    assert all(each.owner.row < each.row for each in ROWS if each.owner and each.owner.day == len(DAYS))
    again = make_stream(make_archive(3_000, 7), 7)
    assert [each.line(corrected=True) for each in again] == [each.line(corrected=True) for each in ROWS]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda outputs: outputs.sink.pop(5),
        lambda outputs: outputs.sink.append(outputs.sink[0]),
        lambda outputs: outputs.receipts.pop(),
        lambda outputs: outputs.receipts.append(outputs.receipts[0] | {"offset": 0}),
        lambda outputs: outputs.receipts[0].update(owner={"topic": TOPIC, "partition": 0, "offset": 0}),
        lambda outputs: outputs.quarantine.pop(),
        lambda outputs: next(r for r in outputs.receipts if "new_id" in r).update(new_id="another"),
    ],
    ids=["lost", "twice", "no receipt", "dropped one more", "another owner", "no quarantine", "another new id"],
)
def test_each_fault_is_a_difference(spoil: Any) -> None:
    outputs = Outputs()
    spoil(outputs)
    assert outputs.checked().differences
