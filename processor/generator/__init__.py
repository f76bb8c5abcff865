"""Which records does a source get that sends some of them again, and what do the rules say of each?

Pure: arrays and bytes, no Kafka. A stream is determined by its `Options` and the pipeline's dedup: the
same ones give the same bytes. A partition is a `Layout` (which original stands where, and why) and the
content of its originals; a record sent again is its original's bytes once more, timestamp included.

Invariant: a copy stands behind its original in the same partition, so its sequence is never above the
watermark that the rules have reached there.

Another mode is another `Marks`: it says what identifies a record, the layout stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from processor.errors import ConfigError, Problem
from processor.generator.content import FAULTS, Clicks, Marks, Record, SequenceHeaders
from processor.generator.layout import Kind, Layout, make_layout, shares
from schemas.config import HeaderSource, WatermarkDedup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from schemas.config import Dedup

__all__ = [
    "FAULTS",
    "HOUR_MS",
    "Kind",
    "Layout",
    "Options",
    "Partition",
    "Record",
    "check_supported",
    "make_stream",
]

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Options:
    """What to generate.

    Attributes:
        records: In all, copies included.
        duplicates: Share of copies among the records, 0 to 0.9; met to one record.
        seed: Of everything that is drawn.
        partitions: Of the source topic.
        start_ms: Event time of the first records.
        span_ms: Event time that the stream covers.
        malformed: Share of the originals that cannot be judged, 0 to 1; at least one where it is not 0.
    """

    records: int
    duplicates: float
    seed: int
    partitions: int
    start_ms: int
    span_ms: int = 6 * HOUR_MS
    malformed: float = 0.0

    def __post_init__(self) -> None:
        problems = []
        if self.records < 1:
            problems.append(Problem("records", "must be at least 1"))
        if not 0 <= self.duplicates <= 0.9:
            problems.append(Problem("duplicates", "must be from 0 to 0.9"))
        if not 0 <= self.malformed <= 1:
            problems.append(Problem("malformed", "must be from 0 to 1"))
        if self.seed < 0:
            problems.append(Problem("seed", "must be at least 0"))
        if self.partitions < 1:
            problems.append(Problem("partitions", "must be at least 1"))
        if problems:
            raise ConfigError(problems)

    def ending_by(self, now_ms: int) -> Options:
        """Return the same, begun at a full hour so that all of it has happened by ``now_ms``.

        What lies further back a broker's retention could delete while it is read.
        """
        return replace(self, start_ms=(now_ms - self.span_ms) // HOUR_MS * HOUR_MS)

    def over(self, partitions: int) -> Options:
        """Return the same for another number of partitions."""
        return replace(self, partitions=partitions)


class Partition:
    """The records of one partition, rendered on demand."""

    def __init__(self, layout: Layout, clicks: Clicks, marks: Marks) -> None:
        self.layout = layout
        self._clicks = clicks
        self._marks = marks

    def __len__(self) -> int:
        return int(self.layout.kind.size)

    @property
    def passes(self) -> NDArray[np.bool_]:
        """bool[n], what the rules say."""
        passes: NDArray[np.bool_] = (self.layout.kind == Kind.FIRST) & (self.faults == 0)
        return passes

    @property
    def faults(self) -> NDArray[np.uint8]:
        """uint8[n], index into `FAULTS`; a copy of a record that cannot be judged cannot be either."""
        return self._marks.faults[self.layout.original]

    @property
    def timestamp_ms(self) -> NDArray[np.int64]:
        """int64[n], the records' timestamps, which are their event times."""
        return self._clicks.timestamp_ms[self.layout.original]

    def records(self, start: int, stop: int) -> list[Record]:
        """Return records ``start`` to ``stop``."""
        rows = self.layout.original[start:stop]
        headers = self._marks.headers
        return [
            Record(key, value, headers(original), time)
            for original, (key, value, time) in zip(rows.tolist(), self._clicks.render(rows), strict=True)
        ]


def make_stream(dedup: Dedup, options: Options, key: str = "dedup") -> list[Partition]:
    """Return the stream's partitions, in order.

    Args:
        dedup: How the pipeline judges; decides what the records carry.
        options: What to generate.
        key: Where ``dedup`` stands in the config, for messages.

    Raises:
        ConfigError: Streams for this dedup cannot be generated yet, or do not fit its format.
    """
    source = check_supported(dedup, key)
    sizes = shares(options.records, [1.0] * options.partitions)
    copies = shares(round(options.records * options.duplicates), sizes)
    # The first record of all that there are in a partition is an original.
    copies = _capped(copies, [max(size - 1, 0) for size in sizes])
    originals = [size - again for size, again in zip(sizes, copies, strict=True)]
    total = sum(originals)
    broken = min(total, max(1, round(total * options.malformed))) if options.malformed else 0
    partitions = []
    for partition, faulty in enumerate(shares(broken, originals)):
        # A stream of random numbers each for content, marks and layout: a change of one keeps the others.
        content, marking, order = (
            np.random.default_rng([options.seed, partition, purpose]) for purpose in range(3)
        )
        count = originals[partition]
        clicks = Clicks(content, count, (partition, options.partitions), (options.start_ms, options.span_ms))
        faults = np.zeros(count, np.uint8)
        broken_rows = marking.choice(count, min(faulty, count), replace=False)
        faults[broken_rows] = 1 + np.arange(broken_rows.size) % (len(FAULTS) - 1)
        marks = SequenceHeaders(marking, count, source, faults)
        partitions.append(Partition(make_layout(order, count, copies[partition]), clicks, marks))
    return partitions


def check_supported(dedup: Dedup, key: str = "dedup") -> HeaderSource:
    """Return where the sequence belongs.

    Raises:
        ConfigError: Streams for this dedup cannot be generated yet; ``key`` says where it stands.
    """
    if not isinstance(dedup, WatermarkDedup):
        raise ConfigError([Problem(f"{key}.mode", "streams are generated for watermark only so far")])
    problems = []
    if dedup.scope != "partition":
        problems.append(Problem(f"{key}.scope", "streams are generated for partition only so far"))
    if dedup.epoch is not None:
        problems.append(Problem(f"{key}.epoch", "streams are generated without epoch only so far"))
    if dedup.reorder_window:
        problems.append(Problem(f"{key}.reorder_window", "streams are generated for 0 only so far"))
    if not isinstance(dedup.sequence, HeaderSource):
        message = "streams are generated with the sequence in a header only so far"
        problems.append(Problem(f"{key}.sequence.from", message))
    elif not problems:
        return dedup.sequence
    raise ConfigError(problems)


def _capped(parts: list[int], caps: list[int]) -> list[int]:
    """Move what exceeds a cap to where there is room; the sum stays where the caps allow it."""
    left = sum(max(part - cap, 0) for part, cap in zip(parts, caps, strict=True))
    out = [min(part, cap) for part, cap in zip(parts, caps, strict=True)]
    for index, cap in enumerate(caps):
        moved = min(left, cap - out[index])
        out[index] += moved
        left -= moved
    return out
