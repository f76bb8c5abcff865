"""A receipt says the contract's fields as JSON, under the key and the time of the record that was dropped."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.engine.extract.id_lists import id_lists
from processor.engine.extract.ids import IdExtractor
from processor.engine.extract.parts import HeaderPart, KeyPart, ValuePart
from processor.engine.receipts import Grounds, IdGrounds
from processor.wire.codec import Codec
from processor.wire.encode import TooLargeError
from processor.wire.receipts import ReceiptEncoder
from tests.support.wire import batches
from tests.support.wire.batches import Record, by_hand, chunk

if TYPE_CHECKING:
    from processor.wire.encode import EncodedBatch

ROOMY = 10_000_000
WORDS = {1: "duplicate", 2: "late"}

int64 = st.integers(-(2**63), 2**63 - 1)
edges = st.sampled_from([0, -1, 9, 10, -10, 99, 10**18, 10**18 - 1, 2**63 - 1, -(2**63)])
number = st.one_of(int64, edges, st.integers(-100, 100))
# As a 64-bit time, apart by less than a delta can say.
dropped = st.tuples(
    st.integers(-1, 2**41),
    st.one_of(st.none(), st.binary(max_size=200)),
    st.integers(0, 3),
    number,
    number,
    number,
)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


def receipts(
    came: list[Record], grounds: Grounds, *, limit: int = ROOMY, place: tuple[str, str, int] = ("p", "t", 3)
) -> list[EncodedBatch]:
    """Encode a receipt for each of ``came`` that was dropped."""
    (piece,) = batches.DECODER.pieces(chunk(by_hand(came), position=came[0].offset))
    rows = np.flatnonzero((grounds.verdict == 1) | (grounds.verdict == 2))
    if not rows.size:
        return []
    pipeline, topic, partition = place
    return ReceiptEncoder(pipeline, topic).encode(partition, piece.columns, rows, grounds, limit)


def read(out: list[EncodedBatch]) -> list[Record]:
    """Read batches with aiokafka's parser."""
    parsed = batches.parsed(batch.build(-1, -1, -1, transactional=False) for batch in out)
    assert all(batch.crc_is_valid for batch in parsed)
    return [record for batch in parsed for record in batch.records]


def judged(some: list[tuple[Any, ...]], *, epoch: bool) -> Grounds:
    verdict, sequence, watermark, epochs = (np.array(column) for column in list(zip(*some, strict=True))[2:])
    return Grounds(verdict.astype(np.uint8), sequence, watermark, epochs if epoch else None)


@settings(deadline=None)
@pytest.mark.parametrize("epoch", [False, True])
@given(st.lists(dropped, min_size=1, max_size=30), names, names, st.integers(0, 100_000))
def test_a_receipt_has_the_fields_of_the_contract_and_the_key_and_time_of_its_record(
    epoch: bool,  # noqa: FBT001 - a parameter of the test
    some: list[tuple[Any, ...]],
    pipeline: str,
    topic: str,
    partition: int,
) -> None:
    came = [Record(70 + 2 * n, time, key, b"value", ()) for n, (time, key, *_) in enumerate(some)]
    grounds = judged(some, epoch=epoch)
    found = read(receipts(came, grounds, place=(pipeline, topic, partition)))
    expected = []
    for record, (_, _, verdict, sequence, watermark, own_epoch) in zip(came, some, strict=True):
        fields = {
            "pipeline": pipeline,
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "verdict": WORDS.get(verdict),
            "mode": "watermark",
            "sequence": sequence,
            "watermark": watermark,
        }
        if epoch:
            fields["epoch"] = own_epoch
        if verdict in WORDS:
            expected.append((record.timestamp, record.key, fields, ()))
    assert [
        (each.timestamp, each.key, json.loads(each.value or b""), each.headers) for each in found
    ] == expected
    for each, (_, _, fields, _) in zip(found, expected, strict=True):
        text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
        assert json.loads(each.value or b"", object_pairs_hook=list) == list(fields.items()), "in this order"
        assert len(each.value or b"") <= len(text.encode()) + 5 * len(pipeline + topic), "no spaces"


def many(count: int, key: bytes) -> tuple[list[Record], Grounds]:
    came = [Record(offset, 1_000 + offset, key, b"v") for offset in range(count)]
    numbers = np.arange(count)
    return came, Grounds(np.ones(count, np.uint8), numbers, numbers)


def test_receipts_are_cut_into_batches_that_the_topic_takes() -> None:
    came, grounds = many(3_000, b"key")
    out = receipts(came, grounds, limit=2_000)
    assert len(out) > 3
    assert all(batch.size <= 2_000 and batch.codec == Codec.LZ4 for batch in out)
    assert [json.loads(each.value or b"")["offset"] for each in read(out)] == list(range(3_000))
    assert (out[0].first_offset, out[-1].last_offset) == (0, 2_999)


def test_receipts_of_long_keys_make_no_batch_that_inflates_to_much_more_than_1_mib() -> None:
    came, grounds = many(40, b"k" * 50_000)
    out = receipts(came, grounds)
    assert [batch.count for batch in out] == [20] * 2
    assert len(read(out)) == 40


RANDOM = np.random.default_rng(1).integers(0, 256, 5_000, np.uint8).tobytes()


def test_a_receipt_that_the_topic_does_not_take_is_written_without_its_records_key_and_says_so() -> None:
    came, grounds = many(3, b"short")
    came[1] = came[1]._replace(key=RANDOM)
    out = receipts(came, grounds, limit=4_000)
    assert all(batch.size <= 4_000 for batch in out)
    found = read(out)
    assert [each.key for each in found] == [b"short", None, b"short"]
    assert [each.headers for each in found] == [(), ((b"seqmark.key", b"left out"),), ()]
    whole = read(receipts(came, grounds, limit=6_000))
    assert [each.key for each in whole] == [each.key for each in came]
    assert [(each.timestamp, each.value) for each in found] == [(each.timestamp, each.value) for each in whole]


def test_a_receipt_that_the_topic_never_takes_is_named_by_its_row() -> None:
    came, grounds = many(3, b"short")
    with pytest.raises(TooLargeError) as caught:
        receipts(came, grounds, limit=150)
    assert caught.value.row == 0
    assert caught.value.size_bytes > 150


part = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(str.encode),
    st.integers(4_000, 4_200).flatmap(
        lambda size: st.sampled_from([b"a", b"\x00", b"\xff"]).map(lambda b: b * size)
    ),
)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(part, st.one_of(st.text(max_size=10), st.sampled_from(["\x01" * 4_096, "\x01" * 4_097]))),
        min_size=1,
        max_size=8,
    )
)
def test_ids_are_written_as_json_does_and_a_part_above_4_kib_as_its_digest(
    some: list[tuple[bytes, str]],
) -> None:
    came = [Record(n, 1, key, json.dumps({"a": text}).encode()) for n, (key, text) in enumerate(some)]
    (piece,) = batches.DECODER.pieces(chunk(by_hand(came)))
    ids = IdExtractor([KeyPart(), ValuePart("/a")], bytes(16)).extract(piece.columns)
    rows = np.arange(len(came))
    lists = id_lists(ids, rows)
    found = [lists.data[at : at + size].tobytes() for at, size in zip(lists.at, lists.size, strict=True)]
    expected = [[_shown(key), _shown(text.encode())] for key, text in some]
    assert found == [json.dumps(each, ensure_ascii=False, separators=(",", ":")).encode() for each in expected]


def _shown(content: bytes) -> str | dict[str, str | int]:
    if len(content) > 4_096:
        return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def test_a_receipt_with_more_id_than_the_topic_takes_has_digests_of_what_is_longer_than_one() -> None:
    names = [b"%d" % n for n in range(20)]
    noise = np.random.default_rng(2).integers(0, 256, (20, 4_000), np.uint8)
    headers = tuple((name, noise[n].tobytes()) for n, name in enumerate(names))
    came = [Record(0, 1, b"key", b"v", (*headers, (b"short", b"s")))]
    (piece,) = batches.DECODER.pieces(chunk(by_hand(came)))
    ids = IdExtractor([HeaderPart(name) for name in (*names, b"short")], bytes(16)).extract(piece.columns)
    grounds = IdGrounds(np.ones(1, np.uint8), ids, np.zeros(1, np.int64), np.zeros(1, np.int64))
    out = ReceiptEncoder("p", "t").encode(0, piece.columns, np.zeros(1, np.int64), grounds, 65_536)
    (receipt,) = read(out)
    assert receipt.key is None
    digests = [{"sha256": hashlib.sha256(each).hexdigest(), "bytes": 4_000} for _, each in headers]
    assert json.loads(receipt.value or b"")["id"] == [*digests, "s"]


def test_a_receipt_of_a_record_without_a_key_does_not_say_that_one_was_left_out() -> None:
    noise = np.random.default_rng(3).integers(0, 256, (20, 4_000), np.uint8)
    headers = tuple((b"%d" % n, noise[n].tobytes()) for n in range(20))
    came = [Record(0, 1, None, b"v", headers)]
    (piece,) = batches.DECODER.pieces(chunk(by_hand(came)))
    ids = IdExtractor([HeaderPart(name) for name, _ in headers], bytes(16)).extract(piece.columns)
    grounds = IdGrounds(np.ones(1, np.uint8), ids, np.zeros(1, np.int64), np.zeros(1, np.int64))
    out = ReceiptEncoder("p", "t").encode(0, piece.columns, np.zeros(1, np.int64), grounds, 65_536)
    (receipt,) = read(out)
    assert (receipt.key, receipt.headers) == (None, ()), "what has no key has not lost it"
    assert json.loads(receipt.value or b"")["id"][0]["bytes"] == 4_000


BOOTS = [b"boot-7", b"\xff", b'a"\n', b"x" * 5_000]
LONG = np.random.default_rng(0).bytes(3_000)


@pytest.mark.parametrize(("boot", "limit"), [*((each, ROOMY) for each in BOOTS), (LONG, 1_000)])
def test_an_epoch_without_order_is_written_as_a_part_of_an_id(boot: bytes, limit: int) -> None:
    shown: Any = {"base64": "/w=="} if boot == b"\xff" else boot.decode(errors="replace")
    if len(boot) > 4_096 or limit < ROOMY:
        shown = {"sha256": hashlib.sha256(boot).hexdigest(), "bytes": len(boot)}
    came = [Record(number, 5, None, b"", ((b"boot", boot),)) for number in range(2)]
    (piece,) = batches.DECODER.pieces(chunk(by_hand(came), position=0))
    ids = IdExtractor([HeaderPart(b"boot")], bytes(16)).extract(piece.columns)
    numbers = np.array([7, 7], np.int64)
    grounds = Grounds(np.array([1, 2], np.uint8), numbers, numbers, None, ids)
    receipt = {"pipeline": "p", "topic": "t", "partition": 3, "timestamp": 5, "mode": "watermark"}
    assert [json.loads(each.value or b"") for each in read(receipts(came, grounds, limit=limit))] == [
        receipt | {"offset": n, "verdict": WORDS[n + 1], "sequence": 7, "watermark": 7, "epoch": shown}
        for n in range(2)
    ]
