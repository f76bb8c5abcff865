"""Every change of any output is found, and what nobody changed is proved, whatever the pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.verify.compared import Topics, compared, renumber
from tests.support.verify.corruptions import BAD, numbered

if TYPE_CHECKING:
    from tests.support.kafka.topics import New, Record

RECORDS = st.one_of(
    st.builds(numbered, st.integers(0, 12)),
    st.builds(numbered, st.integers(0, 12), st.sampled_from([b"a", b"b"])),
    st.just(BAD),
)
STREAMS = st.lists(RECORDS, max_size=40)
PIECES = st.integers(1, 12)
OUTPUTS = st.sampled_from(["sink", "duplicates", "quarantine"])


@given(stream=STREAMS, piece=PIECES)
@settings(deadline=None)
def test_what_the_naive_model_makes_is_proved(stream: list[New], piece: int) -> None:
    topics = Topics.of(stream)
    report = compared(topics, piece)
    assert report.ok, report.violations
    counts = (report.source, report.sink, report.duplicates, report.quarantine)
    expected = (topics.source, topics.sink, topics.duplicates, topics.quarantine)
    assert counts == tuple(map(len, expected))
    assert report.source == report.sink + report.duplicates + report.quarantine


@given(stream=STREAMS, piece=PIECES, which=OUTPUTS, data=st.data())
@settings(deadline=None)
def test_no_change_of_any_output_goes_unseen(
    stream: list[New], piece: int, which: str, data: st.DataObject
) -> None:
    topics = Topics.of(stream)
    records: list[Record] = getattr(topics, which)
    assume(records)
    right = [each.content for each in records]
    for _ in range(data.draw(st.integers(1, 3), "changes")):
        change(records, data)
    assume([each.content for each in records] != right)
    renumber(records)

    report = compared(topics, piece)

    assert not report.ok
    assert 1 <= report.total <= 2 * len(topics.source) + 6
    assert {each.rule.value for each in report.violations}


def change(records: list[Record], data: st.DataObject) -> None:
    """Take one away, send one again, move one, or change one's value or time."""
    if not records:
        return
    place = st.integers(0, len(records) - 1)
    at, to = data.draw(place, "at"), data.draw(place, "to")
    match data.draw(st.integers(0, 4), "kind"):
        case 0:
            del records[at]
        case 1:
            records.insert(to, records[at])
        case 2:
            records.insert(to, records.pop(at))
        case 3:
            records[at] = records[at]._replace(value=(records[at].value or b"") + b"x")
        case _:
            records[at] = records[at]._replace(timestamp=records[at].timestamp + 1)
