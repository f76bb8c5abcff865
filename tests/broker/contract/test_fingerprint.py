"""A worker tells records of one id apart as the contract says, sentence by sentence, on a real broker.

What is written into collisions, their
notes and quarantine are held to the naive model for all stories at once; a test says what one is about.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.judges.fingerprints import FingerprintRules
from tests.support.judges.outcomes import (
    Outcomes,
    assert_hashes,
    foretold,
    new_ids_of,
    outcomes,
    plain,
    unfit,
    without_detail,
)
from tests.support.kafka.topics import Header, New
from tests.support.verify.certificate import certificate
from tests.support.worker.stories import SINK_LIMIT_BYTES, Stories, Story, Told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

WINDOW_MS = 3_600_000
BEGUN_MS = int(time.time() * 1000) - WINDOW_MS - 120_000
HEADER, FIELD = {"from": "header", "name": "id"}, {"from": "value", "pointer": "/id"}
EXCLUDED = {"exclude": ["/sent_at", "/meta/hops/0", "/deep/x/y", "/a~1b"]}


def rules(action: str = "pass", fingerprint: Mapping[str, Any] | None = None, **keys: Any) -> FingerprintRules:
    """Return rules with the id in a header."""
    return FingerprintRules(fingerprint=fingerprint or {}, on_collision=action, **keys)


def renaming(to: str = "/id", keep: str | None = None, **keys: Any) -> FingerprintRules:
    """Return rules that rename, with the id in the value."""
    rename = {"to": to} if keep is None else {"to": to, "keep": keep}
    return rules("rename", **{"id": (FIELD,), "rename": rename, **keys})


STORIES = Stories(
    {
        "value": rules(fingerprint=EXCLUDED),
        "headers": rules(fingerprint={"headers": ["type"]}),
        "bytes": rules(fingerprint={"of": "bytes", "headers": ["type"]}),
        "missing": rules(fingerprint={"headers": ["type"]}, id=(FIELD, {"from": "key"}), on_missing="pass"),
        "refresh": rules(refresh=True),
        "tag": rules("tag"),
        "quarantine": rules("quarantine"),
        "drop": rules("drop"),
        "dropped_and_renewed": rules("drop", refresh=True),
        "rename": renaming(),
        "beside": renaming("/m/id", id=({"from": "value", "pointer": "/m/id"}, HEADER, {"from": "key"})),
        "keep": renaming(keep="/meta/was"),
        "in_header": renaming("header:id", id=(HEADER,)),
        "kept_in_value": renaming("header:id", "/was", id=(HEADER,), fingerprint={"of": "bytes"}),
    },
    apart_ms=0,
)
sent = STORIES.sent


@pytest.fixture(scope="module")
def told(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Told:
    return STORIES.run(broker.bootstrap_servers, tmp_path_factory.mktemp("fingerprint"))


@pytest.fixture
def story(request: pytest.FixtureRequest, told: Told) -> Story:
    return told.of(request.function.__name__)


def came(
    value: bytes | None = b"{}",
    name: bytes | None = b"a",
    later_ms: int = 0,
    *,
    key: bytes | None = b"key",
    headers: tuple[Header, ...] = (),
) -> New:
    """Return a record with its id in a header, so much later than an hour and two minutes ago."""
    named: tuple[Header, ...] = () if name is None else (("id", name),)
    return New(key, value, (*named, *headers), BEGUN_MS + later_ms)


def values(*some: bytes | None) -> list[New]:
    return [came(each) for each in some]


def typed(*types: bytes | None) -> New:
    return came(headers=tuple(("type", each) for each in types))


def foreseen(story: Story) -> Outcomes:
    """Return what the naive model says of a story; what a tag or a new id makes too large is not its to say."""
    assert isinstance(story.rules, FingerprintRules)
    model = story.rules.model()
    small = {each.offset for each in story.source if len(each.value or b"") <= SINK_LIMIT_BYTES}
    unfit(model, [offset for offset, code in story.codes.items() if code == "too_large" and offset in small])
    return outcomes(model, story.rules, story.pipeline, story.source, new_ids_of(story.notes))


def originals(story: Story) -> list[bytes | None]:
    """Return the headers ``seqmark.original_id`` of what is in the sink, None where there is none."""
    return [dict(each.headers).get("seqmark.original_id") for each in story.sink]


# ------------------------------------------------------------------ all stories at once


def test_every_story_is_judged_as_the_naive_model_does(told: Told) -> None:
    assert [story.outcomes for story in told.all()] == [foreseen(story).verdicts for story in told.all()]


def test_every_receipt_and_every_note_says_what_the_naive_model_does(told: Told) -> None:
    for story in told.all():
        assert foretold(story.told) == foreseen(story).told
        records = {each.offset: each for each in story.source}
        for said, note in zip(story.told, story.receipts, strict=True):
            of = records[said["offset"]]
            assert (note.key, note.timestamp, note.headers) == (of.key, of.timestamp, ())


def test_fingerprints_and_new_ids_are_those_of_the_content_and_of_no_other(told: Told) -> None:
    for story in told.all():
        assert isinstance(story.rules, FingerprintRules)
        assert_hashes(story.rules, {each.offset: each for each in story.source}, story.told)


def test_the_sink_has_every_record_as_the_model_writes_it_byte_for_byte(told: Told) -> None:
    for story in told.all():
        assert [plain(each) for each in story.sink] == foreseen(story).passed


def test_quarantine_has_every_record_as_it_came_and_the_code_behind_its_own_headers(told: Told) -> None:
    for story in told.all():
        found = [without_detail(plain(each)) for each in story.quarantine]
        assert found == foreseen(story).quarantined


def test_a_certificate_proves_it(told: Told) -> None:
    answer = certificate(told.config)
    assert answer.code == 0, (answer.details, answer.stderr)
    assert answer.last["ok"]


# ------------------------------------------------------------------ what counts


@sent(
    "value",
    *values(
        b'{"id":"a","b":[true,{"c":"x"}],"n":1}',
        b' { "n" : 1 ,\n"b":[ true,\t{"\\u0063":"\\u0078"} ] ,"\\u0069d":"a" }\r\n',
        b'{"id":"z","n":2,"n":1,"b":{},"b":[true,{"c":"y","c":"x"}],"id":"a"}',
    ),
)
def test_order_whitespace_escapes_and_members_that_come_again_do_not_count(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "duplicate"]


@sent(
    "value",
    *values(
        b'{"n":1}',
        b'{"n":1.0}',
        b'{"n":1e0}',
        b'{"n":"1"}',
        b'{"n":true}',
        b'{"n":null}',
        b'{"n":[1]}',
        b'{"n":{"0":1}}',
        b'{"n":{}}',
        b'{"n":[]}',
        b'{"n":""}',
        b"{}",
        b"[]",
        b'{"m":1}',
        b'{"n":1,"m":{}}',
        b"1",
        b'"1"',
        b"null",
        b'{"n":1E0}',
        b'{"n":-0}',
        b'{"n":0}',
    ),
)
def test_another_leaf_type_path_or_way_to_write_a_number_is_another_content(story: Story) -> None:
    assert story.outcomes == ["pass", *["collision"] * 20]


@sent("value", *values(b'{"a":[1,2]}', b'{"a":[2,1]}', b'{"a":[[1],2]}', b'{"a":[1,[2]]}', b'{"a":[1,2]}'))
def test_elements_count_where_they_stand(story: Story) -> None:
    assert story.outcomes == ["pass", *["collision"] * 3, "duplicate"]


@sent(
    "value", *values(b'{"a":{"b":1},"c":2}', b'{"a":{"b":2},"c":1}', b'{"a":{"c":1},"b":2}', b'{"a.b":1,"c":2}')
)
def test_leaves_that_change_places_are_another_content(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "collision", "collision"]


@sent(
    "value",
    *values(
        b'{"n":1,"sent_at":1,"meta":{"hops":[1,2]},"deep":{"x":{"y":1,"z":2}},"a/b":1}',
        b'{"n":1,"sent_at":{"s":[{"t":2}]},"meta":{"hops":[[5],2]},"deep":{"x":{"z":2}},"a/b":2}',
        b'{"n":1,"meta":{"hops":[0,2]},"deep":{"x":{"y":{"z":7},"z":2}}}',
        b'{"n":1,"meta":{"hops":[1,3]},"deep":{"x":{"z":2}}}',
        b'{"n":1,"meta":{"hops":[1,2],"sent_at":1},"deep":{"x":{"z":2}}}',
        b'{"n":1,"meta":{"hops":[1,2]},"deep":{"x":{"z":2},"y":1}}',
    ),
)
def test_what_is_excluded_does_not_count_with_all_below_it_at_any_depth(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "duplicate", "collision", "collision", "collision"]


@sent(
    "value",
    *values(
        b'{"meta":{"hops":[1]},"deep":{"x":{"y":1}}}',
        b'{"meta":{"hops":[]},"deep":{"x":{}}}',
        b'{"meta":{"hops":[]},"deep":{}}',
        b'{"deep":{"x":{}}}',
        b'{"meta":{"hops":{"0":1}},"deep":{"x":{}}}',
    ),
)
def test_a_container_that_exclude_has_emptied_counts_as_empty(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "collision", "collision", "collision"]


@sent("value", *values(b'{"sent_at":1}', b"{}", b'{"sent_at":1,"sent_at":2}', b'{"sent_at ":1}', b'{"a~1b":1}'))
def test_a_pointer_names_a_member_by_its_text_and_may_empty_the_value(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "duplicate", "collision", "collision"]


@sent(
    "value",
    *values(
        b"[" * 128 + b"]" * 128, b"[ " * 128 + b"]" * 128, b"[" * 127 + b"]" * 127, b"[" * 129 + b"]" * 129
    ),
)
def test_values_may_be_128_levels_deep(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "collision", "value_not_json"]


@sent(
    "headers",
    typed(),
    typed(),
    typed(b""),
    typed(b"a"),
    typed(b"b", b"a"),
    typed(None),
    typed(b"a", None),
    typed(None, b"a"),
    came(headers=(("Type", b"a"),)),
    came(headers=(("other", b"x"),)),
)
def test_headers_count_by_their_bytes_an_absent_one_as_absent(story: Story) -> None:
    assert story.outcomes == [
        "pass",
        "duplicate",
        "collision",
        "collision",
        "duplicate",
        "header_malformed",
        "header_malformed",
        "duplicate",
        "duplicate",
        "duplicate",
    ]


@sent("bytes", *values(b"{}", b"{ }", None, None, b"", b"", b"{}", b"\xff", b"null"))
def test_as_bytes_a_value_counts_as_it_stands_and_a_null_one_is_a_value(story: Story) -> None:
    assert story.outcomes == [
        "pass",
        "collision",
        "collision",
        "duplicate",
        "collision",
        "duplicate",
        "duplicate",
        "collision",
        "collision",
    ]


@sent("bytes", *values(None, None, b""))
def test_a_null_value_can_be_the_first_of_its_id(story: Story) -> None:
    assert story.outcomes == ["pass", "duplicate", "collision"]


@sent(
    "bytes",
    came(b"x", headers=(("type", b"y"),)),
    came(b"xy"),
    came(b"", headers=(("type", b"xy"),)),
    came(b"x"),
)
def test_value_and_headers_do_not_flow_into_each_other(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "collision", "collision"]


# ------------------------------------------------------------------ faults


@sent("value", came(None), came(b"{"), came(None, None), came(b"{", None), came(b"{}", None), came(b"{}"))
def test_a_fault_of_the_id_comes_before_one_of_the_fingerprint(story: Story) -> None:
    assert story.outcomes == ["value_missing", "value_not_json", *["header_missing"] * 3, "pass"]


@sent(
    "headers",
    came(None, headers=(("type", None),)),
    came(b"{", headers=(("type", None),)),
    came(b"{}", None, headers=(("type", None),)),
    came(None, name=None),
    came(b"{}", later_ms=WINDOW_MS, headers=(("type", None),)),
    came(b"{}"),
    came(b"[]", later_ms=WINDOW_MS - 1),
)
def test_what_cannot_be_judged_changes_no_state_the_clock_included(story: Story) -> None:
    assert story.outcomes == [
        "value_missing",
        "value_not_json",
        "header_missing",
        "header_missing",
        "header_malformed",
        "pass",
        "collision",
    ]


@sent(
    "missing",
    came(b'{"id":"a"}'),
    came(None),
    came(b"{}"),
    came(b'{"id":null,"x":1}', headers=(("type", None),)),
    came(b'{"id":"a","x":1}', key=None),
    came(b'{"id":"a","x":1}'),
    came(b'{"id":"a","x":2}', headers=(("type", None),)),
    came(b"{", key=None),
    came(b'{"id":[]}', key=None),
    came(b"{}", later_ms=WINDOW_MS),
    came(b'{"id":"a","x":1}'),
)
def test_where_missing_parts_pass_nothing_else_is_asked_and_the_clock_moves(
    story: Story,
) -> None:
    assert story.outcomes == [
        *["pass"] * 5,
        "collision",
        "header_malformed",
        "value_not_json",
        "field_type",
        "pass",
        "pass",
    ]


# ------------------------------------------------------------------ variants


@sent("value", *values(b"[1]", b"[2]", b"[3]", b"[2]", b"[3]", b"[1]", b"[4]"))
def test_a_duplicate_is_owned_by_that_of_its_content_and_a_collision_notes_the_first(
    story: Story,
) -> None:
    assert story.outcomes == ["pass", "collision", "collision", *["duplicate"] * 3, "collision"]
    assert [each["owner"]["offset"] for each in story.told] == [0, 0, 1, 2, 0, 0]


@sent(
    "value", came(b"[1]", b"a"), came(b"[2]", b"b"), came(b"[2]", b"a"), came(b"[1]", b"b"), came(b"[1]", b"a")
)
def test_variants_are_those_of_their_id(story: Story) -> None:
    assert story.outcomes == ["pass", "pass", "collision", "collision", "duplicate"]


@sent(
    "value",
    came(b"[1]"),
    came(b"[2]", later_ms=60_000),
    came(b"[3]", later_ms=WINDOW_MS - 1),
    came(b"[4]", later_ms=WINDOW_MS),
    came(b"[1]", later_ms=WINDOW_MS),
    came(b"[2]", later_ms=WINDOW_MS + 59_999),
    came(b"[2]", later_ms=WINDOW_MS + 60_000),
    came(b"[1]", later_ms=WINDOW_MS + 60_001),
)
def test_the_first_expires_before_the_second_which_is_the_earliest_then(story: Story) -> None:
    assert story.outcomes == ["pass", *["collision"] * 4, "duplicate", "collision", "duplicate"]
    assert [each["owner"]["offset"] for each in story.told] == [0, 0, 1, 1, 1, 2, 4]


@sent(
    "value",
    came(b"[1]"),
    came(b"[2]"),
    came(b"[3]", later_ms=WINDOW_MS),
    came(b"[2]"),
    came(b"[1]"),
)
def test_an_id_of_which_all_is_expired_passes_again_whatever_its_content(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "pass", "collision", "collision"]
    assert [each["owner"]["offset"] for each in story.told] == [0, 2, 2]


@sent(
    "refresh",
    came(b"[1]"),
    came(b"[2]", later_ms=30_000),
    came(b"[2]", later_ms=WINDOW_MS - 1),
    came(b"[3]", later_ms=WINDOW_MS),
    came(b"[1]", later_ms=WINDOW_MS),
    came(b"[3]", later_ms=WINDOW_MS + 40_000),
    came(b"[2]", later_ms=WINDOW_MS + 90_000),
)
def test_refresh_renews_the_record_with_the_equal_fingerprint_only(story: Story) -> None:
    assert story.outcomes == [
        "pass",
        "collision",
        "duplicate",
        "collision",
        "collision",
        "duplicate",
        "duplicate",
    ]
    assert [each["owner"]["offset"] for each in story.told] == [0, 1, 1, 1, 3, 1]
    expires = [each["expires_at"] - BEGUN_MS - WINDOW_MS for each in story.told]
    assert expires == [30_000, WINDOW_MS - 1, WINDOW_MS, WINDOW_MS, WINDOW_MS + 40_000, WINDOW_MS + 90_000]


@sent(
    "refresh",
    came(b"[1]"),
    came(b"[2]"),
    came(b"[1]", later_ms=WINDOW_MS // 2),
    came(b"[3]", later_ms=WINDOW_MS),
    came(b"[2]", later_ms=WINDOW_MS),
)
def test_the_renewed_first_stays_the_earliest_when_the_second_is_gone(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "duplicate", "collision", "collision"]
    assert [each["owner"]["offset"] for each in story.told] == [0, 0, 0, 0]


# ------------------------------------------------------------------ what becomes of collisions


@sent("value", *values(b"[1]", b"[ 2 ]"))
def test_what_passes_is_in_the_sink_as_it_came(story: Story) -> None:
    assert [each.content for each in story.sink] == [each.content for each in story.source]
    assert [each["action"] for each in story.notes] == ["pass"]


@sent(
    "tag",
    came(b"[1]", headers=(("seqmark.collision", b"x"),)),
    came(b"[2]"),
    came(b"[3]", headers=(("seqmark.collision", b"x"), ("z", None))),
    came(b"[2]"),
    came(b"[4]", later_ms=WINDOW_MS),
    came(b"[5]", later_ms=WINDOW_MS),
)
def test_a_tag_names_the_first_record_behind_the_records_own_headers(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "collision", "duplicate", "pass", "collision"]
    place = f"{story.pipeline.source}:{story.partition}"
    tagged = [story.sink[1], story.sink[2], story.sink[4]]
    assert [each.headers[-1] for each in tagged] == [
        ("seqmark.collision", f"{place}:{offset}".encode()) for offset in (0, 0, 4)
    ]


@sent(
    "quarantine",
    *values(b"[1]", b"[2]", b"[2]"),
    came(b"[2]", later_ms=WINDOW_MS),
    *values(b"[2]", b"[1]"),
)
def test_in_quarantine_a_collision_is_not_remembered_and_moves_the_clock(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "collision", "pass", "duplicate", "collision"]
    assert [each["owner"]["offset"] for each in story.told] == [0, 0, 3, 3]
    assert not any("expires_at" in each for each in story.notes)
    assert set(story.codes.values()) == {"id_collision"}


@sent(
    "quarantine",
    came(b"[1]"),
    came(b"[2]", later_ms=WINDOW_MS - 1),
    came(b"[1]", b"b"),
    came(b"[1]", b"b", WINDOW_MS),
)
def test_the_clock_after_a_quarantined_collision_is_the_collisions(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "pass", "duplicate"]
    assert story.told[-1]["expires_at"] == BEGUN_MS + 2 * WINDOW_MS - 1


@sent(
    "drop",
    *values(b"[1]", b"[2]", b"[2]"),
    came(b"[1]", later_ms=WINDOW_MS - 1),
    came(b"[2]", later_ms=WINDOW_MS),
    came(b"[1]"),
)
def test_a_dropped_collision_has_a_note_and_no_receipt_and_is_not_remembered(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "collision", "duplicate", "pass", "collision"]
    assert len(story.sink) == 2
    assert [each["verdict"] for each in story.told] == ["collision", "collision", "duplicate", "collision"]
    assert not any("expires_at" in each for each in story.notes)


@sent(
    "drop",
    came(b"[1]"),
    came(b"[2]", later_ms=WINDOW_MS - 1),
    came(b"[1]", b"b"),
    came(b"[1]", b"b", WINDOW_MS),
)
def test_a_dropped_collision_moves_the_clock(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "pass", "duplicate"]
    assert story.told[-1]["expires_at"] == BEGUN_MS + 2 * WINDOW_MS - 1


@sent(
    "dropped_and_renewed",
    came(b"[1]"),
    came(b"[2]", later_ms=WINDOW_MS - 1),
    came(b"[1]", later_ms=WINDOW_MS),
)
def test_a_collision_does_not_renew_the_record_that_it_collides_with(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "pass"]


# ------------------------------------------------------------------ new ids


@sent(
    "rename",
    *values(
        b'{"id":"a","n":1}',
        b' {"n" : 2, "x":"a",\t"id" : "\\u0061" , "id2":"a"}\n',
        b'{"n":3,"id":"b","id":"a"}',
        b'{"id":"a","n":2,"x":"a","id2":"a"}',
    ),
)
def test_the_string_gives_way_to_a_uuid_and_all_else_keeps_its_bytes(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "collision", "duplicate"]
    first, second = (each["new_id"].encode() for each in story.notes)
    assert [each.value for each in story.sink[1:]] == [
        b' {"n" : 2, "x":"a",\t"id" : "%b" , "id2":"a"}\n' % first,
        b'{"n":3,"id":"b","id":"%b"}' % second,
    ]
    assert originals(story) == [None, b"a", b"a"]
    assert [each["id"] for each in story.notes] == [["a"], ["a"]]


@sent(
    "rename",
    came(b'{"id":"gr\\u00fc\\n\\"n"}'),
    came(b'{"id":"gr\\u00fc\\n\\"n","x":1}', headers=(("z", b"1"), ("z", None))),
)
def test_the_header_has_the_unescaped_text_behind_the_records_own(story: Story) -> None:
    assert story.sink[1].headers[-3:] == (
        ("z", b"1"),
        ("z", None),
        ("seqmark.original_id", 'gr\u00fc\n"n'.encode()),
    )


@sent(
    "rename",
    *values(b'{"id":1}', b'{"id":1,"x":2}', b'{"id":"1"}', b'{"id":1}', b'{"id":"","x":1}', b'{"id":""}'),
)
def test_a_number_at_to_cannot_be_judged_and_an_empty_string_is_renamed(story: Story) -> None:
    assert story.outcomes == ["field_type", "field_type", "pass", "field_type", "pass", "collision"]
    assert originals(story) == [None, None, b""]


@sent(
    "rename",
    came(b'{"id":"a","n":1}'),
    came(b'{"id":"a","n":2}'),
    came(b'{"id":"a","n":3}', later_ms=WINDOW_MS),
    came(b'{"n":2,"id":"a"}'),
    came(b'{"id":"b","n":1}'),
    came(b'{"id":"b","n":2}'),
)
def test_a_new_id_is_that_of_id_and_content_whenever_it_comes_again(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "pass", "collision", "pass", "collision"]
    first, again, other = (each["new_id"] for each in story.notes)
    assert first == again != other


@sent(
    "beside",
    came(b'{"m":{"id":"x"},"n":1}'),
    came(b'{"m":{"id":"x"},"n":2}'),
    came(b'{"m":{"id":"x"},"n":2}', b"other"),
    came(b'{"m":{"id":"x"},"n":2}', key=b"other"),
    came(b'{"m":{"id":1},"n":2}'),
    came(b'{"m":{"id":1},"n":2}', None),
)
def test_one_part_is_renamed_and_the_others_stay(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "pass", "pass", "field_type", "field_type"]
    assert story.notes[0]["id"] == ["x", "a", "key"]
    assert (story.sink[1].key, dict(story.sink[1].headers)["id"]) == (b"key", b"a")


@sent(
    "keep",
    *values(
        b'{"id":"a","meta":{}}',
        b'{"id":"a","meta":{ "x":1 },"n":1}',
        b'{"meta":{\n},"id":"\\u0061","n":2}',
        b'{"id":"a","meta":{"was":null},"n":3}',
        b'{"id":"a","n":4}',
        b'{"id":"a","meta":[],"n":5}',
        b'{"id":"a","meta":"x","n":6}',
        b'{"id":"a","meta":{"was":1},"meta":{"x":{"was":2}},"n":7}',
        b'{"id":"a","meta":{"\\u0077as":1},"n":8}',
    ),
)
def test_the_old_string_becomes_the_last_member_of_its_parent_where_there_is_room(story: Story) -> None:
    assert story.outcomes == ["pass", *["collision"] * 8]
    new = [each["new_id"].encode() for each in story.notes]
    assert [each.value for each in story.sink[1:]] == [
        b'{"id":"%b","meta":{ "x":1 ,"was":"a"},"n":1}' % new[0],
        b'{"meta":{\n"was":"\\u0061"},"id":"%b","n":2}' % new[1],
        b'{"id":"%b","meta":{"was":null},"n":3}' % new[2],
        b'{"id":"%b","n":4}' % new[3],
        b'{"id":"%b","meta":[],"n":5}' % new[4],
        b'{"id":"%b","meta":"x","n":6}' % new[5],
        b'{"id":"%b","meta":{"was":1},"meta":{"x":{"was":2},"was":"a"},"n":7}' % new[6],
        b'{"id":"%b","meta":{"\\u0077as":1},"n":8}' % new[7],
    ]
    assert originals(story)[1:] == [None, None, b"a", b"a", b"a", b"a", None, b"a"]


@sent(
    "in_header",
    came(b"[1]"),
    came(b"[2]", headers=(("z", b"1"),)),
    came(b"[3]", b"b", headers=(("id", b"a"), ("z", b"1"))),
    came(b"[1]", b"\xff\x00"),
    came(b"[2]", b"\xff\x00"),
    came(b"[1]", b""),
    came(b"[2]", b""),
)
def test_a_part_from_a_header_is_renamed_in_the_last_of_its_name(story: Story) -> None:
    assert story.outcomes == ["pass", "collision", "collision", "pass", "collision", "pass", "collision"]
    first, second, *_ = (each["new_id"].encode() for each in story.notes)
    assert story.sink[1].headers[1:] == (("id", first), ("z", b"1"), ("seqmark.original_id", b"a"))
    assert story.sink[2].headers[1:] == (
        ("id", b"b"),
        ("id", second),
        ("z", b"1"),
        ("seqmark.original_id", b"a"),
    )
    assert originals(story)[4::2] == [b"\xff\x00", b""]
    assert [each.value for each in story.sink] == [each.value for each in story.source]


@sent(
    "kept_in_value",
    came(b"{}", b'q"\n'),
    came(b"{} ", b'q"\n'),
    came(b'{"x":1}', b'q"\n'),
    came(b"no json", b'q"\n'),
    came(None, b'q"\n'),
    came(b"[]", b'q"\n'),
    came(b'{"was":1}', b'q"\n'),
    came(b"{}", b"\xff"),
    came(b"{ }", b"\xff"),
)
def test_an_old_header_becomes_a_member_where_the_value_is_an_object_and_it_is_text(story: Story) -> None:
    assert story.outcomes == ["pass", *["collision"] * 6, "pass", "collision"]
    assert [each.value for each in story.sink[1:3]] == [b'{"was":"q\\"\\n"} ', b'{"x":1,"was":"q\\"\\n"}']
    assert originals(story) == [None, None, None, *[b'q"\n'] * 4, None, b"\xff"]


# ------------------------------------------------------------------ what is too large then

LETTERS = "".join(
    random.Random(1).choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", k=20_000)
)
SIZES = range(SINK_LIMIT_BYTES - 480, SINK_LIMIT_BYTES - 60, 12)
"""The smallest fit with a tag or a new id, the largest without one just so or not at all."""
LONG = [b'{"id":"a","n":%d,"x":"%b"}' % (n, LETTERS[n : n + size].encode()) for n, size in enumerate(SIZES)]


FILLED = [came(b'{"id":"a"}'), *values(*LONG), *values(*LONG)]
"""Records of one id, each larger than the one before, and all of them again."""


@sent("tag", *FILLED)
def test_what_a_tag_makes_too_large_is_so_and_is_not_remembered(story: Story) -> None:
    assert_larger_ones_are_too_large(story)


@sent("rename", *FILLED)
def test_what_a_new_id_makes_too_large_is_so_and_is_not_remembered(story: Story) -> None:
    assert_larger_ones_are_too_large(story)


@sent("value", *FILLED)
def test_what_goes_on_as_it_came_is_too_large_only_if_it_came_so(story: Story) -> None:
    assert_larger_ones_are_too_large(story)


def assert_larger_ones_are_too_large(story: Story) -> None:
    first, *once = story.outcomes[: len(LONG) + 1]
    again = story.outcomes[len(LONG) + 1 :]
    assert first == "pass"
    fitting = once.count("collision")
    assert once == ["collision"] * fitting + ["too_large"] * (len(LONG) - fitting)
    assert 0 < fitting < len(LONG)
    assert again == ["duplicate"] * fitting + ["too_large"] * (len(LONG) - fitting)
    assert len(story.notes) == fitting


# ------------------------------------------------------------------ the cases of a batch shredder, as a stream


def event(name: str, content: str, time_ms: int) -> New:
    value = b'{"event_id":"%b","payload":"%b"}' % (name.encode(), content.encode())
    return came(value, name.encode(), time_ms)


@sent(
    "headers",
    event("A", "same", 0),
    event("B", "one", 1),
    event("A", "same", 2),
    event("B", "one", 3),
    event("A", "same", 4),
    event("C", "one", 5),
)
def test_of_natural_duplicates_the_first_of_equal_pairs_stays(story: Story) -> None:
    assert [each.offset for each in story.source if story.outcomes[each.offset] == "pass"] == [0, 1, 5]
    assert [each.content for each in story.sink] == [story.source[at].content for at in (0, 1, 5)]


@sent(
    "in_header",
    event("A", "one", 0),
    event("A", "two", 1),
    event("A", "three", 2),
    event("A", "two", 3),
    event("B", "two", 4),
)
def test_of_synthetic_duplicates_each_gets_an_id_of_its_own_and_the_original_is_kept_beside_it(
    story: Story,
) -> None:
    assert story.outcomes == ["pass", "collision", "collision", "duplicate", "pass"]
    ids = [dict(each.headers)["id"] for each in story.sink]
    assert len(set(ids)) == 4
    assert originals(story) == [None, b"A", b"A", None]
