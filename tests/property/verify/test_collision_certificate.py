"""What must become of collisions is proved, and whatever is changed of notes, tags and new ids is found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from processor.engine.ids.clock import RecordedClock
from tests.support.verify.collisions import (
    ACTIONS,
    BAD_EVENT,
    SECRET,
    collision_rules,
    collision_topics,
    event,
)
from tests.support.verify.compared import compared, renumber
from tests.support.verify.corruptions import at, headed, said
from tests.support.verify.id_corruptions import HOUR_MS, id_pipeline

if TYPE_CHECKING:
    from processor.verify.report import VerifyReport
    from tests.support.judges.fingerprints import FingerprintRules
    from tests.support.kafka.topics import New, Record
    from tests.support.verify.compared import Topics

BUILT = st.builds(
    event, st.sampled_from("abc"), st.integers(0, 3), st.one_of(st.integers(0, 50), st.integers(0, 3 * HOUR_MS))
)
STREAMS = st.lists(st.one_of(BUILT, BUILT, BUILT, st.just(BAD_EVENT)), min_size=2, max_size=30)
BY_HEADER = {"id": ({"from": "header", "name": "id"},), "rename": {"to": "header:id", "keep": "/was"}}
KEYS = st.fixed_dictionaries({"refresh": st.booleans()})
LIES: dict[str, Any] = {
    "pipeline": "q",
    "offset": 10**6,
    "timestamp": 5,
    "verdict": "late",
    "id": ["z"],
    "fingerprint": "0123456789abcdef",
    "owner_fingerprint": "0123456789abcdef",
    "action": "forget",
    "new_id": "01234567-89ab-8def-8123-456789abcdef",
    "owner": {"topic": "s", "partition": 0, "offset": 10**6},
    "expires_at": 1,
    "more": None,
}
"""What no note says, by the field."""


def proved(topics: Topics, rules: FingerprintRules, piece: int) -> VerifyReport:
    clock = RecordedClock(*np.zeros((2, 0), np.int64), arrival=False)
    return compared(topics, piece, pipeline=id_pipeline(rules), clock=clock, secret=SECRET)


def rules_of(action: str, keys: dict[str, Any], *, by_header: bool = False) -> FingerprintRules:
    return collision_rules(action, **keys, **(BY_HEADER if by_header and action == "rename" else {}))


def notes(topics: Topics) -> list[tuple[int, int]]:
    """Return the place of each note, and the offset that it is for."""
    told = [json.loads(each.value or b"") for each in topics.duplicates]
    return [(place, each["offset"]) for place, each in enumerate(told) if each["verdict"] == "collision"]


@given(
    stream=STREAMS,
    action=st.sampled_from(ACTIONS),
    keys=KEYS,
    by_header=st.booleans(),
    too_large=st.sets(st.integers(0, 29), max_size=6),
    piece=st.integers(1, 9),
)
@settings(deadline=None)
def test_what_the_naive_model_makes_is_proved(
    stream: list[New],
    action: str,
    keys: dict[str, Any],
    by_header: bool,  # noqa: FBT001 - hypothesis gives it by name
    too_large: set[int],
    piece: int,
) -> None:
    rules = rules_of(action, keys, by_header=by_header)
    # Some are larger with their edit than the sink takes.
    refused = too_large if action in {"tag", "rename"} else ()
    topics = collision_topics(stream, rules, too_large_edited=refused)
    report = proved(topics, rules, piece)
    assert report.ok, report.violations
    assert report.source == report.sink + report.duplicates + report.quarantine
    assert report.collisions == len(notes(topics))


@given(stream=STREAMS, action=st.sampled_from(ACTIONS), keys=KEYS, piece=st.integers(1, 9), data=st.data())
@settings(deadline=None)
def test_no_change_of_a_note_goes_unseen(
    stream: list[New], action: str, keys: dict[str, Any], piece: int, data: st.DataObject
) -> None:
    rules = rules_of(action, keys)
    topics = collision_topics(stream, rules)
    there = notes(topics)
    assume(there)
    place, _ = data.draw(st.sampled_from(there), "which")
    how = data.draw(st.sampled_from(["missing", "twice", "key", *LIES]), "how")
    found = topics.duplicates
    if how == "missing":
        del found[place]
    elif how == "twice":
        found.insert(place, found[place])
    elif how == "key":
        found[:] = at(place, key=b"other")(found)
    else:
        found[:] = said(place, **{how: LIES[how]})(found)
    renumber(found)
    assert not proved(topics, rules, piece).ok


@given(
    stream=STREAMS,
    action=st.sampled_from(["tag", "rename"]),
    by_header=st.booleans(),
    piece=st.integers(1, 9),
    data=st.data(),
)
@settings(deadline=None)
def test_no_change_of_a_record_that_collided_goes_unseen(
    stream: list[New],
    action: str,
    by_header: bool,  # noqa: FBT001 - hypothesis gives it by name
    piece: int,
    data: st.DataObject,
) -> None:
    rules = rules_of(action, {}, by_header=by_header)
    topics = collision_topics(stream, rules)
    came = {each.content for each in topics.source}
    edited = [place for place, each in enumerate(topics.sink) if each.content not in came]
    collided = [topics.source[offset] for _, offset in notes(topics)]
    assume(edited)
    assert len(edited) == len(collided)
    which = data.draw(st.integers(0, len(edited) - 1), "which")
    topics.sink[:] = changed(data, topics.sink, edited[which], collided[which])
    renumber(topics.sink)
    assert not proved(topics, rules, piece).ok


def changed(data: st.DataObject, sink: list[Record], place: int, came: Record) -> list[Record]:
    """Return the sink with another form of the record that collided, with none, or with two."""
    record = sink[place]
    how = data.draw(
        st.sampled_from(["lost", "twice", "as it came", "as it came, too", "value", "header"]), "how"
    )
    if how == "lost":
        return [*sink[:place], *sink[place + 1 :]]
    if how.startswith("as it came"):
        return [*sink[:place], came, *sink[place + (how == "as it came") :]]
    if how == "twice":
        return [*sink[:place], record, *sink[place:]]
    if how == "value":
        return at(place, value=(record.value or b"")[:-1] + b" }")(sink)
    name = data.draw(st.sampled_from([name for name, _ in record.headers]), "name")
    return headed(place, name, b"s:0:1000000")(sink)
