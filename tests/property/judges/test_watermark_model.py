"""The watermark engine against a model that only knows the contract's sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from processor.engine.extract.sequence import HeaderSequence, SequenceFormat
from processor.engine.verdict import Fault, Verdict
from processor.engine.watermark import partition
from processor.judges.watermark import PartitionWatermark, SequenceEvidence
from processor.state.kv.store import MemoryStore
from processor.state.table import Table
from schemas.changelog.position import LocalMark
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from processor.engine.receipts import Grounds

LEAST, MOST = -(2**63), 2**63 - 1


class Item(NamedTuple):
    """What a record is judged by."""

    sequence: int
    fault: Fault


class Step(NamedTuple):
    """Some records in one call, and what happens to the worker after it."""

    items: list[Item]
    then: str


sequences = st.one_of(
    st.integers(0, 12),  # small numbers meet often
    st.sampled_from([LEAST, LEAST + 1, -1, 0, MOST - 1, MOST]),
    st.integers(LEAST, MOST),
)
items = st.builds(
    Item,
    sequences,
    st.sampled_from([Fault.NONE] * 6 + [Fault.TOO_LARGE, Fault.HEADER_MISSING, Fault.OUT_OF_RANGE]),
)
steps = st.lists(
    st.builds(Step, st.lists(items, max_size=8), st.sampled_from(["go on", "commit", "restart", "crash"])),
    max_size=12,
)


def model(all_items: Sequence[Item]) -> list[tuple[Verdict, int]]:
    """Judge by the contract: (verdict, watermark before the record or 0)."""
    judged: list[tuple[Verdict, int]] = []
    good: list[int] = []
    for item in all_items:
        highest = max(good, default=None)
        if item.fault:
            verdict = Verdict.QUARANTINE
        else:
            if highest is None or item.sequence > highest:
                verdict = Verdict.PASS
            else:
                verdict = Verdict.DUPLICATE if item.sequence == highest else Verdict.LATE
            good.append(item.sequence)
        judged.append((verdict, highest or 0))
    return judged


def evidence(some: Sequence[Item]) -> SequenceEvidence:
    fault = np.array([item.fault for item in some], np.uint8)
    return SequenceEvidence(fault, np.zeros(0, np.uint8), np.array([item.sequence for item in some], np.int64))


def pairs(judgement: Grounds) -> list[tuple[Verdict, int]]:
    verdicts = [Verdict(value) for value in judgement.verdict.tolist()]
    return list(zip(verdicts, judgement.watermark.tolist(), strict=True))


class Worker:
    """A judge over a table; what a crash takes is judged again, as a refetch would."""

    def __init__(self) -> None:
        self._table = Table(MemoryStore())
        self._pending: list[Item] = []
        self._start()

    def _start(self) -> None:
        self._judge = PartitionWatermark(HeaderSequence(b"seq", SequenceFormat.INT64))
        self._judge.load(self._table)

    def take(self, some: list[Item]) -> list[tuple[Verdict, int]]:
        self._pending += some
        return pairs(self._judge.judge(evidence(some)))

    def commit(self) -> None:
        self._table.apply(self._judge.changes(), LocalMark(0, b"\0" * 16))
        self._judge.committed()
        self._pending = []

    def restart(self) -> None:
        self.commit()
        self._start()

    def crash(self) -> list[tuple[Verdict, int]]:
        """Lose what was not committed; return what judging it again says."""
        self._start()
        return pairs(self._judge.judge(evidence(self._pending)))

    def pending(self) -> int:
        return len(self._pending)


@examples(300)
@given(steps)
def test_verdicts_and_watermarks_are_the_models_with_a_commit_restart_or_crash_anywhere(
    script: list[Step],
) -> None:
    expected = model([item for step in script for item in step.items])
    worker = Worker()
    found: list[tuple[Verdict, int]] = []
    for step in script:
        found += worker.take(step.items)
        if step.then == "commit":
            worker.commit()
        elif step.then == "restart":
            worker.restart()
        elif step.then == "crash":
            assert worker.crash() == found[len(found) - worker.pending() :]
    assert found == expected


@settings(deadline=None)
@given(st.lists(items, max_size=30))
def test_judging_leaves_what_it_was_given_as_it_was(all_items: list[Item]) -> None:
    judged = evidence(all_items)
    once = partition.judge(5, judged.sequence, judged.fault)
    again = partition.judge(5, judged.sequence, judged.fault)
    assert once[2] == again[2]
    assert once[0].tolist() == again[0].tolist()


def test_the_lowest_number_there_is_passes_as_the_first_record_and_is_a_duplicate_as_the_second() -> None:
    worker = Worker()
    lowest = Item(LEAST, Fault.NONE)
    assert [verdict for verdict, _ in worker.take([lowest, lowest])] == [Verdict.PASS, Verdict.DUPLICATE]


def test_a_record_that_cannot_be_judged_changes_no_state() -> None:
    judge = PartitionWatermark(HeaderSequence(b"seq", SequenceFormat.INT64))
    judge.judge(evidence([Item(9, Fault.HEADER_MALFORMED)]))
    assert judge.changes() == {}
    assert list(judge.watermarks()) == []
