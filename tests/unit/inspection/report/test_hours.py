"""Records are counted in the right hour, whatever their time is, and the sum holds."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from processor.inspection.report.hours import HOUR_MS, LAST_HOUR, Fate, Flow, Hours

TIMES = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 400_000_000_000) | st.integers(0, 3 * HOUR_MS)


def hours_of(*times: int) -> Hours:
    hours = Hours()
    hours.add(np.array(times, np.int64))
    return hours


@given(st.lists(st.lists(TIMES, max_size=30), max_size=4))
def test_every_record_is_in_its_hour_or_has_none(columns: list[list[int]]) -> None:
    hours = Hours()
    for column in columns:
        hours.add(np.array(column, np.int64))

    right = [time // HOUR_MS for column in columns for time in column if 0 <= time < LAST_HOUR * HOUR_MS]
    assert hours.counts == Counter(right)
    assert hours.total == sum(map(len, columns))


def test_what_is_left_is_by_the_hour_and_never_below_nothing() -> None:
    raw = hours_of(0, 1, HOUR_MS, -1, -1)

    left = raw.less(hours_of(2, -1), hours_of(HOUR_MS, HOUR_MS + 1))

    assert left.counts == {0: 1}
    assert left.without == 1


def flow(raw: Hours, **fates: Hours) -> Flow:
    found = {fate: fates.get(fate.name.lower(), Hours()) for fate in Fate}
    return Flow("p", "raw", "clean", "duplicates", "quarantine", raw, found)


def test_a_flow_says_what_is_without_a_fate() -> None:
    counted = flow(hours_of(0, 1, 2, 3), clean=hours_of(0, 1), late=hours_of(2))

    assert counted.unexplained == 1
    assert counted.dropped == 1


def test_a_flow_spans_the_hours_of_all_its_topics_with_empty_ones_between() -> None:
    counted = flow(hours_of(5 * HOUR_MS), clean=hours_of(2 * HOUR_MS))

    assert list(counted.hours) == [2, 3, 4, 5]
    assert not list(flow(hours_of(-1)).hours)
