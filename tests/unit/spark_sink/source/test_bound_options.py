"""Which options a bounded stream needs, and which do not go with it."""

from __future__ import annotations

import pytest

from processor.errors import StopError
from spark_sink.source.options import SourceOptions

CLICKS = {
    "topic": "clean",
    "bootstrap_servers": "127.0.0.1:9",
    "event": "schemas.events:ClickEvent",
    "time_field": "occurred_at",
}
BOUNDED = {**CLICKS, "max_offsets_per_trigger": "1000"}


def test_a_bound_goes_by_the_times_of_the_model_s_field() -> None:
    bound = SourceOptions.of(BOUNDED).bound

    assert bound is not None
    assert (bound.offsets, bound.at_start) == (1000, False)
    assert bound.events.rules[bound.events.time].name == "occurred_at"
    assert SourceOptions.of(CLICKS).bound is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"max_offsets_per_trigger": "0"}, "max_offsets_per_trigger is 0: a number from 1 on"),
        ({"max_offsets_per_trigger": "many"}, "a number from 1 on"),
        ({"verdicts": "judged"}, "does not go with verdicts"),
        ({"time_field": None}, "needs the options event and time_field"),
        ({"event": None}, "needs the options event and time_field"),
        ({"time_field": "campaign"}, "time_field is campaign: a field of the event that is a point in time"),
        ({"time_field": "nothing"}, "time_field is nothing"),
    ],
)
def test_a_bound_that_cannot_be_heeded_is_refused(changes: dict[str, str | None], why: str) -> None:
    given = {name: value for name, value in {**BOUNDED, **changes}.items() if value is not None}

    with pytest.raises(StopError, match=why):
        SourceOptions.of(given)
