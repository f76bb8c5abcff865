"""What may go wrong at each await of a slot, by dice."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from processor.errors import RebuildError, SeqmarkError
from processor.wire.decode import Chunk
from seqmark.in_memory.ports import Wire

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from processor.kafka.client import TopicPartition

Answer = TypeVar("Answer")


class Killed(BaseException):
    """The process has ended here; no handler of errors sees it."""


@dataclass(frozen=True)
class Odds:
    """How likely each fault is, at each await.

    Attributes:
        killed: The process ends.
        refused: The request never arrives, or is refused.
        lost: It takes effect, and its answer is lost.
        late: It takes effect after whoever asked has given up.
        stale: A fetch brings what one before has brought.
        expired: The coordinator gives the transactional id up.
        paused: The process halts for longer than its group waits.
        waits: The answer takes its time, so that others go on meanwhile.
        coded: A broker refuses by a code, which says that nothing was done.
        forgotten: The coordinator forgets a transactional id that is idle.
        unmarked: A partition is left out where the end of a transaction is written.
        damaged: The local state cannot be read.
    """

    killed: float = 0.0
    refused: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    stale: float = 0.0
    expired: float = 0.0
    paused: float = 0.0
    waits: float = 0.0
    coded: float = 0.0
    forgotten: float = 0.0
    unmarked: float = 0.0
    damaged: float = 0.0

    @classmethod
    def drawn(cls, dice: random.Random, share: float = 1.0) -> Odds:
        """Draw them: an episode has some kinds of faults, often or seldom.

        Args:
            dice: Draw them.
            share: Of what is usual, where there are many awaits between two commits.
        """
        drawn = {each.name: share * dice.choice((0.0, 0.01, 0.03)) for each in fields(cls)}
        killed = share * dice.choice((0.03, 0.06, 0.1))
        return cls(**{**drawn, "killed": killed, "waits": dice.choice((0.05, 0.3))})


class Fate:
    """The faults of one episode, which come to an end.

    Attributes:
        left: So many of them are still to come, at most; kills apart.
        kills: How many there were.
    """

    def __init__(self, dice: random.Random, odds: Odds, most: int, most_kills: int) -> None:
        self.dice = dice
        self.odds = odds
        self.left = most
        self.kills = 0
        self._most_kills = most_kills

    def has(self, kind: str) -> bool:
        """Say whether a fault happens now."""
        if self.dice.random() >= getattr(self.odds, kind) or self.left <= 0:
            return False
        self.left -= 1
        return True

    def end_here(self) -> None:
        """End the process now, or do not."""
        if self.kills < self._most_kills and self.dice.random() < self.odds.killed:
            self.kills += 1
            raise Killed


class FaultyWire(Wire):
    """The requests of one process.

    Args:
        fate: Of the episode.
        paused: Called when the process halts.
        expire: Has the coordinator give up its transactional id.
    """

    def __init__(self, fate: Fate, paused: Callable[[], None], expire: Callable[[], None]) -> None:
        self._fate, self._dice = fate, fate.dice
        self._paused, self._expire = paused, expire
        self._before: object = None

    @property
    @override
    def fetch_bytes(self) -> int:
        return self._dice.choice((1, 300, 1_000, 5_000, 1_000_000))

    @override
    def next_of(self, waiting: Sequence[TopicPartition], *, flushing: bool) -> TopicPartition | None:
        return self._dice.choice(waiting) if flushing or self._dice.random() < 0.5 else None

    @override
    async def request(self, what: str, effect: Callable[[], Answer]) -> Answer:
        await self._moment()
        fate = self._fate
        if fate.has("expired"):
            self._expire()
        if fate.has("refused"):
            raise RebuildError("refused", what)
        if fate.has("late"):
            asyncio.get_running_loop().call_later(self._dice.uniform(0, 5), _arrive, effect)
            raise RebuildError("timeout", what)
        if what == "source" and self._before is not None and fate.has("stale"):
            return self._before  # type: ignore[return-value] # of an effect of the same kind
        answer = effect()
        if what == "source" and isinstance(answer, Chunk) and answer.data:
            # One with nothing in it would only say that nothing is there.
            self._before = answer
        if fate.has("lost"):
            raise RebuildError("timeout", what)
        await self._moment()
        return answer

    async def _moment(self) -> None:
        self._fate.end_here()
        if self._fate.has("paused"):
            self._paused()
            await asyncio.sleep(self._dice.uniform(0, 20))
        elif self._dice.random() < self._fate.odds.waits:
            await asyncio.sleep(self._dice.expovariate(2))


def _arrive(effect: Callable[[], object]) -> None:
    """Have a request take effect of which nobody waits for the answer."""
    with contextlib.suppress(SeqmarkError):
        effect()
