"""What a producer still asks of its coordinator, and when, with a coordinator that only notes it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from processor.errors import RebuildError, SeqmarkError
from processor.kafka.client import KafkaCode, TopicPartition
from processor.kafka.transactions import producer as producers
from processor.kafka.transactions.producer import Producer
from processor.wire.encode import plain_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GROUP = "app"
SINK, CHANGELOG = TopicPartition("sink", 0), TopicPartition("changelog", 0)


class NotedCoordinator:
    """Answers each question after a turn of the loop, or when it is let; fails where it is told to."""

    producer_id, epoch = 1, 0

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fail_at: str | None = None
        self.hold: dict[str, asyncio.Event] = {}

    async def _answer(self, what: str) -> None:
        self.asked.append(what)
        await asyncio.sleep(0)
        for begins, held in self.hold.items():
            if what.startswith(begins):
                await held.wait()
        if self.fail_at is not None and what.startswith(self.fail_at):
            raise RebuildError("test", f"{what} failed")

    async def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        await self._answer(f"partitions {' '.join(sorted(tp.topic for tp in partitions))}")

    async def add_group(self, group_id: str) -> None:
        await self._answer(f"group {group_id}")

    async def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int], note: str) -> None:
        del group_id, note
        await self._answer(f"offsets {list(offsets.values())}")

    async def end(self, *, commit: bool) -> None:
        await self._answer("commit" if commit else "abort")

    def close(self) -> None:
        """Nothing is asked again here."""


class NotedClient:
    """One broker that acknowledges everything."""

    def __init__(self, asked: list[str]) -> None:
        self._asked = asked
        self._ends: dict[tuple[str, int], int] = defaultdict(int)

    def leader(self, partition: TopicPartition) -> int:
        del partition
        return 0

    async def request(self, node: int, request: Any, **more: Any) -> Any:
        del node, more
        await asyncio.sleep(0)
        topics = []
        for topic, parts in request._topics:
            self._asked.append(f"produce {topic}")
            topics.append((topic, [(number, 0, self._ends[topic, number]) for number, _ in parts]))
            for number, _ in parts:
                self._ends[topic, number] += 1
        return type("Answer", (), {"topics": topics})

    async def close(self) -> None:
        """Nothing is open."""


class Working:
    """A producer at work that holds its id."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.coordinator = NotedCoordinator()
        self.asked = self.coordinator.asked
        client: Any = NotedClient(self.asked)
        coordinator: Any = self.coordinator
        self.producer = Producer(client, "id", deadline_s=1)
        self.producer._coordinator = coordinator

        async def at_once(*arguments: object) -> None:
            del arguments
            await asyncio.sleep(0)

        monkeypatch.setattr(producers, "take", at_once)
        monkeypatch.setattr(producers, "settle", at_once)

    async def until(self, begins: str) -> None:
        """Wait until something has been asked."""
        for _ in range(1000):
            if any(asked.startswith(begins) for asked in self.asked):
                return
            await asyncio.sleep(0)
        pytest.fail(f"{begins} is not asked")

    async def transaction(self, offset: int = 7) -> None:
        """Do what the steps of a commit do."""
        self.producer.begin(GROUP)
        self.producer.expect(CHANGELOG)
        await self.producer.send(SINK.topic, SINK.partition, [plain_batch([(b"k", b"v", 0, ())])])
        await self.producer.flush()
        await self.producer.send(CHANGELOG.topic, CHANGELOG.partition, [plain_batch([(b"k", b"v", 0, ())])])
        await self.producer.flush()
        await self.producer.add_offsets(GROUP, {SINK: offset})
        await self.producer.end(commit=True)


ONE = ["partitions changelog sink", "group app", "produce sink", "produce changelog"]


def test_each_transaction_is_told_of_what_is_written_and_whose_offsets_once_and_before_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    working = Working(monkeypatch)

    async def run() -> None:
        await working.producer.fence()
        for offset in (7, 8):
            await working.transaction(offset)
        await working.producer.close()

    asyncio.run(run())
    assert working.asked[:1] == ONE[:1]
    first, second = working.asked[:6], working.asked[6:]
    for asked, offset in ((first, 7), (second, 8)):
        assert asked[0] == ONE[0]
        assert sorted(asked[:4]) == sorted(ONE)
        assert asked[4:] == [f"offsets [{offset}]", "commit"]


@pytest.mark.parametrize("step", ["partitions", "group", "offsets", "commit"])
def test_nothing_is_asked_after_what_has_failed(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    working = Working(monkeypatch)
    working.coordinator.fail_at = step

    async def run() -> None:
        await working.producer.fence()
        with pytest.raises(RebuildError, match=f"{step}.* failed"):
            await working.transaction()
        await working.producer.close()

    asyncio.run(run())
    assert "commit" not in working.asked or step == "commit"
    assert not [asked for asked in working.asked if asked.startswith("offsets")] or step in {
        "offsets",
        "commit",
    }


@pytest.mark.parametrize("step", ["partitions", "group", "offsets"])
def test_what_is_aborted_while_it_is_told_is_told_nothing_more(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    working = Working(monkeypatch)

    async def run() -> None:
        held = working.coordinator.hold[step] = asyncio.Event()
        await working.producer.fence()
        work = asyncio.create_task(working.transaction())
        await working.until(step)
        aborting = asyncio.create_task(working.producer.abort())
        await working.until("abort")
        held.set()
        await aborting
        with pytest.raises(SeqmarkError):
            await work
        await working.producer.close()

    asyncio.run(run())
    assert working.asked[-1] == "abort"


class BusyClient:
    """One coordinator, which still writes the markers of the transaction before, for ever."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def transaction_coordinator(self, transactional_id: str) -> int:
        del transactional_id
        return 0

    async def request(self, node: int, request: Any, **more: Any) -> Any:
        del node, request, more
        self.asked.set()
        return SimpleNamespace(error_code=KafkaCode.CONCURRENT_TRANSACTIONS)

    async def close(self) -> None:
        """Nothing is open."""


def test_who_waits_for_a_busy_coordinator_gives_up_where_the_producer_is_closed() -> None:
    async def run() -> None:
        client: Any = BusyClient()
        producer = Producer(client, "id", deadline_s=3.0)
        ending = asyncio.create_task(producer.end(commit=True))
        await client.asked.wait()
        await producer.close()
        with pytest.raises(RebuildError, match="it is closed"):
            await ending

    asyncio.run(run())
