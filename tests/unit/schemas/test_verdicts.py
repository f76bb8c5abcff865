"""Verdict records are the bytes of the vectors in ``tests/golden/verdicts.json``, which the page shows.

``python -m tests.unit.schemas.test_verdicts`` writes vectors that are not there yet; those that are there never
change: somebody reads records by them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from processor.engine.verdict import Fault
from schemas.verdicts.offsets import CorruptOffsetsError, OffsetForm, read_gaps, varints
from schemas.verdicts.record import FAULTS, Action, CorruptVerdictError, SourceSums, VerdictRecord
from tests.property.schemas.test_verdicts import said

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/verdicts.json"
PAGE = ROOT / "docs/verdicts.md"
TOPIC = bytes(range(16))


def ints(*some: int) -> Any:
    return np.array(some, np.int64)


def codes(*some: int) -> Any:
    return np.array(some, np.uint8)


SUMS = SourceSums(1_000, 0x018BCFE56800, 8, 0xDEADBEEF)
MADE = {
    "begins": VerdictRecord(0, 17, 17, topic_id=TOPIC, begins=True),
    "nothing is dropped": VerdictRecord(3, 17, 1_017, SUMS, TOPIC),
    "gaps": VerdictRecord(3, 1_017, 2_017, SUMS, TOPIC, skipped=ints(1_017, 1_020, 1_148, 1_276, 2_016)),
    "runs": VerdictRecord(
        3, 2_017, 3_017, SUMS, TOPIC, skipped=ints(*range(2_100, 2_400), *range(2_500, 2_501))
    ),
    "bitmap": VerdictRecord(
        3, 3_017, 3_057, SourceSums(40, 5, 1, 7), TOPIC, skipped=ints(*range(3_017, 3_057, 2))
    ),
    "quarantine and collisions": VerdictRecord(
        3,
        3_057,
        4_057,
        SUMS,
        skipped=ints(3_060, 3_061, 3_900, 4_000),
        quarantined=ints(3_061, 4_000),
        faults=codes(Fault.VALUE_NOT_JSON, Fault.ID_COLLISION),
        collided=ints(3_060, 3_500, 4_000),
        actions=codes(Action.DROP, Action.PASS, Action.QUARANTINE),
    ),
}


def vectors() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", MADE)
def test_a_vector_is_what_is_written_and_says_what_is_read(name: str) -> None:
    vector = vectors()[name]
    assert MADE[name].encode().hex() == vector["hex"]
    assert said(VerdictRecord.decode(bytes.fromhex(vector["hex"]))) == vector["says"]


def test_each_form_has_a_vector_and_the_page_shows_all() -> None:
    assert {bytes.fromhex(each["hex"])[3] for each in vectors().values()} == set(OffsetForm)
    page = PAGE.read_text(encoding="utf-8")
    for each in vectors().values():
        assert each["hex"] in page.replace("\n", "")


def test_faults_are_those_of_quarantine() -> None:
    assert [each.code for each in Fault][1:] == list(FAULTS[1:])


def test_a_record_of_a_later_version_is_refused_as_such() -> None:
    value = bytearray(MADE["gaps"].encode())
    value[1] = 2
    with pytest.raises(CorruptVerdictError, match=r"version 2 .* a newer one has written it"):
        VerdictRecord.decode(bytes(value))
    for nothing in (None, b"", b"\x56"):
        with pytest.raises(CorruptVerdictError, match="no verdict record"):
            VerdictRecord.decode(nothing)


@pytest.mark.parametrize(
    ("lists", "text"),
    [
        ({"skipped": ints(6), "quarantined": ints(5), "faults": codes(3)}, "in quarantine is not skipped"),
        ({"skipped": ints(5), "quarantined": ints(5), "faults": codes(len(FAULTS))}, "a fault that"),
        ({"collided": ints(5), "actions": codes(4)}, "an action that"),
        ({"collided": ints(5), "actions": codes(Action.DROP)}, "what has become of its offset"),
        ({"skipped": ints(5), "collided": ints(5), "actions": codes(Action.PASS)}, "what has become of"),
    ],
)
def test_lists_that_contradict_each_other_are_refused(lists: dict[str, Any], text: str) -> None:
    value = VerdictRecord(0, 0, 9, SourceSums(9), **lists).encode()
    with pytest.raises(CorruptVerdictError, match=text):
        VerdictRecord.decode(value)


@pytest.mark.parametrize("gaps", [(0, 2**63 - 2, 2**63 - 2, 5), (2**63 - 1, 3)])
def test_offsets_that_leave_64_bits_and_come_back_do_not_rise(gaps: tuple[int, ...]) -> None:
    data = np.frombuffer(varints(ints(*gaps)), np.uint8)
    with pytest.raises(CorruptOffsetsError, match="lies outside of 10 to 100"):
        read_gaps(data, len(gaps), 10, 100)


if __name__ == "__main__":
    known = vectors() if GOLDEN.exists() else {}
    made = {name: {"hex": record.encode().hex(), "says": said(record)} for name, record in MADE.items()}
    GOLDEN.write_text(json.dumps(made | known, indent=1) + "\n", encoding="utf-8")
