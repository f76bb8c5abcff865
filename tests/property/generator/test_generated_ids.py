"""Is the truth of a stream with ids what the contract's rules say of its bytes, under every definition?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.generator import FAULTS, HOUR_MS, RecordKind, StreamOptions, StreamPartition, make_stream
from schemas.config import InsertIdDedup
from schemas.events import ClickEvent
from tests.property.generator.test_generated_streams import START_MS, pointer, records
from tests.support.judges.id_rules import IdModel, IdRules, IdSaid, id_of
from tests.support.kafka.topics import Record
from tests.support.suite.examples import examples


def named(part: dict[str, Any]) -> str:
    """Return what makes a part another one: its header, its member, or that it is the key or the content."""
    return str(part.get("name") or part.get("pointer", f"/{part['from']}").split("/")[1])


parts = st.lists(
    st.one_of(
        st.builds(lambda name: {"from": "header", "name": name}, st.sampled_from(["a", "id", "\u00e9"])),
        st.just({"from": "key"}),
        st.sampled_from(
            [
                {"from": "content"},
                {"from": "content", "of": "bytes"},
                {"from": "content", "exclude": ["/page", "/one"]},
                {"from": "content", "exclude": ["/event_id"]},
            ]
        ),
        st.builds(
            lambda where: {"from": "value", "pointer": where},
            st.one_of(
                st.sampled_from(["/event_id", "/user_id", "/campaign"]), pointer("one"), pointer("two~1")
            ),
        ),
    ),
    min_size=1,
    max_size=6,
    unique_by=named,
)
# Something that tells clicks apart; what else the definition has stays as it is.
ids = parts.map(lambda some: some if apart(some) else [*some, {"from": "header", "name": "z"}])
definitions = st.fixed_dictionaries(
    {
        "mode": st.just("insert-id"),
        "id": ids,
        "window": st.sampled_from(["1s", "10s", "2m", "1h", "5h", "7d"]),
        "time": st.sampled_from(["record", "record", "arrival"]),
        "refresh": st.booleans(),
        "on_missing": st.sampled_from(["pass", "quarantine"]),
    }
).map(InsertIdDedup.model_validate)

options = st.builds(
    StreamOptions,
    records=st.integers(1, 700),
    duplicates=st.sampled_from([0.0, 0.05, 0.4]),
    seed=st.integers(0, 2**32),
    partitions=st.integers(1, 3),
    start_ms=st.just(START_MS),
    span_ms=st.sampled_from([10_000, HOUR_MS, 6 * HOUR_MS]),
    malformed=st.sampled_from([0.0, 0.05]),
)


def apart(some: list[dict[str, Any]]) -> bool:
    return any(
        part.get("pointer") not in {"/user_id", "/campaign"} and part.get("exclude") != ["/event_id"]
        for part in some
    )


def defined(*parts_: dict[str, Any], **more: Any) -> InsertIdDedup:
    return InsertIdDedup.model_validate({"mode": "insert-id", "id": list(parts_), "window": "1h", **more})


def consumed(part: StreamPartition) -> list[Record]:
    return [
        Record(0, offset, made.key, made.value, made.headers, made.timestamp_ms, create_time=True)
        for offset, made in enumerate(records(part))
    ]


def said_of(part: StreamPartition, dedup: InsertIdDedup, now_ms: int) -> list[IdSaid]:
    return IdModel(IdRules.of(dedup), lambda: now_ms).judge_all(consumed(part))


@examples(300)
@given(definitions, options)
def test_verdicts_owners_and_expiry_are_what_the_rules_say(
    dedup: InsertIdDedup, given_options: StreamOptions
) -> None:
    for part in make_stream(dedup, given_options):
        assert part.judged is not None
        said = said_of(part, dedup, given_options.start_ms + given_options.span_ms)
        assert [each.verdict == "pass" for each in said] == part.passes.tolist()
        assert [each.verdict if each.verdict in FAULTS else "" for each in said] == [
            FAULTS[fault] for fault in part.faults.tolist()
        ]
        assert [each.owner for each in said] == part.judged.owner.tolist()
        assert [each.expires_ms for each in said] == part.judged.expires_ms.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_resends_come_within_the_window_beyond_it_and_to_the_millisecond_at_its_end(seed: int) -> None:
    dedup = defined({"from": "value", "pointer": "/event_id"})
    (part,) = make_stream(dedup, StreamOptions(20_000, 0.05, seed, 1, START_MS))
    seen = Counter(
        zip((RecordKind(kind) for kind in part.layout.kind.tolist()), part.passes.tolist(), strict=True)
    )
    assert seen[RecordKind.FIRST, False] == 0
    assert seen[RecordKind.RESEND, False] == 400
    assert seen[RecordKind.TAIL, False] == 350
    # Of the late ones 20 are put at edges, every other of which passes, but for the few whose place was taken.
    assert seen[RecordKind.LATE, False] > 5
    assert seen[RecordKind.LATE, True] > 5
    edges = Counter[int]()
    remembered: dict[int, int] = {}
    clock = 0
    rows = (part.layout.original, part.timestamp_ms, part.passes)
    for original, time, passes in zip(*(column.tolist() for column in rows), strict=True):
        clock = max(clock, time)
        edges[clock - remembered.get(original, clock) - HOUR_MS] += 1
        if passes:
            remembered[original] = clock
    assert edges[0] > 5
    assert edges[-1] > 5


def digits(part: bytes | str) -> bytes:
    text = part.encode() if isinstance(part, str) else part
    return text if text.isdigit() else b""  # the key is the user


@pytest.mark.parametrize(
    "parts_",
    [
        ({"from": "header", "name": "a"}, {"from": "header", "name": "b"}),
        ({"from": "header", "name": "a"}, {"from": "value", "pointer": "/m/b"}, {"from": "key"}),
        ({"from": "value", "pointer": "/a"},),
        tuple({"from": "header", "name": f"h{number}"} for number in range(12)),
    ],
    ids=["two headers", "header and value", "one value", "twelve headers"],
)
def test_ids_differ_in_no_more_than_where_a_part_ends_or_how_it_is_written(parts_: Any) -> None:
    dedup = defined(*parts_)
    stream = make_stream(dedup, StreamOptions(900, 0.0, 1, 3, START_MS))
    names = {id_of(record, IdRules.of(dedup)) for part in stream for record in consumed(part)}
    assert len(names) == 900
    joined = Counter(b"".join(digits(part) for _, part in name) for name in names)
    # In each group of the same digits none is alone.
    assert min(joined.values()) > 1


def test_the_key_is_the_user_where_something_else_tells_clicks_apart_and_the_id_otherwise() -> None:
    for more in ([{"from": "header", "name": "id"}], [{"from": "value", "pointer": "/event_id"}]):
        (part,) = make_stream(defined({"from": "key"}, *more), StreamOptions(300, 0.0, 1, 1, START_MS))
        for record in records(part):
            assert ClickEvent.model_validate_json(record.value).user_id.encode() == record.key
    (part,) = make_stream(defined({"from": "key"}), StreamOptions(300, 0.0, 1, 1, START_MS))
    assert len({record.key for record in records(part)}) == 300


@pytest.mark.parametrize("on_missing", ["quarantine", "pass"])
@pytest.mark.parametrize("where", ["/event_id", "/m/id"])
def test_each_definition_has_all_the_malformed_records_that_it_can_have(on_missing: str, where: str) -> None:
    header, value = {"from": "header", "name": "id"}, {"from": "value", "pointer": where}
    dedup = defined(header, value, {"from": "key"}, on_missing=on_missing)
    (part,) = make_stream(dedup, StreamOptions(2_000, 0.2, 1, 1, START_MS, malformed=0.02))
    codes = Counter(FAULTS[fault] for fault in part.faults.tolist())
    hard = {"value_not_json", "field_type"}
    soft = {"header_missing", "header_malformed", "key_missing", "value_missing", "field_missing"}
    assert set(codes) == {"", *hard, *([] if on_missing == "pass" else soft)}
    missing = [record for record in records(part) if record.key is None or record.value is None]
    assert missing
    keyless = [passes for record, passes in zip(records(part), part.passes, strict=True) if record.key is None]
    assert all(keyless) == (on_missing == "pass")
    assert any(keyless) == (on_missing == "pass")
    bad = [record.value for record in records(part)]
    for shown in (b"null", b'["17"]', b'{"id":"17"}'):
        assert any(value and b'id":' + shown in value for value in bad)


@pytest.mark.parametrize("framing", ["auto", "registry"])
def test_values_stand_behind_five_bytes_where_they_have_to(framing: str) -> None:
    dedup = {
        "mode": "insert-id",
        "window": "1h",
        "id": [{"from": "value", "pointer": "/event_id"}],
        "framing": framing,
    }
    options = StreamOptions(200, 0.2, 1, 1, START_MS, malformed=0.1)
    (made,) = make_stream(InsertIdDedup.model_validate(dedup), options)
    (bare,) = make_stream(InsertIdDedup.model_validate(dedup | {"framing": "none"}), options)
    before = b"\0\0\0\0\1" if framing == "registry" else b""
    values = [each.value for each in bare.records(0, 200)]
    assert [each.value for each in made.records(0, 200)] == [value and before + value for value in values]
    assert None in values
