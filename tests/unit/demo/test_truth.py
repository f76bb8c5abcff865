"""The demo's comparison agrees with what is right, and names every fault of a worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from processor.demo.truth import HOUR_MS, DemoResult, PartitionTopics

if TYPE_CHECKING:
    from collections.abc import Callable

    from processor.kafka.plain.consumer import Seen

NEW_ID = "1c77aa00-0000-8000-8000-00000000000{}"
# What each record is, whether it passes, and why it cannot be judged; copies 3 and 5 pass again.
KINDS = [
    ("first", True, None),
    ("resend", False, None),
    ("collision", True, None),
    ("first", False, "value_not_json"),
    ("late", True, None),
    ("collision", True, None),
    ("tail", False, None),
]


def truth() -> list[dict[str, Any]]:
    lines = []
    for offset, (kind, passes, code) in enumerate(KINDS, 100):
        line = {"partition": 0, "offset": offset, "passes": passes, "kind": kind}
        lines.append(line | ({"quarantine": code} if code else {}))
    return lines


class Outputs:
    """What a worker makes of these records; a test spoils it."""

    def __init__(self) -> None:
        self.source: list[Seen] = [
            (
                b"k",
                json.dumps({"event_id": f"id-{at}", "n": at}).encode(),
                (("h", b"%d" % at),),
                1_000 + at,
                100 + at,
            )
            for at in range(len(KINDS))
        ]
        self.clean: list[Seen] = []
        self.receipts: list[dict[str, Any]] = []
        self.quarantine: list[Seen] = []
        for (kind, passes, code), record in zip(KINDS, self.source, strict=True):
            key, value, headers, time_ms, offset = record
            if code is not None:
                marks = (("seqmark.error", code.encode()), ("seqmark.source", b"raw:0:%d" % offset))
                self.quarantine.append((key, value, (*headers, *marks), time_ms, 0))
            elif kind == "collision":
                new, old = NEW_ID.format(offset - 100), f"id-{offset - 100}"
                self.receipts.append({"offset": offset, "verdict": "collision", "new_id": new})
                renamed = (value or b"").replace(old.encode(), new.encode())
                self.clean.append((key, renamed, (*headers, ("seqmark.original_id", old.encode())), time_ms, 0))
            elif passes:
                self.clean.append(record)
            else:
                self.receipts.append({"offset": offset, "verdict": "duplicate"})

    def check(self) -> DemoResult:
        told: list[Seen] = [
            (None, json.dumps(each).encode(), (), 0, at) for at, each in enumerate(self.receipts)
        ]
        topics = PartitionTopics(self.source, self.clean, told, self.quarantine)
        result = DemoResult()
        result.compare_partition("raw:0", truth(), topics)
        return result


def test_what_is_right_agrees_and_is_counted_by_what_became_of_it() -> None:
    result = Outputs().check()
    assert result.ok
    assert result.counts == {
        "dropped: resend": (1, 1),
        "dropped: tail": (1, 1),
        "in": (7, 7),
        "kept: collision": (2, 2),
        "kept: first": (1, 1),
        "kept: late": (1, 1),
        "noted: collision": (2, 2),
        "quarantined as value_not_json: first": (1, 1),
    }


def drop(outputs: Outputs, at: int) -> None:
    """Drop a record that must pass, with a receipt."""
    outputs.receipts.append({"offset": 100 + at, "verdict": "late"})
    del outputs.clean[at]


def let_pass(outputs: Outputs) -> None:
    """Let a record pass that must be dropped."""
    del outputs.receipts[0]
    outputs.clean.insert(1, outputs.source[1])


def change(outputs: Outputs, place: int, was: bytes, now: bytes) -> None:
    key, value, *more = outputs.clean[place]
    outputs.clean[place] = (key, (value or b"").replace(was, now), *more)  # type: ignore[assignment]


OTHER = "of the clean topic is not what must be there, or one too many"
FAULTS: dict[str, tuple[Callable[[Outputs], object], str]] = {
    "lost at the end": (lambda o: o.clean.pop(), "raw:0:105 must be kept, and is not"),
    "lost": (lambda o: o.clean.pop(0), "raw:0:100 must be kept, and is not"),
    "twice": (lambda o: o.clean.append(o.clean[-1]), f"raw:0: offset 0 {OTHER}"),
    "out of order": (lambda o: o.clean.reverse(), f"raw:0: offset 0 {OTHER}"),
    "changed": (lambda o: change(o, 0, b'"n": 0', b'"n": 9'), f"raw:0: offset 100 {OTHER}"),
    "dropped": (lambda o: drop(o, 0), "raw:0:100 is dropped, and must not be, or not twice"),
    "not dropped": (let_pass, "raw:0:101 must be dropped, and is not"),
    "without a receipt": (lambda o: o.receipts.pop(), "raw:0:106 must be dropped, and is not"),
    "with two receipts": (
        lambda o: o.receipts.append(o.receipts[0]),
        "raw:0:101 is dropped, and must not be, or not twice",
    ),
    "of no record": (
        lambda o: o.receipts.append({"offset": 999, "verdict": "late"}),
        "raw:0:999 is dropped, and must not be, or not twice",
    ),
    "not a collision": (lambda o: o.receipts.pop(1), "raw:0:102 must be noted, and is not"),
    "not in quarantine": (
        lambda o: o.quarantine.clear(),
        "raw:0:103 must be quarantined as value_not_json, and is not",
    ),
    "quarantined twice": (
        lambda o: o.quarantine.append(o.quarantine[0]),
        "raw:0:103 is quarantined as value_not_json, and must not be, or not twice",
    ),
    "another old id": (
        lambda o: o.clean.append((*o.clean.pop()[:2], (("seqmark.original_id", b"id-9"),), 1_005, 7)),
        f"raw:0: offset 7 {OTHER}",
    ),
    "another source": (
        lambda o: o.source.pop(),
        "raw:0: the source holds 6 records at other offsets than the 7",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named(fault: str) -> None:
    spoil, said = FAULTS[fault]
    outputs = Outputs()
    spoil(outputs)
    result = outputs.check()
    assert not result.ok
    assert any(each.startswith(said) for each in result.differences), result.differences


def test_of_many_differences_a_few_are_said() -> None:
    result = DemoResult()
    result.differ("here: ", [f"fault {n}" for n in range(7)])
    assert result.differences[4:] == ["here: fault 4", "here: and 2 more differences"]


A, B, OPEN = (HOUR_MS, "a"), (2 * HOUR_MS, "b"), (3 * HOUR_MS, "a")
HOURS = {A: (2, 150), B: (1, 0), OPEN: (7, 9)}
WRITTEN = [(A, (2, 150)), (B, (1, 0))]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (WRITTEN, ""),
        (WRITTEN[:1], "None; must be: (1, 0)"),
        ([*WRITTEN, WRITTEN[0]], "(4, 300); must be: (2, 150)"),
        ([*WRITTEN, (OPEN, (7, 9))], "(7, 9); must be: None"),
        ([WRITTEN[0], (B, (1, 1))], "(1, 1); must be: (1, 0)"),
    ],
    ids=["right", "missing", "twice", "too early", "another amount"],
)
def test_of_an_aggregate_closed_hours_are_there_once_and_no_other(rows: list[Any], said: str) -> None:
    result = DemoResult()
    result.compare_hours(rows, HOURS, 3 * HOUR_MS)
    assert result.ok == (not said)
    assert [each.endswith(said) for each in result.differences] == [True] * bool(said)
