"""A receipt of mode insert-id says what the contract says, with an owner, without one and with a backfill."""

from __future__ import annotations

import json

import numpy as np

from processor.engine.extract.ids import IdExtractor
from processor.engine.extract.parts import KeyPart
from processor.engine.ids.new_ids import UUID_BYTES
from processor.engine.ids.page import BACKFILLED
from processor.engine.receipts import CollisionNotes, IdGrounds
from processor.engine.verdict import Verdict
from processor.wire.receipts import ReceiptEncoder
from tests.support.wire import batches
from tests.support.wire.batches import Record, by_hand, chunk


def test_where_nobody_knows_the_owner_neither_it_nor_the_expiry_is_said() -> None:
    keys = [b"plain", "gr\u00fcn".encode(), b"", b"\xff", b"p" * 300]
    came = [Record(70 + n, 5 * n, key, b"value", ()) for n, key in enumerate(2 * keys)]
    (piece,) = batches.DECODER.pieces(chunk(by_hand(came), position=70))
    rows = np.arange(len(came))
    # Owners and none, of every kind of id.
    owner = np.where(rows < len(keys), 10**rows, -1)
    expires = np.where(rows < len(keys), 1_000 * rows, 0)
    ids = IdExtractor([KeyPart()], bytes(16)).extract(piece.columns)
    grounds = IdGrounds(np.ones(rows.size, np.uint8), ids, owner, expires)

    made = ReceiptEncoder("p", "t").encode(3, piece.columns, rows, grounds, 1_000_000)

    parsed = batches.parsed(batch.build(-1, -1, -1, transactional=False) for batch in made)
    assert all(batch.crc_is_valid for batch in parsed)
    found = [record for batch in parsed for record in batch.records]
    shown = ["plain", "gr\u00fcn", "", {"base64": "/w=="}, "p" * 300]
    expected = []
    for record, name in zip(came, 2 * shown, strict=True):
        said = {
            "pipeline": "p",
            "topic": "t",
            "partition": 3,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "verdict": "duplicate",
            "mode": "insert-id",
            "id": [name],
        }
        row = record.offset - 70
        if row < len(keys):
            said["owner"] = {"topic": "t", "partition": 3, "offset": 10**row}
            said["expires_at"] = 1_000 * row
        expected.append(said)
    assert [json.loads(record.value or b"") for record in found] == expected
    assert [(record.key, record.timestamp) for record in found] == [(each.key, each.timestamp) for each in came]


def test_the_owner_of_what_a_backfill_brought_is_its_name() -> None:
    came = [Record(n, 5, b"id", b"value", ()) for n in range(5)]
    (piece,) = batches.DECODER.pieces(chunk(by_hand(came)))
    rows = np.arange(5)
    verdict = np.array([Verdict.DUPLICATE] * 2 + [Verdict.COLLISION] * 3, np.uint8)
    owner = np.array([BACKFILLED, 7, BACKFILLED, BACKFILLED, 7])
    expires = np.array([9, 9, 0, 9, 9])
    ids = (
        IdExtractor([KeyPart()], bytes(16))
        .extract(piece.columns)
        ._replace(fingerprint=np.arange(5, dtype=np.uint64))
    )
    notes = CollisionNotes("pass", np.arange(5, dtype=np.uint64), rows[:0], np.zeros((0, UUID_BYTES), np.uint8))
    grounds = IdGrounds(verdict, ids, owner, expires, notes, "b-1")

    made = ReceiptEncoder("p", "t").encode(3, piece.columns, rows, grounds, 1_000_000)

    parsed = batches.parsed(batch.build(-1, -1, -1, transactional=False) for batch in made)
    found = [json.loads(record.value or b"") for batch in parsed for record in batch.records]
    source = {"topic": "t", "partition": 3, "offset": 7}
    assert [each["owner"] for each in found] == [source if own == 7 else {"backfill": "b-1"} for own in owner]
    assert [each.get("expires_at", 0) for each in found] == expires.tolist()
    assert [each.get("action") for each in found] == [None, None, "pass", "pass", "pass"]
