"""Does the demo know what Spark should have made of its stream, and see every row that is otherwise?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from processor.demo.script import DemoResult
from processor.demo.stream import HOUR_MS, StreamSums, compare_hours

if TYPE_CHECKING:
    from processor.demo.stream import Amounts, Key
    from processor.kafka.plain.consumer import Seen

# Hour, campaign, user, hundredths, whether it passes, kind.
EVENTS = [
    (1, "a", "u1", 100, True, "first"),
    (1, "a", "u1", 100, False, "resend"),
    (1, "a", "u2", 50, True, "collision"),
    (1, "b", "u3", 0, True, "first"),
    (2, "a", "u3", 725, True, "collision"),
    (3, "a", "u1", 900, True, "first"),
]
CLOSED = {(HOUR_MS, "a"): (2, 150), (HOUR_MS, "b"): (1, 0), (2 * HOUR_MS, "a"): (1, 725)}
WATERMARK_MS = 10


def sums() -> StreamSums:
    source: list[Seen] = []
    truth = []
    for at, (hour, campaign, user, cents, passes, kind) in enumerate(EVENTS):
        event = {"campaign": campaign, "user_id": user, "amount": f"{cents // 100}.{cents % 100:02d}"}
        source.append((None, json.dumps(event).encode(), (), hour * HOUR_MS + WATERMARK_MS, at))
        truth.append({"passes": passes, "kind": kind})
    found = StreamSums()
    found.add(source, truth)
    return found


def compared(rows: dict[Key, Amounts], *more: tuple[Key, Amounts]) -> DemoResult:
    result = DemoResult()
    compare_hours(result, [*rows.items(), *more], sums(), WATERMARK_MS)
    return result


def test_what_is_right_agrees_and_an_hour_that_is_open_is_not_compared() -> None:
    result = compared(CLOSED)
    assert result.ok
    assert result.fields["aggregate"] == {"rows": 3, "truth": 3, "agree": 3}
    hours: dict[str, Any] = result.fields["hours"]
    assert [(each["open"], each["spark"], each["truth"]) for each in hours.values()] == [
        (False, 3, 3),
        (False, 1, 1),
        (True, None, 1),
    ]


def test_who_would_be_missing_without_fingerprints_is_said() -> None:
    lost = "2 of 5 events and 1 of 3 users would have been lost"
    assert sums().lost_words() == f"had collisions been dropped as duplicates, {lost}"


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        ({(HOUR_MS, "a"): None}, (), "1970-01-01 01:00 a: no row; must be: 2 events, revenue 1.50"),
        ({(HOUR_MS, "a"): (3, 150)}, (), "1970-01-01 01:00 a: 3 events, revenue 1.50; must be: 2 events"),
        ({(HOUR_MS, "a"): (2, 151)}, (), "1970-01-01 01:00 a: 2 events, revenue 1.51; must be: 2 events"),
        ({(HOUR_MS, "c"): (1, 0)}, (), "1970-01-01 01:00 c: 1 events, revenue 0.00; must be: no row"),
        ({(3 * HOUR_MS, "a"): (1, 900)}, (), "1970-01-01 03:00 a: 1 events, revenue 9.00; must be: no row"),
        ({}, [((HOUR_MS, "b"), (1, 0))], "1970-01-01 01:00 b: 2 rows"),
    ],
)
def test_one_fault_is_one_difference(rows: dict[Key, Any], more: list[Any], said: str) -> None:
    given = {key: row for key, row in (CLOSED | rows).items() if row is not None}
    (difference,) = compared(given, *more).differences
    assert difference.startswith(f"the aggregate: {said}")
