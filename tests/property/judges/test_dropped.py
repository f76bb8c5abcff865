"""What is dropped and never passed is counted as exact sets have it; nothing else is, whatever restarts."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.verdict import Verdict
from processor.judges.dropped import DropCheck, PassedContents
from processor.judges.redriving import Redriving
from tests.support.judges.rules import EPOCH_HEADER, Rules
from tests.support.judges.sequence_state import SequencePartition, columns
from tests.support.kafka.topics import new

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.kafka.topics import New

RULES = {
    "partition": Rules(),
    "scopes": Rules(scope="key"),
    "epochs": Rules(scope="key", epoch=EPOCH_HEADER),
    "window": Rules(reorder_window=3),
}


class Item(NamedTuple):
    """A record: its number, and its content, written in one of three ways, or behind the number of a schema."""

    scope: int
    epoch: int
    number: int
    content: int
    way: int = 0

    def record(self) -> New:
        """Return it; content 0 and below is no JSON."""
        value: bytes | None = [None, b"", b"\xff{"][-self.content % 3]
        if self.content > 0:
            members = [("c", self.content), ("text", "ü")]
            ways: list[dict[str, Any]] = [{}, {"indent": 3}, {"ensure_ascii": False}]
            value = json.dumps(dict(members[:: 1 - 2 * (self.way == 1)]), **ways[self.way % 3]).encode()
            value = b"\0\0\0\0%c" % self.way + value if self.way > 2 else value
        headers = [("epoch", self.epoch.to_bytes(4, "big"))]
        return new(self.number, b"device %d" % self.scope, value, headers=headers)


class Worker:
    """A partition of which what is dropped is compared, beside the sets of all that passed."""

    def __init__(self, rules: str, slots: int = 2**10) -> None:
        self.rules, self._slots = RULES[rules], slots
        self.partition = SequencePartition(self.rules)
        self._passed: set[tuple[Any, ...]] = set()
        self.looked_at = self.unseen = self.dropped = self.never_passed = 0
        self.restart()

    def restart(self, *, process: bool = True) -> None:
        """Restore what is committed; not in a new ``process``: what passed is known still."""
        if process:
            self.contents = PassedContents.of_one_reading(self._slots)
        self.partition.open()
        self.partition.judge.compare_drops(self.contents, 0)

    def take(self, some: Sequence[Item]) -> None:
        """Judge records and commit."""
        judged = self.partition.take([each.record() for each in some])
        for item, verdict in zip(some, map(Verdict, judged.verdict.tolist()), strict=True):
            scope = item.scope if self.rules.scope == "key" else 0
            epoch = item.epoch if self.rules.epoch is not None else 0
            content = (scope, epoch, item.number, item.content if item.content > 0 else -(-item.content % 3))
            if verdict == Verdict.PASS:
                self._passed.add(content)
            else:
                self.dropped += 1
                self.never_passed += content not in self._passed
        self.partition.commit()
        found = self.partition.judge.take_compared()
        assert found is not None
        looked_at, unseen = found.totals()
        self.looked_at += looked_at
        self.unseen += unseen
        self.counts = found.counts


items = st.builds(
    Item, st.integers(0, 2), st.integers(0, 1), st.integers(0, 9), st.integers(-2, 3), st.integers(0, 4)
)
parts = st.lists(st.lists(items, min_size=1, max_size=12), max_size=6)


@given(rules=st.sampled_from(list(RULES)), parts=parts)
def test_all_that_is_dropped_is_compared_as_sets_of_all_that_passed_have_it(
    rules: str, parts: list[list[Item]]
) -> None:
    worker = Worker(rules)
    for some in parts:
        worker.take(some)
    assert (worker.looked_at, worker.unseen) == (worker.dropped, worker.never_passed)


@given(rules=st.sampled_from(list(RULES)), parts=parts, anew=st.sampled_from(["process", "slot"]))
def test_after_a_restart_no_more_are_counted_than_never_passed(
    rules: str, parts: list[list[Item]], anew: str
) -> None:
    worker = Worker(rules)
    for some in parts:
        worker.take(some)
        worker.restart(process=anew == "process")
    assert worker.looked_at <= worker.dropped
    assert worker.unseen <= worker.never_passed


@pytest.mark.parametrize("slots", [64, 1_024])
@pytest.mark.parametrize("rules", ["partition", "scopes"])
def test_a_producer_that_sends_again_is_never_suspected_however_thin_the_sample_and_whatever_restarts(
    rules: str, slots: int
) -> None:
    drawn, worker = random.Random(slots), Worker(rules, slots)
    sent: list[Item] = []
    for turn in range(60):
        sent += [Item(n % 3, 0, n // 3, n + 1) for n in range(len(sent), len(sent) + 100)]
        again = drawn.randrange(len(sent))
        resent = [each._replace(way=drawn.randrange(3)) for each in sent[again : again + 50]]
        # In the scope of a partition all must come in the order of their numbers.
        some = [each._replace(number=each.content, scope=0) for each in [*sent[-100:], *resent]]
        worker.take(some if rules == "partition" else [*sent[-100:], *resent])
        if turn % 7 == 6:
            worker.restart(process=turn % 2 == 0)
    assert worker.dropped > 2_000
    assert worker.unseen == worker.never_passed == 0
    assert worker.looked_at > 20


@pytest.mark.parametrize("slots", [2**12, 2**15])
def test_a_counter_that_wraps_is_noticed_and_a_thin_sample_says_how_many_about(slots: int) -> None:
    worker = Worker("partition", slots)
    seen = [Item(0, 0, n % 16_384, n + 1) for n in range(20_000)]
    resent = [each for n, each in enumerate(seen) if n % 10 == 9]
    counts = []
    for some in [*(seen[start : start + 1_000] for start in range(0, 20_000, 1_000)), resent]:
        worker.take(some)
        counts.append(worker.counts)
    level = worker.contents.level
    looked_at, unseen = np.sum(counts, axis=0)[level:].sum(axis=0).tolist()
    assert (worker.dropped, worker.never_passed) == (5_616, 3_616 + 362)
    if slots == 2**15:
        assert (level, looked_at, unseen) == (0, worker.dropped, worker.never_passed)
    assert looked_at == pytest.approx(worker.dropped / 2**level, rel=0.35)
    assert unseen / looked_at == pytest.approx(worker.never_passed / worker.dropped, abs=0.15)


def test_after_a_restart_a_number_that_comes_with_two_contents_is_noticed() -> None:
    worker = Worker("partition")
    worker.take([Item(0, 0, n, 1 + n) for n in range(100)])
    worker.restart()
    worker.take([Item(0, 0, n, 1_000 + n) for n in range(50)])
    assert (worker.looked_at, worker.unseen) == (0, 0)
    worker.take([Item(0, 0, n, 2_000 + n) for n in range(50)])
    assert (worker.looked_at, worker.unseen) == (50, 50)
    worker.take([Item(0, 0, n, 3_000 + n) for n in (100, 105, 103)])
    assert (worker.looked_at, worker.unseen) == (51, 51)


def test_whatever_fails_switches_it_off_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker("partition")
    worker.take([Item(0, 0, n, 1 + n) for n in range(9)])
    check = DropCheck(worker.contents, 0, np.zeros((0, 2), np.int64))
    for _ in range(2):
        # More numbers than there are records.
        check.saw(columns([new(0)]), None, np.zeros(9, np.int64), None, np.zeros(9, np.uint8))
        worker.take([Item(0, 0, 0, 99)])
    assert (worker.dropped, worker.looked_at) == (2, 0)
    assert [each.getMessage().split(":")[0] for each in caplog.records] == [
        "dropped records are not looked at any more, nothing else is off"
    ]


def test_what_a_redrive_lets_pass_below_the_watermark_has_passed() -> None:
    worker = Worker("scopes")
    worker.take([Item(1, 0, n, 1 + n) for n in range(9)])
    judge, late = worker.partition.judge, Item(1, 0, 4, 99)
    evidence = judge.extract(columns([late.record()]))
    judged = judge.judge_again(evidence, Redriving(9, 0, np.zeros(1, np.bool_)))
    assert judged.verdict.tolist() == [Verdict.PASS]
    worker.take([late._replace(way=1)])
    assert (worker.looked_at, worker.unseen) == (1, 0)
