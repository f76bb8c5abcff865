"""Between two turns of the event loop a bounded number of records is worked on, whatever a batch holds."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from processor.pipeline import slot_pipeline as pipelines
from processor.pipeline.turns import Turns
from processor.wire.decode import LONG_BYTES, PIECE_ROWS
from tests.support.wire import batches
from tests.support.wire.batches import LZ4, ZSTD, Record, by_hand, chunk
from tests.unit.pipeline.test_slot_pipeline import SINK, Slot, record

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from processor.engine.receipts import ReceiptGrounds
    from processor.judges.judge import Evidence
    from processor.wire.decode import Chunk


class Watched:
    """Counts turns of the event loop, and what is judged in each and where.

    Attributes:
        judged: Records by turn of the loop.
        apart: Records that were judged in another thread than the loop's.
    """

    def __init__(self, *slots: Slot) -> None:
        self.judged: dict[int, int] = {}
        self.apart = self.turn = 0
        for slot in slots:
            for partition in slot.pipeline.partitions.values():
                self._watch(partition.judge)

    def _watch(self, judge: Any) -> None:
        judging: Callable[[Evidence], ReceiptGrounds] = judge.judge

        def judge_and_note(evidence: Evidence) -> ReceiptGrounds:
            rows = evidence.fault.size
            if threading.current_thread() is threading.main_thread():
                self.judged[self.turn] = self.judged.get(self.turn, 0) + rows
            else:
                self.apart += rows
            return judging(evidence)

        judge.judge = judge_and_note

    def run(self, *works: Any) -> None:
        """Do all this at once, until it is done."""

        async def all_of_it() -> None:
            loop = asyncio.get_running_loop()

            def count() -> None:
                self.turn += 1
                self.ticking = loop.call_soon(count)

            count()
            try:
                await asyncio.gather(*works)
            finally:
                self.ticking.cancel()

        asyncio.run(all_of_it())


TINY = [record(offset, "x", None)._replace(key=None) for offset in range(3 * PIECE_ROWS)]
"""Records that cannot be judged, in a batch that is no larger than a broker takes."""


def small_batches(count: int, each: int) -> Chunk:
    data = [
        by_hand([record(at + n, at + n, b"v" * 100) for n in range(each)], LZ4)
        for at in range(0, count * each, each)
    ]
    return chunk(b"".join(data))


def test_one_batch_of_very_many_records_is_judged_some_at_a_time_and_apart_from_the_loop() -> None:
    slot = Slot()
    watched = Watched(slot)
    watched.run(slot.pipeline.take(chunk(by_hand(TINY, ZSTD))))
    assert (watched.judged, watched.apart) == ({}, len(TINY))
    slot.commit()
    assert [each.timestamp for each in slot.output.records("clicks.quarantine")] == [r.timestamp for r in TINY]
    assert slot.committed() == (len(TINY), None)


def test_so_it_is_behind_a_batch_that_holds_no_records_of_its_own() -> None:
    slot = Slot()
    watched = Watched(slot)
    behind = [each._replace(offset=each.offset + 1) for each in TINY]
    watched.run(slot.pipeline.take(chunk(batches.marker(0, 7, commit=True), by_hand(behind, ZSTD))))
    assert (sum(watched.judged.values()), watched.apart) == (0, len(TINY))
    slot.commit()
    assert slot.committed() == (len(TINY) + 1, None)


def test_a_batch_that_inflates_to_much_is_opened_apart_from_the_loop() -> None:
    slot = Slot()
    watched = Watched(slot)
    large = [record(0, 1), record(1, 2, bytes(LONG_BYTES))]
    watched.run(slot.pipeline.take(chunk(by_hand(large, ZSTD))))
    assert (watched.judged, watched.apart) == ({}, 2)
    assert [each.value for each in slot.output.records(SINK)] == [each.value for each in large]


def test_a_record_that_may_have_to_be_compressed_hard_is_judged_apart_from_the_loop() -> None:
    limit = 5_000
    slot = Slot(quarantine_limit=limit)
    watched = Watched(slot)
    hard = record(1, "x", bytes(10 * limit))
    watched.run(slot.pipeline.take(chunk(by_hand([record(0, 1), hard, record(2, 2)], ZSTD))))
    assert (watched.judged, watched.apart) == ({}, 3)
    watched.run(slot.pipeline.take(chunk(by_hand([record(3, 3)], ZSTD), position=3)))
    assert (sum(watched.judged.values()), watched.apart) == (1, 3), "what comes next is judged at once again"
    slot.commit()
    assert slot.output.records("clicks.quarantine")[0].value == hard.value


def test_many_batches_are_judged_some_records_a_turn_of_the_loop() -> None:
    slot = Slot()
    watched = Watched(slot)
    watched.run(slot.pipeline.take(small_batches(80, 1_000)))
    assert watched.apart == 0
    assert sum(watched.judged.values()) == 80_000
    assert max(watched.judged.values()) <= PIECE_ROWS + 1_000, "what is begun with a batch ends with it"


def test_of_several_slots_one_is_at_work_in_a_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    slots = [Slot() for _ in range(3)]
    for slot in slots:
        monkeypatch.setattr(slot.pipeline, "_turns", turns)
    watched = Watched(*slots)
    watched.run(*(slot.pipeline.take(small_batches(40, 1_000)) for slot in slots))
    assert sum(watched.judged.values()) == 120_000
    assert max(watched.judged.values()) <= PIECE_ROWS + 1_000


def test_a_commit_has_a_bounded_number_of_records_whatever_a_batch_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipelines, "COMMIT_ROWS", PIECE_ROWS)
    slot = Slot()
    some = [record(offset, offset) for offset in range(2 * PIECE_ROWS + 5)]
    slot.take(chunk(by_hand(some, ZSTD)))
    assert slot.said.count("end") == 2
    assert slot.committed() == (2 * PIECE_ROWS, 2 * PIECE_ROWS - 1), "inside the batch"
    slot.commit()
    assert slot.committed() == (len(some), len(some) - 1)
    assert [each.timestamp for each in slot.output.records(SINK)] == [each.timestamp for each in some]


def test_what_goes_on_inside_a_batch_begins_there() -> None:
    some = [record(offset, offset) for offset in range(2 * PIECE_ROWS + 5)]
    for position in (1, PIECE_ROWS, PIECE_ROWS + 1, 2 * PIECE_ROWS + 4):
        pieces = batches.DECODER.pieces(chunk(by_hand(some, ZSTD), position=position))
        offsets = [(piece.columns.offset.copy(), piece.next_offset) for piece in pieces]
        assert np.array_equal(np.concatenate([each for each, _ in offsets]), np.arange(position, len(some)))
        assert offsets[-1][1] == len(some)


def test_a_batch_of_very_many_records_that_is_malformed_gives_none_out() -> None:
    some = [Record(offset, 1, None, None) for offset in range(PIECE_ROWS + 5)]
    some[PIECE_ROWS + 2] = some[PIECE_ROWS + 2]._replace(offset=3)
    slot = Slot()
    said = slot.stops(chunk(by_hand(some, last_delta=len(some) - 1)))
    assert "offset deltas do not rise" in said
    assert slot.output.sent == []


def test_a_step_that_was_begun_is_done_before_the_next_turn_also_where_nobody_waits_any_more() -> None:
    begun, go_on = threading.Event(), threading.Event()
    said: list[str] = []

    def long() -> None:
        begun.set()
        go_on.wait()
        said.append("first")

    async def play() -> None:
        turns = Turns()
        first = asyncio.create_task(turns.take(long, long=True))
        await asyncio.to_thread(begun.wait)
        second = asyncio.create_task(turns.take(lambda: said.append("second"), long=False))
        for _ in range(3):
            # However often: by who gives up, and by who ends all that is left.
            first.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, second, return_exceptions=True)
        assert first.cancelled()

    asyncio.run(play())
    assert said == ["first", "second"]
