"""Streams of clicks in which some records are sent again, and what the rules say of each record.

Pure: arrays and bytes, no Kafka. A stream is determined by its `StreamOptions` and the pipeline's dedup: the
same ones give the same bytes. A partition is a `Layout` (which original stands where, and why) and the
content of its originals; a record sent again is its original's bytes once more, timestamp included.

Invariant: a copy stands behind its original in the same partition. In mode ``watermark`` the rules never let
it pass: its sequence is not above the watermark, and inside a reorder window it was seen. With a reorder window
some originals come too late for it; they are sent for the first time and do not pass. Only where numbers
wrap, or epochs have no order, a copy may come so late that it passes. In mode ``insert-id``
every original passes that can be judged, and so does a copy whose id has expired, or that is not judged. With a
fingerprint some originals have the id of an earlier one: they collide with it, and pass if the definition lets
them. Copies are then written in other ways than their originals too, where that is no other content.

Another mode is another `Marks`: it says what identifies a record, the layout stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from processor.errors import ConfigError, Problem
from processor.generator.click_context import ClickContext
from processor.generator.content import MEMBERS, Clicks
from processor.generator.ids import IdForm, IdMarks
from processor.generator.layout import MOST_PLANTED, NONE_PLANTED, Layout, RecordKind, make_layout, shares
from processor.generator.marks import FAULTS, Marks, Record
from processor.generator.numbering import count_up, draw_numbers, draw_scopes
from processor.generator.resends import Resends
from processor.generator.scoped import ScopedMarks, ScopeForm
from processor.generator.shared_ids import NONE_SHARED, draw_shared_ids, plan_copies
from processor.generator.window import WindowRows, judge, plant_edges

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from processor.generator.shared_ids import SharedIds
    from processor.generator.window import Judged
    from schemas.config import Dedup, InsertIdDedup

__all__ = [
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

FORMS: dict[str, Callable[[Any, str], ScopeForm | IdForm]] = {"watermark": ScopeForm, "insert-id": IdForm}
"""By ``mode`` in the table ``dedup``: what its records look like."""
HOUR_MS = 3_600_000
SCOPES = 1_000
"""Scopes per partition, if nothing else is asked for: enough to interleave, few enough to have copies."""

# Copies of a partition that come at the very end of a window: ten that pass, and ten a millisecond too early.
_EDGES = 20

_FRAME = b"\0\0\0\0\1"
"""Byte 0, and the id of a schema."""

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
        collisions: Share of the records that are sent for the first time with the id of an earlier one and
            other content, 0 to 0.5.
    """

    records: int
    duplicates: float
    seed: int
    partitions: int
    start_ms: int
    span_ms: int = 6 * HOUR_MS
    malformed: float = 0.0
    scopes: int = SCOPES
    collisions: float = 0.0

    def __post_init__(self) -> None:
        rules = (
            ("records", self.records >= 1, "must be at least 1"),
            ("duplicates", 0 <= self.duplicates <= 0.9, "must be from 0 to 0.9"),
            ("collisions", 0 <= self.collisions <= 0.5, "must be from 0 to 0.5"),
            ("malformed", 0 <= self.malformed <= 1, "must be from 0 to 1"),
            ("seed", self.seed >= 0, "must be at least 0"),
            ("partitions", self.partitions >= 1, "must be at least 1"),
            ("scopes", 1 <= self.scopes <= _MOST_SCOPES, f"must be from 1 to {_MOST_SCOPES:,}"),
        )
        if problems := [Problem(key, message) for key, holds, message in rules if not holds]:
            raise ConfigError(problems)

    def ending_by(self, now_ms: int) -> StreamOptions:
        """Return the same, begun at a full hour so that all of it has happened by ``now_ms``.

        What lies further back a broker's retention could delete while it is read.
        """
        return replace(self, start_ms=(now_ms - self.span_ms) // HOUR_MS * HOUR_MS)


@dataclass(frozen=True, slots=True)
class StreamPartition:
    """The records of one partition, rendered on demand.

    Attributes:
        layout: What stands where, and why.
        passes: bool[n], what the rules say.
        clicks: Content of the originals.
        marks: What they are judged by.
        judged: In mode ``insert-id`` what receipts have to say too; None in the other.
        resends: How copies are written; None: as their originals.
        framed: Whether values stand behind the five bytes of a schema registry.
    """

    layout: Layout
    passes: NDArray[np.bool_]
    clicks: Clicks
    marks: Marks
    judged: Judged | None = None
    resends: Resends | None = None
    framed: bool = False

    def __len__(self) -> int:
        return int(self.layout.kind.size)

    @property
    def faults(self) -> NDArray[np.uint8]:
        """uint8[n], index into `FAULTS`; a copy of a record that cannot be judged cannot be either."""
        faults = self.marks.faults[self.layout.original]
        if self.judged is None:
            return faults
        return np.where(self.judged.quarantined, np.uint8(FAULTS.index("id_collision")), faults)

    @property
    def kind(self) -> NDArray[np.uint8]:
        """uint8[n], `RecordKind`: why each was sent, or that it is a collision."""
        if self.judged is None:
            return self.layout.kind
        return np.where(self.judged.collision, np.uint8(RecordKind.COLLISION), self.layout.kind)

    @property
    def timestamp_ms(self) -> NDArray[np.int64]:
        """int64[n], the records' timestamps, which are their event times."""
        return self.clicks.timestamp_ms[self.layout.original]

    def records(self, start: int, stop: int) -> list[Record]:
        """Return records ``start`` to ``stop``."""
        rows = self.layout.original[start:stop]
        records = self.marks.records(rows, self.clicks.render(rows))
        if self.resends is not None:
            records = self.resends.written(records, start)
        if self.framed:
            records = [each._replace(value=each.value and _FRAME + each.value) for each in records]
        return records


@dataclass(frozen=True, slots=True)
class _Part:
    """What one partition is made of: random numbers by purpose, and how many of what.

    A change of what is drawn for one purpose keeps the others.
    """

    content: np.random.Generator
    marking: np.random.Generator
    order: np.random.Generator
    colliding: np.random.Generator
    originals: int
    copies: int
    collisions: int
    broken: NDArray[np.int64]
    place: tuple[int, int]
    options: StreamOptions

    def clicks(self, users: NDArray[np.int32] | None = None) -> Clicks:
        """Draw the originals' content."""
        span = self.options.start_ms, self.options.span_ms
        return Clicks(self.content, self.originals, self.place, span, users)


def make_stream(dedup: Dedup, options: StreamOptions, key: str = "dedup") -> list[StreamPartition]:
    """Return the stream's partitions, in order.

    What the records carry is decided by ``dedup``; ``key`` says where it stands in the config, for messages.

    Raises:
        ConfigError: Streams for this dedup cannot be generated, or do not fit its format.
    """
    form = check_supported(dedup, key, options.collisions)
    sizes = shares(options.records, [1.0] * options.partitions)
    copies = shares(round(options.records * options.duplicates), sizes)
    # The first record of all that there are in a partition is an original.
    copies = _capped(copies, [max(size - 1, 0) for size in sizes])
    originals = [size - again for size, again in zip(sizes, copies, strict=True)]
    collisions = shares(round(options.records * options.collisions), sizes)
    total = sum(originals)
    broken = min(total, max(1, round(total * options.malformed))) if options.malformed else 0
    partitions = []
    for partition, faulty in enumerate(shares(broken, originals)):
        content, marking, order, colliding = (
            np.random.default_rng([options.seed, partition, purpose]) for purpose in range(4)
        )
        count = originals[partition]
        broken_rows = marking.choice(count, min(faulty, count), replace=False)
        place = (partition, options.partitions)
        counts = (count, copies[partition], collisions[partition])
        part = _Part(content, marking, order, colliding, *counts, broken_rows, place, options)
        made = _with_ids(form, part) if isinstance(form, IdForm) else _with_sequences(form, part)
        partitions.append(replace(made, framed=dedup.framing == "registry"))
    return partitions


def check_supported(dedup: Dedup, key: str = "dedup", collisions: float = 0.0) -> ScopeForm | IdForm:
    """Return where the parts of the definition stand in a record; ``collisions`` is the share of these.

    Raises:
        ConfigError: Streams for this dedup cannot be generated; ``key`` says where it stands.
    """
    form = FORMS[dedup.mode](dedup, key)
    if collisions:
        if not isinstance(form, IdForm) or form.dedup.fingerprint is None:
            message = f"is for a pipeline with {key}.fingerprint: by nothing else is anything a collision"
            raise ConfigError([Problem("--collisions", message)])
        form.check_collisions(key)
    return form


def _with_sequences(form: ScopeForm, part: _Part) -> StreamPartition:
    users = None
    if form.plain:
        numbers = count_up(part.marking, part.originals)
    else:
        scopes = 1 if form.dedup.scope == "partition" else part.options.scopes
        scope = draw_scopes(part.marking, part.originals, scopes)
        epochs, window = form.dedup.epoch is not None, form.dedup.reorder_window
        numbers = draw_numbers(part.marking, scope, epochs=epochs, window=window)
        users = scope if form.keyed else None
    marks = ScopedMarks(form, numbers, part.place, part.broken)
    layout = make_layout(part.order, part.originals, part.copies)
    return StreamPartition(layout, marks.passing(layout), part.clicks(users), marks)


def _with_ids(form: IdForm, part: _Part) -> StreamPartition:
    dedup = form.dedup
    clicks = part.clicks()
    context = None
    if dedup.fingerprint is not None:
        context = ClickContext(part.colliding, clicks.timestamp_ms, len(form.excluded), form.counted)
    marks = IdMarks(part.marking, form, part.originals, part.place, part.broken, context)
    once = WindowRows(marks.name, marks.name, clicks.timestamp_ms, marks.faults > 0, marks.unjudged)
    shared = NONE_SHARED
    if context is not None and part.collisions:
        shared = draw_shared_ids(part.colliding, once, dedup.window, part.collisions)
        marks.name = shared.name
        once = once._replace(name=shared.name)
        clicks.share(form.members, shared.rows, shared.first)
        clicks.share(MEMBERS, shared.rows[shared.near], shared.first[shared.near])
        context.share(shared.rows[shared.near], shared.first[shared.near])
    layout = make_layout(part.order, part.originals, part.copies, _planted(dedup, part, once, shared))
    # Nobody reads an event before it has happened.
    now_ms = part.options.start_ms + part.options.span_ms
    judged = judge(dedup, once.take(layout.original), now_ms)
    resends = None
    if form.rewritable:
        whole = ~(once.bad | once.unjudged)[layout.original]
        resends = Resends(part.colliding, whole & (layout.kind != RecordKind.FIRST), form.excluded)
    return StreamPartition(layout, judged.passes, clicks, marks, judged, resends)


def _planted(dedup: InsertIdDedup, part: _Part, once: WindowRows, shared: SharedIds) -> NDArray[np.int64]:
    """Return which copies are put where windows end, and beside what collides."""
    most = part.copies // MOST_PLANTED
    planted = [NONE_PLANTED]
    if dedup.time == "record":
        edges = plant_edges(part.marking, once, dedup.window, min(_EDGES, most), shared.first)
        planted.append(np.concatenate([np.full((1, edges.shape[1]), RecordKind.LATE), edges]))
    planted.append(plan_copies(part.colliding, once, shared, dedup.window, most))
    return np.concatenate(planted, axis=1)


def _capped(parts: list[int], caps: list[int]) -> list[int]:
    """Move what exceeds a cap to where there is room; the sum stays where the caps allow it."""
    out = list(map(min, parts, caps))
    left = sum(parts) - sum(out)
    for index, cap in enumerate(caps):
        moved = min(left, cap - out[index])
        out[index] += moved
        left -= moved
    return out
