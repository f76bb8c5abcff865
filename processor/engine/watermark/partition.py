"""Judges the sequences of one partition by one watermark (mode ``watermark``).

The rules of the contract: the first record of a scope passes whatever its number; then a record passes if
its sequence is greater than the watermark; an equal one is a duplicate, a lower one is late. Gaps are
fine. A record that cannot be judged changes nothing.

Invariant: pure. `judge` never changes the state it is given: it returns the next one, so that a crash at
any point leaves the caller with a state that is either before or after the records, never between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from processor.engine.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class WatermarkState:
    """What scope ``partition`` remembers: the highest sequence that passed; None before the first."""

    watermark: int | None = None


@dataclass(frozen=True, slots=True)
class WatermarkJudgement:
    """Verdicts of consecutive records and the state after the last of them.

    Attributes:
        verdict: uint8[n], `Verdict` values.
        watermark: int64[n], the watermark as it stood before each record; 0 where there was none.
        state: After the last record.
    """

    verdict: NDArray[np.uint8]
    watermark: NDArray[np.int64]
    state: WatermarkState


def judge(state: WatermarkState, sequence: NDArray[np.int64], fault: NDArray[np.uint8]) -> WatermarkJudgement:
    """Judge consecutive records of one partition.

    Args:
        state: As the records before left it.
        sequence: int64[n], in offset order.
        fault: uint8[n], `Fault` codes; a record with one goes to quarantine and changes no state.
    """
    verdict = np.empty(sequence.size, np.uint8)
    before = np.empty(sequence.size, np.int64)
    known, watermark = judge_partition(
        state.watermark is not None,
        0 if state.watermark is None else state.watermark,
        sequence,
        fault,
        verdict,
        before,
    )
    return WatermarkJudgement(verdict, before, WatermarkState(int(watermark) if known else None))


@kernel
def judge_partition(
    known: bool,
    watermark: int,
    sequence: NDArray[np.int64],
    fault: NDArray[np.uint8],
    verdict: NDArray[np.uint8],
    before: NDArray[np.int64],
) -> tuple[bool, int]:
    """Judge with one watermark; see `judge`. Returns whether there is a watermark now, and it."""
    mark = np.int64(watermark)
    for i in range(sequence.size):
        before[i] = mark if known else 0
        if fault[i] != 0:
            verdict[i] = 3
        elif not known or sequence[i] > mark:
            verdict[i] = 0
            mark = sequence[i]
            known = True
        elif sequence[i] == mark:
            verdict[i] = 1
        else:
            verdict[i] = 2
    return known, mark  # type: ignore[return-value]  # compiled code returns an int
