"""Batches of every shape that a broker sends: which records they hold, and how what passed goes on."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from processor.engine.batch import columns as kernels
from processor.wire import decode, encode
from processor.wire.decode import LONG_BYTES, MAX_INFLATED_BYTES, POISON, UndecodableError
from processor.wire.encode import RUN_BYTES, EncodedBatch, TooLargeError, plain_batch
from tests.support.wire import batches
from tests.support.wire.batches import (
    CODECS,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Record,
    by_aiokafka,
    by_hand,
    chunk,
    decoded,
    marker,
    run,
    transaction,
)

if TYPE_CHECKING:
    from processor.wire.quarantine import Item

ROOMY = 10_000_000
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def encoded(what: decode.Chunk, dropped: tuple[int, ...] = (), limit: int = ROOMY) -> list[EncodedBatch]:
    """Encode a chunk without the records at the ``dropped`` offsets."""
    out = []
    for piece in batches.DECODER.pieces(what):
        verdict = np.isin(piece.columns.offset, dropped).astype(np.uint8)
        out += encode.Encoder().encode(piece, verdict, limit)
    return out


def read(out: list[EncodedBatch]) -> list[batches.Parsed]:
    return batches.parsed(batch.build(-1, -1, -1, transactional=False) for batch in out)


def contents(out: list[EncodedBatch]) -> list[tuple[object, ...]]:
    """Return all records without offsets."""
    return [record[1:] for found in read(out) for record in found.records]


def big(start: int, count: int, size: int = 1_000) -> list[Record]:
    """Return records that no codec makes small."""
    noise = np.random.default_rng(start)
    return [Record(offset, 5_000 + offset, None, noise.bytes(size)) for offset in range(start, start + count)]


# ---------------------------------------------------------------- what goes on as it is


@pytest.mark.parametrize("codec", CODECS)
def test_a_clean_batch_goes_on_with_its_compressed_bytes_untouched(codec: int) -> None:
    source = by_aiokafka(big(0, 40), codec)
    (out,) = encoded(chunk(source))
    assert bytes(out.payload) == source[batches.HEADER.size :]
    assert contents([out]) == [record[1:] for record in big(0, 40)]


def test_a_clean_large_batch_between_two_that_lost_records_goes_on_untouched_and_in_its_place() -> None:
    first, clean, last = by_hand(run(0, 5)), by_hand(big(5, 40)), by_hand(run(45, 50))
    out = encoded(chunk(first, clean, last), dropped=(2, 47))
    assert [batch.count for batch in out] == [4, 40, 4]
    assert bytes(out[1].payload) == clean[batches.HEADER.size :]


def test_a_clean_batch_that_lies_alone_goes_on_untouched_however_small() -> None:
    source = by_hand(run(0, 2), GZIP)
    (out,) = encoded(chunk(source))
    assert bytes(out.payload) == source[batches.HEADER.size :]


@pytest.mark.parametrize("bit", [batches.DELETE_HORIZON, batches.TRANSACTIONAL])
def test_of_a_forwarded_batchs_attributes_only_the_codec_goes_on(bit: int) -> None:
    (found,) = read(encoded(chunk(by_hand(run(0, 3), LZ4, attributes=bit))))
    assert found.batch.attributes == LZ4


def test_only_the_transactional_bit_depends_on_the_producer() -> None:
    (out,) = encoded(chunk(by_hand(run(0, 3))))
    (found,) = batches.parsed([out.build(9, 2, 5, transactional=True)])
    assert found.batch.is_transactional
    assert (found.batch.producer_id, found.batch.producer_epoch, found.batch.base_sequence) == (9, 2, 5)


# ---------------------------------------------------------------- what is written again


def test_neighbouring_tiny_batches_become_one() -> None:
    source = [by_hand(run(at, at + 2), LZ4) for at in range(0, 100, 2)]
    (out,) = encoded(chunk(*source))
    assert contents([out]) == [record[1:] for record in run(0, 100)]


def test_batches_of_different_codecs_stay_apart() -> None:
    out = encoded(chunk(by_hand(run(0, 2), GZIP), by_hand(run(2, 4), LZ4), by_hand(run(4, 6), LZ4)))
    assert [(batch.codec, batch.count) for batch in out] == [(GZIP, 2), (LZ4, 4)]


def test_tiny_batches_are_joined_into_large_ones() -> None:
    source = [by_hand(big(at, 10)) for at in range(0, 1_500, 10)]
    out = encoded(chunk(*source), dropped=(3,))
    assert sum(batch.count for batch in out) == 1_499
    assert RUN_BYTES - 10_000 < max(batch.size for batch in out) <= RUN_BYTES + 20_000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("limit", [30_000, 100_000])
def test_what_no_codec_makes_small_is_not_written_a_second_time_for_a_topics_limit(
    codec: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[EncodedBatch] = []
    keep = encode.packed

    def noted(*args: Any) -> EncodedBatch:
        written.append(keep(*args))
        return written[-1]

    monkeypatch.setattr(encode, "packed", noted)
    source = [by_hand(big(at, 2), codec) for at in range(0, 400, 2)]
    out = encoded(chunk(*source), dropped=(3,), limit=limit)
    assert written == out
    assert max(batch.size for batch in out) <= limit
    assert min(batch.size for batch in out[:-1]) > limit * 3 // 4
    passed = [record[1:] for at in range(0, 400, 2) for record in big(at, 2) if record.offset != 3]
    assert contents(out) == passed


@pytest.mark.parametrize("codec", CODECS)
def test_append_time_becomes_the_records_time(codec: int) -> None:
    batch = by_hand(run(0, 3), codec, attributes=batches.LOG_APPEND_TIME, max_timestamp=777)
    (found,) = read(encoded(chunk(batch)))
    assert found.batch.timestamp_type == 0
    assert [record.timestamp for record in found.records] == [777] * 3
    assert (found.batch.first_timestamp, found.batch.max_timestamp) == (777, 777)


# ---------------------------------------------------------------- limits


def test_a_clean_batch_above_the_sinks_limit_is_split_too() -> None:
    out = encoded(chunk(by_hand(big(0, 40))), limit=30_000)
    assert len(out) == 2
    assert contents(out) == [record[1:] for record in big(0, 40)]


def test_a_record_exactly_at_the_limit_goes_through_and_one_byte_less_does_not() -> None:
    source = chunk(by_hand(big(0, 1)))
    (out,) = encoded(source)
    assert len(encoded(source, limit=out.size)) == 1
    with pytest.raises(TooLargeError):
        encoded(source, limit=out.size - 1)


# ---------------------------------------------------------------- what is left out


def test_interleaved_producers_lose_only_the_transactions_that_were_aborted() -> None:
    source = chunk(
        transaction(run(0, 2), 1),
        transaction(run(2, 4), 2),
        by_hand(run(4, 5), producer_id=1),  # idempotent, outside any transaction
        transaction(run(5, 6), 1),
        marker(6, 2, commit=True),
        marker(7, 1, commit=False),
        transaction(run(8, 9), 2),
        marker(9, 2, commit=False),
        aborted=[(2, 8), (1, 0)],
    )
    assert decoded(source) == (run(2, 4) + run(4, 5), 10)


def test_an_empty_batch_as_compaction_leaves_it_moves_the_position() -> None:
    assert decoded(chunk(by_hand([], base_offset=3, last_delta=4), position=3)) == ([], 8)


def test_records_below_the_position_are_left_out_and_what_remains_is_written_again() -> None:
    source = chunk(by_hand(run(10, 15)), position=12)
    assert decoded(source) == (run(12, 15), 15)
    (out,) = encoded(source)
    assert (out.count, out.first_offset, out.last_offset) == (3, 12, 14)


def test_a_batch_cut_at_the_end_of_the_fetch_is_left_for_the_next() -> None:
    whole, cut = by_hand(run(0, 3)), by_hand(run(3, 6))
    for size in (1, 16, 17, 60, len(cut) - 1):
        assert decoded(chunk(whole, cut[:size])) == (run(0, 3), 3)


def test_nothing_came_is_nothing() -> None:
    assert decoded(chunk(position=8)) == ([], 8)
    assert batches.DECODER.next_offset(chunk(position=8)) is None


def test_the_position_after_a_chunk_is_known_without_opening_it() -> None:
    source = chunk(by_hand(run(0, 3)), marker(3, 1, commit=True), by_hand(run(9, 12))[:-1], position=1)
    assert batches.DECODER.next_offset(source) == 4


# ---------------------------------------------------------------- what cannot be read


def refused(what: decode.Chunk) -> UndecodableError:
    with pytest.raises(UndecodableError) as caught:
        decoded(what)
    return caught.value


def test_records_before_a_corrupt_batch_are_given_out_and_the_error_names_its_offset() -> None:
    bad = bytearray(by_hand(run(3, 6)))
    bad[-1] ^= 1
    pieces = batches.DECODER.pieces(chunk(by_hand(run(0, 3)), bytes(bad), by_hand(run(6, 9))))
    before = next(pieces)
    assert (batches.rows(before.columns), before.next_offset) == (run(0, 3), 3)
    with pytest.raises(UndecodableError, match="CRC-32C") as caught:
        next(pieces)
    assert caught.value.offset == 3


def test_a_flipped_bit_never_makes_data_pass_for_a_control_batch() -> None:
    bad = bytearray(by_hand(run(0, 3)))
    bad[22] ^= batches.CONTROL
    assert refused(chunk(bytes(bad))).offset == 0


def test_a_flipped_bit_never_makes_data_pass_for_what_lies_below_the_position() -> None:
    bad = bytearray(by_hand(run(0, 10)))
    bad[26] ^= 8  # the last offset delta: 9 becomes 1
    assert refused(chunk(bytes(bad), position=5)).offset == 0


def test_a_first_batch_longer_than_what_came_is_an_error_because_brokers_send_it_whole() -> None:
    batch = by_hand(run(7, 9))
    error = refused(chunk(batch[:8] + struct.pack(">i", len(batch)) + batch[12:], position=7))
    assert error.offset == 7
    assert batches.DECODER.next_offset(chunk(batch[:-1], position=7)) == 7


@pytest.mark.parametrize(
    ("start", "content", "said"),
    [
        (8, struct.pack(">i", 48), "batch length"),
        (8, struct.pack(">i", -1), "batch length"),
        (16, b"\x01", "version 2"),
        (0, struct.pack(">q", 2), "do not follow"),
        (0, struct.pack(">q", -1), "do not follow"),
        (0, struct.pack(">q", 2**63 - 3), "do not follow"),
        (23, struct.pack(">i", -1), "do not follow"),
        (57, struct.pack(">i", -1), "negative"),
        (57, struct.pack(">i", 2), "follow the last record"),
        (57, struct.pack(">i", 4), "variable-length|record count"),
        (57, struct.pack(">i", 2**31 - 1), "record count"),
        (23, struct.pack(">i", 1), "deltas do not rise"),
        (22, b"\x05", "codec 5"),
        (22, b"\x07", "codec 7"),
    ],
)
def test_a_forged_header_field_is_said_in_words(start: int, content: bytes, said: str) -> None:
    second = by_hand(run(3, 6))
    forged = batches.sealed(second[:start] + content + second[start + len(content) :])
    error = refused(chunk(by_hand(run(0, 3)), forged))
    assert error.offset == 3
    assert re.search(said, str(error))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (b"\x80\x80\x80\x80\x80\x00" + bytes(8), "variable-length"),  # six bytes for 32 bits
        (batches.varint(60) + bytes(6), "record's length"),
        (batches.varint(-1) + bytes(6), "record's length"),
        (batches.varint(6) + b"\0\0\0" + batches.varint(3) + b"\0\0", "key's length"),
        (batches.varint(6) + b"\0\0\0" + batches.varint(-2) + b"\0\0", "key's length"),
        (batches.varint(6) + b"\0\0\0\0" + batches.varint(2) + b"\0", "value's length"),
        (batches.varint(6) + b"\0\0\0\0\0" + batches.varint(5), "headers"),
        (batches.varint(8) + b"\0\0\0\0\0" + batches.varint(1) + batches.varint(-1) + b"\0", "headers"),
        (batches.varint(7) + bytes(7), "follow the last record"),
        (batches.varint(0) + bytes(6), "variable-length"),
    ],
)
def test_a_forged_length_in_a_record_is_said_in_words(record: bytes, said: str) -> None:
    error = refused(chunk(batches.with_header(record, count=1)))
    assert said in str(error)
    assert "record 0" in str(error)


# ---------------------------------------------------------------- how much a batch may inflate to


def bomb(codec: int, size: int) -> bytes:
    """Make a batch of one record that inflates to exactly ``size`` bytes."""
    content = size - len(batches.record_bytes(Record(0, 0, None, b"x" * (size - 20)), 0, 0)) + size - 20
    return by_hand([Record(0, 0, None, bytes(content))], codec)


@pytest.mark.parametrize(
    ("codec", "most"), [*((codec, 2 * LONG_BYTES) for codec in CODECS), (ZSTD, MAX_INFLATED_BYTES)]
)
def test_a_batch_that_inflates_to_the_bound_passes_and_one_byte_more_is_an_error(
    codec: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The bound of 64 MiB once: making as much of each codec takes a minute.
    monkeypatch.setattr(decode, "MAX_INFLATED_BYTES", most)
    decoder = decode.Decoder()
    (piece,) = decoder.pieces(chunk(bomb(codec, most)))
    assert int(piece.columns.end[0]) == most
    with pytest.raises(UndecodableError, match=f"{most:,}"):
        list(decoder.pieces(chunk(bomb(codec, most + 1))))
    # What goes far beyond it is not inflated to say by how much.
    with pytest.raises(UndecodableError) as caught:
        list(decoder.pieces(chunk(bomb(codec, 2 * most), by_hand(run(1, 2)))))
    assert caught.value.offset == 0


def test_a_batch_that_only_fits_the_empty_buffer_begins_a_piece_of_its_own() -> None:
    pieces = [
        (piece.next_offset, len(piece.columns))
        for piece in batches.DECODER.pieces(
            chunk(by_hand(run(0, 1)), moved(bomb(ZSTD, MAX_INFLATED_BYTES), 1), by_hand(run(2, 3)))
        )
    ]
    assert pieces == [(1, 1), (2, 1), (3, 1)]


def test_a_piece_is_closed_where_whoever_takes_it_wants_no_more() -> None:
    source = chunk(*(by_hand(run(first, first + 10)) for first in range(10, 60, 10)))
    size = len(by_hand(run(10, 20))) - kernels.HEADER_BYTES
    for most, cut in ((1, 1), (size, 1), (size + 1, 2), (10 * size, 5)):
        pieces = [len(piece.columns) for piece in batches.DECODER.pieces(source, most)]
        assert pieces == [10 * min(cut, 5 - at) for at in range(0, 5, cut)]


def moved(batch: bytes, offset: int) -> bytes:
    """Return ``batch`` at another base offset, which the CRC does not cover."""
    return struct.pack(">q", offset) + batch[8:]


@pytest.mark.parametrize(
    "payload",
    [
        XERIAL[:-1],
        XERIAL + b"\0\0",
        XERIAL + struct.pack(">i", -5) + b"\0" * 5,
        XERIAL + struct.pack(">i", 6) + b"\0" * 5,
        XERIAL + struct.pack(">i", 5) + b"\xff\xff\xff\xff\x0f",  # claims 4 GiB
        b"\xff\xff\xff\xff\x0f" + bytes(9),
        b"\xff\xff\xff\xff\xff\xff\x0f",
        b"\x20" + b"\0a",  # claims 32 bytes, holds one
    ],
)
def test_a_snappy_length_that_lies_is_an_error(payload: bytes) -> None:
    assert "snappy" in str(refused(chunk(batches.with_header(payload, count=1, attributes=SNAPPY))))


def test_raw_snappy_without_xerials_framing_is_read_too() -> None:
    import cramjam  # noqa: PLC0415 - for this one framing, which aiokafka does not write

    plain = b"".join(batches.record_bytes(record, 0, 1_000) for record in run(0, 3))
    payload = bytes(cramjam.snappy.compress_raw(plain))
    header = {"count": 3, "last_delta": 2, "base_timestamp": 1_000, "attributes": SNAPPY}
    assert decoded(chunk(batches.with_header(payload, **header))) == (run(0, 3), 3)


# ---------------------------------------------------------------- batches of a few records, the slow way


@pytest.mark.parametrize("codec", CODECS)
def test_a_plain_batch_is_read_by_aiokafka(codec: int) -> None:
    items: list[Item] = [
        (b"k", None, 5, [("h", b"1"), ("h", None)]),
        (None, b"v" * 300, 3, []),
        (b"", b"", 9, [(b"n", b"")]),
    ]
    (found,) = read([plain_batch(items, codec)])
    assert found.crc_is_valid
    assert (found.batch.first_timestamp, found.batch.max_timestamp) == (5, 9)
    assert [(r.key, r.value, r.timestamp, r.headers) for r in found.records] == [
        (b"k", None, 5, ((b"h", b"1"), (b"h", None))),
        (None, b"v" * 300, 3, ()),
        (b"", b"", 9, ((b"n", b""),)),
    ]


def test_timestamps_at_both_ends_of_64_bits_survive_every_way_of_writing() -> None:
    ends = [2**63 - 1, -(2**63), -1, 0]
    batch = plain_batch([(None, None, time, []) for time in ends]).build(-1, -1, -1, transactional=False)
    assert [record.timestamp for record in decoded(chunk(batch))[0]] == ends
    again = encoded(chunk(batch), dropped=(3,))[0].build(-1, -1, -1, transactional=False)
    assert [record.timestamp for record in decoded(chunk(again))[0]] == ends[:3]


def test_the_smallest_record_there_is_has_the_size_that_bounds_the_count() -> None:
    (payload,) = [batches.record_bytes(Record(0, 0, None, None), 0, 0)]
    assert len(payload) == kernels.MIN_RECORD_BYTES
    assert decoded(chunk(batches.with_header(payload, count=1, attributes=NONE)))[0] == [
        Record(0, 0, None, None)
    ]


# ---------------------------------------------------------------- buffers that pieces share


def two_pieces(decoder: decode.Decoder) -> tuple[decode.Piece, decode.Piece]:
    """Open two batches as a piece each; the first has passed then."""
    first, second = decoder.pieces(chunk(by_hand(run(0, 3)), by_hand(run(3, 6))), 1)
    return first, second


def test_a_piece_that_has_passed_cannot_be_read_nor_what_was_made_of_it() -> None:
    opened = batches.DECODER.pieces(chunk(by_hand(run(0, 3)), by_hand(run(3, 6))), 1)
    first = next(opened)
    part = first.columns.rows(1, 2)
    table = first.columns.table
    named = first.columns.over(table._replace(offset=table.offset + 7))
    assert named.offset.tolist() == [7, 8, 9]
    second = next(opened)
    for columns in (first.columns, part, named):
        for read in (len, lambda some: some.offset, lambda some: some.data, lambda some: some.rows(0, 1)):
            with pytest.raises(AssertionError, match=r"^piece \d+ has passed"):
                read(columns)
    assert second.columns.offset.tolist() == [3, 4, 5]


def test_another_chunk_lets_a_piece_pass_as_well() -> None:
    (first,) = batches.DECODER.pieces(chunk(by_hand(run(0, 3))))
    assert len(first.columns) == 3
    (_,) = batches.DECODER.pieces(chunk(by_hand(run(0, 3))))
    with pytest.raises(AssertionError, match="has passed"):
        len(first.columns)


def test_a_part_of_a_large_batch_passes_with_the_next_part() -> None:
    many = by_hand([Record(offset, 1, None, b"") for offset in range(decode.PIECE_ROWS + 1)])
    opened = batches.DECODER.pieces(chunk(many))
    first = next(opened)
    held = first.columns.offset
    assert len(next(opened).columns) == 1
    with pytest.raises(AssertionError, match="has passed"):
        len(first.columns)
    assert held[1:].tolist() == [-POISON] * (decode.PIECE_ROWS - 1)


def test_a_view_that_outlives_its_piece_holds_nothing_that_could_be_a_record() -> None:
    opened = batches.DECODER.pieces(chunk(by_hand(run(0, 300), LZ4), by_hand(run(300, 301))), 1)
    first = next(opened)
    size = int(first.columns.end[-1])
    offset, data = first.columns.offset, first.columns.data[:size]
    assert data.any()
    later = next(opened)
    beyond = int(later.columns.end[-1])
    assert offset[1:].tolist() == [-POISON] * 299
    assert set(data[beyond:].tolist()) == {POISON}


def test_a_decoder_in_production_gives_out_plain_columns() -> None:
    first, _ = two_pieces(decode.Decoder(checked=False))
    assert type(first.columns) is kernels.Columns
    assert first.columns.offset.tolist() == [3, 4, 5], "one buffer: the second piece's"
