"""Records are dealt out as a naive model deals them, and come out of the second hop exactly as they went in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine import repartition
from processor.engine.extract.ids import IdExtractor, Ids
from processor.engine.extract.parts import HeaderPart
from processor.engine.extract.routing import ROUTE_KEY
from processor.engine.receipts import IdGrounds
from processor.wire.codec import Codec
from processor.wire.encode import TooLargeError
from processor.wire.receipts import ANYWHERE, ReceiptEncoder
from processor.wire.repartition import Refs, RouteEncoder, take_off
from tests.support.suite.examples import examples
from tests.support.wire import batches
from tests.support.wire.batches import Record, by_hand, chunk, rows

if TYPE_CHECKING:
    from processor.wire.encode import EncodedBatch

ROOMY = 10_000_000
OWN = HeaderPart(b"id")

headers = st.lists(
    st.tuples(
        st.sampled_from([b"id", b"", b"trace", repartition.HEADER_NAME]), st.none() | st.binary(max_size=9)
    ),
    max_size=4,
)
# A header count of 63 takes one byte more with one header more; so does one of 8,191.
many = st.sampled_from([0, 0, 0, 0, 60, 61, 62, 63, 64, 65])
parts = st.tuples(
    st.integers(-1, 2**41),
    st.none() | st.binary(max_size=70),
    st.none() | st.binary(max_size=200),
    headers,
    many,
)


def records_of(some: list[tuple[int, bytes | None, bytes | None, list[batches.Header], int]]) -> list[Record]:
    return [
        Record(offset, timestamp, key, value, (*((b"h", b""),) * more, *named))
        for offset, (timestamp, key, value, named, more) in enumerate(some, 100)
    ]


def naive_target(ids: Ids, row: int, partitions: int, own: int) -> int | None:
    if ids.fault[row]:
        return None
    if ids.unjudged[row]:
        return own % partitions
    return int(ids.hash[row, 0]) % partitions


def arrived(out: list[EncodedBatch], offset: int = 0) -> list[tuple[Record, int, int]]:
    """Return the records of batches as the second hop reads them, with their source refs and route words."""
    found = []
    for batch in out:
        data = bytearray(batch.build(-1, -1, -1, transactional=False))
        data[:8] = offset.to_bytes(8, "big")
        (piece,) = batches.DECODER.pieces(chunk(bytes(data), position=offset))
        refs = take_off(piece)
        assert not piece.whole.any(), "its bytes must not go on as they came"
        found += list(zip(rows(piece.columns), refs.source.tolist(), refs.word.tolist(), strict=True))
        offset += batch.count
    return found


@examples(200)
@given(
    st.lists(st.lists(parts, min_size=1, max_size=12), min_size=1, max_size=4),
    st.integers(1, 7),
    st.integers(0, repartition.MOST_PARTITIONS - 1),
    st.booleans(),
    st.lists(st.sampled_from([Codec.NONE, Codec.LZ4, Codec.ZSTD]), min_size=4, max_size=4),
)
def test_every_record_arrives_once_in_its_ids_partition_in_order_and_as_it_came(
    some: list[list[tuple[int, bytes | None, bytes | None, list[batches.Header], int]]],
    partitions: int,
    own: int,
    pass_missing: bool,  # noqa: FBT001 - drawn by hypothesis
    codecs: list[Codec],
) -> None:
    came = records_of([each for batch in some for each in batch])
    data, at = [], 0
    for batch, codec in zip(some, codecs, strict=False):
        data.append(by_hand(came[at : at + len(batch)], codec))
        at += len(batch)
    (piece,) = batches.DECODER.pieces(chunk(*data, position=100))
    ids = IdExtractor([OWN], ROUTE_KEY, pass_missing=pass_missing).extract(piece.columns)
    target, word = repartition.targets(ids, ids.fault, own, partitions)
    refs = Refs(repartition.source_ref_of(own, piece.columns.offset), word)

    out = RouteEncoder().encode(piece, target, refs, partitions, ROOMY)

    expected: dict[int, list[Record]] = {}
    words: dict[int, list[int]] = {}
    for row, record in enumerate(came):
        number = naive_target(ids, row, partitions, own)
        if number is not None:
            expected.setdefault(number, []).append(record)
            words.setdefault(number, []).append(int(ids.hash[row, 0]) // partitions % 2**16)
    assert out.keys() == expected.keys()
    for number, wanted in expected.items():
        found = arrived(out[number])
        assert [repartition.partition_and_offset(each) for _, each, _ in found] == [
            (own, r.offset) for r in wanted
        ]
        assert [each for *_, each in found] == words[number]
        assert [record._replace(offset=0) for record, *_ in found] == [r._replace(offset=0) for r in wanted]
        assert {batch.codec for batch in out[number]} <= {int(codec) for codec in codecs}


YESTERDAY = [92, 54, 10, 29, 12, 52, 65, 19, 57, 53, 26, 71]
"""By `openssl mac SIPHASH`, over the layout that `processor.engine.extract.ids` draws."""


def test_an_id_goes_where_it_went_yesterday() -> None:
    # Where these go is part of the stored state: another key, another hash or another layout of parts would
    # have equal ids of before and after an update miss each other.
    came = [Record(n, 1_000, None, None, ((b"id", b"id-%d" % n),)) for n in range(12)]
    (piece,) = batches.DECODER.pieces(chunk(by_hand(came)))
    ids = IdExtractor([OWN], ROUTE_KEY).extract(piece.columns)
    target, word = repartition.targets(ids, ids.fault, 0, 100)
    assert target.tolist() == YESTERDAY
    # Of eight times as many partitions each id is in one of those that its own are divided into.
    more, _ = repartition.targets(ids, ids.fault, 0, 800)
    assert more.tolist() == (target + 100 * (word.astype(np.int64) % 8)).tolist()


def test_what_exceeds_the_limit_is_split_and_one_record_alone_is_named() -> None:
    came = [Record(n, 1_000, None, bytes([n]) * 1_000, ((b"id", b"same"),)) for n in range(40)]
    came.append(Record(40, 1_000, None, bytes(5_000), ((b"id", b"same"),)))
    (piece,) = batches.DECODER.pieces(chunk(by_hand(came)))
    target = np.zeros(len(came), np.int64)
    refs = Refs(repartition.source_ref_of(3, piece.columns.offset), np.zeros(len(came), np.uint16))
    with pytest.raises(TooLargeError) as caught:
        RouteEncoder().encode(piece, target, refs, 1, 4_000)
    assert caught.value.row == 40

    target[40] = repartition.NOWHERE
    (out,) = RouteEncoder().encode(piece, target, refs, 1, 4_000).values()

    assert len(out) > 1
    assert max(batch.size for batch in out) <= 4_000
    assert [record.value for record, *_ in arrived(out)] == [record.value for record in came[:40]]


@pytest.mark.parametrize("count", [0, 1, 62, 63, 64, 65, 8_190, 8_191, 8_192])
def test_a_count_of_headers_that_took_a_byte_more_takes_it_no_more(count: int) -> None:
    named = ((b"h", None),) * (count - 1) + ((b"id", b"a"),) * (count > 0)
    came = Record(0, 1_000, None if count % 2 else b"key", b"value", named)
    (piece,) = batches.DECODER.pieces(chunk(by_hand([came])))
    before = piece.columns.data[piece.columns.body[0] : piece.columns.end[0]].tobytes()
    refs = Refs(np.array([7]), np.array([65_535], np.uint16))
    (out,) = RouteEncoder().encode(piece, np.zeros(1, np.int64), refs, 1, ROOMY).values()
    (again,) = batches.DECODER.pieces(chunk(out[0].build(-1, -1, -1, transactional=False)))

    found = take_off(again)

    assert (found.source.tolist(), found.word.tolist()) == ([7], [65_535])
    assert again.columns.data[again.columns.body[0] : again.columns.end[0]].tobytes() == before
    assert rows(again.columns) == [came]


@pytest.mark.parametrize(
    "last",
    [
        (),
        ((b"seqmark.from", b"1234567"),),
        ((b"seqmark.from", b"123456789"),),
        ((b"seqmark.from", b"12345678901"),),
        ((b"seqmark.form", b"12345678"),),
        ((b"seqmark.from", b"12345678"), (b"other", None)),
    ],
)
def test_a_record_that_was_not_routed_is_not_read_as_one(last: tuple[batches.Header, ...]) -> None:
    good = Record(0, 1_000, None, None, ((b"seqmark.from", b"12345678\x01\x02"),))
    foreign = Record(1, 1_000, b"k" * 40, b"v" * 40, last)
    (piece,) = batches.DECODER.pieces(chunk(by_hand([good, foreign])))

    refs = take_off(piece)

    assert (refs.source.tolist(), refs.word.tolist()) == ([int.from_bytes(b"12345678", "big")], [0x0102])
    assert rows(piece.columns)[1] == foreign


@pytest.mark.parametrize(("partition", "offset"), [(65_536, 0), (-1, 0), (0, 2**47), (0, -1)])
def test_a_place_that_has_no_room_is_refused(partition: int, offset: int) -> None:
    with pytest.raises(ValueError, match=r"partition|offset"):
        repartition.source_ref_of(partition, np.array([offset], np.int64))


@given(st.lists(st.tuples(*[st.integers(0, 65_535), st.integers(0, 2**47 - 1)] * 2), min_size=1, max_size=20))
def test_a_receipt_names_partition_and_offset_of_the_record_and_of_its_owner(
    some: list[tuple[int, int, int, int]],
) -> None:
    came = [Record(n, 1_000 + n, b"key", None, ((b"id", b"a"),)) for n in range(len(some))]
    (piece,) = batches.DECODER.pieces(chunk(by_hand(came)))
    columns = piece.columns
    ids = IdExtractor([OWN], bytes(16)).extract(columns)
    columns.offset[:] = np.array([int(repartition.source_ref_of(p, np.array([o]))[0]) for p, o, _, _ in some])
    owner = np.array([int(repartition.source_ref_of(p, np.array([o]))[0]) for _, _, p, o in some])
    grounds = IdGrounds(np.ones(len(some), np.uint8), ids, owner, columns.timestamp)
    every = np.arange(len(some))

    out = ReceiptEncoder("p", "t").encode(ANYWHERE, columns, every, grounds, ROOMY)

    parsed = batches.parsed(batch.build(-1, -1, -1, transactional=False) for batch in out)
    told = [json.loads(record.value or b"") for batch in parsed for record in batch.records]
    assert told == [
        {
            "pipeline": "p",
            "topic": "t",
            "partition": partition,
            "offset": offset,
            "timestamp": record.timestamp,
            "verdict": "duplicate",
            "mode": "insert-id",
            "id": ["a"],
            "owner": {"topic": "t", "partition": number, "offset": at},
            "expires_at": record.timestamp,
        }
        for record, (partition, offset, number, at) in zip(came, some, strict=True)
    ]
