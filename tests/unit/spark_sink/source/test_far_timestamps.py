"""Kafka takes any 64 bits for a timestamp; which event is too far ahead of one is arithmetic all the same."""

from __future__ import annotations

import numpy as np
import pytest

from processor.engine.batch.columns import Columns
from processor.engine.events import EventReader, FieldKind, FieldRule
from spark_sink.source.partials import PartialCall, PartialPlan, micros

NOW_MS = 1_700_000_000_000
RULES = [FieldRule("at", FieldKind.TIMESTAMP)]
PLAN = PartialPlan(RULES, 0, 60_000, [], [PartialCall("count", 0)], 60_000)


@pytest.mark.parametrize(
    ("timestamp", "counts"),
    [
        (NOW_MS, True),
        (NOW_MS - 60_000, True),
        (NOW_MS - 60_001, False),
        (0, False),
        (-1, False),
        # A producer that writes microseconds or nanoseconds.
        (NOW_MS * 10**3, True),
        (NOW_MS * 10**6, True),
        (NOW_MS * 10**6 + 999_999, True),
        (2**63 - 1, True),
        (-(2**63), False),
    ],
)
def test_an_event_is_held_against_its_records_timestamp_whatever_that_is(
    timestamp: int, *, counts: bool
) -> None:
    value = f'{{"at":{NOW_MS}}}'.encode()
    records = Columns.empty(1, np.frombuffer(value, np.uint8).copy())
    records.value[:], records.value_length[:] = 0, len(value)
    records.timestamp[:] = timestamp

    assert PLAN.counts(EventReader(RULES).read(records), records).tolist() == [counts]


def test_microseconds_keep_their_order_at_the_ends_of_64_bits() -> None:
    told = np.array([-(2**63), -(2**62), -1, 0, NOW_MS, 2**62, 2**63 - 1], np.int64)

    found = micros(told)

    assert (np.diff(found) >= 0).all()
    assert found[2:5].tolist() == [-1000, 0, NOW_MS * 1000]
