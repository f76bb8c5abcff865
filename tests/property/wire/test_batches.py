"""Decoder and encoder against aiokafka's own builder and parser, with random records, every codec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.wire import decode, encode
from tests.support.suite.examples import examples
from tests.support.wire import batches
from tests.support.wire.batches import CODECS, Record, chunk, decoded

if TYPE_CHECKING:
    from collections.abc import Sequence

ENCODER = encode.Encoder()
ROOMY = 64 * 1024 * 1024
TIMES = st.one_of(st.integers(0, 2**41), st.sampled_from([0, 2**62]))

names = st.text(max_size=6).map(str.encode)
contents = st.one_of(
    st.none(),
    st.binary(max_size=30),
    st.sampled_from([b"", b"x"]),
    st.builds(lambda seed, size: seed * size, st.binary(min_size=1, max_size=4), st.integers(0, 3_000)),
)
bodies = st.tuples(TIMES, contents, contents, st.lists(st.tuples(names, contents), max_size=3))
batch_bodies = st.lists(bodies, min_size=1, max_size=6)
runs = st.lists(st.tuples(batch_bodies, st.sampled_from(CODECS)), min_size=1, max_size=4)

Run = list[tuple[list[tuple[int, bytes | None, bytes | None, list[batches.Header]]], int]]


def numbered(run: Run) -> list[tuple[list[Record], int]]:
    """Give the records of a run of batches consecutive offsets."""
    offset = 0
    found = []
    for bodies_of_batch, codec in run:
        records = []
        for timestamp, key, value, headers in bodies_of_batch:
            records.append(Record(offset, timestamp, key, value, tuple(headers)))
            offset += 1
        found.append((records, codec))
    return found


def encoded(what: decode.Chunk, verdicts: Sequence[int], limit: int = ROOMY) -> list[bytes]:
    """Take a chunk through decoder and encoder; verdicts go round where there are fewer than records."""
    out = []
    at = 0
    for piece in batches.DECODER.pieces(what):
        count = len(piece.columns)
        verdict = np.resize(np.array(verdicts, np.uint8), at + count)[at:]
        at += count
        made = ENCODER.encode(piece, verdict, limit)
        assert all(batch.size <= limit for batch in made)
        out += [batch.build(7, 3, 11, transactional=True) for batch in made]
    return out


def check_batch(found: batches.Parsed, kept: list[Record]) -> None:
    """Check what the broker checks, and what consumers see of one batch."""
    assert found.crc_is_valid
    assert found.record_count == len(found.records) == len(kept)
    assert [record.offset for record in found.records] == list(range(len(kept)))
    assert found.batch.last_offset_delta == len(kept) - 1
    assert found.batch.max_timestamp == max(record.timestamp for record in kept)
    assert [record[1:] for record in found.records] == [record[1:] for record in kept]
    header = batches.HEADER.unpack_from(found.raw)
    assert header[2] == -1, "the partition leader epoch is the broker's to set"
    assert header[9:12] == (7, 3, 11)
    assert header[5] & ~7 == batches.TRANSACTIONAL


def check_output(out: list[bytes], kept: list[Record]) -> None:
    at = 0
    for found in batches.parsed(out):
        check_batch(found, kept[at : at + found.record_count])
        at += found.record_count
    assert at == len(kept)


@examples(200)
@given(runs)
def test_what_aiokafka_built_is_decoded_to_the_same_records(run: Run) -> None:
    made = numbered(run)
    records = [record for some, _ in made for record in some]
    built = [batches.by_aiokafka(some, codec) for some, codec in made]
    assert decoded(chunk(*built)) == (records, len(records))


@examples(300)
@given(runs, st.lists(st.sampled_from([0, 0, 0, 1, 2, 3]), min_size=1, max_size=12))
def test_what_passed_is_read_by_aiokafka_as_exactly_the_kept_records(run: Run, verdicts: list[int]) -> None:
    made = numbered(run)
    records = [record for some, _ in made for record in some]
    source = chunk(*(batches.by_aiokafka(some, codec) for some, codec in made))
    rounds = np.resize(np.array(verdicts, np.uint8), len(records))
    check_output(
        encoded(source, verdicts), [r for r, verdict in zip(records, rounds, strict=True) if verdict == 0]
    )


@examples(100)
@given(runs, st.integers(300, 4_000), st.data())
def test_any_limit_is_kept_or_the_first_record_that_breaks_it_is_named(
    run: Run, limit: int, data: st.DataObject
) -> None:
    made = numbered(run)
    records = [record for some, _ in made for record in some]
    source = chunk(*(batches.by_hand(some, codec) for some, codec in made))
    verdicts = data.draw(st.lists(st.sampled_from([0, 1]), min_size=len(records), max_size=len(records)))
    kept = [record for record, verdict in zip(records, verdicts, strict=True) if verdict == 0]
    alone = [encode.plain_batch([(*r[2:4], r[1], r[4])], codec).size for some, codec in made for r in some]
    first = next((row for row, size in enumerate(alone) if size > limit and verdicts[row] == 0), None)
    if first is None:
        check_output(encoded(source, verdicts, limit), kept)
    else:
        with pytest.raises(encode.TooLargeError) as caught:
            encoded(source, verdicts, limit)
        assert (caught.value.row, caught.value.size_bytes) == (first, alone[first])


@examples(100)
@given(batch_bodies, st.sampled_from(CODECS), st.data())
def test_offsets_with_gaps_as_compaction_leaves_them_are_kept_by_the_decoder_and_closed_by_the_encoder(
    bodies_of_batch: list[tuple[int, bytes | None, bytes | None, list[batches.Header]]],
    codec: int,
    data: st.DataObject,
) -> None:
    offset, records = 100, []
    for timestamp, key, value, headers in bodies_of_batch:
        offset += data.draw(st.integers(0, 3))
        records.append(Record(offset, timestamp, key, value, tuple(headers)))
        offset += 1
    after = offset + data.draw(st.integers(0, 3))
    batch = batches.by_hand(records, codec, base_offset=100, last_delta=after - 101)
    source = chunk(batch, position=100)
    assert decoded(source) == (records, after)
    check_output(encoded(source, [0]), records)


@examples(100)
@given(runs, st.data())
def test_a_position_inside_a_batch_leaves_out_what_lies_below_it(run: Run, data: st.DataObject) -> None:
    made = numbered(run)
    records = [record for some, _ in made for record in some]
    position = data.draw(st.integers(0, len(records) - 1))
    source = chunk(*(batches.by_aiokafka(some, codec) for some, codec in made), position=position)
    assert decoded(source) == (records[position:], len(records))
    check_output(encoded(source, [0]), records[position:])


@examples(50)
@given(runs, st.lists(st.sampled_from([0, 1]), min_size=1, max_size=5), st.integers(1, 4_000))
def test_many_small_pieces_say_the_same_as_one(run: Run, verdicts: list[int], piece_bytes: int) -> None:
    made = numbered(run)
    source = chunk(*(batches.by_aiokafka(some, codec) for some, codec in made))
    whole = [found for batch in batches.parsed(encoded(source, verdicts)) for found in batch.records]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "PIECE_BYTES", piece_bytes)
        cut = [found for batch in batches.parsed(encoded(source, verdicts)) for found in batch.records]
    assert [record[1:] for record in cut] == [record[1:] for record in whole]


class Log:
    """A partition's log with transactions, and what a read_committed consumer must see of it."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.aborted: list[tuple[int, int, int]] = []  # producer, first offset, the marker's
        self.visible: list[Record] = []
        self.end = 0
        self._open: dict[int, list[Record]] = {}
        self._first: dict[int, int] = {}

    def plain(self, count: int) -> None:
        records = self._next(count)
        self.batches.append(batches.by_hand(records))
        self.visible += records

    def write(self, producer: int, count: int) -> None:
        self._first.setdefault(producer, self.end)
        records = self._next(count)
        self._open.setdefault(producer, []).extend(records)
        self.batches.append(batches.transaction(records, producer))

    def finish(self, producer: int, *, commit: bool) -> None:
        records, first = self._open.pop(producer, []), self._first.pop(producer, None)
        self.batches.append(batches.marker(self.end, producer, commit=commit))
        self.end += 1
        if commit:
            self.visible += records
        elif first is not None:
            self.aborted.append((producer, first, self.end - 1))

    def fetch(self, position: int) -> tuple[list[bytes], list[tuple[int, int]]]:
        """Answer as a broker: from the batch with the position on, with the aborted transactions met there."""
        first = next(i for i, raw in enumerate(self.batches) if _last_offset(raw) >= position)
        return self.batches[first:], [entry[:2] for entry in self.aborted if entry[2] >= position]

    def _next(self, count: int) -> list[Record]:
        records = batches.run(self.end, self.end + count)
        self.end += count
        return records


moves = st.lists(
    st.tuples(
        st.sampled_from(["plain", "write", "write", "commit", "abort"]), st.integers(1, 3), st.integers(1, 3)
    ),
    max_size=20,
)


@examples(300)
@given(moves, st.data())
def test_transactions_of_several_producers_are_seen_as_a_read_committed_consumer_sees_them(
    script: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    log = Log()
    for move, producer, count in script:
        if move == "plain":
            log.plain(count)
        elif move == "write":
            log.write(producer, count)
        else:
            log.finish(producer, commit=move == "commit")
    for producer in (1, 2, 3):
        log.finish(producer, commit=data.draw(st.booleans()))
    position = data.draw(st.integers(0, log.end - 1))
    raw, aborted = log.fetch(position)
    listed = data.draw(st.permutations(aborted))
    found, after = decoded(chunk(*raw, position=position, aborted=listed))
    expected = sorted(record for record in log.visible if record.offset >= position)
    assert (found, after) == (expected, log.end)


def _last_offset(raw: bytes) -> int:
    fields = batches.HEADER.unpack_from(raw)
    return int(fields[0] + fields[6])
