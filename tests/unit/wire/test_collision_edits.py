"""What becomes of single values and headers, as an operator would look it up."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.engine.collision_edits import CollisionEditor, CollisionRows, Renamer, Tagger
from processor.engine.extract.ids import IdExtractor
from processor.engine.extract.json_matches import AUTO, JsonRules
from processor.engine.extract.normalise import Normal
from processor.engine.extract.parts import HeaderPart, KeyPart, ValuePart
from processor.wire.encode import Encoder
from processor.wire.quarantine import too_large_as_collisions
from tests.support.wire import batches
from tests.support.wire.batches import Header, Record, by_hand, chunk

if TYPE_CHECKING:
    from processor.engine.extract.parts import Part

SECRET = bytes(range(16))
RULES = JsonRules(lenient=True, framing=AUTO)
NEW = "NEW"
"""Stands for the new id in what is expected."""
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
KEPT = b"seqmark.original_id"


def edited(came: Record, parts: list[Part], editor: CollisionEditor) -> Record:
    """Return a record as the sink gets it as a collision with the record at offset 17 of partition 3."""
    (piece,) = batches.DECODER.pieces(chunk(by_hand([came])))
    ids = IdExtractor(parts, SECRET, rules=RULES).extract(piece.columns)
    assert ids.fault.tolist() == [0]
    ids = ids._replace(fingerprint=np.array([7], np.uint64))
    edits = editor.edits(piece.columns, ids, CollisionRows(np.arange(1), np.array([3]), np.array([17])))
    (batch,) = Encoder().encode(piece, np.zeros(1, np.uint8), 10_000_000, edits)
    (found,) = batches.parsed([batch.build(-1, -1, -1, transactional=False)])
    assert found.crc_is_valid
    (record,) = found.records
    return record


def renamed(
    value: bytes | None, headers: tuple[Header, ...], to: HeaderPart | ValuePart, keep: str | None
) -> Record:
    """Return a renamed record, with `NEW` for its new id."""
    record = edited(Record(0, 1, b"k", value, headers), [to], Renamer([to], to, keep, SECRET, RULES))
    assert record[:3] == (0, 1, b"k")
    texts = [value for _, value in record.headers] if isinstance(to, HeaderPart) else [record.value]
    (new,) = {found for text in texts for found in _UUID.findall((text or b"").decode(errors="replace"))}
    told = tuple((name, text and text.replace(new.encode(), NEW.encode())) for name, text in record.headers)
    return record._replace(
        value=record.value and record.value.replace(new.encode(), NEW.encode()), headers=told
    )


@pytest.mark.parametrize(
    ("value", "to", "keep", "becomes", "headers"),
    [
        # The text goes into the header, unescaped.
        (r'{"id":"a","n":1.0}', "/id", None, '{"id":"NEW","n":1.0}', ("a",)),
        (r'{"id": "\u00e9\/" }', "/id", None, '{"id": "NEW" }', ("\u00e9/",)),
        (r'{"id":"","id":"b"}', "/id", None, '{"id":"","id":"NEW"}', ("b",)),
        (r'{"\u0069d":"a"}', "/id", None, r'{"\u0069d":"NEW"}', ("a",)),
        (r'["x","a"]', "/1", None, '["x","NEW"]', ("a",)),
        (r' "a" ', "", None, ' "NEW" ', ("a",)),
        # It becomes the last member, as written, behind a comma where there are others.
        (r'{"id":"\u0061"}', "/id", "/was", r'{"id":"NEW","was":"\u0061"}', ()),
        (r'{"id":"a" , "n":1 }', "/id", "/was", '{"id":"NEW" , "n":1 ,"was":"a"}', ()),
        (r'{"o":{},"id":"a"}', "/id", "/o/was", '{"o":{"was":"a"},"id":"NEW"}', ()),
        (r'{"id":"a","o":{ }}', "/id", "/o/was", '{"id":"NEW","o":{ "was":"a"}}', ()),
        (r'{"o":{"n":[1]},"id":"a"}', "/id", "/o/was", '{"o":{"n":[1],"was":"a"},"id":"NEW"}', ()),
        (r'{"o":{"id":"a"}}', "/o/id", "/o/was", '{"o":{"id":"NEW","was":"a"}}', ()),
        (r'{"o":{"id":"a"}}', "/o/id", "/was", '{"o":{"id":"NEW"},"was":"a"}', ()),
        (r'{"o":1,"o":{},"id":"a"}', "/id", "/o/was", '{"o":1,"o":{"was":"a"},"id":"NEW"}', ()),
        (r'{"l":[{}],"id":"a"}', "/id", "/l/0/was", '{"l":[{"was":"a"}],"id":"NEW"}', ()),
        (r'{"id":"a"}', "/id", '/w"~1~0', r'{"id":"NEW","w\"/~":"a"}', ()),
        # It goes into the header where the member is there already, or what it would be a member of is not.
        (r'{"id":"a","was":null}', "/id", "/was", '{"id":"NEW","was":null}', ("a",)),
        (r'{"id":"a","w\u0061s":1}', "/id", "/was", r'{"id":"NEW","w\u0061s":1}', ("a",)),
        (r'{"id":"a"}', "/id", "/o/was", '{"id":"NEW"}', ("a",)),
        (r'{"id":"a","o":[]}', "/id", "/o/0", '{"id":"NEW","o":[]}', ("a",)),
        (r'{"o":{},"o":2,"id":"a"}', "/id", "/o/was", '{"o":{},"o":2,"id":"NEW"}', ("a",)),
        (r'{"id":"a"}', "/id", "/id", '{"id":"NEW"}', ("a",)),
        (r'{"id":"a"}', "/id", "/id/was", '{"id":"NEW"}', ("a",)),
    ],
)
def test_a_string_of_the_value_is_renamed(
    value: str, to: str, keep: str | None, becomes: str, headers: tuple[str, ...]
) -> None:
    own = ((b"trace", b"1"), (KEPT, None))
    found = renamed(value.encode(), own, ValuePart(to), keep)
    assert found.value == becomes.encode()
    assert found.headers == (*own, *((KEPT, text.encode()) for text in headers))


@pytest.mark.parametrize("before", [b"\0\0\0\0\x0c", b"\xef\xbb\xbf", b"\0\0\0\0\x0c\xef\xbb\xbf"])
@pytest.mark.parametrize("keep", [None, "/was"])
def test_what_stands_before_and_behind_a_renamed_value_and_is_no_text_keeps_its_bytes(
    before: bytes, keep: str | None
) -> None:
    value = before + b'{"id":"a","n":NaN,"t":"\xe9"%s} \0'
    found = renamed(value % b"", (), ValuePart("/id"), keep)
    kept = b',"was":"a"' if keep else b""
    assert found.value == (value % kept).replace(b'"a"', b'"NEW"', 1)
    assert found.headers == (() if keep else ((KEPT, b"a"),))


def test_lengths_that_nobody_changes_stay_as_long_as_they_were_written() -> None:
    # The key's length, the value's and that of a header's name take two bytes where one would do.
    key, value, name = b"\x82\x00k", b"\x84\x00{}", b"\x84\x00id"
    body = b"\x00\x00\x00" + key + value + b"\x02" + name + b"\x02a"
    (piece,) = batches.DECODER.pieces(chunk(batches.with_header(batches.varint(len(body)) + body, count=1)))
    part = HeaderPart(b"id")
    ids = IdExtractor([part], SECRET).extract(piece.columns)
    ids = ids._replace(fingerprint=np.zeros(1, np.uint64))
    edits = Renamer([part], part, None, SECRET).edits(piece.columns, ids, CollisionRows.unowned(np.arange(1)))

    (batch,) = Encoder().encode(piece, np.zeros(1, np.uint8), 1_000, edits)

    new = _UUID.findall(bytes(batch.payload).decode(errors="replace"))[0].encode()
    kept = batches.sized(KEPT) + batches.sized(b"a")
    body = b"\x00\x00\x00" + key + value + b"\x04" + name + batches.sized(new) + kept
    assert bytes(batch.payload) == batches.varint(len(body)) + body


def test_an_id_that_is_kept_with_its_escapes_has_room_though_another_part_is_read_anew() -> None:
    escaped = b"\\u0041" * 200
    (piece,) = batches.DECODER.pieces(
        chunk(by_hand([Record(0, 1_000, b"k", b'{"id":"%s"}' % escaped, ((b"h", b"X"),))]))
    )
    to = ValuePart("/id")
    parts: list[Part] = [to, HeaderPart(b"h", Normal.LOWER)]
    ids = IdExtractor(parts, SECRET).extract(piece.columns)
    grown = Renamer(parts, to, "/old", SECRET).most_growth(ids)
    assert grown[0] >= len(escaped) + len('"old":""')


def test_what_is_far_below_the_limit_is_not_edited_to_find_out() -> None:
    class Unasked(Tagger):
        def edits(self, *_: object) -> None:  # type: ignore[override]  # nobody calls it
            raise AssertionError

    (piece,) = batches.DECODER.pieces(chunk(by_hand(batches.run(0, 5))))
    ids = IdExtractor([KeyPart()], SECRET, pass_missing=True).extract(piece.columns)
    ids.unjudged[:] = False
    assert not too_large_as_collisions(Encoder(), piece, ids, Unasked(b"clicks"), 1_000_000).size
