"""Collisions get their tag or their new id as a text editor would write it, and all else keeps its bytes."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from processor.engine.batch.columns import SIZE
from processor.engine.collision_edits import CollisionEditor, CollisionRows, Renamer, Tagger
from processor.engine.extract.ids import IdExtractor
from processor.engine.extract.normalise import IdTextForm
from processor.engine.extract.parts import HeaderPart, KeyPart, ValuePart
from processor.wire import encode
from processor.wire.encode import EncodedBatch, Encoder, TooLargeError
from processor.wire.quarantine import OWNER_BYTES, codec_of, too_large_as_collisions
from tests.support.judges import collisions as model
from tests.support.suite.examples import examples
from tests.support.wire import batches, naive
from tests.support.wire.batches import CODECS, NONE, Record, by_hand, chunk

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from processor.engine.batch.edits import Edits
    from processor.engine.extract.ids import Ids
    from processor.engine.extract.parts import Part
    from processor.wire.decode import Piece

ENCODER = Encoder()
ROOMY = 10_000_000
SECRET = bytes(range(16))
WRITTEN = {IdTextForm.BYTES, IdTextForm.STRING, IdTextForm.ESCAPED}
KEEPS = [None, "/kept", "/o/kept", "/o/o/kept", "/id/kept", "/a~1b", "/l/0", "/o/id", '/k"\n\u00e9']

spaces = st.sampled_from(["", "", "", " ", "\n\t", "\r  "])
texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["", "a", '"', "\\", "\n\x00", "\u00e9", "\U0001f600"]),
    st.integers(30, 70).map(lambda size: "x" * size),
)
strings = st.builds(json.dumps, texts, ensure_ascii=st.booleans()) | st.sampled_from(
    [r'"a\/b"', r'"\u0069d"', '"\x7f"']
)
scalars = strings | st.sampled_from(["1", "-2.50e+3", "true", "null", "{}", "[]", "{ \n}"])
member_names = st.sampled_from(['"id"', '"o"', '"kept"', r'"\u0069d"', r'"k\u0065pt"', '"a/b"', '"l"'])


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    named = st.tuples(member_names, values) | st.tuples(st.just('"id"'), strings)
    members = st.builds(lambda pair, *space: "{2}{0}{3}:{4}{1}{5}".format(*pair, *space), named, *[spaces] * 4)
    return st.builds(lambda some: "{" + ",".join(some) + "}", st.lists(members, max_size=4))


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda some, space: f"[{space}" + f",{space}".join(some) + "]", st.lists(values, max_size=3), spaces
    )


inner = st.recursive(scalars, lambda values: objects(values) | arrays(values), max_leaves=6)


def with_id(value: str, written: str) -> str:
    return f'{{"id":{written}{"," if json.loads(value) else ""}{value[1:]}'


def padded(value: str, size: int) -> bytes:
    """Fill an object up to a size in bytes: from 64 and from 8,192 on a length takes a byte more."""
    around = '{"pad":"%s",' if json.loads(value) else '{"pad":"%s"'
    missing = size - len(value.encode()) - len(around) + 3
    return (around % ("p" * missing) + value[1:]).encode() if missing >= 0 else value.encode()


some_objects = objects(inner) | st.builds(with_id, objects(inner), strings)
small_values = st.builds(padded, some_objects, st.just(0) | st.integers(30, 130))
json_values = small_values | st.builds(padded, some_objects, st.integers(8_150, 8_240))
header_values = st.one_of(
    st.none(),
    st.binary(max_size=9),
    texts.map(str.encode),
    st.sampled_from([35, 36, 37, 63, 64, 8_191, 8_192]).map(lambda size: b"\x01" * size),
)
headers = st.builds(
    list.__add__,
    st.lists(
        st.tuples(st.sampled_from([b"id", b"", b"trace", b"seqmark.original_id"]), header_values), max_size=3
    ),
    st.lists(st.tuples(st.just(b"id"), header_values.filter(lambda value: value is not None)), max_size=1),
)
# A header count of 63 takes one byte more with one header more.
many = st.sampled_from([0, 0, 0, 0, 0, 60, 61, 62, 63, 64])
Drawn = tuple[int, bytes | None, bytes | None, list[batches.Header], int]


def records(values: st.SearchStrategy[bytes | None]) -> st.SearchStrategy[Drawn]:
    keys = st.binary(max_size=5) | st.none()
    return st.tuples(st.integers(-1, 2**41), keys, values, headers, many)


class Run(NamedTuple):
    """Records in batches, and which of them pass and come as collisions."""

    records: list[Record]
    sizes: list[int]
    codecs: list[int]
    verdict: NDArray[np.uint8]
    hits: NDArray[np.bool_]

    def piece(self) -> Piece:
        data, at = [], 0
        for size, codec in zip(self.sizes, self.codecs, strict=True):
            data.append(by_hand(self.records[at : at + size], codec))
            at += size
        (piece,) = batches.DECODER.pieces(chunk(*data, position=100))
        return piece


@st.composite
def runs(draw: st.DrawFn, values: st.SearchStrategy[bytes | None]) -> Run:
    drawn = draw(st.lists(st.lists(records(values), min_size=1, max_size=6), min_size=2, max_size=3))
    came = [
        Record(offset, timestamp, key, value, (*((b"h", b""),) * more, *named))
        for offset, (timestamp, key, value, named, more) in enumerate(chain.from_iterable(drawn), 100)
    ]
    chosen = st.lists(st.sampled_from([0, 0, 0, 1]), min_size=len(came), max_size=len(came))
    codecs = draw(st.lists(st.sampled_from(CODECS), min_size=len(drawn), max_size=len(drawn)))
    verdict, hits = np.array(draw(chosen), np.uint8), np.array(draw(chosen)) == 0
    return Run(came, [len(batch) for batch in drawn], codecs, verdict, hits)


def ids_of(piece: Piece, parts: list[Part]) -> Ids:
    """Read the ids of a piece, and make fingerprints up."""
    ids = IdExtractor(parts, SECRET).extract(piece.columns)
    numbers = np.arange(1, len(piece.columns) + 1, dtype=np.uint64)
    return ids._replace(fingerprint=numbers * np.uint64(0x9E3779B97F4A7C15))


def new_id(ids: Ids, row: int) -> str:
    return model.new_id(ids.hash[row].astype("<u8").tobytes(), int(ids.fingerprint[row]), SECRET)


def collisions_of(run: Run, ids: Ids, part: int) -> CollisionRows:
    """Return the hits that have an id, with any owners."""
    judgeable = (ids.fault == 0) & ~ids.unjudged & np.isin(ids.form[part], [int(form) for form in WRITTEN])
    rows = np.flatnonzero(judgeable & run.hits)
    return CollisionRows(rows, rows % 70_000, rows**9 % 2**62)


def check_run(
    run: Run, parts: list[Part], part: int, editor: CollisionEditor, expect: Callable[[Record, str], Record]
) -> None:
    piece = run.piece()
    ids = ids_of(piece, parts)
    collisions = collisions_of(run, ids, part)
    expected = list(run.records)
    for row, owner in zip(collisions.row.tolist(), owners(collisions), strict=True):
        put_in = owner if isinstance(editor, Tagger) else new_id(ids, row)
        expected[row] = expect(run.records[row], put_in)

    edits = editor.edits(piece.columns, ids, collisions)
    out = ENCODER.encode(piece, run.verdict, ROOMY, edits)

    assert (edits.growth() <= editor.most_growth(ids)[collisions.row]).all()
    check_output(out, [record for row, record in enumerate(expected) if run.verdict[row] == 0])


def owners(collisions: CollisionRows) -> list[str]:
    pairs = zip(collisions.owner_partition.tolist(), collisions.owner_offset.tolist(), strict=True)
    return [f"t.\u00e9:{partition}:{offset}" for partition, offset in pairs]


def check_output(out: list[EncodedBatch], expected: list[Record]) -> None:
    """Compare what two readers, neither of them ours, and our decoder find in batches."""
    raw = [batch.build(7, 3, 11, transactional=True) for batch in out]
    plain = [record[1:] for record in expected]
    for found in batches.parsed(raw):
        assert found.crc_is_valid
        assert [record.offset for record in found.records] == list(range(found.record_count))
        assert found.batch.last_offset_delta == found.record_count - 1
        assert found.batch.max_timestamp == max(record.timestamp for record in found.records)
    assert [record[1:] for found in batches.parsed(raw) for record in found.records] == plain
    assert [record[1:] for each in raw for record in naive.read(chunk(each)).records] == plain
    assert [record[1:] for each in raw for record in batches.decoded(chunk(each))[0]] == plain


@examples(100)
@given(runs(st.none() | st.binary(max_size=80)))
def test_a_tag_names_the_first_record_behind_the_others_own_headers(run: Run) -> None:
    check_run(run, [HeaderPart(b"id")], 0, Tagger("t.\u00e9".encode()), model.tagged)


@examples(200)
@given(
    runs(json_values), st.sampled_from(["/id", "/id", "/o/id", "/l/0"]), st.sampled_from(KEEPS), st.booleans()
)
def test_a_string_gives_way_to_the_new_id_and_is_kept_as_it_was(
    run: Run,
    to: str,
    keep: str | None,
    keyed: bool,  # noqa: FBT001 - drawn by hypothesis
) -> None:
    part = ValuePart(to)
    parts: list[Part] = [KeyPart(), part] if keyed else [part]
    editor = Renamer(parts, part, keep, SECRET)
    check_run(
        run, parts, len(parts) - 1, editor, lambda record, new: model.renamed_in_value(record, to, keep, new)
    )


@pytest.mark.parametrize("keep", [None, "/kept"])
def test_a_length_takes_a_byte_more_or_less_where_a_value_grows_or_shrinks_over_a_bound(
    keep: str | None,
) -> None:
    old = ['"' + "x" * size + '"' for size in (0, 1, 36, 80, 200)]
    totals = chain(range(40, 320), range(8_100, 8_400))
    values = [padded(with_id("{}", each), total) for total in totals for each in old]
    came = [Record(100 + n, n, None, value) for n, value in enumerate(values)]
    run = Run(came, [len(came)], [NONE], np.zeros(len(came), np.uint8), np.ones(len(came), np.bool_))
    part = ValuePart("/id")
    editor = Renamer([part], part, keep, SECRET)
    check_run(
        run, [part], 0, editor, lambda record, new: model.renamed_in_value(record, part.pointer, keep, new)
    )


@examples(100)
@given(runs(json_values | st.none() | st.binary(max_size=80)), st.sampled_from(KEEPS))
def test_the_last_header_of_a_name_gives_way_to_the_new_id_and_is_kept_as_it_was(
    run: Run, keep: str | None
) -> None:
    part = HeaderPart(b"id")
    editor = Renamer([part], part, keep, SECRET)
    check_run(run, [part], 0, editor, lambda record, new: model.renamed_in_header(record, part.name, keep, new))


@examples(60)
@given(runs(st.none() | st.binary(max_size=2_000)), st.integers(60, 2_500))
def test_what_grows_is_cut_by_the_limit_or_the_record_that_breaks_it_is_named(run: Run, limit: int) -> None:
    piece = run.piece()
    ids = ids_of(piece, [HeaderPart(b"id")])
    collisions = collisions_of(run, ids, 0)
    expected = list(run.records)
    for row, owner in zip(collisions.row.tolist(), owners(collisions), strict=True):
        expected[row] = model.tagged(expected[row], owner)
    edits = Tagger("t.\u00e9".encode()).edits(piece.columns, ids, collisions)
    kept = np.flatnonzero(run.verdict == 0).tolist()
    alone = {row: alone_bytes(expected[row], codec_of(piece, row)) for row in kept}
    first = next((row for row in kept if alone[row] > limit), None)
    if first is None:
        out = ENCODER.encode(piece, run.verdict, limit, edits)
        assert all(batch.size <= limit for batch in out)
        check_output(out, [expected[row] for row in kept])
    elif all(piece.batches[:, SIZE] > limit):  # or it went on as it came, in a batch that is small enough
        with pytest.raises(TooLargeError) as caught:
            ENCODER.encode(piece, run.verdict, limit, edits)
        assert (caught.value.row, caught.value.size_bytes) == (first, alone[first])


def alone_bytes(record: Record, codec: int) -> int:
    item = record.key, record.value, record.timestamp, record.headers
    return encode.plain_batch([item], codec).size


@examples(60)
@given(runs(small_values), st.integers(100, 400), st.sampled_from(KEEPS))
def test_what_a_new_id_makes_too_large_is_known_before_the_limit_is_met(
    run: Run, limit: int, keep: str | None
) -> None:
    piece = run.piece()
    part = ValuePart("/id")
    ids = ids_of(piece, [part])
    # Which are faults where ids are renamed.
    fault = ids.fault | np.isin(ids.form[0], (IdTextForm.NUMBER, IdTextForm.BOOLEAN))
    ids = ids._replace(fault=fault.astype(np.uint8))
    editor = Renamer([part], part, keep, SECRET)

    found = too_large_as_collisions(ENCODER, piece, ids, editor, limit)

    expected = []
    for row, record in enumerate(run.records):
        if ids.fault[row] == 0:
            renamed = model.renamed_in_value(record, "/id", keep, new_id(ids, row))
            expected += [row] * (alone_bytes(renamed, codec_of(piece, row)) > limit)
    assert found.tolist() == expected


@examples(60)
@given(runs(st.none() | st.binary(max_size=700)), st.integers(100, 900))
def test_what_any_tag_makes_too_large_is_known_before_the_limit_is_met(run: Run, limit: int) -> None:
    piece = run.piece()
    ids = ids_of(piece, [HeaderPart(b"id")])
    editor = Tagger("t.\u00e9".encode())

    found = too_large_as_collisions(ENCODER, piece, ids, editor, limit).tolist()

    for row in np.flatnonzero(ids.fault == 0).tolist():
        codec = codec_of(piece, row)
        tagged = (model.tagged(run.records[row], f"t.\u00e9:{owner}") for owner in ("0:0", "70000:" + "9" * 18))
        smallest, largest = (alone_bytes(record, codec) for record in tagged)
        assert row in found or largest <= limit
        assert row not in found or smallest > limit - 32 - (OWNER_BYTES if codec != NONE else 0)


@examples(30)
@given(st.lists(st.integers(0, 5), min_size=6, max_size=6), st.lists(st.integers(0, 2), min_size=1, max_size=3))
def test_only_batches_with_an_edited_record_are_written_again(sizes: list[int], edited: list[int]) -> None:
    assume(any(sizes))
    payload = np.random.default_rng(7).integers(0, 256, 200, np.uint8).tobytes()
    came: list[Record] = []
    data = []
    for size in filter(None, sizes):
        batch = [Record(len(came) + n, 1_000, None, payload, ((b"id", b"%d" % n),)) for n in range(size)]
        came += batch
        data.append(by_hand(batch))
    (piece,) = batches.DECODER.pieces(chunk(*data))
    rows = np.unique([each for each in edited if each < len(came)]).astype(np.int64)
    ids = ids_of(piece, [HeaderPart(b"id")])
    edits = tags(piece, ids, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "FORWARD_BYTES", len(payload))
        out = ENCODER.encode(piece, np.zeros(len(came), np.uint8), ROOMY, edits)

    touched = {int(np.searchsorted(piece.first_row, row, side="right")) - 1 for row in rows}
    sent = [bytes(batch.payload) for batch in out]
    untouched = [each[batches.HEADER.size :] for n, each in enumerate(data) if n not in touched]
    assert [each for each in sent if each in untouched] == untouched
    check_output(out, [model.tagged(each, f"t:0:{n}") if n in rows else each for n, each in enumerate(came)])


def test_a_run_is_cut_by_what_its_records_have_grown_to() -> None:
    # Two batches that make one run as they come make two as they go.
    half = encode.RUN_BYTES // 2 - 30
    came = [Record(n, 1_000, None, b"v" * half, ((b"id", b"same"),)) for n in range(2)]
    (piece,) = batches.DECODER.pieces(chunk(*(by_hand([each]) for each in came)))
    piece.whole[:] = False
    ids = ids_of(piece, [HeaderPart(b"id")])
    every = np.zeros(2, np.uint8)

    assert len(ENCODER.encode(piece, every, ROOMY)) == 1
    assert len(ENCODER.encode(piece, every, ROOMY, tags(piece, ids, np.arange(2)))) == 2


def tags(piece: Piece, ids: Ids, rows: NDArray[np.int64]) -> Edits:
    """Tag some rows, each as if it were its own first."""
    return Tagger(b"t").edits(piece.columns, ids, CollisionRows(rows, np.zeros(rows.size, np.int64), rows))
