"""The search for an entry by its source offset finds what reading everything finds."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.batch.columns import BATCH_COLUMNS, Columns
from processor.inspection.explain.lookup.log import LogReader, LogStretch
from processor.inspection.explain.lookup.ordered import OrderedLog, runs_between, scan
from processor.kafka.client import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from numpy.typing import NDArray

TP = TopicPartition("receipts", 0)


@dataclass
class MemoryLog:
    """A partition in memory: by offset what an entry names, None: it is another's; others are markers."""

    entries: dict[int, int | None]
    end: int
    sizes: list[int]
    looks: int = 0
    _known: dict[int, LogStretch] = field(default_factory=dict)

    async def stretch(self, tp: TopicPartition, offset: int, stop: int, most_bytes: int = 0) -> LogStretch:
        del tp, most_bytes
        assert offset < stop
        self.looks += 1
        after = min(offset + self.sizes[offset % len(self.sizes)], stop)
        here = [at for at in range(offset, after) if at in self.entries]
        columns = Columns.empty(len(here), np.empty(0, np.uint8))
        columns.offset[:] = here
        none = np.empty((0, BATCH_COLUMNS), np.int64)
        return LogStretch(offset, after, columns, none, np.empty(0, np.bool_))

    async def stretches(self, tp: TopicPartition, start: int, stop: int) -> AsyncGenerator[LogStretch]:
        while start < stop:
            found = await self.stretch(tp, start, stop)
            yield found
            start = found.stop

    def own(self, columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        named = [self.entries[at] for at in columns.offset.tolist()]
        rows = [row for row, each in enumerate(named) if each is not None]
        return np.array(rows, np.int64), np.array([named[row] for row in rows], np.int64)

    @property
    def reader(self) -> LogReader:
        return cast("LogReader", self)


@st.composite
def logs(draw: st.DrawFn, runs: int = 1) -> MemoryLog:
    """Draw runs of entries whose source offsets rise, between markers and the entries of others."""
    entries: dict[int, int | None] = {}
    at = 0
    for _ in range(draw(st.integers(1, runs))):
        source = draw(st.integers(0, 50))
        for kind in draw(st.lists(st.integers(0, 5), max_size=60)):
            if kind >= 2:
                source += draw(st.integers(1, 4))
            entries |= {} if kind == 0 else {at: None if kind == 1 else source}
            at += 1
    return MemoryLog(entries, at, draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))


@given(logs(), st.lists(st.integers(0, 300), min_size=1, max_size=30), st.data())
def test_the_search_finds_the_entry_that_reading_everything_finds(
    log: MemoryLog, wanted: list[int], data: st.DataObject
) -> None:
    there = {named: at for at, named in log.entries.items() if named is not None}
    high = data.draw(st.sampled_from([0, max(there, default=0) + 1, 10_000]))
    ordered = OrderedLog(log.reader, TP, log.own, 0, log.end, 0, high)
    wanted += list(there)[::3]

    async def find() -> list[int | None]:
        found = [await ordered.find(each) for each in wanted]
        return [None if entry is None else entry.offset for entry in found]

    assert asyncio.run(find()) == [there.get(each) for each in wanted]


@given(logs(runs=4))
def test_a_run_ends_where_source_offsets_begin_again(log: MemoryLog) -> None:
    runs = asyncio.run(runs_between(log.reader, TP, log.own, 0, log.end))

    mine = [(at, named) for at, named in sorted(log.entries.items()) if named is not None]
    inside: list[list[int]] = []
    for run in runs:
        inside.append([named for at, named in mine if run.begin <= at < run.end])
        assert (run.first, run.last) == (inside[-1][0], inside[-1][-1])
        assert inside[-1] == sorted(set(inside[-1]))
    assert [named for each in inside for named in each] == [named for _, named in mine]
    assert all(before[-1] >= after[0] for before, after in pairwise(inside))


@given(logs(runs=4), st.integers(0, 120))
def test_a_scan_finds_every_entry(log: MemoryLog, wanted: int) -> None:
    found: Any = asyncio.run(scan(log.reader, TP, log.own, (0, log.end), wanted))

    assert [entry.offset for entry in found] == [
        at for at, named in sorted(log.entries.items()) if named == wanted
    ]


def test_a_search_in_a_million_entries_looks_at_few_places() -> None:
    log = MemoryLog({at: 20 * at for at in range(0, 1_000_000, 7)}, 1_000_000, [120])
    ordered = OrderedLog(log.reader, TP, log.own, 0, log.end, 0, 20_000_000)

    assert asyncio.run(ordered.find(20 * 7 * 71_234)) is not None
    assert log.looks <= 8
