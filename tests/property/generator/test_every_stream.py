"""What holds of a generated stream whatever its mode: its copies, its bytes, its counts and its clicks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.generator import RecordKind, make_stream
from schemas.config import InsertIdDedup
from schemas.events import ClickEvent
from tests.property.generator import test_generated_collisions as collisions
from tests.property.generator import test_generated_ids as ids
from tests.property.generator import test_generated_streams as sequences
from tests.property.generator.test_generated_streams import records
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from processor.generator import StreamOptions

every_mode = pytest.mark.parametrize("mode", ["watermark", "insert-id"])
STREAMS: dict[str, st.SearchStrategy[tuple[Any, StreamOptions]]] = {
    "watermark": st.tuples(sequences.definitions, sequences.options),
    "insert-id": st.tuples(ids.definitions, ids.options),
    "fingerprint": st.tuples(collisions.definitions.map(InsertIdDedup.model_validate), collisions.options),
}


@every_mode
@examples(50)
@given(data=st.data())
def test_copies_are_their_originals_byte_for_byte_and_come_behind_them(mode: str, data: st.DataObject) -> None:
    for part in make_stream(*data.draw(STREAMS[mode])):
        firsts: dict[int, Any] = {}
        rows = zip(records(part), part.layout.original.tolist(), part.layout.kind.tolist(), strict=True)
        for record, original, kind in rows:
            assert (original not in firsts) == (kind == RecordKind.FIRST)
            assert firsts.setdefault(original, record) == record


@pytest.mark.parametrize("mode", STREAMS)
@examples(50)
@given(data=st.data())
def test_the_same_seed_gives_the_same_bytes_however_they_are_read(mode: str, data: st.DataObject) -> None:
    dedup, options = data.draw(STREAMS[mode])
    for one, other in zip(make_stream(dedup, options), make_stream(dedup, options), strict=True):
        pieces = [record for at in range(0, len(other), 7) for record in other.records(at, at + 7)]
        assert records(one) == pieces


@every_mode
@examples(50)
@given(data=st.data())
def test_counts_are_met_to_the_record_with_copies_at_edges_among_them(mode: str, data: st.DataObject) -> None:
    dedup, options = data.draw(STREAMS[mode])
    stream = make_stream(dedup, options)
    copies = sum(int((part.layout.kind != RecordKind.FIRST).sum()) for part in stream)
    assert sum(map(len, stream)) == options.records
    room = options.records - sum(1 for part in stream if len(part))
    assert copies == min(round(options.records * options.duplicates), room)


@every_mode
@examples(50)
@given(data=st.data())
def test_what_is_whole_is_a_click_whose_timestamp_is_the_records(mode: str, data: st.DataObject) -> None:
    dedup, options = data.draw(STREAMS[mode])
    for part in make_stream(dedup, replace(options, malformed=0.0)):
        for record in records(part):
            event = ClickEvent.model_validate_json(record.value)
            assert int(event.occurred_at.timestamp() * 1000) == record.timestamp_ms
