"""What kill tests send: a stream that keeps coming, with duplicates, late records and spoilt ones.

What is meant by it does not matter: the source is judged anew at the end (see `tests.support.worker.crash`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from confluent_kafka import KafkaError, Producer

from tests.support.judges.rules import Rules
from tests.support.kafka.topics import Header, New, int64

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

FEED_RECORDS_PER_S = 6_000
FLUSH_S = 120.0
"""Far above what it takes on a machine that does something else beside."""
_HISTORY = 400
AHEAD = 3_000
"""Records that are sent before somebody has got on with those before: a slow machine gets no more to do."""
MANY = 60_000
"""Behind so many a tenth of the rate is enough: all are judged at the end, one by one, in plain Python."""
_TICK_S = 0.02
_LOOK_S = 0.2
_BROKEN_HEADERS: dict[str, tuple[bytes | None, ...]] = {
    "seq": (b"12", None),
    "epoch": (b"1234567", None),
    "producer": (None,),
}


@dataclass
class Count:
    """One producer's count: what it has sent last, and which numbers it has left for later."""

    sequence: int
    epoch: int = 0
    left: list[int] = field(default_factory=list)

    def next(self, dice: random.Random, rules: Rules) -> int:
        """Return the next number to send, gaps and late ones among them."""
        if rules.epoch is not None and dice.random() < 0.003:
            self.epoch += 1
            self.sequence, self.left = dice.randrange(1000), []
        if self.left and dice.random() < 0.05:
            return self.left.pop(dice.randrange(len(self.left)))
        step = 1 if dice.random() < 0.98 else dice.randrange(2, 40)
        if rules.reorder_window and step > 1:
            # Some within the window by the time they come, some below it.
            self.left = [*self.left, *range(self.sequence + 1, self.sequence + step)][-50:]
        self.sequence += step
        return self.sequence


class Feed:
    """A producer with duplicates and records that cannot be judged; a context manager that sends all the time.

    Args:
        bootstrap: Of the broker.
        topic: Source topic.
        partitions: Its number of partitions.
        dice: Decides everything but the pace.
        rules: What the records are to be judged by: they have the headers that it asks for.
        scopes: Producers with a count of their own, in each partition.
        rate: Records a second at most while it sends all the time.
        progress: Says how far the workers have come, as a number that grows; they are waited for.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        dice: random.Random,
        rules: Rules | None = None,
        scopes: int = 1,
        *,
        rate: int = FEED_RECORDS_PER_S,
        progress: Callable[[], int] | None = None,
    ) -> None:
        self.rate = rate
        self._progress = progress
        self._topic = topic
        self._dice = dice
        self._rules = rules or Rules()
        self._counts = [[Count(dice.randrange(1000)) for _ in range(scopes)] for _ in range(partitions)]
        self._history: list[deque[New]] = [deque(maxlen=_HISTORY) for _ in range(partitions)]
        self._made = 0
        # Not in the past: retention goes by the records' timestamps.
        self._first_ms = int(time.time() * 1000)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._refused: list[str] = []
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        # Of a broker that hangs librdkafka would wait a minute for an answer.
        settings["socket.timeout.ms"] = 10_000
        self._producer = Producer({**settings, "compression.type": "lz4", "linger.ms": 5})

    def __enter__(self) -> Self:
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, name=f"feed {self._topic}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more; returns once everything is acknowledged."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._flush()

    def send(self, count: int) -> None:
        """Send at least ``count`` records now, while nothing is sent all the time."""
        target = self._made + count
        while self._made < target:
            self._some()
        self._flush()

    def send_again(self) -> None:
        """Send what was sent last in every partition once more: no record of it may pass. And a broken one."""
        for partition, history in enumerate(self._history):
            for record in tuple(history):
                self._put(partition, record)
            self._put(partition, self._broken(history[-1]))
        self._flush()

    def _flush(self) -> None:
        left = self._producer.flush(FLUSH_S)
        assert not left, f"{left} records were not acknowledged"
        assert not self._refused, self._refused

    def _run(self) -> None:
        began = looked = time.monotonic()
        first = allowed = self._made
        seen = -1
        while not self._stopped.wait(_TICK_S):
            now = time.monotonic()
            if self._progress is None:
                allowed = sys.maxsize
            elif self._made >= allowed and now - looked >= _LOOK_S:
                looked, before, seen = now, seen, self._progress()
                allowed += AHEAD * (seen != before)
            due = (now - began) * self.rate
            while self._made < min(allowed, first + min(due, MANY + due / 10)):
                self._some()
            self._producer.poll(0)

    def _some(self) -> None:
        """Send a burst to one partition: mostly new records, now and then a resend or a broken record."""
        dice = self._dice
        partition = dice.randrange(len(self._counts))
        history = self._history[partition]
        kind = dice.random()
        if kind < 0.82 or not history:
            for _ in range(dice.randrange(1, 40)):
                history.append(self._record(partition, dice.randrange(len(self._counts[partition]))))
                self._put(partition, history[-1])
        elif kind < 0.96:
            for record in tuple(history)[-dice.randrange(1, 60) :]:
                self._put(partition, record)
        else:
            self._put(partition, self._broken(dice.choice(history)))

    def send_scopes(self, count: int) -> None:
        """Send the first record of ``count`` further scopes, the same in every partition."""
        for number in range(count):
            for partition in range(len(self._counts)):
                self._put(partition, self._new(partition, b"further-%d" % number, number))
        self._flush()

    def _record(self, partition: int, scope: int) -> New:
        count = self._counts[partition][scope]
        many = len(self._counts[partition]) > 1
        name = b"key-%d" % (scope if many else self._made % 997)
        number = count.next(self._dice, self._rules)
        return self._new(partition, name, number, count.epoch)

    def _new(self, partition: int, name: bytes, sequence: int, epoch: int = 0) -> New:
        headers: list[Header] = [("trace", b"t")]
        if self._rules.scope.startswith("header:"):
            headers.append(("producer", name))
        if self._rules.epoch is not None:
            headers.append(("epoch", epoch.to_bytes(4, "big")))
        if self._rules.sequence["from"] == "header":
            headers.append(("seq", int64(sequence)))
        number = self._made
        value = b'{"number": %d, "partition": %d, "seq": %d}' % (number, partition, sequence)
        value += b" " * self._dice.randrange(80)
        return New(name, value, tuple(headers), self._first_ms + number // 10)

    def _broken(self, record: New) -> New:
        """Take away or spoil something that the record is judged by."""
        dice = self._dice
        if self._rules.scope == "key" and dice.random() < 0.3:
            record = record._replace(key=None)
            if dice.random() < 0.5:
                return record
        if self._rules.sequence["from"] == "value" and dice.random() < 0.5:
            return record._replace(value=dice.choice((None, b"{", b'{"seq": null}', b'{"seq": 1e3}')))
        names = [name for name, _ in record.headers if name != "trace"]
        if not names:
            return record._replace(value=b"")
        name = dice.choice(names)
        spoilt = dice.choice(((), *(((name, value),) for value in _BROKEN_HEADERS[name])))
        kept = tuple(each for each in record.headers if each[0] != name)
        return record._replace(headers=(*kept, *spoilt))

    def _put(self, partition: int, record: New) -> None:
        self._made += 1
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    partition=partition,
                    on_delivery=self._acknowledged,
                    timestamp=record.timestamp,
                    headers=list(record.headers),
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _acknowledged(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._refused.append(str(error))
