"""An entry is found in the frame that it was written in, and else where reading everything finds it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.engine.batch.columns import BATCH_COLUMNS, Columns
from processor.inspection.explain.lookup import finder
from processor.inspection.explain.lookup.finder import EntryFinder, RunOf
from processor.inspection.explain.lookup.log import LogReader, LogStretch
from processor.kafka.client import TopicPartition
from processor.kafka.offsets import Bounds

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

    async def record(self, tp: TopicPartition, offset: int, stop: int) -> Columns:
        return (await self.stretch(tp, offset, stop)).columns.rows(0, 1)

    def of(self, wanted: int, begin: int, end: int) -> list[int]:
        """Return where entries of a record stand between two offsets, rising."""
        return [at for at, named in sorted(self.entries.items()) if named == wanted and begin <= at < end]

    @property
    def limits(self) -> Bounds:
        return Bounds(0, self.end, self.end)

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


async def asked(
    log: MemoryLog, kept: EntryFinder, wanted: int, span: tuple[int, int | None] | None
) -> int | None:
    """Return where an entry of the run of now is found."""

    async def said() -> tuple[int, int | None] | None:
        return span

    entry = await kept.now(TP, log.limits, RunOf(TP, log.own, 0), wanted, said)
    return None if entry is None else entry.offset


@given(logs(runs=4), st.lists(st.tuples(*[st.integers(0, 150)] * 3), min_size=1, max_size=30))
def test_in_a_frame_the_last_entry_of_a_record_counts_in_whatever_order_they_lie(
    log: MemoryLog, questions: list[tuple[int, int, int]]
) -> None:
    async def find() -> None:
        kept = EntryFinder(log.reader)
        for wanted, one, other in questions:
            begin, end = sorted((min(one, log.end), min(other, log.end)))
            found = await asked(log, kept, wanted, (begin, end))
            there = log.of(wanted, begin, end)
            if there:
                assert found == there[-1]
            else:
                assert found is None or found in log.of(wanted, end, log.end)

    asyncio.run(find())


@given(logs(), st.lists(st.integers(0, 300), min_size=1, max_size=30), st.data())
def test_what_is_not_in_its_frame_is_found_behind_it_where_entries_lie_in_order(
    log: MemoryLog, wanted: list[int], data: st.DataObject
) -> None:
    there = {named: at for at, named in log.entries.items() if named is not None}
    begin = data.draw(st.integers(0, log.end))
    end = data.draw(st.none() | st.integers(begin, log.end))
    wanted += list(there)[::3]

    async def find() -> list[int | None]:
        kept = EntryFinder(log.reader)
        return [await asked(log, kept, each, (begin, end)) for each in wanted]

    at = (there.get(each) for each in wanted)
    assert asyncio.run(find()) == [each if each is not None and each >= begin else None for each in at]


@given(logs(), st.lists(st.integers(0, 300), min_size=1, max_size=30))
def test_what_is_too_much_to_read_is_halved(log: MemoryLog, wanted: list[int]) -> None:
    there = {named: at for at, named in log.entries.items() if named is not None}
    wanted += list(there)[::3]

    async def find() -> list[int | None]:
        kept = EntryFinder(log.reader)
        return [await asked(log, kept, each, None) for each in wanted]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finder, "MOST_SCANNED", 9)
        patch.setattr(finder, "MOST_BESIDE", 3)
        assert asyncio.run(find()) == [there.get(each) for each in wanted]


@given(logs(runs=4), st.integers(0, 120), st.data())
def test_without_frames_all_is_read_and_what_runs_before_wrote_is_told_newest_first(
    log: MemoryLog, wanted: int, data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, log.end))

    async def unknown() -> list[tuple[int, int]]:
        return []

    async def find() -> tuple[int | None, list[int]]:
        kept = EntryFinder(log.reader)
        run = RunOf(TP, log.own, begin)
        before = await kept.before(TP, log.limits, run, wanted, unknown, surely=True)
        return await asked(log, kept, wanted, None), [each.offset for each in before]

    now, before = asyncio.run(find())
    assert now == next(reversed(log.of(wanted, 0, log.end)), None)
    assert before == log.of(wanted, 0, begin)[::-1]


def test_what_was_read_of_a_frame_is_not_read_again() -> None:
    log = MemoryLog({at: at for at in range(0, 100_000, 7)}, 100_000, [120])

    async def find() -> None:
        kept = EntryFinder(log.reader)
        assert await asked(log, kept, 77, (0, 1_200)) == 77
        assert log.looks <= 11
        assert [await asked(log, kept, each, (0, 1_200)) for each in (78, 84, 700)] == [None, 84, 700]
        assert log.looks <= 13

    asyncio.run(find())


def test_of_frames_that_take_much_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog({at: at for at in range(3_000)}, 3_000, [50])
    monkeypatch.setattr(finder, "MOST_KEPT_BYTES", 3 * finder.FRAME_BYTES + 16 * 300)

    async def find() -> None:
        kept = EntryFinder(log.reader)
        for begin in range(0, 3_000, 100):
            assert await asked(log, kept, begin, (begin, begin + 100)) == begin
            before = log.looks
            assert await asked(log, kept, begin + 1, (begin, begin + 100)) == begin + 1
            assert log.looks == before + 1
        assert len(kept._frames) == 3
        assert await asked(log, kept, 5, (0, 100)) == 5
        assert await asked(log, kept, 2_500, (0, 3_000)) == 2_500
        assert len(kept._frames) == 1

    asyncio.run(find())


@given(logs(runs=4), st.integers(0, 120), st.data())
def test_of_runs_before_the_frames_are_read_where_all_is_much(
    log: MemoryLog, wanted: int, data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, log.end))
    spans = [tuple(sorted(each)) for each in data.draw(st.lists(st.tuples(*[st.integers(0, begin)] * 2)))]

    async def told() -> list[tuple[int, int]]:
        return [(one, other) for one, other in spans]

    async def find(*, surely: bool) -> list[int]:
        run = RunOf(TP, log.own, begin)
        entries = await EntryFinder(log.reader).before(TP, log.limits, run, wanted, told, surely=surely)
        return [each.offset for each in entries]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finder, "MOST_BESIDE", -1)
        in_frames = [at for span in spans for at in log.of(wanted, *span)[::-1]]
        assert asyncio.run(find(surely=False)) == in_frames
        assert asyncio.run(find(surely=True)) == log.of(wanted, 0, begin)[::-1]
