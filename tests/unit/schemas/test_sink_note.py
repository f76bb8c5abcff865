"""What a position says of the sink is read as it was written, or not at all."""

from __future__ import annotations

import pytest

from schemas.verdicts.sink_note import SinkNote

SINK, VERDICTS, UNKNOWN = b"s" * 16, b"v" * 16, bytes(16)


def test_it_is_text_that_is_read_back() -> None:
    note = SinkNote(SINK, 17, VERDICTS, 21, 400)
    assert note.text() == f"1 {'73' * 16} 17 {'76' * 16} 21 400"
    assert SinkNote.read(note.text()) == note


@pytest.mark.parametrize(
    "text",
    [
        "",
        "17",
        f"2 {SINK.hex()} 17 {VERDICTS.hex()} 21 400",
        f"1 {SINK.hex()} 17 {VERDICTS.hex()}",
        f"1 {SINK.hex()} 17 {VERDICTS.hex()} 21 400 3",
        f"1 {SINK.hex()} x {VERDICTS.hex()} 21 400",
        f"1 {SINK.hex()} 17 {VERDICTS.hex()} 21 x",
        f"1 {SINK.hex()} 017 {VERDICTS.hex()} 21 400",
        f"1 {SINK.hex()[:-2]} 17 {VERDICTS.hex()} 21 400",
        f"1 zz{SINK.hex()[2:]} 17 {VERDICTS.hex()} 21 400",
    ],
)
def test_what_another_has_written_is_none(text: str) -> None:
    assert SinkNote.read(text) is None


def test_topics_are_the_same_by_their_ids_or_where_nobody_knows_them() -> None:
    note = SinkNote(SINK, 17, VERDICTS)
    assert note.is_of(SINK, VERDICTS) == (True, True)
    assert note.is_of(b"t" * 16, VERDICTS) == (False, True)
    assert note.is_of(UNKNOWN, b"w" * 16) == (True, False)
    assert SinkNote(UNKNOWN, 17, VERDICTS).is_of(SINK, VERDICTS) == (True, True)
