"""Processes that speak to the brokers, each with its own tasks: what a kill, a halt or a cut does.

A task belongs to the process in whose context it was made. A process that was killed never reaches a broker or
its local state again, whatever its cleanup still does; one that is halted does so later, as a zombie.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from processor.kafka.client import KafkaCode
from processor.kafka.protocol.internals import KafkaConnectionError
from processor.state.kv.store import MemoryStore
from tests.simulation.brokers.kafka.answers import FETCH, PRODUCE, TAKEN, Asked
from tests.simulation.faults import Killed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from tests.simulation.brokers.kafka.cluster import Brokers
    from tests.simulation.faults import Fate

WAIT_S = 0.5
"""What a leader waits for records, as a fetch asks it to."""
LATE_S = 5.0
"""After which a request has arrived that nobody waits for."""
HELD_S = (0.3, 3.0, 12.0)
"""What a request may be on its way: most deadlines are above that, and not all."""
SPARED = 0.4
"""Of the partitions in a request that a broker refuses: it leads each of them by itself."""
ROUNDS, ROUND_S = 50, 60.0
"""Of ending what a process has left: above all deadlines that its cleanup has."""
_LEADER = (KafkaCode.NOT_LEADER_OR_FOLLOWER, KafkaCode.LEADER_NOT_AVAILABLE)
_COORDINATOR = (
    KafkaCode.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaCode.COORDINATOR_NOT_AVAILABLE,
    KafkaCode.NOT_COORDINATOR,
)
_BUSY = (*_COORDINATOR, KafkaCode.CONCURRENT_TRANSACTIONS)
_CODES: Mapping[int, tuple[KafkaCode, ...]] = {
    PRODUCE: (
        KafkaCode.NOT_LEADER_OR_FOLLOWER,
        KafkaCode.NOT_ENOUGH_REPLICAS,
        KafkaCode.KAFKA_STORAGE_ERROR,
        *TAKEN,
    ),
    FETCH: (*_LEADER, KafkaCode.REPLICA_NOT_AVAILABLE, KafkaCode.OFFSET_NOT_AVAILABLE),
    2: _LEADER,
    9: (KafkaCode.COORDINATOR_LOAD_IN_PROGRESS, KafkaCode.NOT_COORDINATOR),
    10: (KafkaCode.COORDINATOR_NOT_AVAILABLE,),
    21: _LEADER,
    22: _BUSY,
    24: _BUSY,
    25: _BUSY,
    26: _BUSY,
    28: _COORDINATOR,
    61: _LEADER,
    65: _COORDINATOR,
}
"""By request, the codes with which a broker refuses what may be asked again."""


class Process:
    """One process, from its start until it ends or is killed.

    Args:
        brokers: That it speaks to.
        fate: Of its requests.
        stores: Its host's local state, by hop and partition; outlives it.
        halted: Called when it halts for longer than its group waits, or the group believes so.

    Attributes:
        alive: Whether it was not killed.
    """

    def __init__(
        self,
        brokers: Brokers,
        fate: Fate,
        stores: dict[tuple[str, int], MemoryStore] | None = None,
        halted: Callable[[], None] = lambda: None,
    ) -> None:
        self.brokers = brokers
        self.fate = fate
        self.stores = {} if stores is None else stores
        self.alive = True
        self._halted = halted
        self._until_s = 0.0
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Have the process do something; all tasks that come of it are its own."""
        token = _HERE.set(self)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            _HERE.reset(token)

    def own(self, task: asyncio.Task[Any]) -> None:
        """Take a task as the process's own."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def gone(self) -> None:
        """End all that it has left running, and wait for that; who asks is not one of it."""
        left: list[asyncio.Task[Any]] = []
        for _ in range(ROUNDS):
            left = [task for task in self._tasks if not task.done()]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=ROUND_S)
        raise AssertionError(f"tasks that do not end: {left}")

    def kill(self) -> None:
        """End it here; raises `Killed` in whatever task was at work."""
        self.alive = False
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        raise Killed

    def end_here(self) -> None:
        """Kill it now, or do not."""
        self.require_alive()
        with contextlib.suppress(Killed):
            self.fate.end_here()
            return
        self.kill()

    def require_alive(self) -> None:
        """Raise `Killed` where it was."""
        if not self.alive:
            raise Killed

    async def send(self, client: Any, node: int, request: Any, group: object) -> Any:
        """Have a request arrive at a broker, or not, and its answer come back, or not."""
        # In turn, as over one connection: neither batches of a partition nor answers overtake each other.
        connection = client.connections[node, group]
        async with connection.sends:
            await self._moment()
            asked = Asked(self.brokers, node, request, self)
            codes, dice = _CODES.get(asked.api, ()), self.fate.dice
            wrong = dice.choice(codes) if codes and self.fate.has("coded") else None
            asked.spared = {tp for tp in asked.written if wrong and dice.random() < SPARED}
            answer = await self._arrives(asked.answer, wrong)
            before, connection.answered = connection.answered, asyncio.Event()
            answered = connection.answered
        try:
            await self._moment()
            if asked.api == FETCH and not asked.brings:
                await asyncio.sleep(WAIT_S)
                await self._moment()
                answer = asked.answer()
            await before.wait()
        finally:
            answered.set()
        return answer

    async def _arrives(self, effect: Callable[[KafkaCode | None], Any], wrong: KafkaCode | None) -> Any:
        fate = self.fate
        if fate.has("held"):
            try:
                await asyncio.sleep(fate.dice.choice(HELD_S) * fate.dice.random())
            except asyncio.CancelledError:
                asyncio.get_running_loop().call_later(fate.dice.uniform(0, LATE_S), effect, wrong)
                raise
        if fate.has("expired"):
            self.brokers.expire(fate.dice.choice(sorted(self.brokers.ids) or [""]))
        if fate.has("forgotten"):
            self.brokers.forget(fate.dice.choice(sorted(self.brokers.ids) or [""]))
        if fate.has("refused"):
            raise KafkaConnectionError("refused")
        if fate.has("late"):
            asyncio.get_running_loop().call_later(fate.dice.uniform(0, LATE_S), effect, wrong)
            raise KafkaConnectionError("the connection broke; the request arrives later")
        answer = effect(wrong)
        if fate.has("lost"):
            raise KafkaConnectionError("the connection broke; the answer is lost")
        return answer

    async def ask(self, effect: Callable[[], Any]) -> Any:
        """Have something else take effect than a request of a client."""
        await self._moment()
        answer = await self._arrives(lambda _: effect(), None)
        await self._moment()
        return answer

    async def _moment(self) -> None:
        self.end_here()
        loop, fate = asyncio.get_running_loop(), self.fate
        if fate.has("paused"):
            self._until_s = loop.time() + fate.dice.uniform(0, 20)
            self._halted()
        elif fate.has("deposed"):
            self._halted()
        elif fate.dice.random() < fate.odds.waits:
            await asyncio.sleep(fate.dice.expovariate(20))
        await asyncio.sleep(max(0.0, self._until_s - loop.time()))
        self.require_alive()


_HERE: ContextVar[Process | None] = ContextVar("process", default=None)


def here() -> Process:
    """Return the process that the present task is of."""
    found = _HERE.get()
    assert found is not None, "a request of no process"
    return found


def end_here() -> None:
    """Kill the process that the present task is of, or do not; whoever only looks is of none."""
    process = _HERE.get()
    if process is not None:
        process.end_here()


def adopt(task: asyncio.Task[Any]) -> asyncio.Task[Any]:
    """Give a task that was just made to the process that made it."""
    process = _HERE.get()
    if process is not None:
        process.own(task)
    return task


class HostStore(MemoryStore):
    """Local state of a host, as one of its processes has it open."""

    def __init__(self, host: MemoryStore, process: Process) -> None:
        super().__init__()
        self._values = host._values
        self._host, self._process = host, process

    @override
    def write(self, changes: Mapping[bytes, bytes | None], erased: tuple[bytes, bytes] | None = None) -> None:
        self._process.require_alive()
        self._values = self._host._values
        super().write(changes, erased)
        self._host._values = self._values

    @override
    def clear(self) -> None:
        self._process.require_alive()
        super().clear()


class Way:
    """What is on its way over a connection."""

    def __init__(self) -> None:
        self.sends = asyncio.Lock()
        self.answered = asyncio.Event()
        self.answered.set()


class Ways(defaultdict[Any, Way]):
    """Of a client, by broker and group."""

    def __init__(self) -> None:
        super().__init__(Way)
