"""Is the truth of a generated stream what the contract's rules say of it, under every definition?"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.generator import FAULTS, RecordKind, StreamOptions, make_stream
from schemas.config import WatermarkDedup
from schemas.events import ClickEvent
from tests.support.judges.rules import Model, Rules, number_of, scope_of
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from processor.generator import StreamPartition

START_MS = 1_767_603_600_000

steps = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.sampled_from(["0", "3", "01", "-"])
)


def pointer(first: str) -> st.SearchStrategy[str]:
    """Return pointers that begin with ``first``, so that two never meet and none leads into a click's field."""
    escaped = st.lists(steps.map(lambda step: step.replace("~", "~0").replace("/", "~1")), max_size=3)
    return escaped.map(lambda rest: "/" + "/".join([first, *rest]))


def sources(name: str) -> st.SearchStrategy[dict[str, Any]]:
    header = st.fixed_dictionaries(
        {
            "from": st.just("header"),
            "name": st.just(name),
            "format": st.sampled_from(["int64", "int32", "text"]),
        }
    )
    value = st.fixed_dictionaries(
        {"from": st.just("value"), "pointer": pointer(name)}, optional={"format": st.just("text")}
    )
    return st.one_of(header, value)


def numbered(dedup: dict[str, Any]) -> WatermarkDedup:
    """Return a definition; of numbers that wrap the window is less than half the range."""
    wraps = dedup.pop("wraps", None)
    if wraps is not None:
        wraps = min(wraps, 2**31) if dedup["sequence"].get("format") == "int32" else wraps
        dedup["sequence"] = {**dedup["sequence"], "wraps": wraps}
        dedup["reorder_window"] = min(dedup["reorder_window"], (wraps - 1) // 2)
    return WatermarkDedup.model_validate(dedup)


changing = st.builds(
    lambda source: {k: v for k, v in source.items() if k != "format"} | {"order": "change"}, sources("boot")
)
definitions = st.fixed_dictionaries(
    {
        "mode": st.just("watermark"),
        "scope": st.sampled_from(["partition", "key", "header:who"]),
        "sequence": sources("n"),
        "reorder_window": st.sampled_from([0, 1, 7, 64, 65_536]),
    },
    optional={
        "epoch": sources("e~1x") | changing,
        "wraps": st.sampled_from([2, 3, 64, 1_000, 2**31, 2**63 - 1]),
    },
).map(numbered)

options = st.builds(
    StreamOptions,
    records=st.integers(1, 700),
    duplicates=st.sampled_from([0.0, 0.05, 0.4]),
    seed=st.integers(0, 2**32),
    partitions=st.integers(1, 3),
    start_ms=st.just(START_MS),
    malformed=st.sampled_from([0.0, 0.05]),
    scopes=st.sampled_from([1, 3, 40, 1_000]),
)


def defined(**more: Any) -> WatermarkDedup:
    sequence = {"from": "value", "pointer": "/meta/seq"}
    return WatermarkDedup.model_validate({"mode": "watermark", "sequence": sequence, **more})


def records(part: StreamPartition) -> list[Any]:
    return part.records(0, len(part))


@examples(300)
@given(definitions, options)
def test_what_passes_and_what_is_quarantined_is_what_the_rules_say(
    dedup: WatermarkDedup, given_options: StreamOptions
) -> None:
    for part in make_stream(dedup, given_options):
        said = [each.verdict for each in Model(Rules.of(dedup)).judge_all(records(part))]
        assert [verdict == "pass" for verdict in said] == part.passes.tolist()
        codes = [verdict if verdict in FAULTS else "" for verdict in said]
        assert codes == [FAULTS[fault] for fault in part.faults.tolist()]


@examples(50)
@given(definitions, options)
def test_what_can_be_judged_is_a_click_of_the_user_that_is_its_key(
    dedup: WatermarkDedup, given_options: StreamOptions
) -> None:
    for part in make_stream(dedup, given_options):
        for record, fault in zip(records(part), part.faults.tolist(), strict=True):
            if not fault:
                event = ClickEvent.model_validate_json(record.value)
                assert event.user_id.encode() == record.key
                assert int(event.occurred_at.timestamp() * 1000) == record.timestamp_ms


@pytest.mark.parametrize("seed", range(3))
def test_each_scope_has_a_sequence_of_its_own_and_they_are_interleaved(seed: int) -> None:
    dedup = defined(scope="key")
    (part,) = make_stream(dedup, StreamOptions(20_000, 0.05, seed, 1, START_MS, scopes=500))
    scopes = [scope_of(record, dedup.scope_name) for record in records(part)]
    assert len(set(scopes)) == 500
    assert sum(one != other for one, other in pairwise(scopes)) > 15_000
    place = Rules.of(dedup).sequence
    numbers = [number_of(record, place) for record in records(part)]
    passed = [number for number, passes in zip(numbers, part.passes.tolist(), strict=True) if passes]
    assert max(Counter(passed).values()) > 5  # the same number in several scopes


@pytest.mark.parametrize("scope", ["key", "header:who"])
def test_partitions_have_scopes_of_their_own(scope: str) -> None:
    dedup = defined(scope=scope)
    parts = make_stream(dedup, StreamOptions(3_000, 0.05, 1, 3, START_MS, scopes=50))
    names = [{scope_of(record, scope) for record in records(part)} for part in parts]
    assert [len(each) for each in names] == [50, 50, 50]
    assert len(set.union(*names)) == 150


@pytest.mark.parametrize("seed", range(3))
def test_producers_restart_their_count_with_a_higher_epoch(seed: int) -> None:
    epoch = {"from": "header", "name": "epoch", "format": "int32"}
    dedup = defined(scope="header:who", epoch=epoch)
    rules = Rules.of(dedup)
    assert rules.epoch is not None
    (part,) = make_stream(dedup, StreamOptions(30_000, 0.1, seed, 1, START_MS, scopes=10))
    last: dict[bytes, tuple[int, int]] = {}
    restarts = backwards = old = 0
    for record, passes in zip(records(part), part.passes.tolist(), strict=True):
        name = scope_of(record, rules.scope)
        now = number_of(record, rules.epoch), number_of(record, rules.sequence)
        before = last.get(name, now)
        if passes:
            restarts += now[0] > before[0]
            backwards += now[0] > before[0] and now[1] < before[1]
            last[name] = now
        old += now[0] < before[0]
    # A 250th of 27,000 originals restarts; counts begin below what they have reached, mostly.
    assert restarts > 40
    assert backwards > 20
    assert old > 10


@pytest.mark.parametrize("scope", ["partition", "key"])
@pytest.mark.parametrize("seed", range(3))
def test_a_reorder_window_is_met_from_within_and_missed_from_beyond(scope: str, seed: int) -> None:
    dedup = defined(scope=scope, reorder_window=64)
    (part,) = make_stream(dedup, StreamOptions(30_000, 0.1, seed, 1, START_MS, scopes=5))
    rules = Rules.of(dedup)
    judged = Model(rules).judge_all(records(part))
    firsts = (part.layout.kind == RecordKind.FIRST).tolist()
    seen = Counter((found.verdict, first) for found, first in zip(judged, firsts, strict=True))
    highest: dict[bytes, int] = {}
    overtaken = 0
    for record, found in zip(records(part), judged, strict=True):
        name, number = scope_of(record, rules.scope), number_of(record, rules.sequence)
        overtaken += found.verdict == "pass" and number < highest.get(name, number)
        highest[name] = max(highest.get(name, number), number)
    assert overtaken > 300  # of 27,000 originals one in thirty is, most of them by less than the window
    assert seen["late", True] > 30  # one in 250 by more
    assert seen["duplicate", False] > 100
    assert seen["late", False] > 100
    assert set(seen) == {("pass", True), ("late", True), ("duplicate", False), ("late", False)}


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ({}, {"value_missing", "value_not_json", "field_missing", "field_type", "out_of_range"}),
        (
            {"scope": "key", "sequence": {"from": "header", "name": "n", "format": "text"}},
            {"key_missing", "header_missing", "header_malformed", "out_of_range"},
        ),
        (
            {"scope": "header:who", "sequence": {"from": "header", "name": "n"}, "reorder_window": 3},
            {"header_missing", "header_malformed"},
        ),
    ],
)
def test_each_definition_has_all_the_malformed_records_that_it_can_have(
    more: dict[str, Any], codes: set[str]
) -> None:
    (part,) = make_stream(defined(**more), StreamOptions(2_000, 0.05, 1, 1, START_MS, malformed=0.02))
    assert {FAULTS[fault] for fault in part.faults.tolist()} == {"", *codes}
