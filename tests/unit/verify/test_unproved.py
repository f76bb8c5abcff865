"""Where the clock of the beginning is no longer known, receipts are trusted, and all else is proved."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.engine.ids.clock import RecordedClock
from processor.verify.unproved import KnownClock
from tests.support.judges.id_rules import IdRules
from tests.support.verify.compared import compared, found, renumber
from tests.support.verify.corruptions import at, inserted, said, without
from tests.support.verify.id_corruptions import BAD_ID, id_pipeline, id_topics, of, owned

if TYPE_CHECKING:
    from processor.verify.report import VerifyReport
    from tests.support.verify.compared import Topics
    from tests.support.verify.corruptions import Change

RULES = IdRules(window="10s", time="arrival")
WINDOW_MS = 10_000
# Name and reading of each record; what is known begins at offset 8.
STREAM = [
    (b"a", 0),  # 0
    (b"b", 1_000),
    (b"a", 2_000),  # 2, duplicate of 0
    (b"", 2_000),  # 3, cannot be judged
    (b"c", 3_000),
    (b"a", 10_000),  # 5, passes again
    (b"d", 11_000),
    (b"d", 11_000),  # 7, duplicate of 6
    (b"e", 12_000),  # 8, the first that is known
    (b"a", 12_000),  # 9, duplicate of 5: nobody can tell
    (b"e", 13_000),  # 10, duplicate of 8
    (b"a", 14_000),  # 11, duplicate of 5
    (b"f", 15_000),
    (b"a", 20_000),  # 13, passes again
    (b"a", 21_000),  # 14, duplicate of 13; now all is known
    (b"e", 23_000),  # 15, passes again
    (b"a", 23_000),  # 16, duplicate of 13
    (b"f", 24_000),  # 17, duplicate of 12
    (b"g", 25_000),
]
KNOWN = 8


def topics_of(stream: list[tuple[bytes, int]]) -> Topics:
    now = iter([reading for name, reading in stream if name])
    records = [of(name, place) if name else BAD_ID for place, (name, _) in enumerate(stream)]
    return id_topics(records, RULES, lambda: next(now))


def judged(
    topics: Topics, stream: list[tuple[bytes, int]], known_from: int, piece: int = 1, backfill: str = ""
) -> VerifyReport:
    """Compare, when what was noted before ``known_from`` is gone."""
    readings = [reading for _, reading in stream]
    before = max(readings[:known_from], default=-(2**63))
    noted = [(place, reading) for place, reading in enumerate(readings) if place >= known_from]
    clock = RecordedClock(*np.array(noted, np.int64).reshape(-1, 2).T, arrival=True)
    known = KnownClock(known_from, before, backfill)
    return compared(topics, piece, pipeline=id_pipeline(RULES), clock=clock, known=known)


@pytest.mark.parametrize("piece", [1, 2, 3, 100])
def test_what_is_right_is_right_and_what_is_believed_is_counted(piece: int) -> None:
    report = judged(topics_of(STREAM), STREAM, KNOWN, piece)
    assert report.ok, report.violations
    assert (report.source, report.sink, report.duplicates, report.quarantine) == (19, 10, 8, 1)
    # 2 and 7 before what is known, 9 and 11 of an id that had passed before.
    assert report.unproved == 4
    if piece == 1:
        assert report.judged_from == 15


def test_what_is_believed_of_a_backfill_is_counted_apart() -> None:
    # As if the two that nobody can tell were of a history.
    topics = topics_of(STREAM)
    for place in (2, 4):
        topics.duplicates = said(place, owner={"backfill": "night"})(topics.duplicates)
    report = judged(topics, STREAM, KNOWN, backfill="night")
    assert report.ok, report.violations
    assert (report.duplicates, report.unproved, report.backfilled) == (8, 2, 2)
    # One that is known has its owner in the source; and the name is that of the state.
    for place, name, offset in ((3, "night", 10), (2, "day", 9)):
        wrong = topics_of(STREAM)
        wrong.duplicates = said(place, owner={"backfill": name})(wrong.duplicates)
        assert found(judged(wrong, STREAM, KNOWN, backfill="night")) == [(offset, "receipt_wrong")]


PLANTED: dict[str, tuple[str, Change, list[tuple[int, str]]]] = {
    "one is lost at the beginning": ("sink", without(2), [(4, "lost")]),
    "one is changed at the beginning": ("sink", at(1, value=b"another"), [(1, "changed")]),
    "a receipt is missing at the beginning": ("duplicates", without(0), [(2, "lost")]),
    "a receipt for another id": ("duplicates", said(0, id=["b"]), [(2, "receipt_wrong")]),
    "a receipt that is owned by what comes later": ("duplicates", owned(0, 6), [(2, "receipt_wrong")]),
    "an expiry that is no number": ("duplicates", said(0, expires_at="soon"), [(2, "receipt_wrong")]),
    "a receipt stands twice": ("duplicates", inserted(1, lambda r: r[0]), [(2, "receipt_forged")]),
    "one that was known passed": (
        "sink",
        inserted(6, lambda r: r[5]._replace(value=b"value of e at 10", timestamp=r[5].timestamp + 2)),
        [(10, "duplicate_passed")],
    ),
    "a known one's owner": ("duplicates", owned(3, 4), [(10, "receipt_wrong")]),
    "a known one's expiry": ("duplicates", said(3, expires_at=22_001), [(10, "receipt_wrong")]),
    "a believed one's owner is one that is known": ("duplicates", owned(2, 8), [(9, "receipt_wrong")]),
    "a believed one lasts longer than what was before can": (
        "duplicates",
        said(2, expires_at=21_001),
        [(9, "receipt_wrong")],
    ),
    "a believed one had expired": ("duplicates", said(2, expires_at=11_000), [(9, "receipt_wrong")]),
    "one is lost at the end": ("sink", without(9), [(18, "lost")]),
    "an expiry at the end": ("duplicates", said(6, expires_at=30_001), [(16, "receipt_wrong")]),
}


@pytest.mark.parametrize("piece", [1, 4, 100])
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_corruption_is_found_all_the_same(name: str, piece: int) -> None:
    which, change, expected = PLANTED[name]
    topics = topics_of(STREAM)
    records = getattr(topics, which)
    records[:] = change(records)
    renumber(records)
    assert found(judged(topics, STREAM, KNOWN, piece)) == expected


def test_what_is_believed_would_not_be_found() -> None:
    topics = topics_of(STREAM)
    topics.duplicates[:] = said(0, expires_at=77)(topics.duplicates)
    report = judged(topics, STREAM, KNOWN)
    assert report.ok, report.violations
    assert json.loads(topics.duplicates[0].value or b"")["expires_at"] == 77


@given(
    stream=st.lists(
        st.tuples(st.sampled_from([b"a", b"b", b"c", b"d", b""]), st.integers(0, 4_000)),
        min_size=1,
        max_size=40,
    ),
    data=st.data(),
)
@settings(deadline=None)
def test_no_right_stream_is_called_wrong(stream: list[tuple[bytes, int]], data: st.DataObject) -> None:
    readings = np.cumsum([step for _, step in stream]).tolist()
    made = [(name, reading) for (name, _), reading in zip(stream, readings, strict=True)]
    known_from = data.draw(st.integers(0, len(made)), "known from")
    # What cannot be judged does not move the clock.
    made = [(name, reading if name else 0) for name, reading in made]
    report = judged(topics_of(made), made, known_from, data.draw(st.integers(1, 7), "piece"))
    assert report.ok, report.violations
    assert report.source == len(made) == report.sink + report.duplicates + report.quarantine
