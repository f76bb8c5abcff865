"""Are event times read alike, whatever they are written in, and refused where they are none?"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.rest import Fault
from spark_sink.batch.rows.times import NO_TIME, read_times, text_time

AT = datetime(2026, 3, 2, 9, 0, 0, 250_000, tzinfo=UTC)
US = 1_772_442_000_250_000


@pytest.mark.parametrize(
    "column",
    [
        pa.array([AT], pa.timestamp("us", "UTC")),
        pa.array([AT], pa.timestamp("us", "Europe/Zurich")),
        pa.array([AT.replace(tzinfo=None)], pa.timestamp("ns")),
        pa.array([AT.replace(tzinfo=None)], pa.timestamp("ms")),
        pa.array(["2026-03-02T09:00:00.25Z"]),
        pa.array(["2026-03-02 10:00:00.250000999+01:00"]),
        pa.array([US // 1000], pa.int64()),
        pa.array([US // 1000], pa.uint64()),
    ],
    ids=lambda column: str(column.type),
)
def test_a_time_is_the_same_whatever_it_is_written_in(column: Any) -> None:
    times, faults = read_times(column)
    assert (times.tolist(), faults.tolist()) == ([US], [0])


def test_a_date_begins_at_midnight_of_utc() -> None:
    times, _ = read_times(pa.array([date(2026, 3, 2)]))
    assert times.tolist() == [US - 9 * 3_600_000_000 - 250_000]
    assert text_time("2026-03-02") == times[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-03-02T25:00",
        "2026-02-30",
        "1772442000250",
        "2026-03-02T09:00 Z",
        "0001-01-01T00:00+01:00",
    ],
)
def test_a_text_that_is_no_time_has_none(text: str) -> None:
    times, faults = read_times(pa.array([text]))
    assert (times.tolist(), faults.tolist()) == ([NO_TIME], [Fault.FIELD_TYPE])


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        (pa.array([None], pa.string()), Fault.FIELD_MISSING),
        (pa.array([None], pa.timestamp("us")), Fault.FIELD_MISSING),
        (pa.array([None], pa.int32()), Fault.FIELD_MISSING),
        (pa.array([2**62], pa.int64()), Fault.OUT_OF_RANGE),
        (pa.array([-(2**62)], pa.int64()), Fault.OUT_OF_RANGE),
        (pa.array([2**61], pa.timestamp("us")), Fault.OUT_OF_RANGE),
    ],
)
def test_what_is_null_or_beyond_the_calendar_has_a_fault(column: Any, fault: Fault) -> None:
    times, faults = read_times(column)
    assert (times.tolist(), faults.tolist()) == ([NO_TIME], [fault])


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.integers(-14 * 60, 14 * 60))  # noqa: DTZ001 - any
def test_texts_are_read_as_python_reads_them(at: datetime, minutes: int) -> None:
    zone = timedelta(minutes=minutes)
    sign = "-" if minutes < 0 else "+"
    text = f"{at.isoformat()}{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    since = at - zone - datetime(1970, 1, 1)  # noqa: DTZ001 - both are UTC's
    assert text_time(text) == since // timedelta(microseconds=1)
