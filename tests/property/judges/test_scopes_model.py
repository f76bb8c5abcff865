"""Scopes, epochs and reorder windows against a model that only knows the contract's sentences.

What is committed goes through changelog values into another table, and through local blocks: a restart
anywhere, either way, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.extract.scopes import PartitionScope
from processor.engine.extract.sequence import HeaderSequence, SequenceFormat
from processor.engine.verdict import Fault, Verdict
from processor.engine.watermark.scope_table import ScopeJudgement, ScopeTable
from processor.judges.watermark import ScopedWatermark, SequenceEvidence
from processor.state.kv.store import MemoryStore
from processor.state.table import Table
from schemas.changelog.position import LocalMark
from tests.support.judges.scopes import columns_of
from tests.support.suite.examples import examples

LEAST, MOST = -(2**63), 2**63 - 1
MARK = LocalMark(0, b"\0" * 16)


class Item(NamedTuple):
    """What a record is judged by."""

    scope: bytes
    sequence: int
    epoch: int
    fault: Fault


class Said(NamedTuple):
    """What is said of one record: verdict, and watermark and epoch before it where there were some."""

    verdict: Verdict
    watermark: int | None
    epoch: int | None


@dataclass
class Scope:
    """All numbers of the present epoch that came: the model forgets nothing."""

    epoch: int
    watermark: int
    seen: set[int] = field(default_factory=set)


class Model:
    """The contract, sentence by sentence."""

    def __init__(self, window: int, *, with_epoch: bool) -> None:
        self._window = window
        self._with_epoch = with_epoch
        self._scopes: dict[bytes, Scope] = {}

    def judge(self, item: Item) -> Said:
        if item.fault:
            return Said(Verdict.QUARANTINE, None, None)
        scope = self._scopes.get(item.scope)
        epoch = item.epoch if self._with_epoch else 0
        if scope is None:
            self._scopes[item.scope] = Scope(epoch, item.sequence, {item.sequence})
            return Said(Verdict.PASS, None, None)
        before = scope.watermark, scope.epoch
        return Said(self._known(scope, epoch, item.sequence), *before)

    def _known(self, scope: Scope, epoch: int, sequence: int) -> Verdict:
        if epoch > scope.epoch:
            scope.epoch, scope.watermark, scope.seen = epoch, sequence, {sequence}
            return Verdict.PASS
        if epoch < scope.epoch or sequence < scope.watermark - self._window:
            return Verdict.LATE
        if sequence in scope.seen:
            return Verdict.DUPLICATE
        scope.seen.add(sequence)
        scope.watermark = max(scope.watermark, sequence)
        return Verdict.PASS


class NotingTable(ScopeTable):
    """Keeps what it said last: receipts do not say all of it."""

    judged: ScopeJudgement

    def judge(self, *given: Any) -> ScopeJudgement:
        self.judged = super().judge(*given)
        return self.judged


class Worker:
    """A judge whose commits go to a changelog and a local store; restarts read one or the other."""

    def __init__(self, window: int, *, with_epoch: bool, hash_bits: int = 32) -> None:
        self._form = (window, with_epoch, hash_bits)
        self._with_epoch = with_epoch
        self._changelog: dict[bytes, bytes] = {}
        self._behind: dict[bytes, bytes] = {}
        """What of the changelog lies behind the local mark."""
        self._store = MemoryStore()
        self._pending: list[Item] = []
        self._start()

    def _start(self) -> None:
        window, with_epoch, hash_bits = self._form
        self._scopes = NotingTable(bytes(range(16)), epoch=with_epoch, window=window, hash_bits=hash_bits)
        sequence = HeaderSequence(b"seq", SequenceFormat.INT64)
        epoch = HeaderSequence(b"epoch", SequenceFormat.INT64) if with_epoch else None
        self._judge = ScopedWatermark(PartitionScope(), sequence, epoch, self._scopes)
        self._table = Table(self._store, self._judge.log)

    def take(self, items: list[Item]) -> list[Said]:
        self._pending += items
        return self._said(items)

    def _said(self, items: list[Item]) -> list[Said]:
        data = np.frombuffer(b"".join(item.scope for item in items) + b"\0", np.uint8).copy()
        size = np.array([len(item.scope) for item in items], np.int64)
        self._judge.judge(
            SequenceEvidence(
                np.array([item.fault for item in items], np.uint8),
                data,
                np.array([item.sequence for item in items], np.int64),
                np.array([item.epoch for item in items], np.int64) if self._with_epoch else None,
                (np.cumsum(size) - size, size),
            )
        )
        judged = self._scopes.judged
        given = judged.verdict, judged.known, judged.watermark, judged.epoch
        columns = zip(*(each.tolist() for each in given), strict=True)
        return [
            Said(Verdict(verdict), mark if known else None, epoch if known else None)
            for verdict, known, mark, epoch in columns
        ]

    def commit(self, *, locally: bool) -> None:
        written = [item for batch in self._judge.changelog_batches(20_000) for item in columns_of(batch)[1]]
        assert len(dict(written)) == len(written), "one record a changed scope and commit"
        self._changelog.update(written)
        self._behind.update(written)
        self._judge.committed()
        self._table.hold({}, MARK)
        if locally:
            self._table.flush()
            self._behind = {}
        self._pending = []

    def crash(self, *, from_local: bool) -> list[Said]:
        """Lose what is not committed and begin again; return what judging that once more says."""
        self._start()
        if from_local:
            if list(self._store.items(b"")):
                list(self._table.load_log())
            behind = self._behind
        else:
            self._store.clear()
            behind = self._behind = dict(self._changelog)
        if behind:
            self._judge.log.apply(columns_of(list(behind.items()))[0])
            self._table.hold({}, MARK)
        return self._said(self._pending)

    def pending(self) -> int:
        return len(self._pending)


class Step(NamedTuple):
    """Some records in one call, and what happens after it."""

    items: list[Item]
    then: str


class Script(NamedTuple):
    """What comes, and how many numbers below a watermark are remembered."""

    window: int
    steps: list[Step]


SCOPES = [b"", b"b", b"12345678", b"123456789", b"12345678\0", b"x" * 300]
EPOCHS = [LEAST, -1, 0, 1, MOST]
FAULTS = [Fault.NONE] * 8 + [Fault.KEY_MISSING, Fault.HEADER_MISSING]
THEN = ["go on", "commit", "write", "crash: changelog", "crash: local"]


def within(number: int) -> int:
    return min(max(number, LEAST), MOST)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Some numbers again and again, mostly a window apart or nearly so: there it is too short or too long.

    Most are of one scope, and epochs rise from step to step: a number far above all others, or an epoch that
    does not come again, would leave nothing to be judged.
    """
    window = draw(st.sampled_from([0, 1, 2, 63, 64, 65, 100, 65_536]))
    home = draw(st.sampled_from([0, LEAST, MOST, 2**32]))
    apart = st.sampled_from([far + near for far in (-window, 0, window) for near in (-1, 0, 1)])
    edges = apart.map(lambda by: within(home + by))
    numbers = [edges, edges, st.integers(-80, 80).map(lambda by: within(home + by))]
    if draw(st.booleans()):
        numbers.append(st.integers(LEAST, MOST))
    some = draw(st.lists(st.one_of(numbers), min_size=1, max_size=12))
    steps = []
    for epoch in sorted(draw(st.lists(st.sampled_from(EPOCHS), max_size=10))):
        item = st.builds(
            Item,
            st.sampled_from([b"a"] * len(SCOPES) + SCOPES),
            st.sampled_from(some),
            st.sampled_from([epoch] * 8 + [each for each in EPOCHS if each < epoch]),
            st.sampled_from(FAULTS),
        )
        steps.append(
            Step(
                draw(st.lists(item, min_size=draw(st.sampled_from([0, 20])), max_size=40)),
                draw(st.sampled_from(THEN)),
            )
        )
    return Script(window, steps)


@examples(300)
@given(scripts(), st.booleans(), st.sampled_from([0, 4, 32]))
def test_verdicts_are_the_models_with_a_commit_or_crash_anywhere(
    script: Script,
    with_epoch: bool,  # noqa: FBT001 - hypothesis gives it by name
    hash_bits: int,
) -> None:
    model = Model(script.window, with_epoch=with_epoch)
    worker = Worker(script.window, with_epoch=with_epoch, hash_bits=hash_bits)
    expected: list[Said] = []
    found: list[Said] = []
    for step in script.steps:
        expected += map(model.judge, step.items)
        found += worker.take(step.items)
        assert found == expected
        if step.then in {"commit", "write"}:
            worker.commit(locally=step.then == "write")
        elif step.then.startswith("crash"):
            assert worker.crash(from_local="local" in step.then) == found[len(found) - worker.pending() :]


@examples(200)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=200), st.integers(1, 70), st.data())
def test_one_producer_that_reorders_is_judged_as_the_model_does_however_it_is_cut(
    steps_up: list[int], window: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(steps_up))))
    counted = np.cumsum(steps_up).tolist()
    script = [Item(b"p", counted[index] if index % 3 else counted[-index], 0, Fault.NONE) for index in order]
    model = Model(window, with_epoch=False)
    worker = Worker(window, with_epoch=False)
    found: list[Said] = []
    while script[len(found) :]:
        found += worker.take(script[len(found) :][: data.draw(st.integers(1, 50))])
        if data.draw(st.booleans()):
            worker.commit(locally=data.draw(st.booleans()))
            worker.crash(from_local=data.draw(st.booleans()))
    assert found == [model.judge(item) for item in script]


@pytest.mark.parametrize("window", [0, 1, 64])
@pytest.mark.parametrize(("low", "high"), [(LEAST, LEAST + 1), (MOST - 1, MOST), (LEAST, MOST)])
def test_nothing_overflows_at_the_ends_of_64_bits(window: int, low: int, high: int) -> None:
    script = [Item(b"", number, 0, Fault.NONE) for number in (low, high, low, high, high - 1, high)]
    model, worker = Model(window, with_epoch=False), Worker(window, with_epoch=False)
    assert worker.take(script) == [model.judge(item) for item in script]
