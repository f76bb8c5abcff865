"""A quarantined record is the record as it came, and three headers that say why and from where."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.engine.quarantine import QuarantineText
from processor.engine.verdict import Fault
from processor.wire.codec import Codec, deflate, squeeze
from processor.wire.encode import TooLargeError
from processor.wire.quarantine import oversized, quarantine_batches, read_record
from tests.support.wire import batches
from tests.support.wire.batches import CODECS, Record, by_hand, chunk, run

if TYPE_CHECKING:
    from processor.wire.encode import EncodedBatch

ROOMY = 10_000_000
MISSING = (Fault.HEADER_MISSING, "no such header")

optional = st.one_of(st.none(), st.binary(max_size=20))
records = st.lists(
    st.tuples(
        st.integers(-1, 2**41),
        optional,
        optional,
        st.lists(st.tuples(st.binary(max_size=5), optional), max_size=3),
    ),
    min_size=1,
    max_size=5,
)


def quarantined(
    some: list[Record], rows: list[int], faults: list[tuple[Fault, str]], codec: int = 0, limit: int = ROOMY
) -> list[EncodedBatch]:
    (piece,) = batches.DECODER.pieces(chunk(by_hand(some, codec), position=some[0].offset))
    fault = np.zeros(len(some), np.uint8)
    fault[rows] = [each for each, _ in faults]
    text = QuarantineText.of(dict(faults), b"clicks.raw:3:")
    return quarantine_batches(piece, np.array(rows), fault, text, limit)


def read(out: list[EncodedBatch]) -> list[Record]:
    return [
        record
        for batch in out
        for record in batches.decoded(chunk(batch.build(-1, -1, -1, transactional=False)))[0]
    ]


@settings(deadline=None)
@given(records, st.sampled_from(CODECS))
def test_key_value_timestamp_and_headers_stay_and_three_headers_come_after(
    some: list[tuple[int, bytes | None, bytes | None, list[batches.Header]]], codec: int
) -> None:
    came = [
        Record(50 + n, time, key, value, tuple(headers)) for n, (time, key, value, headers) in enumerate(some)
    ]
    rows = list(range(0, len(came), 2))
    found = read(quarantined(came, rows, [MISSING] * len(rows), codec))
    assert [record[1:4] for record in found] == [came[row][1:4] for row in rows]
    for record, row in zip(found, rows, strict=True):
        assert record.headers[:-3] == came[row].headers
        assert record.headers[-3:] == (
            (b"seqmark.error", b"header_missing"),
            (b"seqmark.detail", b"no such header"),
            (b"seqmark.source", b"clicks.raw:3:%d" % came[row].offset),
        )


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault.TOO_LARGE, b"too_large"),
        (Fault.HEADER_MISSING, b"header_missing"),
        (Fault.HEADER_MALFORMED, b"header_malformed"),
        (Fault.KEY_MISSING, b"key_missing"),
        (Fault.VALUE_MISSING, b"value_missing"),
        (Fault.VALUE_NOT_JSON, b"value_not_json"),
        (Fault.FIELD_MISSING, b"field_missing"),
        (Fault.FIELD_TYPE, b"field_type"),
        (Fault.OUT_OF_RANGE, b"out_of_range"),
        (Fault.SCOPE_TOO_LARGE, b"scope_too_large"),
    ],
)
def test_the_codes_are_those_of_the_contract(fault: Fault, code: bytes) -> None:
    (record,) = read(quarantined(run(0, 1), [0], [(fault, "")]))
    assert record.headers[0] == (b"seqmark.error", code)


def test_the_details_of_several_records_stay_with_theirs() -> None:
    faults = [(Fault.HEADER_MISSING, "a"), (Fault.OUT_OF_RANGE, "b")]
    found = read(quarantined(run(0, 5), [1, 4], faults))
    assert [(r.value, r.headers[1][1], r.headers[2][1]) for r in found] == [
        (b"value 1", b"a", b"clicks.raw:3:1"),
        (b"value 4", b"b", b"clicks.raw:3:4"),
    ]


def test_batches_are_split_until_each_keeps_the_topics_limit() -> None:
    out = quarantined(run(0, 50), list(range(50)), [MISSING] * 50, limit=600)
    assert len(out) > 5
    assert all(batch.size <= 600 for batch in out)
    assert [record.value for record in read(out)] == [record.value for record in run(0, 50)]


def test_more_than_a_batch_of_bytes_goes_into_several_batches_in_order() -> None:
    some = [Record(n, 1, None, bytes([n]) * 40_000) for n in range(20)]
    out = quarantined(some, list(range(20)), [MISSING] * 20, limit=300_000)
    assert [(batch.first_offset, batch.last_offset) for batch in out] == [(0, 5), (6, 11), (12, 17), (18, 19)]
    assert [record.value for record in read(out)] == [record.value for record in some]


def test_the_first_record_that_is_too_large_for_quarantine_is_named_by_its_row() -> None:
    some = [*run(0, 2), Record(2, 1, None, bytes(900)), *run(3, 5), Record(5, 1, None, bytes(900))]
    with pytest.raises(TooLargeError) as caught:
        quarantined(some, [1, 2, 3, 5], [MISSING] * 4, limit=700)
    assert caught.value.row == 2


def test_a_record_that_only_fits_compressed_is_compressed() -> None:
    some = [Record(0, 1, None, bytes(5_000))]
    assert len(quarantined(some, [0], [MISSING], codec=batches.ZSTD, limit=700)) == 1
    with pytest.raises(TooLargeError):
        quarantined(some, [0], [MISSING], limit=700)


def test_what_its_producer_has_compressed_harder_than_we_do_is_compressed_as_hard() -> None:
    chance = np.random.default_rng(5)
    words = [bytes(chance.integers(97, 123, size).tolist()) for size in chance.integers(2, 12, 5_000)]
    value = b" ".join(words[n] for n in (chance.zipf(1.2, 60_000) % 5_000).tolist())
    some = [Record(0, 1, None, value)]
    usual, hardest = (
        len(pack(np.frombuffer(value, np.uint8))) for pack in (partial(deflate, Codec.ZSTD), squeeze)
    )
    limit = hardest + 500
    assert usual > limit * 1.06, "more than a quarantine takes beyond its source"
    for codec in CODECS[1:]:
        assert read(quarantined(some, [0], [MISSING], codec, limit))[0].value == value


def test_a_record_that_only_fits_compressed_does_so_beside_one_that_came_as_it_is() -> None:
    data = by_hand([Record(0, 1, None, b"plain")]) + by_hand([Record(1, 1, None, bytes(5_000))], batches.ZSTD)
    (piece,) = batches.DECODER.pieces(chunk(data))
    fault = np.full(2, Fault.KEY_MISSING, np.uint8)
    out = quarantine_batches(piece, np.arange(2), fault, QuarantineText.of({}, b"t:0:"), 700)
    assert [(batch.codec, batch.count) for batch in out] == [(batches.NONE, 1), (batches.ZSTD, 1)]
    assert [record.value for record in read(out)] == [b"plain", bytes(5_000)]


def test_a_record_is_read_with_its_headers_in_order_and_their_nulls() -> None:
    headers: tuple[batches.Header, ...] = ((b"a", b"1"), (b"a", None), (b"\xff", b""))
    (piece,) = batches.DECODER.pieces(chunk(by_hand([Record(0, 7, None, b"", headers)])))
    assert read_record(piece.columns, 0) == (None, b"", 7, list(headers))


def test_rows_that_could_alone_be_too_large_are_found() -> None:
    some = [Record(0, 1, None, bytes(100)), Record(1, 1, None, bytes(99)), Record(2, 1, bytes(101), None)]
    (piece,) = batches.DECODER.pieces(chunk(by_hand(some)))
    bodies = (piece.columns.end - piece.columns.body).tolist()
    assert np.array_equal(oversized(piece.columns, bodies[0] - 1), [0, 2])
    assert np.array_equal(oversized(piece.columns, bodies[0]), np.flatnonzero(np.array(bodies) > bodies[0]))
