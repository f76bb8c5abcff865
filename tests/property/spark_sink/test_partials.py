"""Do partial aggregates add up to what plain Python makes of the same events, whatever their groups?"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict
from decimal import Context, Decimal
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.batch.columns import Columns
from processor.engine.events import Accumulator, FieldKind, FieldRule
from spark_sink.source.judged import UncountedJudge, UncountedPlan
from spark_sink.source.partials import PartialCall, PartialPlan, PartialSums, why_by_rows
from tests.support.spark_sink.distinct import registers_of

RULES = [
    FieldRule("at", FieldKind.TIMESTAMP),
    FieldRule("word", FieldKind.TEXT, null_allowed=True),
    FieldRule("number", FieldKind.INT, null_allowed=True),
    FieldRule("price", FieldKind.DECIMAL, null_allowed=True, precision=30, scale=2),
    FieldRule("ratio", FieldKind.FLOAT, null_allowed=True),
]
CALLS = [
    PartialCall("count", 0),
    PartialCall("sum", 2),
    PartialCall("min", 2),
    PartialCall("max", 3),
    PartialCall("min", 3),
    PartialCall("sum", 3),
    PartialCall("avg", 4),
    PartialCall("max", 0),
    PartialCall("min", 4),
    PartialCall("approx_count_distinct", 1),
    PartialCall("approx_count_distinct", 3),
]
PANE_MS = 60_000
AHEAD_MS = 1_000


class Event(NamedTuple):
    """A record; ``at_ms`` is the event's time, ``timestamp`` the record's."""

    at_ms: int
    timestamp: int
    word: str | None
    number: int | None
    price: Decimal | None
    ratio: float | None
    bad: bool

    @property
    def value(self) -> bytes:
        """Its JSON."""
        price = None if self.price is None else str(self.price)
        fields = {
            "at": self.at_ms,
            "word": self.word,
            "number": self.number,
            "price": price,
            "ratio": self.ratio,
        }
        return json.dumps(fields).encode()[: -1 if self.bad else None]


EVENTS = st.builds(
    Event,
    st.integers(20_000_000_001, 20_000_300_000),
    st.integers(20_000_000_000, 20_000_300_000),
    st.none() | st.sampled_from(["", "a", "ab", "\u00e4\n", "a" * 100]),
    st.none() | st.integers(-(2**40), 2**40),
    st.none() | st.decimals(-(10**23), 10**23, places=2),
    st.none() | st.integers(-9, 9).map(float),
    st.sampled_from([False] * 9 + [True]),
)
Groups = dict[tuple[Any, ...], list[Event]]


def columns(events: list[Event]) -> Columns:
    """Return events as records."""
    return records([event.value for event in events], [event.timestamp for event in events])


def records(values: list[bytes], timestamps: list[int]) -> Columns:
    """Return records of these values."""
    found = Columns.empty(len(values), np.frombuffer(b"".join(values), np.uint8).copy())
    found.value_length[:] = [len(value) for value in values]
    found.value[:] = np.cumsum(found.value_length) - found.value_length
    found.timestamp[:] = timestamps
    return found


def expected(events: list[Event], fields: list[str]) -> tuple[Groups, int]:
    """Return the events of each pane and group, and how many are none."""
    groups: Groups = defaultdict(list)
    bad = 0
    for event in events:
        if event.bad or event.at_ms - event.timestamp > AHEAD_MS:
            bad += 1
            continue
        groups[(event.at_ms // PANE_MS, *(getattr(event, name) for name in fields))].append(event)
    return groups, bad


def right_row(events: list[Event]) -> tuple[Any, ...]:
    """Return what a row of these events holds beside its groups."""

    def of(name: str) -> list[Any]:
        return [getattr(event, name) for event in events if getattr(event, name) is not None]

    numbers, prices, ratios = of("number"), of("price"), of("ratio")
    values = [
        len(events),
        sum(numbers) if numbers else None,
        min(numbers, default=None),
        max(prices, default=None),
        min(prices, default=None),
        sum(prices) if prices else None,
        sum(ratios) if ratios else None,
        min(ratios, default=None),
    ]
    distinct = registers_of(RULES[1], of("word")), registers_of(RULES[3], map(unscaled, prices))
    return (*values, len(events), len(prices), len(ratios), *distinct)


def unscaled(price: Decimal) -> int:
    """Return a price without its point."""
    return int(price.scaleb(RULES[3].scale, Context(prec=40)))


def joined_rows(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Return the rows of each pane and group: the first has all that is no distinct value."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["time"] is None:
            continue
        key = (row["time"], *(value for name, value in row.items() if name.startswith("g")))
        mine = found.setdefault(key, [])
        if mine:
            assert row["events"] == row["bad"] == 0
            assert {name for name, value in row.items() if value is not None and name[0] in "vc"} <= {
                "v9",
                "v10",
            }
        else:
            assert row["events"] > 0
        mine.append(row)
    return found


@given(st.lists(EVENTS, max_size=40), st.lists(st.integers(1, 40), max_size=3), st.sampled_from([0, 1, 4]))
def test_partial_rows_are_those_of_plain_python(events: list[Event], cuts: list[int], groups_by: int) -> None:
    fields = ["word", "number", "price", "ratio"][:groups_by]
    plan = PartialPlan(RULES, 0, PANE_MS, [1, 2, 3, 4][:groups_by], CALLS, AHEAD_MS)
    sums = PartialSums(PartialPlan.read(plan.written()))
    rows: list[dict[str, Any]] = []
    edges = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    for begin, end in itertools.pairwise(edges):
        if end > begin:
            batches = [*sums.take(columns(events[begin:end]), 3)]
            assert not batches
    for batch in sums.left():
        rows += batch.to_pylist()

    groups, bad = expected(events, fields)
    assert sum(row["bad"] for row in rows) == bad
    found = {}
    for mine in joined_rows(rows).values():
        row = mine[0]
        micros = round(row["time"].timestamp() * 1_000_000)
        assert micros // 1000 == max(row["v7"].timestamp() * 1000, 0)
        key = (micros // 1000 // PANE_MS, *(row[f"g{number}"] for number in range(len(fields))))
        assert key not in found
        words, prices = ([each[name] for each in mine if each[name] is not None] for name in ("v9", "v10"))
        distinct = registers_of(RULES[1], words), registers_of(RULES[3], map(unscaled, prices))
        assert len(mine) == max(1, len(words), len(prices))
        assert (len(words), len(prices)) == tuple(map(len, distinct))
        values = (row[f"v{number}"] for number in (0, 1, 2, 3, 4, 5, 6, 8))
        found[key] = (*values, row["events"], row["c5"], row["c6"], *distinct)
    assert found == {key: right_row(mine) for key, mine in groups.items()}
    assert [*sums.left()] == []


@given(st.lists(EVENTS, max_size=40), st.integers(20_000_000_000, 20_000_310_000))
def test_what_is_given_as_uncounted_is_what_the_sums_left_out_and_what_may_be_late(
    events: list[Event], watermark_ms: int
) -> None:
    plan = PartialPlan(RULES, 0, PANE_MS, [1], CALLS, AHEAD_MS)
    asked = UncountedPlan(plan, watermark_ms)
    judge = UncountedJudge(UncountedPlan.read(asked.written()))
    found = judge.take(columns(events))

    def why(event: Event) -> str | None:
        ahead = "ahead" if event.at_ms - event.timestamp > AHEAD_MS else None
        return "not_json" if event.bad else ahead

    wanted = [row for row, each in enumerate(events) if why(each) or each.at_ms < watermark_ms]
    assert found.rows.tolist() == wanted
    assert found.reason == [why(events[row]) for row in wanted]
    times = [time for time, why in zip((found.time // 1000).tolist(), found.reason, strict=True) if why is None]
    assert times == [events[row].at_ms for row in wanted if why(events[row]) is None]


def test_a_value_that_spark_reads_otherwise_is_counted_or_given_and_not_both() -> None:
    deep = b'{"at":5,"x":' + b"[" * 200 + b"]" * 200 + b"}"
    long = b'{"at":5,"x":' + b"9" * 2_000 + b"}"
    plan, some = PartialPlan(RULES[:1], 0, PANE_MS, [], CALLS[:1], None), records([deep, long], [5, 5])
    sums = PartialSums(plan)
    assert not [*sums.take(some, 0)]
    (batch,) = sums.left()
    found = UncountedJudge(UncountedPlan(plan, 0)).take(some)

    assert (batch["events"].to_pylist(), batch["bad"].to_pylist()) == ([1, 0], [0, 1])
    assert (found.rows.tolist(), found.reason) == ([0], ["not_json"])


@given(st.lists(st.floats() | st.sampled_from([0.0, -0.0, math.nan]), min_size=1, max_size=9))
def test_extremes_of_floats_are_those_of_sparks_order(values: list[float]) -> None:
    rows, there = np.zeros(len(values), np.int32), np.ones(len(values), np.bool_)

    def found(function: str) -> float:
        extreme = Accumulator(function, floats=True)
        extreme.add(rows, there, np.array(values), 0, len(values))
        return float(extreme.sums[0])

    def by_order(value: float) -> tuple[bool, float]:
        return math.isnan(value), 0.0 if math.isnan(value) else value

    # Python's keep the first of those that are equal, too.
    wanted = max(values, key=by_order), min(values, key=by_order)
    assert tuple(map(str, wanted)) == (str(found("max")), str(found("min")))


def test_what_cannot_be_merged_goes_by_rows() -> None:
    assert why_by_rows("count", None) is None
    assert why_by_rows("sum", RULES[3]) is None
    assert why_by_rows("percentile", RULES[2]) == "percentile of ints"
    assert why_by_rows("max", RULES[1]) == "max of texts"
    assert why_by_rows("max", RULES[4]) is None
    assert {why_by_rows("approx_count_distinct", FieldRule("x", kind)) for kind in FieldKind} == {None}
    assert why_by_rows("avg", FieldRule("x", FieldKind.DECIMAL, precision=28, scale=2)) is None
    assert why_by_rows("avg", FieldRule("x", FieldKind.DECIMAL, precision=28, scale=10)) is not None


def test_more_groups_than_the_limit_and_a_key_that_is_larger_than_all_room_are_summed_up() -> None:
    plan = PartialPlan(RULES, 0, PANE_MS, [1], CALLS[:1], None)
    sums = PartialSums(plan)
    words = [f"w{number % 70_000}" for number in range(100_000)] + ["x" * 3_000_000]
    events = [Event(20_000_000_001, 0, word, None, None, None, bad=False) for word in words]

    early = [*sums.take(columns(events), 0)]
    rows = [row for batch in (*early, *sums.left()) for row in batch.to_pylist()]

    assert early
    found = Counter[str]()
    for row in rows:
        found[row["g0"]] += row["v0"] or 0
    assert +found == Counter(words)
