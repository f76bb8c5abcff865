"""Judges the sequences of one partition by one watermark (mode ``watermark``).

The rules of the contract: the first record of a scope passes whatever its number; then a record passes if
its sequence is greater than the watermark; an equal one is a duplicate, a lower one is late. Gaps are
fine. A record that cannot be judged changes nothing. Where numbers wrap, "greater" is what
`processor.engine.watermark.serial_numbers` says.

Invariant: pure. `judge` returns the next watermark, so that a crash at any point leaves the caller with one
that is either before or after the records, never between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from processor.engine.jit import kernel
from processor.engine.watermark.serial_numbers import is_later

if TYPE_CHECKING:
    from numpy.typing import NDArray


def judge(
    watermark: int | None, sequence: NDArray[np.int64], fault: NDArray[np.uint8], wraps: int = 0
) -> tuple[NDArray[np.uint8], NDArray[np.int64], int | None]:
    """Judge consecutive records of one partition.

    Args:
        watermark: The highest sequence that has passed; None before the first.
        sequence: int64[n], in offset order.
        fault: uint8[n], `Fault` codes; a record with one goes to quarantine and changes nothing.
        wraps: Where numbers begin again; 0: nowhere.

    Returns:
        uint8[n], `Verdict` values; int64[n], the watermark as it stood before each record, 0 where there was
        none; the watermark after the last.
    """
    verdict, before, known, mark = _judge(watermark is not None, watermark or 0, sequence, fault, wraps)
    return verdict, before, int(mark) if known else None


@kernel
def _judge(
    known: bool, watermark: int, sequence: NDArray[np.int64], fault: NDArray[np.uint8], wraps: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64], bool, int]:
    mark = np.int64(watermark)
    verdict, before = np.empty(sequence.size, np.uint8), np.empty(sequence.size, np.int64)
    for i in range(sequence.size):
        before[i] = mark if known else 0
        if fault[i] != 0:
            verdict[i] = 3
        elif not known or is_later(sequence[i], mark, wraps):
            verdict[i] = 0
            mark = sequence[i]
            known = True
        elif sequence[i] == mark:
            verdict[i] = 1
        else:
            verdict[i] = 2
    return verdict, before, known, mark  # type: ignore[return-value]  # compiled code returns an int
