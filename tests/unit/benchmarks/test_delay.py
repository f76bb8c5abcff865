"""Which events does a row of an aggregate cover, and how late was it?"""

from __future__ import annotations

import pytest

from benchmarks.studies.spark_delay import DelayError, Sent, _newly_covered


def test_a_count_covers_the_first_so_many_events_once() -> None:
    sent = Sent(due={"c0": [10.0, 11.0, 12.0], "c1": [10.5]}, count_from=0.0)
    covered: dict[str, int] = {}

    first = _newly_covered({"c0": {"09:00": 2}}, covered, sent, 13.0)
    again = _newly_covered({"c0": {"09:00": 2}}, covered, sent, 14.0)
    rest = _newly_covered({"c0": {"09:00": 2, "10:00": 1}, "c1": {"10:00": 1}}, covered, sent, 15.0)

    assert (first, again, rest) == ([3.0, 2.0], [], [3.0, 4.5])
    assert covered == {"c0": 3, "c1": 1}


def test_what_was_due_before_the_warm_up_was_over_is_covered_but_not_counted() -> None:
    sent = Sent(due={"c0": [10.0, 20.0]}, count_from=15.0)

    assert _newly_covered({"c0": {"09:00": 2}}, {}, sent, 21.0) == [1.0]


def test_an_event_that_was_counted_twice_is_noticed() -> None:
    sent = Sent(due={"c0": [10.0]}, count_from=0.0)

    with pytest.raises(DelayError, match="2 events are counted, 1 were sent"):
        _newly_covered({"c0": {"09:00": 2}}, {}, sent, 11.0)
