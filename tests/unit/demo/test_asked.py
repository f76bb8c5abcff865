"""The demo asks about a record that was dropped and one that passed, and notices when the answer is another."""

from __future__ import annotations

from typing import Any

import pytest

from processor.demo.asked import AskedRecord

DROPPED = AskedRecord(1, 40, None, 7)
PASSED = AskedRecord(1, 41, 30, None)
RIGHT: dict[AskedRecord, dict[str, Any]] = {
    DROPPED: {
        "outcome": "late",
        "source": {"offset": 40},
        "clean": None,
        "receipt": {"offset": 3},
        "owner": {"offset": 7},
        "problems": [],
    },
    PASSED: {
        "outcome": "passed",
        "source": {"offset": 41},
        "clean": {"offset": 30},
        "receipt": None,
        "owner": None,
        "problems": [],
    },
}


@pytest.mark.parametrize("record", RIGHT)
def test_the_right_answer_is_right(record: AskedRecord) -> None:
    assert record.differences(RIGHT[record]) == []


@pytest.mark.parametrize(
    ("record", "wrong"),
    [
        (DROPPED, {"outcome": "passed"}),
        (DROPPED, {"receipt": None}),
        (DROPPED, {"owner": None}),
        (DROPPED, {"owner": {"offset": 8}}),
        (DROPPED, {"source": {"offset": 39}}),
        (DROPPED, {"problems": ["something"]}),
        (PASSED, {"outcome": "duplicate"}),
        (PASSED, {"clean": None}),
        (PASSED, {"clean": {"offset": 31}}),
    ],
)
def test_another_answer_is_said_to_be_wrong(record: AskedRecord, wrong: dict[str, Any]) -> None:
    (said,) = record.differences({**RIGHT[record], **wrong})
    assert f"offset {record.offset} of partition 1" in said
