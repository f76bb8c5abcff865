"""What is no receipt is not taken for one, and whoever counts receipts agrees with whoever reads each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from processor.wire.decode import Decoder
from processor.wire.quarantine import QuarantineNote
from processor.wire.receipt_values import (
    ReceiptValue,
    RecordRef,
    own_receipts,
    receipt_fields,
    receipt_kinds,
    strict_fields,
)
from tests.support.wire import batches

if TYPE_CHECKING:
    from processor.engine.batch.columns import Columns

PLACE = {"pipeline": "p", "topic": "t", "partition": 3, "offset": 17}
SAID = {**PLACE, "timestamp": 1, "verdict": "duplicate", "mode": "insert-id"}
FORGED: list[Any] = [
    None,
    [],
    {**SAID, "verdict": "pass"},
    {**SAID, "verdict": ["late"]},
    {**SAID, "offset": -1},
    {**SAID, "offset": 1.0},
    {**SAID, "partition": True},
    {**SAID, "topic": None},
    {name: said for name, said in SAID.items() if name != "pipeline"},
]


def held(*said: Any) -> Columns:
    """Return a duplicates topic with some values, written as a worker writes them."""
    values = [json.dumps(each, separators=(",", ":")).encode() for each in said]
    some = [batches.Record(at, 1, None, value, ()) for at, value in enumerate(values)]
    (piece,) = Decoder().pieces(batches.chunk(batches.by_hand(some, batches.NONE)))
    return piece.columns


def test_a_receipt_says_which_record_was_dropped_and_for_which() -> None:
    owner = {"topic": "t", "partition": 3, "offset": 5}
    read = ReceiptValue.read(json.dumps({**SAID, "owner": owner, "expires_at": 9}).encode())
    assert read is not None
    assert (read.source, read.owner, read.expires_ms) == (RecordRef("t", 3, 17), RecordRef("t", 3, 5), 9)
    assert not read.passed


@pytest.mark.parametrize("said", FORGED)
def test_what_names_no_record_as_a_worker_does_is_no_receipt(said: Any) -> None:
    assert ReceiptValue.read(json.dumps(said).encode()) is None


def test_who_proves_forgives_less_than_who_shows() -> None:
    twice = b'{"offset":1,"offset":2}'
    assert receipt_fields(twice) == {"offset": 2}
    with pytest.raises(ValueError, match="stands twice"):
        strict_fields(twice)


def test_no_headers_of_a_quarantined_record_but_a_workers_name_its_source() -> None:
    def read(where: bytes) -> QuarantineNote | None:
        return QuarantineNote.read(
            [(b"seqmark.error", b"too_large"), (b"seqmark.detail", b"x"), (b"seqmark.source", where)]
        )

    assert read(b"a:b:3:17") == QuarantineNote(RecordRef("a:b", 3, 17), "too_large", "x", observed=False)
    assert [read(each) for each in (b"t:3", b"t:3:-1", b"t:3:9223372036854775808", b"")] == [None] * 4


def test_receipts_of_a_source_partition_are_found_among_those_of_others() -> None:
    moved = {"offset": 18, **{name: said for name, said in SAID.items() if name != "offset"}}
    others = [{**SAID, name: said} for name, said in (("pipeline", "q"), ("topic", "u"), ("partition", 4))]
    rows, named = own_receipts("p", "t", 3)(held(*others, SAID, moved, *FORGED[4:]))
    assert (rows.tolist(), named.tolist()) == ([3, 4], [17, 18])


def test_who_counts_receipts_finds_in_them_what_who_reads_each_does() -> None:
    collided = {**SAID, "verdict": "collision", "id": ['"action":"drop"'], "action": "quarantine"}
    said = [
        SAID,
        {**SAID, "verdict": "late"},
        collided,
        {**PLACE, "observed": True, **collided, "action": "drop"},
    ]
    kinds, read = receipt_kinds(held(*said)), [ReceiptValue.read(json.dumps(each).encode()) for each in said]
    assert kinds.observed.tolist() == [each is not None and each.observed for each in read]
    assert kinds.late.tolist() == [each is not None and each.verdict == "late" for each in read]
    assert kinds.collided.tolist() == [each is not None and each.verdict == "collision" for each in read]
    assert kinds.dropped.tolist() == [each is not None and each.action == "drop" for each in read]
    assert kinds.quarantined.tolist() == [each is not None and each.action == "quarantine" for each in read]
