"""Finds receipts and quarantined copies of a source record, of the run of now and of runs before a reset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.inspection.explain.lookup.ordered import DisorderError, OrderedLog, runs_between, scan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from processor.inspection.explain.lookup.log import LogReader
    from processor.inspection.explain.lookup.ordered import Entry, Own
    from processor.kafka.client import TopicPartition
    from processor.kafka.offsets import Bounds

    Span = Callable[[], Awaitable[tuple[int, int] | None]]
    """Says between which offsets of an output the entry of a record stands; None: that is not known."""

MOST_SCANNED = 2_000_000
"""Offsets that are read for one record, where entries are in no order: some seconds."""


@dataclass
class _Runs:
    """The runs of one source partition in one partition of an output."""

    now: OrderedLog
    before: OrderedLog | None
    """All before the run of now, taken as one."""
    earlier: list[OrderedLog] | None = None
    """The same, run by run; None: not read yet."""


@dataclass
class EntryFinder:
    """Finds the entries of source records in one topic; keeps what it has seen.

    Attributes:
        log: Reads them.
    """

    log: LogReader
    disordered: set[TopicPartition] = field(default_factory=set)
    """Where entries were found not to lie in source order."""
    _runs: dict[tuple[TopicPartition, TopicPartition], _Runs] = field(default_factory=dict)

    def forget(self) -> None:
        """Forget what was seen: a reset may have begun another run."""
        self._runs.clear()
        self.disordered.clear()

    async def now(
        self, tp: TopicPartition, limits: Bounds, run: RunOf, wanted: int, span: Span
    ) -> Entry | None:
        """Return what names a source offset in the run of now.

        A search finds it, if entries lie in order. Anybody can write to a topic, so what it says counts only if
        it agrees with where the worker wrote then; that is read, however the entries lie there.

        Args:
            tp: The partition of the output.
            limits: Its bounds.
            run: Whose entries, and where the run begins.
            wanted: The source offset.
            span: Asks between which offsets the worker wrote it.

        Raises:
            StopError: It cannot be read, or too much would have to be.
        """
        runs = self._of(tp, limits, run)
        entry, ordered = None, True
        try:
            entry = await runs.now.find(wanted)
        except DisorderError:
            ordered = False
            self.disordered.add(tp)
        where = await span()
        if where is None:
            return entry if ordered else await self._scanned(tp, run, (runs.now.begin, limits.stable), wanted)
        if entry is not None and where[0] <= entry.offset < where[1]:
            return entry
        found = await scan(self.log, tp, run.own, where, wanted)
        if found:
            self.disordered.add(tp)
        return found[-1] if found else entry

    async def scanned(self, tp: TopicPartition, limits: Bounds, run: RunOf, wanted: int) -> Entry | None:
        """Return the last entry that names a source offset in the run of now, by reading all of that.

        Raises:
            StopError: It cannot be read, or would take long.
        """
        return await self._scanned(tp, run, (self._of(tp, limits, run).now.begin, limits.stable), wanted)

    async def _scanned(
        self, tp: TopicPartition, run: RunOf, span: tuple[int, int], wanted: int
    ) -> Entry | None:
        if span[1] - span[0] > MOST_SCANNED:
            raise StopError(
                f"{tp.topic}:{tp.partition} is not in the source's order, no marks say where to look, and "
                f"{span[1] - span[0]:,} offsets are more than the {MOST_SCANNED:,} that are read for an "
                "answer: ask by --id or --key"
            )
        found = await scan(self.log, tp, run.own, span, wanted)
        return found[-1] if found else None

    async def before(
        self, tp: TopicPartition, limits: Bounds, run: RunOf, wanted: int, *, surely: bool
    ) -> list[Entry]:
        """Return what names a source offset in runs before that of now, newest first; otherwise as `now`.

        Args:
            tp: As in `now`.
            limits: As in `now`.
            run: As in `now`.
            wanted: As in `now`.
            surely: All of them, which takes reading it all once; else at least one, mostly.
        """
        runs = self._of(tp, limits, run)
        if runs.before is None:
            return []
        if not surely and runs.earlier is None:
            try:
                entry = await runs.before.find(wanted)
            except DisorderError:
                pass
            else:
                return [] if entry is None else [entry]
        if runs.earlier is None:
            found = await runs_between(self.log, tp, run.own, runs.before.begin, runs.before.end)
            runs.earlier = [
                OrderedLog(self.log, tp, run.own, each.begin, each.end, each.first, each.last + 1)
                for each in found
            ]
        entries = [await each.find(wanted) for each in reversed(runs.earlier) if each.low <= wanted < each.high]
        return [entry for entry in entries if entry is not None]

    def _of(self, tp: TopicPartition, limits: Bounds, run: RunOf) -> _Runs:
        begin = limits.start if run.begin is None else min(max(run.begin, limits.start), limits.stable)
        runs = self._runs.get((tp, run.source))
        if runs is None or (run.begin is not None and runs.now.begin < begin and run.begin > limits.start):
            before = None
            if begin > limits.start:
                before = OrderedLog(self.log, tp, run.own, limits.start, begin, 0, run.high)
            now = OrderedLog(self.log, tp, run.own, begin, limits.stable, run.low, run.high)
            runs = self._runs[tp, run.source] = _Runs(now, before)
        runs.now.grow(limits.stable, run.high)
        return runs


@dataclass(frozen=True)
class RunOf:
    """Whose entries are looked for.

    Attributes:
        source: The source partition.
        own: Finds its entries.
        begin: Where the run of now begins in the output; None: not known, so all is taken as one run.
        low: The first source offset of the run of now.
        high: The source offset behind its last.
    """

    source: TopicPartition
    own: Own
    begin: int | None
    low: int
    high: int


def newest(entries: Sequence[Entry]) -> Entry | None:
    """Return the first of them; None: there is none."""
    return entries[0] if entries else None
