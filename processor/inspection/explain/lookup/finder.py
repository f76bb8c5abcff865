"""Finds receipts and quarantined copies of a source record where the worker wrote them: frame by frame.

Two marks frame a piece of the source and of its outputs (`processor.inspection.marks`), at most 65,536 records
or what a second brings. What a frame of an output has of a source partition is read once and kept, so that the
next question about it costs nothing. Anybody can write to a topic: what stands in the frame counts, in whatever
order. What is not in it is looked for behind it, as long as what follows may still be about the record: a
state's entries lie in source order.

Where no frame is known all that the run of now has written is taken for one; where that is too much to read, it
is halved: what lies in order is found so. All before it is read once, where runs before a reset are asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from processor.errors import StopError
from processor.inspection.explain.lookup.facts import NEVER
from processor.inspection.explain.lookup.log import Missing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from numpy.typing import NDArray

    from processor.engine.batch.columns import Columns
    from processor.inspection.explain.case import SourceCase
    from processor.inspection.explain.lookup.log import LogReader
    from processor.inspection.marks import MarkFrame
    from processor.kafka.client import TopicPartition
    from processor.kafka.offsets import Bounds
    from processor.wire.receipt_values import Own

    Span = Callable[[], Awaitable[tuple[int, int | None] | None]]
    """Says from which offset of an output on to before which the entry of a record stands. None: that is not
    known; None as the end: it stands before that of any later record."""
    Spans = Callable[[], Awaitable[list[tuple[int, int]]]]
    """Says the same of runs before that of now, newest first."""

MOST_SCANNED = 2_000_000
"""Offsets that are read, in whatever order entries lie, where no marks say where to look: some seconds."""
MOST_BESIDE = 262_144
"""Offsets that are read beside a frame: what the 65,536 records of one make, and as many of others thrice."""
MOST_KEPT_BYTES = 64 * 1024 * 1024
"""Of entries that are kept: 16 bytes for each, and `FRAME_BYTES` for a frame of them."""
FRAME_BYTES = 1024


class Entry(NamedTuple):
    """An entry, over bytes that stay."""

    offset: int
    columns: Columns
    row: int

    def is_about(self, record: Columns | None) -> bool:
        """Whether it can be about a record, which an entry has the timestamp of; true where that is gone."""
        return record is None or int(self.columns.timestamp[self.row]) == int(record.timestamp[0])


@dataclass(frozen=True)
class RunOf:
    """Whose entries are looked for.

    Attributes:
        source: The source partition.
        own: Finds its entries.
        begin: Where the run of now begins in the output; None: not known, so all is taken as one run.
    """

    source: TopicPartition
    own: Own
    begin: int | None


@dataclass
class EntryFrame:
    """The entries of a source partition from an offset of an output on, as far as that was read.

    Attributes:
        log: Reads them.
        tp: The partition of the output.
        own: Finds them.
        stop: Before it all is read.
        named: int64[k], the source offsets that they name.
        offsets: int64[k], where they stand, rising.
    """

    log: LogReader
    tp: TopicPartition
    own: Own
    stop: int
    named: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    offsets: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    async def read(self, stop: int, past: int | None = None) -> None:
        """Read on to before an offset, or until an entry names a source offset above ``past``.

        Raises:
            StopError: They cannot be read.
        """
        if self.stop >= stop or _is_past(self.named, past):
            return
        parts, at = [(self.named, self.offsets)], self.stop
        async for found in self.log.stretches(self.tp, at, stop):
            rows, named = self.own(found.columns)
            offsets = found.columns.offset[rows]
            inside = (offsets >= at) & (offsets < stop)
            parts.append((named[inside], offsets[inside]))
            at = min(found.stop, stop)
            if _is_past(named[inside], past):
                break
        self.named, self.offsets = (np.concatenate(each) for each in zip(*parts, strict=True))
        self.stop = at

    @property
    def size_bytes(self) -> int:
        """About what it takes of memory."""
        return FRAME_BYTES + self.named.nbytes + self.offsets.nbytes

    @property
    def is_ordered(self) -> bool:
        """Whether the entries lie in source order."""
        return bool((np.diff(self.named) > 0).all())

    def of(self, wanted: int, stop: int = NEVER) -> list[int]:
        """Return the offsets before ``stop`` at which entries name a source offset, rising."""
        offsets: list[int] = self.offsets[(self.named == wanted) & (self.offsets < stop)].tolist()
        return offsets


@dataclass
class EntryFinder:
    """Finds the entries of source records in one topic.

    Attributes:
        log: Reads them.
        disordered: Where entries were found not to lie in source order.
    """

    log: LogReader
    disordered: set[TopicPartition] = field(default_factory=set)
    _frames: OrderedDict[tuple[TopicPartition, TopicPartition, int], EntryFrame] = field(
        default_factory=OrderedDict
    )
    _kept_bytes: int = 0

    def forget(self) -> None:
        """Forget what was read: a reset may have begun another run."""
        self._frames.clear()
        self._kept_bytes = 0
        self.disordered.clear()

    async def now(
        self, tp: TopicPartition, limits: Bounds, run: RunOf, wanted: int, span: Span | None
    ) -> Entry | None:
        """Return what names a source offset in the run of now.

        Args:
            tp: The partition of the output.
            limits: Its bounds.
            run: Whose entries, and where the run begins.
            wanted: The source offset.
            span: Asks between which offsets the worker wrote it; None: all is read.

        Raises:
            StopError: It cannot be read, or too much would have to be.
        """
        where = None if span is None else await span()
        begin, stable = _begin(limits, run), limits.stable
        if where is None and stable - begin > MOST_SCANNED:
            if span is None:
                raise _too_much(tp, stable - begin)
            where = await self._halved(tp, run, (begin, stable), wanted)
        begin, end = (begin, stable) if where is None else where
        frame, found = await self._frame(tp, run, begin, begin if end is None else end), list[int]()
        if end is not None:
            found = frame.of(wanted, end)
        if not found:
            most = begin + MOST_SCANNED if end is None else end + MOST_BESIDE
            frame = await self._frame(tp, run, begin, min(stable, most), wanted)
            found = frame.of(wanted)
            if not found and end is None and frame.stop == most < stable:
                # Entries of this source may be rare among those of others.
                begin, _ = await self._halved(tp, run, (frame.stop, stable), wanted)
                frame = await self._frame(tp, run, begin, min(stable, begin + MOST_SCANNED), wanted)
                found = frame.of(wanted)
        if not frame.is_ordered:
            self.disordered.add(tp)
        return next(iter(await self._entries(frame, found[-1:], limits)), None)

    async def _halved(
        self, tp: TopicPartition, run: RunOf, span: tuple[int, int], wanted: int
    ) -> tuple[int, int]:
        """Return a part of a span in which the entry of a source offset stands.

        Raises:
            StopError: Entries do not lie in the source's order.
        """
        begin, end = span
        looks: list[tuple[int, int]] = []
        while end - begin > MOST_BESIDE:
            middle = (begin + end) // 2
            frame = EntryFrame(self.log, tp, run.own, middle)
            await frame.read(end, -1)
            if frame.named.size:
                looks.append((middle, int(frame.named[0])))
            if frame.named.size and int(frame.named[0]) <= wanted:
                begin = middle
            else:
                end = middle
        named = [each for _, each in sorted(looks)]
        if named != sorted(named):
            self.disordered.add(tp)
            raise _too_much(tp, span[1] - span[0], "entries are out of the source's order")
        return begin, end

    async def before(
        self, tp: TopicPartition, limits: Bounds, run: RunOf, wanted: int, spans: Spans, *, surely: bool
    ) -> list[Entry]:
        """Return what names a source offset in runs before that of now, newest first; otherwise as `now`.

        Args:
            tp: As in `now`.
            limits: As in `now`.
            run: As in `now`.
            wanted: As in `now`.
            spans: Asks between which offsets runs before wrote it, where all of them is much to read.
            surely: All of them is read nevertheless: marks of a run may have gone.
        """
        end = _begin(limits, run)
        frames = [(limits.start, end)]
        if end - limits.start > MOST_BESIDE and not surely:
            known = await spans()
            frames = known if all(limits.start <= each[0] <= each[1] <= end for each in known) else []
        entries: list[Entry] = []
        for begin, stop in frames:
            frame = await self._frame(tp, run, begin, stop)
            entries += await self._entries(frame, reversed(frame.of(wanted, stop)), limits)
        return entries

    async def _frame(
        self, tp: TopicPartition, run: RunOf, begin: int, stop: int, past: int | None = None
    ) -> EntryFrame:
        """Return the entries from an offset on, read as far as `EntryFrame.read` says."""
        key = tp, run.source, begin
        frame = self._frames.pop(key, None)
        if frame is None:
            frame = EntryFrame(self.log, tp, run.own, begin)
        else:
            self._kept_bytes -= frame.size_bytes
        await frame.read(stop, past)
        self._frames[key] = frame
        self._kept_bytes += frame.size_bytes
        while self._kept_bytes > MOST_KEPT_BYTES and len(self._frames) > 1:
            self._kept_bytes -= self._frames.popitem(last=False)[1].size_bytes
        return frame

    async def _entries(self, frame: EntryFrame, offsets: Iterable[int], limits: Bounds) -> list[Entry]:
        """Return the entries at some offsets, as far as compaction has not removed them meanwhile."""
        found = [(each, await self.log.record(frame.tp, each, limits.stable)) for each in offsets]
        return [Entry(at, columns, 0) for at, columns in found if not isinstance(columns, Missing)]


def _is_past(named: NDArray[np.int64], offset: int | None) -> bool:
    """Whether the last of some entries names a source offset above one."""
    return offset is not None and named.size > 0 and int(named[-1]) > offset


def _begin(limits: Bounds, run: RunOf) -> int:
    """Return where the run of now begins in an output."""
    return limits.start if run.begin is None else min(max(run.begin, limits.start), limits.stable)


def _too_much(tp: TopicPartition, offsets: int, why: str = "no marks say where to look") -> StopError:
    return StopError(
        f"{tp.topic}:{tp.partition}: {why}, and {offsets:,} offsets are more than the "
        f"{MOST_SCANNED:,} that are read for an answer: ask by --id or --key"
    )


def entry_span(
    case: SourceCase, tp: TopicPartition, kind: str, frame: MarkFrame | None
) -> tuple[int, int] | None:
    """Return from where to before where the entry of a record that the run of now judged stands, if it has one.

    None: it is not known, or so much that it would take long.

    Args:
        case: Of the record.
        tp: The partition of the output.
        kind: What it is, as `schemas.changelog.position.OutputEnds` calls it.
        frame: The marks of the run of now around it.
    """
    limits, last = case.facts.bounds[tp], case.facts.last
    if case.elsewhere(tp.topic):
        return None
    begin, end = case.begin(tp.topic), -1
    if frame is not None and frame.before is not None and getattr(frame.before.ends, kind) >= 0:
        begin = getattr(frame.before.ends, kind)
    if frame is not None and frame.after is not None and frame.after.since_ms == frame.since_ms:
        end = getattr(frame.after.ends, kind)
    elif last is not None and last.next_offset > case.offset:
        end = getattr(last.ends, kind)
    begin = None if begin is None else max(begin, limits.start)
    end = limits.stable if end < 0 else min(end, limits.stable)
    if begin is None or end - begin > MOST_SCANNED:
        return None
    return begin, end
