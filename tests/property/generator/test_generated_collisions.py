"""Is the truth of a stream with collisions what the contract's rules of fingerprints say of its bytes?"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.generator import FAULTS, RecordKind, StreamOptions, StreamPartition, make_stream
from schemas.config import InsertIdDedup
from tests.property.generator.test_generated_ids import consumed
from tests.property.generator.test_generated_streams import START_MS, records
from tests.support.judges.fingerprints import LET_IN, FingerprintModel, FingerprintRules, fingerprint_of
from tests.support.judges.json_values import is_json
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from tests.support.judges.id_rules import IdSaid

EVENT, FIELD = {"from": "value", "pointer": "/event_id"}, {"from": "value", "pointer": "/m/id"}
HEADER, KEY = {"from": "header", "name": "id"}, {"from": "key"}
CONTENTS = [{"from": "content"}, {"from": "content", "of": "bytes"}, {"from": "content", "exclude": ["/page"]}]
FINGERPRINTS: list[dict[str, Any]] = [
    {},
    {"of": "bytes"},
    {"headers": ["type", "id"]},
    {"exclude": ["/sent_at"]},
    {
        "exclude": [
            "/meta/sent/0",
            "/meta/sent/2",
            "/meta/tries",
            "/page",
            "/context/device",
            "/m/sent",
            "/m/id",
        ]
    },
]
ACTIONS: list[dict[str, Any]] = [
    {"on_collision": "pass"},
    {"on_collision": "tag"},
    {"on_collision": "quarantine"},
    {"on_collision": "drop"},
]
definitions = st.fixed_dictionaries(
    {
        "mode": st.just("insert-id"),
        "id": st.sampled_from(
            [
                [EVENT],
                [HEADER],
                [KEY],
                [FIELD, HEADER],
                [EVENT, KEY],
                [FIELD, {"from": "value", "pointer": "/campaign"}],
            ]
        ),
        "window": st.sampled_from(["1s", "10s", "2m", "1h", "3h", "7d"]),
        "time": st.sampled_from(["record", "record", "arrival"]),
        "refresh": st.booleans(),
        "on_missing": st.sampled_from(["pass", "quarantine"]),
        "fingerprint": st.sampled_from(FINGERPRINTS),
    }
)
options = st.builds(
    StreamOptions,
    records=st.integers(1, 700),
    duplicates=st.sampled_from([0.0, 0.05, 0.4]),
    seed=st.integers(0, 2**32),
    partitions=st.integers(1, 2),
    start_ms=st.just(START_MS),
    malformed=st.sampled_from([0.0, 0.05]),
    collisions=st.sampled_from([0.0, 0.01, 0.2]),
)


def defined(**more: Any) -> InsertIdDedup:
    given = {"mode": "insert-id", "id": [FIELD], "window": "1h", "fingerprint": {"exclude": ["/sent_at"]}}
    return InsertIdDedup.model_validate(given | more)


def said_of(part: StreamPartition, dedup: InsertIdDedup, now_ms: int) -> list[IdSaid]:
    return FingerprintModel(FingerprintRules.of(dedup), lambda: now_ms).judge_all(consumed(part))


def assert_true(part: StreamPartition, dedup: InsertIdDedup, now_ms: int) -> list[IdSaid]:
    """Compare the truth with the naive model; return what that says."""
    said = said_of(part, dedup, now_ms)
    kept, quarantined = dedup.on_collision in LET_IN, dedup.on_collision == "quarantine"
    passing = {"pass", "collision"} if kept else {"pass"}
    codes = {"collision": "id_collision"} if quarantined else {}
    assert part.judged is not None
    assert [each.verdict in passing for each in said] == part.passes.tolist()
    assert [each.verdict == "collision" for each in said] == (part.kind == RecordKind.COLLISION).tolist()
    faults = [each.verdict if each.verdict in FAULTS else codes.get(each.verdict, "") for each in said]
    assert faults == [FAULTS[fault] for fault in part.faults.tolist()]
    assert [each.owner for each in said] == part.judged.owner.tolist()
    assert [each.expires_ms for each in said] == part.judged.expires_ms.tolist()
    return said


@pytest.mark.parametrize("action", ACTIONS, ids=[each["on_collision"] for each in ACTIONS])
@examples(100)
@given(definition=definitions, given_options=options)
def test_verdicts_owners_and_expiry_are_what_the_rules_say(
    action: dict[str, Any], definition: dict[str, Any], given_options: StreamOptions
) -> None:
    dedup = InsertIdDedup.model_validate(definition | action)
    for part in make_stream(dedup, given_options):
        assert_true(part, dedup, given_options.start_ms + given_options.span_ms)


@examples(50)
@given(st.sampled_from(CONTENTS), st.sampled_from(FINGERPRINTS), options)
def test_where_content_is_a_part_of_the_id_there_are_only_copies(
    content: dict[str, Any], fingerprint: dict[str, Any], given_options: StreamOptions
) -> None:
    dedup = defined(id=[content, HEADER], fingerprint=fingerprint)
    without = replace(given_options, collisions=0.0)
    for part in make_stream(dedup, without):
        said = assert_true(part, dedup, without.start_ms + without.span_ms)
        assert "collision" not in {each.verdict for each in said}


@pytest.mark.parametrize("action", [*ACTIONS, {"on_collision": "rename", "rename": {"to": "/m/id"}}])
@pytest.mark.parametrize("refresh", [False, True])
def test_a_stream_has_every_case_that_the_rules_know(action: dict[str, Any], *, refresh: bool) -> None:
    dedup = defined(**action, refresh=refresh)
    options = StreamOptions(6_000, 0.1, 3, 1, START_MS, collisions=0.03)
    (part,) = make_stream(dedup, options)
    said = assert_true(part, dedup, START_MS + options.span_ms)
    original = part.layout.original.tolist()
    first = {number: row for row, number in reversed(list(enumerate(original)))}
    colliding = {number for number, row in first.items() if said[row].verdict == "collision"}
    # Some have the id of one that was dropped itself, and another whose window is over.
    assert 150 < len(colliding) <= 180
    ids = Counter(said[first[number]].owner for number in colliding)
    assert max(ids.values()) > 1
    again = Counter(
        (each.verdict, number in colliding)
        for row, (each, number) in enumerate(zip(said, original, strict=True))
        if first[number] != row
    )
    if dedup.on_collision in LET_IN:
        assert again["duplicate", True] > 30
        # The first of an id, when it has expired and another has not; a refresh keeps some of them.
        assert again["collision", False] > 5
    else:
        # But for those that passed once, when their id had expired.
        assert again["duplicate", True] < 5
        assert again["collision", True] > 30


@pytest.mark.parametrize(
    ("fingerprint", "ways"), [({}, 2), ({"exclude": ["/sent_at"]}, 4), ({"of": "bytes"}, 1)]
)
def test_copies_have_the_same_content_in_other_bytes_where_bytes_do_not_count(
    fingerprint: dict[str, Any], ways: int
) -> None:
    dedup = defined(fingerprint=fingerprint)
    (part,) = make_stream(dedup, StreamOptions(4_000, 0.3, 1, 1, START_MS, collisions=0.01))
    first: dict[int, Any] = {}
    seen = Counter[tuple[bool, bool]]()
    for record, number in zip(consumed(part), part.layout.original.tolist(), strict=True):
        original = first.setdefault(number, record)
        assert original.value is not None
        assert record.value is not None
        assert is_json(record.value)
        assert fingerprint_of(record, fingerprint) == fingerprint_of(original, fingerprint)
        assert (record.key, record.headers, record.timestamp) == (
            original.key,
            original.headers,
            original.timestamp,
        )
        one, other = json.loads(record.value), json.loads(original.value)
        if record is not original:
            seen[list(one) == list(other), one.get("sent_at") == other.get("sent_at")] += 1
    assert len(seen) == ways
    assert min(seen.values()) > 50


def leaves_of(tree: Any) -> int:
    if isinstance(tree, dict | list):
        return sum(map(leaves_of, tree.values() if isinstance(tree, dict) else tree))
    return 1


def test_values_are_nested_and_have_more_than_ten_leaves() -> None:
    (part,) = make_stream(defined(), StreamOptions(500, 0.1, 1, 1, START_MS, collisions=0.05))
    for record in records(part):
        tree = json.loads(record.value)
        assert leaves_of(tree) >= 13
        assert isinstance(tree["context"]["device"]["screen"], list)
        assert len(record.value) < 600


def test_some_that_collide_differ_in_hardly_anything_and_some_in_nearly_all() -> None:
    (part,) = make_stream(defined(), StreamOptions(4_000, 0.0, 1, 1, START_MS, collisions=0.05))
    first: dict[Any, Any] = {}
    differing = Counter[bool]()
    for record in consumed(part):
        tree = json.loads(record.value or b"")
        other = first.setdefault(
            tree["m"]["id"] if isinstance(tree["m"]["id"], str) else (tree["m"]["id"],), tree
        )
        if other is not tree:
            apart = {name for name in tree if tree[name] != other[name]}
            differing[apart <= {"occurred_at", "context", "sent_at"}] += 1
    assert min(differing[True], differing[False]) > 60
