"""A reader gives what stands between two offsets, and does what its policy says about what cannot be read."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from processor.errors import RebuildError, StopError
from processor.kafka.client import TopicPartition
from processor.kafka.reader import ChangelogPartition, PartitionReader, StepOver, StopReading
from tests.support.kafka.log import LogClient
from tests.support.wire.batches import DECODER, by_hand, run

if TYPE_CHECKING:
    from processor.kafka.reader import ReadPolicy

TP = TopicPartition("clicks", 3)
STOP = StopReading(damage=": it is lost", loss=": retention has it")
OVER, TO_THE_END = (
    StepOver(damage=": it is lost", loss="", to_the_end=to_the_end) for to_the_end in (False, True)
)
GOOD = [by_hand(run(at, at + 5)) for at in range(0, 30, 5)]


def damaged(batch: bytes) -> bytes:
    """Return a batch whose checksum is wrong."""
    return batch[:-1] + bytes([batch[-1] ^ 1])


def beheaded(batch: bytes) -> bytes:
    """Return a batch of a magic that Kafka does not know: where the next one begins is not known."""
    return batch[:16] + b"\x07" + batch[17:]


def read(
    client: LogClient, start: int, stop: int, policy: ReadPolicy = STOP, *, ahead: bool = False
) -> tuple[list[int], list[int]]:
    """Return the offsets of the records that come, and the positions after them."""
    offsets, positions = list[int](), list[int]()

    async def all_of() -> None:
        connections: Any = client
        reader = PartitionReader(connections, DECODER, TP, policy, ahead=ahead)
        async with aclosing(reader.columns(start, stop)) as pieces:
            async for columns, after in pieces:
                offsets.extend(columns.offset.tolist())
                positions.append(after)

    asyncio.run(all_of())
    return offsets, positions


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(("start", "stop"), [(0, 30), (3, 12), (7, 8), (10, 20), (29, 30)])
def test_all_records_come_that_lie_between_two_offsets_and_no_others(
    start: int, stop: int, *, ahead: bool
) -> None:
    offsets, positions = read(LogClient(GOOD), start, stop, ahead=ahead)
    assert offsets == [*range(start, stop)]
    assert positions == sorted(positions)
    assert positions[-1] == stop


def test_with_ahead_the_next_bytes_are_asked_for_before_the_last_are_done_with() -> None:
    async def asked_meanwhile(*, ahead: bool) -> list[int]:
        client: Any = LogClient(GOOD)
        async with aclosing(PartitionReader(client, DECODER, TP, STOP, ahead=ahead).columns(0, 30)) as pieces:
            await anext(pieces)
            await asyncio.sleep(0.01)
            return list(client.fetched)

    assert asyncio.run(asked_meanwhile(ahead=False)) == [0]
    assert asyncio.run(asked_meanwhile(ahead=True)) == [0, 10]


def test_a_gap_that_compaction_has_left_at_the_end_is_read_over_in_any_topic() -> None:
    assert read(LogClient(GOOD, end=40), 20, 40)[0] == [*range(20, 30)]

    async def of_a_changelog() -> int:
        client: Any = LogClient(GOOD, end=40)
        return sum(
            [len(rows) async for rows, _ in ChangelogPartition(client, DECODER, "state", 0).columns(0, 40)]
        )

    assert asyncio.run(of_a_changelog()) == 30


def test_remote_storage_that_does_not_answer_in_time_is_no_gap() -> None:
    assert read(LogClient(GOOD, remote=20, late=3), 0, 30)[0] == [*range(30)]
    with pytest.raises(RebuildError, match="clicks:3: nothing comes from offset 0 on, of 30"):
        read(LogClient(GOOD, remote=20, late=1_000), 0, 30)


def test_where_nothing_comes_any_more_it_gives_up_and_says_where() -> None:
    with pytest.raises(RebuildError, match="clicks:3: nothing comes from offset 30 on, of 50"):
        read(LogClient(GOOD), 20, 50)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_damaged_batch_stops_or_is_stepped_over(*, ahead: bool) -> None:
    log = [*GOOD[:2], damaged(GOOD[2]), *GOOD[3:]]
    with pytest.raises(StopError, match=r"clicks:3: the batch at offset 10 cannot be decoded: .*: it is lost"):
        read(LogClient(log), 0, 30, STOP, ahead=ahead)
    left = [*range(10), *range(15, 30)]
    assert read(LogClient(log), 0, 30, OVER, ahead=ahead)[0] == left
    # Also where a fetch begins inside it, and where it reaches over the end.
    assert read(LogClient(log), 12, 30, OVER, ahead=ahead)[0] == [*range(15, 30)]
    assert read(LogClient(log), 0, 13, OVER, ahead=ahead)[0] == [*range(10)]


def test_a_damaged_batch_behind_the_end_is_not_looked_at() -> None:
    assert read(LogClient([GOOD[0], damaged(GOOD[1])]), 0, 5)[0] == [*range(5)]


def test_where_nobody_can_tell_where_the_next_batch_begins_the_policy_says_whether_to_go_to_the_end() -> None:
    log = LogClient([GOOD[0], beheaded(GOOD[1]), *GOOD[2:]])
    for policy in (STOP, OVER):
        with pytest.raises(StopError, match=r"cannot be decoded.*: it is lost"):
            read(log, 0, 30, policy)
    assert read(log, 0, 30, TO_THE_END)[0] == [*range(5)]


def test_offsets_that_are_gone_stop_a_reading_and_have_a_state_rebuilt() -> None:
    with pytest.raises(StopError, match="offset 2 of clicks:3 is gone: retention has it"):
        read(LogClient(GOOD, start=10), 2, 30)

    async def of_a_changelog() -> None:
        client: Any = LogClient(GOOD, start=10)
        async for _ in ChangelogPartition(client, DECODER, "state", 0).columns(2, 30):
            pass

    with pytest.raises(RebuildError, match="state:0: offset 2 of state:0 is gone"):
        asyncio.run(of_a_changelog())
