"""What a pipeline has observed is proved beside what it has dropped, and no change of either goes unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.property.verify.test_certificate import PIECES, change
from tests.property.verify.test_certificate import STREAMS as NUMBERED
from tests.property.verify.test_collision_certificate import KEYS, STREAMS, proved, rules_of
from tests.support.verify.collisions import ACTIONS, collision_topics
from tests.support.verify.compared import PIPELINE, Topics, compared, renumber
from tests.support.verify.observed import observed, unflagged

if TYPE_CHECKING:
    from processor.verify.report import VerifyReport
    from schemas.config import Pipeline
    from tests.support.kafka.topics import New, Record

SPANS = st.builds(range, st.integers(0, 30), st.integers(0, 40))


def present(pipeline: Pipeline, *, observe: bool) -> Pipeline:
    return pipeline.model_copy(update={"observe": observe})


def assert_proved(report: VerifyReport, topics: Topics, told: int) -> None:
    assert report.ok, report.violations
    assert report.source == len(topics.source)
    assert report.source == report.sink + report.duplicates + report.quarantine
    assert report.sink == len(topics.sink)
    assert report.observed == told


def flagged(topics: Topics) -> int:
    """Return how many say that their record has passed."""
    receipts = sum(b'"observed": true' in (each.value or b"") for each in topics.duplicates)
    return receipts + sum(each.headers[-4:-3] == (("seqmark.observed", b"true"),) for each in topics.quarantine)


@given(stream=NUMBERED, span=SPANS, piece=PIECES, now=st.booleans())
@settings(deadline=None)
def test_a_part_that_was_observed_is_proved_whatever_the_config_says_now(
    stream: list[New],
    span: range,
    piece: int,
    now: bool,  # noqa: FBT001 - hypothesis gives it by name
) -> None:
    topics = observed(Topics.of(stream), span)
    report = compared(topics, piece, pipeline=present(PIPELINE, observe=now))
    assert_proved(report, topics, flagged(topics))


@given(
    stream=STREAMS,
    action=st.sampled_from(ACTIONS),
    keys=KEYS,
    span=SPANS,
    too_large=st.sets(st.integers(0, 29), max_size=6),
    too_large_edited=st.sets(st.integers(0, 29), max_size=6),
    piece=st.integers(1, 9),
)
@settings(deadline=None)
def test_collisions_that_were_observed_are_proved_to_pass_as_they_came(
    stream: list[New],
    action: str,
    keys: dict[str, Any],
    span: range,
    too_large: set[int],
    too_large_edited: set[int],
    piece: int,
) -> None:
    rules = rules_of(action, keys)
    edits = action in {"tag", "rename"}
    # A record that collides and was too large as it came cannot be distinguished from one with its edit.
    as_it_came = set() if edits else too_large
    topics = collision_topics(stream, rules, None, as_it_came, too_large_edited if edits else ())
    topics = observed(topics, span, as_it_came)
    report = proved(topics, rules, piece)
    assert_proved(report, topics, flagged(topics))


@given(
    stream=NUMBERED,
    span=SPANS,
    piece=PIECES,
    which=st.sampled_from(["sink", "duplicates", "quarantine"]),
    now=st.booleans(),
    data=st.data(),
)
@settings(deadline=None)
def test_no_change_of_any_output_goes_unseen_in_either_part(
    stream: list[New],
    span: range,
    piece: int,
    which: str,
    now: bool,  # noqa: FBT001 - hypothesis gives it by name
    data: st.DataObject,
) -> None:
    topics = observed(Topics.of(stream), span)
    records: list[Record] = getattr(topics, which)
    assume(records)
    right = [each.content for each in records]
    for _ in range(data.draw(st.integers(1, 3), "changes")):
        change(records, data)
    assume([each.content for each in records] != right)
    renumber(records)
    report = compared(topics, piece, pipeline=present(PIPELINE, observe=now))
    assert not report.ok
    assert report.total <= 3 * len(topics.source) + 6


@given(stream=NUMBERED, span=SPANS, piece=PIECES, data=st.data())
@settings(deadline=None)
def test_a_receipt_that_lies_about_whether_its_record_passed_is_found(
    stream: list[New], span: range, piece: int, data: st.DataObject
) -> None:
    topics = observed(Topics.of(stream), span)
    assume(topics.duplicates)
    place = data.draw(st.integers(0, len(topics.duplicates) - 1), "which")
    topics.duplicates[:] = unflagged(topics.duplicates, place)
    report = compared(topics, piece)
    assert {each.rule.value for each in report.violations} & {"lost", "duplicate_passed"}
