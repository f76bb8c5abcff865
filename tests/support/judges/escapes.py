"""Streams of passes of which it is known what escapes, and a gauge that is given them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.engine.extract.ids import NO_CONTENT, NO_FINGERPRINT, Ids
from processor.engine.ids.passes import Passes
from processor.judges.escapes.drawing import Drawn, Span
from processor.judges.escapes.gauge import EscapeGauge
from processor.judges.escapes.sampler import IdSampler
from processor.ops.escaped import HORIZON_WINDOWS, EscapeReason

if TYPE_CHECKING:
    from numpy.typing import NDArray

WINDOW_MS = 1_000


class PassedStream(NamedTuple):
    """Passes in the order in which they are judged: by time, which is every partition's clock.

    Attributes:
        number: int64[n], which id.
        at: int64[n], ms.
        partition: int64[n].
        lot: uint64[n], of the ids.
        escaped: By reason, how many are duplicates.
    """

    number: NDArray[np.int64]
    at: NDArray[np.int64]
    partition: NDArray[np.int64]
    lot: NDArray[np.uint64]
    escaped: dict[EscapeReason, int]

    def part(self, start: int, stop: int) -> PassedStream:
        """Return some of the passes; what escapes is still that of all."""
        rows = slice(start, stop)
        return PassedStream(
            self.number[rows], self.at[rows], self.partition[rows], self.lot[rows], self.escaped
        )


def stream(seed: int, ids: int, again: float, *, windows: int = 15, partitions: int = 1) -> PassedStream:
    """Return a stream in which each id comes again with probability ``again``, and once more, and so on.

    In one partition after 1 to 4 windows; with two, every other copy goes into the other one at once.
    """
    rng = np.random.default_rng(seed)
    copies = np.minimum(rng.geometric(1 - again, ids), 9)
    number = np.repeat(np.arange(ids), copies)
    first = np.repeat(rng.integers(0, windows * WINDOW_MS, ids), copies)
    begins = np.r_[True, number[1:] != number[:-1]]
    nth = np.arange(number.size) - np.repeat(np.flatnonzero(begins), copies)
    home = np.repeat(rng.integers(0, partitions, ids), copies)
    partition = (home + nth) % partitions
    step = WINDOW_MS if partitions == 1 else WINDOW_MS * 6 // 10
    gap = rng.integers(step, 4 * step, number.size) * (nth > 0)
    running = np.cumsum(gap)
    at = first + running - np.repeat(running[begins], copies)
    order = np.lexsort((partition, at))
    lot = rng.integers(0, 2**64 - 1, ids, np.uint64)[number]
    made = number[order], at[order], partition[order], lot[order]
    return PassedStream(*made, _truth(*made[:3]))


def heavy_stream(seed: int, heavy: int, times: int, *, light: int = 400) -> PassedStream:
    """Return a stream of one partition in which a few ids escape so many times each, beside light ones.

    Of the light ones half escape once or twice. The heavy ones come again as soon as their window has passed.
    """
    rng = np.random.default_rng(seed)
    passes = np.concatenate([np.full(heavy, times + 1), rng.choice([1, 1, 2, 3], light)])
    number = np.repeat(np.arange(passes.size), passes)
    span = times * WINDOW_MS
    first = np.concatenate([np.arange(heavy), rng.integers(0, span, light)])
    nth = np.arange(number.size) - np.repeat(np.cumsum(passes) - passes, passes)
    at = first[number] + nth * WINDOW_MS
    order = np.argsort(at, kind="stable")
    lot = rng.integers(0, 2**64 - 1, passes.size, np.uint64)[number]
    made = number[order], at[order], np.zeros(number.size, np.int64), lot[order]
    return PassedStream(*made, _truth(*made[:3]))


def spread_stream(seed: int, heavy: int, *, partitions: int, light: int = 400) -> PassedStream:
    """Return a stream in which a few ids pass in all partitions, beside light ones that pass in one.

    Half an hour of a day apart, so to say; and once more three windows later.
    """
    rng = np.random.default_rng(seed)
    number = np.r_[np.repeat(np.arange(heavy), 2 * partitions), heavy + np.arange(light)]
    partition = np.r_[np.tile(np.arange(partitions), 2 * heavy), rng.integers(0, partitions, light)]
    again = np.repeat([0, 3 * WINDOW_MS], partitions)
    at = np.r_[np.tile(again, heavy), rng.integers(0, 5 * WINDOW_MS, light)]
    at[: 2 * partitions * heavy] += 20 * partition[: 2 * partitions * heavy] + number[: 2 * partitions * heavy]
    order = np.lexsort((partition, at))
    lot = rng.integers(0, 2**64 - 1, heavy + light, np.uint64)[number]
    made = number[order], at[order], partition[order], lot[order]
    return PassedStream(*made, _truth(*made[:3]))


def _truth(
    number: NDArray[np.int64], at: NDArray[np.int64], partition: NDArray[np.int64]
) -> dict[EscapeReason, int]:
    """Count by the definition: the last pass here, else the last one elsewhere, within the horizon."""
    escaped = dict.fromkeys(EscapeReason, 0)
    last: dict[int, dict[int, int]] = {}
    for which, when, where in zip(number.tolist(), at.tolist(), partition.tolist(), strict=True):
        before = last.setdefault(which, {})
        recent = {p for p, t in before.items() if when - t <= HORIZON_WINDOWS * WINDOW_MS}
        if recent:
            escaped[EscapeReason.WINDOW if where in recent else EscapeReason.PARTITION] += 1
        before[where] = when
    return escaped


def given(passed: PassedStream, gauge: EscapeGauge, *, rows: int = 2_000) -> EscapeGauge:
    """Give a gauge a stream, in commits of so many passes."""
    samplers = {
        partition: IdSampler(gauge, partition, collisions=False, renews=False)
        for partition in np.unique(passed.partition).tolist()
    }
    for start in range(0, passed.at.size, rows):
        part = slice(start, start + rows)
        for partition, sampler in samplers.items():
            mine = np.flatnonzero(passed.partition[part] == partition) + start
            sampler.saw(ids_of(passed.lot[mine]), np.zeros(mine.size, np.uint8), passed.at[mine])
            sampler.committed()
        gauge.keep_up()
    return gauge


def ids_of(lot: NDArray[np.uint64]) -> Ids:
    """Return ids of which nothing but their lots is known."""
    none = np.zeros((1, lot.size), np.int64)
    flags = np.zeros(lot.size, np.uint8), np.zeros(lot.size, np.bool_)
    return Ids(
        np.zeros((lot.size, 2), np.uint64),
        *flags,
        none.astype(np.uint8),
        none,
        none,
        NO_CONTENT,
        NO_FINGERPRINT,
        lot,
        np.zeros(0, np.uint8),
    )


def drawn_of(keys: list[int], at: list[int], level: int = 0, partition: int = 0) -> Drawn:
    """Return passes of one partition."""
    count = len(keys)
    columns = np.array(keys, np.uint64), np.array(at, np.int64), np.full(count, partition)
    return Drawn({partition: Span(level, at[0], at[-1])}, Passes(*columns, np.zeros(count, np.uint8)))


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def small_gauge(slots: int = 2**10, clock: Seconds | None = None) -> EscapeGauge:
    """Return a gauge with memory for 0.7 of so many ids."""
    return EscapeGauge("clicks", WINDOW_MS, slots, clock=clock or Seconds())
