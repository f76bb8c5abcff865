"""The demo's comparison agrees with what is right, and names every fault of a worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from processor.demo.compare import PartitionTopics, compare
from processor.demo.script import Comparison, DemoResult, TruthCheck

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

    def check(self) -> TruthCheck:
        told: list[Seen] = [
            (None, json.dumps(each).encode(), (), 0, at) for at, each in enumerate(self.receipts)
        ]
        topics = PartitionTopics(self.source, self.clean, told, self.quarantine)
        return compare("raw:0", truth(), topics, "event_id")


def test_what_is_right_agrees_and_is_counted_by_what_became_of_it() -> None:
    result = DemoResult()
    result.add([Outputs().check()])
    assert result.ok
    assert result.counts == [
        Comparison("in", 7, 7),
        Comparison("passed", 4, 4),
        Comparison("in the clean topic", 4, 4),
        Comparison("passed again", 1, 1),
        Comparison("collisions passed", 2, 2),
        Comparison("notes of collisions", 2, 2),
        Comparison("dropped: resend", 1, 1),
        Comparison("dropped: tail", 1, 1),
        Comparison("quarantined", 1, 1),
        Comparison("receipts", 2, 2),
    ]


def drop(outputs: Outputs, at: int) -> None:
    """Drop a record that must pass, with a receipt."""
    outputs.receipts.append({"offset": 100 + at, "verdict": "late"})
    del outputs.clean[at]


def let_pass(outputs: Outputs) -> None:
    """Let a record pass that must be dropped."""
    del outputs.receipts[0]
    outputs.clean.insert(1, outputs.source[1])


def rename(outputs: Outputs, new: str) -> None:
    """Rename the second of the collisions otherwise, in its note and in the clean topic."""
    note = next(each for each in outputs.receipts if each["offset"] == 105)
    key, value, *more = outputs.clean[-1]
    outputs.clean[-1] = (key, (value or b"").replace(note["new_id"].encode(), new.encode()), *more)  # type: ignore[assignment]
    note["new_id"] = new


def change(outputs: Outputs, place: int, was: bytes, now: bytes) -> None:
    key, value, *more = outputs.clean[place]
    outputs.clean[place] = (key, (value or b"").replace(was, now), *more)  # type: ignore[assignment]


LOST = "is lost, changed or out of order"
FAULTS: dict[str, tuple[Callable[[Outputs], object], str]] = {
    "lost at the end": (lambda o: o.clean.pop(), f"raw:0:105 {LOST}: the clean topic ends before it"),
    "lost": (lambda o: o.clean.pop(0), f"raw:0:100 {LOST}"),
    "twice": (lambda o: o.clean.append(o.clean[-1]), "raw:0: the clean topic has 1 records too many"),
    "out of order": (lambda o: o.clean.reverse(), f"raw:0:100 {LOST}"),
    "changed": (lambda o: change(o, 0, b'"n": 0', b'"n": 9'), f"raw:0:100 {LOST}"),
    "dropped": (lambda o: drop(o, 0), "raw:0:100 has been dropped (first), must have passed (first)"),
    "not dropped": (let_pass, "raw:0:101 has passed (resend), must have been dropped (resend)"),
    "without a receipt": (
        lambda o: o.receipts.pop(),
        "raw:0:106 has passed (tail), must have been dropped (tail)",
    ),
    "not a collision": (
        lambda o: o.receipts.pop(1),
        "raw:0:102 has passed (first), must have passed (collision)",
    ),
    "not in quarantine": (
        lambda o: o.quarantine.clear(),
        "raw:0:103 has passed (first), must have been quarantined",
    ),
    "no id at all": (lambda o: rename(o, "17"), f"raw:0:105 {LOST}"),
    "another id": (lambda o: change(o, -1, b"1c77", b"2c77"), f"raw:0:105 {LOST}"),
    "an id that another has": (
        lambda o: rename(o, NEW_ID.format(2)),
        "raw:0: records that collided share a new id",
    ),
    "another source": (
        lambda o: o.source.pop(),
        "raw:0: the source holds 6 records at other offsets than the 7",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named(fault: str) -> None:
    spoil, said = FAULTS[fault]
    outputs, result = Outputs(), DemoResult()
    spoil(outputs)
    result.add([outputs.check()])
    assert not result.ok
    assert any(each.startswith(said) for each in result.differences), result.differences


@pytest.mark.parametrize(("which", "what"), [("receipts", "receipts"), ("quarantine", "quarantined")])
def test_what_is_there_twice_or_of_no_record_is_counted(which: str, what: str) -> None:
    outputs, result = Outputs(), DemoResult()
    getattr(outputs, which).append(getattr(outputs, which)[0])
    result.add([outputs.check()])
    assert not result.ok
    (wrong,) = [each for each in result.counts if each.found != each.truth]
    assert (wrong.what, wrong.found) == (what, wrong.truth + 1)


def test_of_many_differences_a_few_are_said() -> None:
    result = DemoResult()
    result.differ("here: ", [f"fault {n}" for n in range(7)])
    assert result.differences[4:] == ["here: fault 4", "here: and 2 more differences"]
