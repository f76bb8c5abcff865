"""Numbers that wrap and epochs that only differ, against the naive model, with a restart at any commit.

Records go through extraction, judge, changelog and local blocks, as in a worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.verdict import Fault, Verdict
from processor.state.kv.store import MemoryStore
from tests.support.judges.rules import Rules
from tests.support.judges.sequence_state import SequencePartition, columns
from tests.support.kafka.topics import New, Record, int64
from tests.support.suite.examples import examples

if TYPE_CHECKING:
    from tests.support.judges.rules import Said

MOST_WRAPS = 2**63 - 1
EPOCHS = [b"", b"a", b"a\0", b"\xff", b"x" * 300, *(b"boot-%d" % number for number in range(20))]
SHOWN = [1, 1.0, "1", "\u00e9", "x" * 300, *range(2, 22)]


class Step(NamedTuple):
    """Some records, and what happens after them."""

    records: list[New]
    then: str


class Script(NamedTuple):
    """By which rules what comes is judged."""

    rules: Rules
    steps: list[Step]


def came(scope: bytes, number: int, epoch: int) -> New:
    """Return a record with a number, and the epoch of that number."""
    headers = [("seq", int64(number)), ("boot", EPOCHS[epoch % len(EPOCHS)])]
    value = orjson.dumps({"seq": number, "boot": SHOWN[epoch % len(SHOWN)]})
    return New(scope, value, tuple(headers), 0)


def place(name: str, *, header: bool, **more: Any) -> dict[str, Any]:
    where = {"name": name, "format": "int64"} if header else {"pointer": f"/{name}"}
    if "order" in more:
        where.pop("format", None)
    return {"from": "header" if header else "value", **where, **more}


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Most numbers go up by one or a few; some lie back, by a window or half the range and one beside that."""
    wraps = draw(st.sampled_from([None, 2, 3, 4, 5, 64, 65, 100, 128, 200, 16_384, MOST_WRAPS]))
    limit = 65_536 if wraps is None else min(65_536, (wraps - 1) // 2)
    window = min(limit, draw(st.sampled_from([0, 1, 2, 31, 63, 64, 65, limit])))
    changes = wraps is None or draw(st.booleans())
    rules = Rules(
        scope=draw(st.sampled_from(["partition", "key"])),
        sequence=place("seq", header=draw(st.booleans()), **({"wraps": wraps} if wraps else {})),
        epoch=place("boot", header=draw(st.booleans()), order="change") if changes else None,
        reorder_window=window,
    )
    around, at, steps = wraps or 2**62, draw(st.integers(0, (wraps or 1000) - 1)), []
    up = st.sampled_from([1, 1, 1, 1, 2, 3, window, window + 1, around // 2])
    back = st.sampled_from([0, 0, 1, window, window + 1, around // 2, (around + 1) // 2])
    at_fault = st.sampled_from([0] * 15 + [1])
    boot = 0
    for _ in range(draw(st.integers(1, 8))):
        records = []
        for _ in range(draw(st.integers(0, 30))):
            at += draw(up)
            number = (at - draw(back)) % around
            if draw(at_fault):
                number = draw(st.sampled_from([-1, around, MOST_WRAPS]))
            boot += draw(at_fault)
            epoch = max(0, boot - draw(st.sampled_from([0] * 12 + [1, 16, 17])))
            records.append(came(draw(st.sampled_from([b"a", b"a", b"b"])), number, epoch))
        then = st.sampled_from(["go on", "commit", "restart: changelog", "restart: local", "crash"])
        steps.append(Step(records, draw(then)))
    return Script(rules, steps)


def verdict(said: Said) -> tuple[str, int]:
    return said.verdict, said.watermark or 0


class Worker:
    """A partition at work; what a crash takes is judged again."""

    def __init__(self, rules: Rules) -> None:
        self._partition = SequencePartition(rules)
        self._partition.open()
        self._pending: list[New] = []

    def take(self, some: list[New]) -> list[tuple[str, int]]:
        self._pending += some
        return self._said(some)

    def _said(self, some: list[New]) -> list[tuple[str, int]]:
        fault = self._partition.judge.extract(columns(some)).fault
        grounds: Any = self._partition.take(some)
        marks = np.where(fault == 0, grounds.watermark, 0)
        words = [
            Fault(code).code if code else Verdict(each).label
            for code, each in zip(fault.tolist(), grounds.verdict.tolist(), strict=True)
        ]
        return list(zip(words, marks.tolist(), strict=True))

    def commit(self) -> None:
        self._partition.commit()
        self._pending = []

    def restart(self, *, local: bool) -> list[tuple[str, int]]:
        """Begin again from what is committed; return what judging the rest once more says."""
        self._partition.open(None if local else MemoryStore())
        return self._said(self._pending)


@examples(300)
@given(scripts())
def test_verdicts_are_the_models_with_a_commit_or_crash_anywhere(script: Script) -> None:
    model, worker = script.rules.model(), Worker(script.rules)
    since: list[tuple[str, int]] = []
    for step in script.steps:
        expected = [verdict(model.judge(Record(0, 0, *each, True))) for each in step.records]
        assert worker.take(step.records) == expected
        since += expected
        if step.then == "commit" or step.then.startswith("restart"):
            worker.commit()
            since = []
        if step.then not in {"commit", "go on"}:
            assert worker.restart(local=step.then != "restart: changelog") == since
