"""Does the demo's comparison see every fault that a worker could make?"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from processor.demo.check import CheckOutcome, compare
from processor.generator import FAULTS, RecordKind
from processor.generator.truth import Truth

if TYPE_CHECKING:
    from processor.kafka.plain.consumer import Seen

# A B C b c D E a ! F: copies in small letters, ! cannot be judged.
NAMES = "ABCbcDEa!F"
KINDS = {"b": RecordKind.RESEND, "c": RecordKind.TAIL, "a": RecordKind.LATE}


def seen(name: str, offset: int, *more: tuple[str, bytes | None]) -> Seen:
    upper = name.upper().encode()
    headers = () if name == "!" else (("seq", upper),)
    return (b"k" + upper, b"v" + upper, (*headers, *more), 1_000 + upper[0], offset)


def sink_of(names: str) -> list[Seen]:
    return [seen(name, 100 + 2 * place) for place, name in enumerate(names)]


SOURCE = [seen(name, offset) for offset, name in enumerate(NAMES)]
TRUTH = Truth(
    np.arange(len(NAMES)),
    np.array([name.isupper() for name in NAMES]),
    np.array([KINDS.get(name, RecordKind.FIRST) for name in NAMES], np.uint8),
    np.array([FAULTS.index("header_missing") * (name == "!") for name in NAMES], np.uint8),
)


def marks(code: bytes = b"header_missing", source: bytes = b"t:0:8") -> list[Seen]:
    added = (("seqmark.error", code), ("seqmark.detail", b"x"), ("seqmark.source", source))
    return [seen("!", 0, *added)]


def receipt(offset: int, **other: object) -> Seen:
    key, _, _, timestamp_ms, _ = SOURCE[offset]
    place = {"topic": "t", "partition": 0, "offset": offset, "timestamp": timestamp_ms}
    return (key, json.dumps({**place, "verdict": "late", **other}).encode(), (), timestamp_ms, 0)


RECEIPTS = [receipt(offset) for offset in (3, 4, 7)]


def check(
    sink: list[Seen], quarantine: list[Seen] | None = None, receipts: list[Seen] | None = None
) -> CheckOutcome:
    some = RECEIPTS if receipts is None else receipts
    return compare("t:0", SOURCE, TRUTH, sink, some, marks() if quarantine is None else quarantine)


def test_what_is_right_has_no_differences() -> None:
    outcome = check(sink_of("ABCDEF"))
    assert outcome.differences == []
    assert outcome.passed == Counter({RecordKind.FIRST: 6})
    assert outcome.dropped == Counter({RecordKind.RESEND: 1, RecordKind.TAIL: 1, RecordKind.LATE: 1})
    assert outcome.receipts == 3
    assert outcome.quarantined == 1
    assert "".join("-+q"[fate] for fate in outcome.fate) == "+++--++-q+"


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ("BCDEF", "t:0:0 (first) is lost"),
        ("ABDEF", "t:0:2 (first) is lost"),
        ("ABCDE", "t:0:9 (first) is lost"),
        ("ABCbDEF", "t:0:3 (resend) passed, and must not have"),
        ("ABCcDEF", "t:0:4 (tail) passed, and must not have"),
        ("ABCDEaF", "t:0:7 (late) passed, and must not have"),
        ("ABCDE!F", "t:0:8 (first) passed, and must not have"),
        ("ABCDEFF", "t:0: the sink has 1 records too many, from its offset 112 on"),
        ("AABCDEF", "t:0: the sink has a record too many at its offset 102"),
        ("XABCDEF", "t:0: the sink has a record too many at its offset 100"),
        ("ACBDEF", "t:0:1 (first) and offset 2 have changed places"),
        ("BACDEF", "t:0:0 (first) and offset 1 have changed places"),
        ("ABCDFE", "t:0:6 (first) and offset 9 have changed places"),
        ("AXYDEF", "t:0:1 (first) must come next in the sink; something else is at 102"),
    ],
)
def test_one_fault_is_one_difference(sink: str, said: str) -> None:
    assert check(sink_of(sink)).differences == [said]


@pytest.mark.parametrize(("place", "name"), [(0, "key"), (1, "value"), (2, "headers"), (3, "timestamp")])
@pytest.mark.parametrize("row", [0, 2, 5])
def test_a_changed_byte_is_named(place: int, name: str, row: int) -> None:
    sink = sink_of("ABCDEF")
    fields: list[object] = list(sink[row])
    fields[place] = {0: b"kX", 1: b"vX", 2: (), 3: 0}[place]
    sink[row] = tuple(fields)  # type: ignore[assignment]  # the same fields, one changed
    offset = NAMES.index("ABCDEF"[row])
    assert check(sink).differences == [f"t:0:{offset} (first) was changed: {name}"]


def test_an_empty_sink_loses_all_and_says_so_briefly() -> None:
    outcome = check([])
    assert outcome.differences[0] == "t:0:0 (first) is lost"
    assert outcome.differences[-1] == "t:0: and 1 more differences"
    assert outcome.dropped[RecordKind.FIRST] == 6


@pytest.mark.parametrize(
    ("quarantine", "said"),
    [
        ([], "t:0: the quarantine has 0 records instead of 1"),
        (marks() * 2, "t:0: the quarantine has 2 records instead of 1"),
        (marks(b"too_large"), "t:0:8 (first) is not quarantined as header_missing of t:0:8"),
        (marks(source=b"t:0:7"), "t:0:8 (first) is not quarantined as header_missing of t:0:8"),
        ([seen("!", 0)], "t:0:8 (first) has other headers than the three of the quarantine"),
        ([seen("A", 0, *marks()[0][2])], "t:0:8 (first) is not as it came in the quarantine"),
    ],
)
def test_a_wrong_quarantine_is_said(quarantine: list[Seen], said: str) -> None:
    assert check(sink_of("ABCDEF"), quarantine).differences == [said]


def test_a_source_that_is_not_the_one_produced_is_said() -> None:
    outcome = compare("t:0", SOURCE[1:], TRUTH, sink_of("ABCDEF"), RECEIPTS, marks())
    assert outcome.differences == ["t:0: the source holds 9 records at other offsets than the 10 produced"]


@pytest.mark.parametrize(
    ("receipts", "said"),
    [
        (RECEIPTS[1:], "t:0:3 (resend) has no receipt; the next one is of ('t', 0, 4, "),
        (RECEIPTS[:2], "t:0: there are 2 receipts instead of 3"),
        ([*RECEIPTS, receipt(9)], "t:0: there are 4 receipts instead of 3"),
        ([receipt(3, verdict="pass"), *RECEIPTS[1:]], "t:0:3 (resend) has a receipt that is not right"),
        ([(b"other", *RECEIPTS[0][1:]), *RECEIPTS[1:]], "t:0:3 (resend) has a receipt that is not right"),
        ([receipt(3, partition=1), *RECEIPTS[1:]], "t:0:3 (resend) has no receipt"),
    ],
)
def test_a_missing_forged_or_wrong_receipt_is_named(receipts: list[Seen], said: str) -> None:
    outcome = check(sink_of("ABCDEF"), receipts=receipts)
    assert outcome.differences
    assert outcome.differences[0].startswith(said)
    assert outcome.receipts < 4
