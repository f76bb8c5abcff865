"""Measures what the escape gauge costs by itself: ``python -m benchmarks.studies.gauge``.

As a worker uses it: each partition's records are seen and committed ten times a second, and what has committed
is taken in once a second. The figure is CPU per second of the stream, the
lower quartile of the seconds: in the first ones kernels are loaded, and the sample finds its level.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.extract.ids import NO_CONTENT, NO_FINGERPRINT, Ids
from processor.engine.verdict import Verdict
from processor.judges.escapes.gauge import EscapeGauge
from processor.judges.escapes.sampler import IdSampler

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMMITS = 10
"""Per second and partition, as `commit_interval_ms` has them."""
SECONDS = 20
WINDOW_MS = 600_000
DUPLICATES = 0.05


class Shape(NamedTuple):
    """How a stream comes."""

    partitions: int
    records: int
    """Of each commit."""


SHAPES = (Shape(4, 10_000), Shape(4, 200), Shape(100, 20), Shape(100, 200))


class _Stream:
    """Records of one shape, and the gauge that sees them."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._now_s = 0.0
        self._gauge = EscapeGauge("study", WINDOW_MS, clock=lambda: self._now_s)
        self._samplers = [
            IdSampler(self._gauge, number, collisions=False, renews=False) for number in range(shape.partitions)
        ]
        self._rng = np.random.default_rng(1)

    def second(self, number: int) -> float:
        """Have a second go by; return what the gauge took of the processor."""
        spent = 0.0
        for commit in range(COMMITS):
            self._now_s = number + commit / COMMITS
            seen = [self._records() for _ in self._samplers]
            began = time.process_time()
            for sampler, records in zip(self._samplers, seen, strict=True):
                sampler.saw(*records)
                sampler.committed()
            spent += time.process_time() - began
        began = time.process_time()
        self._gauge.keep_up()
        return spent + time.process_time() - began

    def _records(self) -> tuple[Ids, NDArray[np.uint8], NDArray[np.int64]]:
        count = self._shape.records
        none, flags = np.zeros((1, count), np.int64), np.zeros(count, np.uint8)
        lot = self._rng.integers(0, 2**64 - 1, count, np.uint64)
        ids = Ids(
            np.zeros((count, 2), np.uint64), flags, flags.astype(np.bool_), none.astype(np.uint8), none, none,
            NO_CONTENT, NO_FINGERPRINT, lot, none.astype(np.uint8)[0],
        )  # fmt: skip
        copies = self._rng.random(count) < DUPLICATES
        verdict = np.where(copies, np.uint8(Verdict.DUPLICATE), np.uint8(Verdict.PASS))
        return ids, verdict, int(self._now_s * 1000) + np.arange(count) * 100 // count


def run_gauge() -> None:
    """Measure all shapes and print what each takes."""
    for shape in SHAPES:
        stream = _Stream(shape)
        spent = sorted(stream.second(number) for number in range(SECONDS))
        rate = shape.partitions * shape.records * COMMITS
        print(
            f"{shape.partitions} partitions, {shape.records:,} records a commit, {rate:,} a second: "
            f"{spent[len(spent) // 4] * 1e3:.1f} ms of CPU a second",
            flush=True,
        )


if __name__ == "__main__":
    run_gauge()
