"""Streams of clicks in which some records are sent again, and what the rules say of each record.

Pure: arrays and bytes, no Kafka. A stream is determined by its `StreamOptions` and the pipeline's dedup: the
same ones give the same bytes. A partition is a `Layout` (which original stands where, and why) and the
content of its originals; a record sent again is its original's bytes once more, timestamp included.

Invariant: a copy stands behind its original in the same partition. In mode ``watermark`` the rules never let
it pass: its sequence is not above the watermark, and inside a reorder window it was seen. With a reorder window
some originals come too late for it; they are sent for the first time and do not pass. In mode ``insert-id``
every original passes that can be judged, and so does a copy whose id has expired, or that is not judged.

Another mode is another `Marks`: it says what identifies a record, the layout stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from processor.errors import ConfigError, Problem
from processor.generator.content import CAMPAIGNS, FAULTS, Clicks, Marks, Record, SequenceHeaders
from processor.generator.ids import IdForm, IdMarks
from processor.generator.layout import MOST_PLANTED, NONE_PLANTED, Layout, RecordKind, make_layout, shares
from processor.generator.numbering import draw_scopes
from processor.generator.scoped import ScopedMarks, ScopeForm
from processor.generator.window import Rules, WindowRows, judge, plant_edges
from schemas.config import HeaderSource, WatermarkDedup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from processor.generator.window import Judged
    from schemas.config import Dedup

__all__ = [
    "CAMPAIGNS",
    "FAULTS",
    "HOUR_MS",
    "SCOPES",
    "Layout",
    "Record",
    "RecordKind",
    "StreamOptions",
    "StreamPartition",
    "check_supported",
    "make_stream",
]

HOUR_MS = 3_600_000
SCOPES = 1_000
"""Scopes per partition, if nothing else is asked for: enough to interleave, few enough to have copies."""

# Copies of a partition that come at the very end of a window: ten that pass, and ten a millisecond too early.
_EDGES = 20

# A scope's number times partitions, as a user's number, has to fit 32 bits.
_MOST_SCOPES = 100_000


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What to generate.

    Attributes:
        records: In all, copies included.
        duplicates: Share of copies among the records, 0 to 0.9; met to one record.
        seed: Of everything that is drawn.
        partitions: Of the source topic.
        start_ms: Event time of the first records.
        span_ms: Event time that the stream covers.
        malformed: Share of the originals that cannot be judged, 0 to 1; at least one where it is not 0.
        scopes: Per partition, where the definition has scopes; fewer where there are fewer originals.
    """

    records: int
    duplicates: float
    seed: int
    partitions: int
    start_ms: int
    span_ms: int = 6 * HOUR_MS
    malformed: float = 0.0
    scopes: int = SCOPES

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
        if not 1 <= self.scopes <= _MOST_SCOPES:
            problems.append(Problem("scopes", f"must be from 1 to {_MOST_SCOPES:,}"))
        if problems:
            raise ConfigError(problems)

    def ending_by(self, now_ms: int) -> StreamOptions:
        """Return the same, begun at a full hour so that all of it has happened by ``now_ms``.

        What lies further back a broker's retention could delete while it is read.
        """
        return replace(self, start_ms=(now_ms - self.span_ms) // HOUR_MS * HOUR_MS)

    def over(self, partitions: int) -> StreamOptions:
        """Return the same for another number of partitions."""
        return replace(self, partitions=partitions)


class StreamPartition:
    """The records of one partition, rendered on demand.

    Attributes:
        layout: What stands where, and why.
        passes: bool[n], what the rules say.
        judged: In mode ``insert-id`` what receipts have to say too; None in the other.
    """

    def __init__(
        self,
        layout: Layout,
        clicks: Clicks,
        marks: Marks,
        passes: NDArray[np.bool_],
        judged: Judged | None = None,
    ) -> None:
        self.layout = layout
        self.passes = passes
        self.judged = judged
        self._clicks = clicks
        self._marks = marks

    def __len__(self) -> int:
        return int(self.layout.kind.size)

    @property
    def faults(self) -> NDArray[np.uint8]:
        """uint8[n], index into `FAULTS`; a copy of a record that cannot be judged cannot be either."""
        return self._marks.faults[self.layout.original]

    @property
    def timestamp_ms(self) -> NDArray[np.int64]:
        """int64[n], the records' timestamps, which are their event times."""
        return self._clicks.timestamp_ms[self.layout.original]

    @property
    def campaign(self) -> NDArray[np.uint8]:
        """uint8[n], index into `CAMPAIGNS`: the advertisement that was followed."""
        return self._clicks.campaign[self.layout.original]

    @property
    def cents(self) -> NDArray[np.int32]:
        """int32[n], what was spent, in hundredths."""
        return self._clicks.cents[self.layout.original]

    def records(self, start: int, stop: int) -> list[Record]:
        """Return records ``start`` to ``stop``."""
        rows = self.layout.original[start:stop]
        return self._marks.records(rows, self._clicks.render(rows))


@dataclass(frozen=True, slots=True)
class _Part:
    """What one partition is made of: random numbers by purpose, and how many of what.

    A change of what is drawn for one purpose keeps the others.
    """

    content: np.random.Generator
    marking: np.random.Generator
    order: np.random.Generator
    originals: int
    copies: int
    broken: NDArray[np.int64]
    place: tuple[int, int]
    options: StreamOptions

    @property
    def span(self) -> tuple[int, int]:
        """When the first event is, in ms since 1970, and how many ms they cover."""
        return self.options.start_ms, self.options.span_ms


def make_stream(dedup: Dedup, options: StreamOptions, key: str = "dedup") -> list[StreamPartition]:
    """Return the stream's partitions, in order.

    Args:
        dedup: How the pipeline judges; decides what the records carry.
        options: The size and shape of the stream.
        key: Where ``dedup`` stands in the config, for messages.

    Raises:
        ConfigError: Streams for this dedup cannot be generated, or do not fit its format.
    """
    form = check_supported(dedup, key)
    sizes = shares(options.records, [1.0] * options.partitions)
    copies = shares(round(options.records * options.duplicates), sizes)
    # The first record of all that there are in a partition is an original.
    copies = _capped(copies, [max(size - 1, 0) for size in sizes])
    originals = [size - again for size, again in zip(sizes, copies, strict=True)]
    total = sum(originals)
    broken = min(total, max(1, round(total * options.malformed))) if options.malformed else 0
    partitions = []
    for partition, faulty in enumerate(shares(broken, originals)):
        content, marking, order = (
            np.random.default_rng([options.seed, partition, purpose]) for purpose in range(3)
        )
        count = originals[partition]
        broken_rows = marking.choice(count, min(faulty, count), replace=False)
        place = (partition, options.partitions)
        part = _Part(content, marking, order, count, copies[partition], broken_rows, place, options)
        partitions.append(_with_ids(form, part) if isinstance(form, IdForm) else _with_sequences(form, part))
    return partitions


def check_supported(dedup: Dedup, key: str = "dedup") -> ScopeForm | IdForm:
    """Return where the parts of the definition stand in a record.

    Raises:
        ConfigError: Streams for this dedup cannot be generated; ``key`` says where it stands.
    """
    if dedup.mode == "watermark":
        return ScopeForm(dedup, key)
    if dedup.mode == "insert-id":
        return IdForm(dedup, key)
    raise ConfigError([Problem(f"{key}.mode", f'streams for mode "{dedup.mode}" cannot be generated')])


def _with_sequences(form: ScopeForm, part: _Part) -> StreamPartition:
    dedup, users = form.dedup, None
    marks: SequenceHeaders | ScopedMarks
    if _is_plain(dedup) and isinstance(dedup.sequence, HeaderSource):
        marks = SequenceHeaders(part.marking, part.originals, dedup.sequence, part.broken)
    else:
        scopes = 1 if dedup.scope == "partition" else part.options.scopes
        scope = draw_scopes(part.marking, part.originals, scopes)
        users = scope if dedup.scope == "key" else None
        marks = ScopedMarks(part.marking, form, scope, part.place, part.broken)
    clicks = Clicks(part.content, part.originals, part.place, part.span, users)
    layout = make_layout(part.order, part.originals, part.copies)
    return StreamPartition(
        layout, clicks, marks, (layout.kind == RecordKind.FIRST) & marks.passes[layout.original]
    )


def _with_ids(form: IdForm, part: _Part) -> StreamPartition:
    rules = Rules.of(form.dedup)
    marks = IdMarks(part.marking, form, part.originals, part.place, part.broken)
    clicks = Clicks(part.content, part.originals, part.place, part.span)
    name, bad = np.arange(part.originals, dtype=np.int32), marks.faults > 0
    planted = NONE_PLANTED
    if not rules.arrival:
        most = min(_EDGES, part.copies // MOST_PLANTED)
        once = WindowRows(name, clicks.timestamp_ms, bad, marks.unjudged)
        planted = plant_edges(part.marking, clicks.timestamp_ms, once, rules.window_ms, most)
    layout = make_layout(part.order, part.originals, part.copies, planted)
    at = layout.original
    rows = WindowRows(at, clicks.timestamp_ms[at], bad[at], marks.unjudged[at])
    # Nobody reads an event before it has happened.
    judged = judge(rules, rows, now_ms=sum(part.span))
    return StreamPartition(layout, clicks, marks, judged.passes, judged)


def _is_plain(dedup: WatermarkDedup) -> bool:
    return dedup.scope == "partition" and dedup.epoch is None and not dedup.reorder_window


def _capped(parts: list[int], caps: list[int]) -> list[int]:
    """Move what exceeds a cap to where there is room; the sum stays where the caps allow it."""
    left = sum(max(part - cap, 0) for part, cap in zip(parts, caps, strict=True))
    out = [min(part, cap) for part, cap in zip(parts, caps, strict=True)]
    for index, cap in enumerate(caps):
        moved = min(left, cap - out[index])
        out[index] += moved
        left -= moved
    return out
