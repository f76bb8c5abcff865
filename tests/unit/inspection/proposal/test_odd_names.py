"""What cannot be looked at, or is no number of 64 bits, is said or passed over, and never ends `init`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from processor.commands.look.audit import show
from processor.inspection.proposal.choose import Proposal, propose
from processor.inspection.proposal.observed import observe
from tests.unit.inspection.audit.audited import audited
from tests.unit.inspection.audit.cases import Sent, again
from tests.unit.inspection.proposal.topics import START_MS, record

if TYPE_CHECKING:
    from processor.inspection.topic_records import TopicRecord


def proposed(records: list[TopicRecord]) -> Proposal:
    found = propose(observe(records))
    assert found is not None
    return found


def notes(records: list[TopicRecord]) -> str:
    return "\n".join(proposed(records).notes)


def test_names_that_are_markup_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    sent = [Sent({"[red]event_id": f"e{at}"}, at_ms=at) for at in range(60)]

    show(audited(again(sent, (3,))))

    assert "id /[red]event_id" in capsys.readouterr().out


@pytest.mark.parametrize("digits", [20, 5_000])
def test_numbers_of_too_many_digits_are_no_sequence(digits: int) -> None:
    number = b"9" * digits
    made = [
        record(0, START_MS + at, b'{"seq": %s, "n": %d}' % (number, at % 7), headers=[(b"seq", number)])
        for at in range(60)
    ]

    assert proposed(made).dedup["id"] == [{"from": "content"}]


def test_what_was_not_looked_at_for_its_name_is_counted() -> None:
    made = [
        record(
            0,
            START_MS + at,
            {"a\u0007": {"b": at, "c": at}, "list": [{"\u0007": 1}], "n": 1},
            headers=[(b"id\x1b", b"%d" % at), (b"\xff", b"%d" % at), (b"fine", b"x")],
        )
        for at in range(60)
    ]

    said = notes(made)

    assert "2 headers were not looked at: their names are not printable" in said
    assert "2 JSON members were not looked at: their names are not printable" in said
    assert "that was looked at tells" in proposed(made).reasons["mode"]
    one = [each._replace(headers=each.headers[:1], value=b'{"n": 1}') for each in made]
    assert "1 header was not looked at: its name is not printable" in notes(one)
    assert "member" not in notes(one)


def test_a_content_that_would_drop_nearly_all_comes_with_a_warning() -> None:
    same = [record(0, START_MS + at, {"n": 1}, headers=[(b"id\x1b", b"%d" % at)]) for at in range(50)]
    unlike = [record(0, START_MS + at, {"heat": at / 7}) for at in range(50)]

    assert "WARNING: the content would drop 49 of the 50 records" in notes(same)
    assert "WARNING" not in notes([*unlike, *unlike[:5]])
