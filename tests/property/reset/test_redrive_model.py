"""What stood in quarantine is judged again once, as a naive model has it, and a certificate proves it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from processor.ops.fault_points import heard_by
from processor.reset.redrive import work
from processor.reset.redrive.work import RedriveChoice
from tests.support.redrive import NARROW, NOW_MS, World, killed_after

if TYPE_CHECKING:
    from tests.support.kafka.topics import Record

HOUR_MS = 3_600_000
SEQUENCE = {"from": "header", "name": "n", "format": "int64"}
DEDUPS: dict[str, dict[str, Any]] = {
    "partition": {"mode": "watermark", "sequence": SEQUENCE},
    "keys": {"mode": "watermark", "sequence": SEQUENCE, "scope": "key"},
    "window": {"mode": "watermark", "sequence": SEQUENCE, "scope": "key", "reorder_window": 3},
    "ids": {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h"},
    "refreshed": {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h", "refresh": True},
    "arrival": {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h", "time": "arrival"},
}
Came = tuple[bytes | None, int, bool]


@dataclass
class Model:
    """The rules, in plain words.

    Attributes:
        name: Of a definition.
        clean: Offsets of what is in the sink, in its order.
        dropped: Offset and verdict of each receipt, in order; with ids the owner, too.
        aside: Offsets of what is in quarantine.
    """

    name: str
    clean: list[int] = field(default_factory=list)
    dropped: list[tuple[Any, ...]] = field(default_factory=list)
    aside: list[int] = field(default_factory=list)
    came: list[tuple[Came, int]] = field(default_factory=list)
    highest: dict[bytes, int] = field(default_factory=dict)
    seen: set[tuple[bytes, int]] = field(default_factory=set)
    again: set[tuple[bytes, int]] = field(default_factory=set)
    ids: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    clock_ms: int = -1

    def come(self, some: Came, at_ms: int, now_ms: int) -> None:
        self.came.append((some, at_ms))
        offset = len(self.came) - 1
        if some[2] or self._faulty(some):
            self.aside.append(offset)
        else:
            self._put(offset, self._judged(offset, now_ms))

    def redrive(self, now_ms: int, since_ms: int = 0) -> None:
        for offset in list(self.aside):
            (key, number, _), at_ms = self.came[offset]
            if self._faulty((key, number, False)) or at_ms < since_ms:
                continue
            said = self._judged(offset, now_ms)
            mark = self._scope(key), number
            if said == "late":
                said = "duplicate" if mark in self.again else "pass"
            self.again.add(mark)
            self.aside.remove(offset)
            self._put(offset, said)

    def _put(self, offset: int, said: str | int) -> None:
        if said == "pass":
            self.clean.append(offset)
        elif isinstance(said, int):
            self.dropped.append((offset, "duplicate", said))
        else:
            self.dropped.append((offset, said))

    def _faulty(self, some: Came) -> bool:
        return some[0] is None and self.name != "partition"

    def _scope(self, key: bytes | None) -> bytes:
        return b"" if self.name == "partition" or key is None else key

    def _judged(self, offset: int, now_ms: int) -> str | int:
        (key, number, _), at_ms = self.came[offset]
        if "mode" in DEDUPS[self.name] and DEDUPS[self.name]["mode"] == "insert-id":
            return self._by_id(key or b"", offset, now_ms if self.name == "arrival" else at_ms)
        scope, window = self._scope(key), 3 if self.name == "window" else 0
        highest = self.highest.get(scope)
        if highest is None or number > highest:
            self.highest[scope] = number
        elif number == highest or (number >= highest - window and (scope, number) in self.seen):
            return "duplicate"
        elif number < highest - window:
            return "late"
        self.seen.add((scope, number))
        return "pass"

    def _by_id(self, key: bytes, offset: int, at_ms: int) -> str | int:
        self.clock_ms = max(self.clock_ms, at_ms)
        owner, reading = self.ids.get(key, (-1, -HOUR_MS))
        if reading + HOUR_MS > self.clock_ms:
            if self.name == "refreshed":
                self.ids[key] = owner, self.clock_ms
            return owner
        self.ids[key] = offset, self.clock_ms
        return "pass"


def receipt(record: Record) -> tuple[Any, ...]:
    said = json.loads(record.value or b"")
    found = said["offset"], said["verdict"]
    return (*found, said["owner"]["offset"]) if "owner" in said else found


CAME = st.tuples(st.sampled_from([b"a", b"b", None]), st.integers(0, 9), st.booleans())
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["come", "come", "redrive", "since", "killed", "narrow"]),
        st.lists(CAME, min_size=1, max_size=7),
        st.integers(0, 40),  # minutes
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("name", DEDUPS)
@given(steps=STEPS)
@example(steps=[("come", [(b"a", 5, True), (b"a", 5, True), (b"a", 7, False)], 0, 1), ("redrive", [], 0, 1)])
@settings(deadline=None, max_examples=40)
def test_a_redrive_is_what_the_model_says_and_is_proved(name: str, steps: list[Any]) -> None:
    world, model = World(DEDUPS[name]), Model(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "MOST_ROWS", 2)
        for what, some, minutes, which in steps:
            world.now_ms += minutes * 60_000
            act(world, model, what, some, which)
    agree(world, model)


def act(world: World, model: Model, what: str, some: list[Came], which: int) -> None:
    if what == "come":
        for each in some:
            model.come(each, world.now_ms, world.now_ms)
        world.come(some)
        return
    if not model.came:
        return
    if what == "killed":
        # What it has committed counts; the next one goes on, at the same time of day.
        with suppress(KeyboardInterrupt), heard_by(killed_after(which)):
            world.redrive()
    if what == "narrow":
        assert world.redrive(limit_bytes=NARROW).total().after == len(model.aside)
        return
    since_ms = NOW_MS + which * 600_000 if what == "since" else 0
    world.redrive(RedriveChoice(since_ms=since_ms))
    model.redrive(world.now_ms, since_ms)
    assert not world.redrive(RedriveChoice(since_ms=since_ms)).commits


def agree(world: World, model: Model) -> None:
    if not model.came:
        return
    source = {each.offset: each for each in world.records("s")}
    kept = [each._replace(offset=0) for each in world.records("clean")]
    assert kept == [source[offset]._replace(offset=0) for offset in model.clean]
    assert [receipt(each) for each in world.records("receipts")] == model.dropped
    report = world.certified()
    assert report.ok, report.violations
    assert (report.sink, report.duplicates) == (len(model.clean), len(model.dropped))
    assert report.quarantine == len(model.aside) == len(model.came) - report.sink - report.duplicates
