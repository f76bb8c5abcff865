"""What does a kill test stand on? A stream that keeps coming, workers to kill, and the truth to compare with.

The truth is not what the producer meant to send, but what the source holds at the end, judged anew here by
the contract's rules, one record after the other; nothing of Seqmark's engine is used for that.

    with Scene(broker.bootstrap_servers, tmp_path) as scene, scene.feed(rng) as feed:
        with scene.worker(fault="output:3") as worker:
            assert worker.wait() == -signal.SIGKILL
        feed.stop()
        scene.drain()
        scene.assert_exactly_once()
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from schemas.changelog import POSITION_KEY, Position, decode_watermark, watermark_key
from tests.support.topics import (
    CALL_S,
    Header,
    New,
    Record,
    admin,
    group_offsets,
    int64,
    open_transactions,
    read_topic,
    until,
)
from tests.support.worker import Worker, WorkerConfig, new_config, start_worker

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable
    from pathlib import Path

SESSION_TIMEOUT_MS = 6_000
"""The least that a broker with Kafka's own defaults takes; restarts are static, so nobody waits for it."""
WAIT_S = 60.0
"""For any condition: far above what it takes on a machine that does something else beside."""
FEED_RECORDS_PER_S = 6_000
READY = ": ready, partitions"
"""What a worker logs for each slot that begins to work."""
_NOT_YET = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
"""Of a topic that has just been made, or a broker that has just come back."""
_HISTORY = 400
_TICK_S = 0.02


class Part(NamedTuple):
    """What the rules say of one source partition."""

    passed: list[New]
    quarantined: list[New]
    """With the headers ``seqmark.error`` and ``seqmark.source``, without the detail, which is for people."""
    watermark: int | None
    end: int
    """The offset behind the last record."""


def seeded() -> random.Random:
    """Return dice by SEQMARK_TEST_SEED, or by a new seed; printed, and pytest shows it with a failure."""
    seed = int(os.environ.get("SEQMARK_TEST_SEED") or secrets.randbits(32))
    print(f"repeat with SEQMARK_TEST_SEED={seed}")  # noqa: T201 - shown when the test fails
    return random.Random(seed)


class Feed:
    """A producer with duplicates and records that cannot be judged; a context manager that sends all the time.

    Args:
        bootstrap: Of the broker.
        topic: Source topic.
        partitions: Its number of partitions.
        dice: Decides everything but the pace.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, dice: random.Random) -> None:
        self._topic = topic
        self._dice = dice
        self._sequence = [dice.randrange(1000) for _ in range(partitions)]
        self._history: list[deque[New]] = [deque(maxlen=_HISTORY) for _ in range(partitions)]
        self._made = 0
        # Not in the past: retention goes by the records' timestamps.
        self._first_ms = int(time.time() * 1000)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._refused: list[str] = []
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
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
        """Send what was sent last in every partition once more: no record of it may pass."""
        for partition, history in enumerate(self._history):
            for record in tuple(history):
                self._put(partition, record)
        self._flush()

    def _flush(self) -> None:
        left = self._producer.flush(WAIT_S)
        assert not left, f"{left} records were not acknowledged"
        assert not self._refused, self._refused

    def _run(self) -> None:
        began = time.monotonic()
        first = self._made
        while not self._stopped.wait(_TICK_S):
            while self._made - first < (time.monotonic() - began) * FEED_RECORDS_PER_S:
                self._some()
            self._producer.poll(0)

    def _some(self) -> None:
        """Send a burst to one partition: mostly new records, now and then a resend or a broken record."""
        dice = self._dice
        partition = dice.randrange(len(self._sequence))
        history = self._history[partition]
        kind = dice.random()
        if kind < 0.82 or not history:
            for _ in range(dice.randrange(1, 40)):
                self._sequence[partition] += 1 if dice.random() < 0.98 else dice.randrange(2, 40)
                history.append(self._record(partition, (("seq", int64(self._sequence[partition])),)))
                self._put(partition, history[-1])
        elif kind < 0.96:
            for record in tuple(history)[-dice.randrange(1, 60) :]:
                self._put(partition, record)
        else:
            broken: tuple[Header, ...] = dice.choice(((), (("seq", b"12"),), (("seq", None),)))
            self._put(partition, self._record(partition, broken))

    def _record(self, partition: int, headers: tuple[Header, ...]) -> New:
        number = self._made
        value = b'{"number": %d, "partition": %d}' % (number, partition)
        value += b" " * self._dice.randrange(80)
        return New(
            b"key-%d" % (number % 997), value, (("trace", b"t"), *headers), self._first_ms + number // 10
        )

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


class Scene:
    """One application on a broker: its topics, its workers, its truth. Workers end with it.

    Args:
        bootstrap: Of the broker.
        folder: For configs, logs and state.
        partitions: Of the source.
        worker: Keys of ``[worker]`` beside or instead of those set here.
    """

    def __init__(self, bootstrap: str, folder: Path, partitions: int = 2, **worker: str | int) -> None:
        self._bootstrap = bootstrap
        self._partitions = partitions
        keys: dict[str, Any] = {
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "transaction_timeout_ms": 20_000,
            "slots": 1,
            **worker,
        }
        self.config: WorkerConfig = new_config(bootstrap, folder, partitions, **keys).with_quarantine()
        # One client for all questions: a new one now and then waits seconds for its first answer.
        self._admin = admin(bootstrap)
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()

    def feed(self, dice: random.Random) -> Feed:
        """Return a producer for the source."""
        return Feed(self._bootstrap, self.config.source, self._partitions, dice)

    def worker(
        self,
        member: str = "a",
        *,
        drain: bool = False,
        state: str | None = None,
        fault: str = "",
        stop: bool = False,
    ) -> Worker:
        """Start a worker.

        Args:
            member: Static membership: a worker of the same name takes the place of the one before.
            drain: End when everything is done.
            state: The name of its state folder; None: that of the member.
            fault: SEQMARK_FAULT_STEP.
            stop: Halt at the step by SIGSTOP instead of ending.
        """
        config = self.config.but(
            group_instance_id=f"{self.config.application_id}-{member}",
            state_dir=str(self.config.folder / f"state-{state or member}"),
        )
        env = {"SEQMARK_FAULT_STEP": fault, "SEQMARK_FAULT_ACTION": "stop" if stop else ""} if fault else {}
        worker = start_worker(config, env=env, drain=drain, web=False)
        self._workers.append(worker)
        return worker

    def drain(self, member: str = "a", state: str | None = None) -> None:
        """Run a worker until everything is done."""
        worker = self.worker(member, drain=True, state=state)
        assert worker.wait() == 0, worker.stderr

    # ------------------------------------------------------------------ what the topics hold

    def truth(self) -> list[Part]:
        """Judge the source as it stands, record by record."""
        source = self.config.source
        rows: list[list[Record]] = [[] for _ in range(self._partitions)]
        for record in read_topic(self._bootstrap, source):
            rows[record.partition].append(record)
        ends = self._ends(source, IsolationLevel.READ_UNCOMMITTED)
        return [_judged(source, part, ends[number]) for number, part in enumerate(rows)]

    def exists(self, topic: str) -> bool:
        """Say whether there is such a topic."""
        return topic in self._admin.list_topics(timeout=CALL_S).topics

    def sink_end(self) -> int:
        """Return how many offsets the sink has, markers included; 0 where there is no sink yet."""
        if not self.exists(self.config.sink):
            return 0
        return sum(self._ends(self.config.sink, IsolationLevel.READ_COMMITTED).values())

    def all_ends(self) -> dict[str, dict[int, int]]:
        """Return the ends of everything that a worker writes to: what is open counts too."""
        topics = (self.config.sink, self.config.quarantine, self.config.changelog)
        return {topic: self._ends(topic, IsolationLevel.READ_UNCOMMITTED) for topic in topics}

    def wait_caught_up(self) -> None:
        """Wait until the workers that run have committed up to the source's end."""

        def caught_up() -> bool:
            ends = self._ends(self.config.source, IsolationLevel.READ_UNCOMMITTED)
            return [ends[number] for number in range(self._partitions)] == self._positions()

        until(caught_up, "the workers have caught up", WAIT_S)

    def _positions(self) -> list[int]:
        found = [-1] * self._partitions
        for record in read_topic(self._bootstrap, self.config.changelog):
            if record.key == POSITION_KEY:
                found[record.partition] = Position.decode(record.value or b"").next_offset
        return found

    def read(self, topic: str, isolation: str = "read_committed") -> list[list[New]]:
        """Return a topic's records by partition, in order."""
        rows: list[list[New]] = [[] for _ in range(self._partitions)]
        for record in read_topic(self._bootstrap, topic, isolation):
            rows[record.partition].append(_plain(record))
        return rows

    def assert_exactly_once(self) -> list[Part]:
        """Compare everything with the truth, byte for byte and in order; nothing may be open."""
        self.assert_nothing_open()
        truth = self.truth()
        config = self.config
        _assert_same(config.sink, self.read(config.sink), [part.passed for part in truth])
        found = [[_without_detail(record) for record in part] for part in self.read(config.quarantine)]
        _assert_same(config.quarantine, found, [part.quarantined for part in truth])
        self.assert_state(truth)
        return truth

    def assert_at_least_once(self) -> None:
        """Nothing is lost or invented, and the first occurrence of every record stands in order."""
        truth = self.truth()
        config = self.config
        found = [_firsts(part) for part in self.read(config.sink)]
        _assert_same(config.sink, found, [part.passed for part in truth])
        found = [_firsts(map(_without_detail, part)) for part in self.read(config.quarantine)]
        _assert_same(config.quarantine, found, [part.quarantined for part in truth])
        self.assert_state(truth)

    def assert_state(self, truth: list[Part]) -> None:
        """The changelog knows where the source goes on and what the last sequence was; the group follows it."""
        group = group_offsets(self._bootstrap, self.config.application_id)
        assert [group[self.config.source, n] for n in range(self._partitions)] == [part.end for part in truth]
        for number, records in enumerate(self.read(self.config.changelog)):
            values = {record.key: record.value or b"" for record in records}
            position = Position.decode(values[POSITION_KEY])
            assert position.next_offset == truth[number].end, f"position of partition {number}"
            key = watermark_key()
            watermark = decode_watermark(key, values[key]) if key in values else None
            assert watermark == truth[number].watermark, f"watermark of partition {number}"

    def assert_nothing_open(self) -> None:
        """No topic holds an open transaction; markers are written just after the end."""
        until(lambda: not self.open_partitions(), f"nothing is open: {self.open_partitions()}", 10)
        assert not open_transactions(self._bootstrap, self.config.application_id)

    def open_partitions(self) -> list[str]:
        """Return the partitions of this application on which a transaction is open now."""
        config = self.config
        topics = self._admin.list_topics(timeout=CALL_S).topics
        found = []
        for topic in {config.source, config.sink, config.quarantine, config.changelog} & set(topics):
            # In this order: the source may grow in between.
            ends = self._ends(topic, IsolationLevel.READ_UNCOMMITTED)
            stable = self._ends(topic, IsolationLevel.READ_COMMITTED)
            found += [f"{topic}:{number}" for number, end in ends.items() if stable[number] < end]
        return found

    def _ends(self, topic: str, isolation: IsolationLevel) -> dict[int, int]:
        wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(self._partitions)}

        def asked() -> dict[int, int]:
            answers = self._admin.list_offsets(wanted, isolation_level=isolation)
            try:
                return {tp.partition: future.result(CALL_S).offset for tp, future in answers.items()}
            except KafkaException as error:
                if error.args[0].code() not in _NOT_YET:
                    raise
                self._admin.list_topics(timeout=CALL_S)  # it knows the new leaders then
                return {}

        found: dict[int, int] = until(asked, f"the ends of {topic}", WAIT_S)
        return found


def until_halted(worker: Worker) -> None:
    """Wait until a worker has been stopped by SIGSTOP, its own or another's."""
    until(lambda: worker.paused or not worker.alive, "the worker is halted", WAIT_S)
    assert worker.alive, f"the worker has ended:\n{worker.stderr}"


def ended_by(worker: Worker, number: signal.Signals) -> float:
    """Send a signal and wait for exit code 0; returns the seconds that took."""
    began = time.monotonic()
    os.kill(worker.pid, number)
    code = worker.wait()
    assert code == 0, f"exit code {code} after {number.name}:\n{worker.stderr}"
    return time.monotonic() - began


def _plain(record: Record) -> New:
    return New(record.key, record.value, record.headers, record.timestamp)


def _firsts(records: Iterable[New]) -> list[New]:
    return list(dict.fromkeys(records))


def _without_detail(record: New) -> New:
    names = [name for name, _ in record.headers[-3:]]
    assert names == ["seqmark.error", "seqmark.detail", "seqmark.source"], names
    return record._replace(headers=tuple(each for each in record.headers if each[0] != "seqmark.detail"))


def _judged(topic: str, records: list[Record], end: int) -> Part:
    """Apply the contract's rules: mode watermark, scope partition, an int64 in the header ``seq``."""
    passed: list[New] = []
    quarantined: list[New] = []
    watermark: int | None = None
    for record in records:
        values = [value for name, value in record.headers if name == "seq"]
        if not values or values[-1] is None or len(values[-1]) != 8:
            error = b"header_malformed" if values else b"header_missing"
            source = f"{topic}:{record.partition}:{record.offset}".encode()
            added = (("seqmark.error", error), ("seqmark.source", source))
            quarantined.append(_plain(record)._replace(headers=record.headers + added))
        elif watermark is None or record.sequence > watermark:
            watermark = record.sequence
            passed.append(_plain(record))
    return Part(passed, quarantined, watermark, end)


def _assert_same(topic: str, found: list[list[New]], expected: list[list[New]]) -> None:
    """Compare by partition; says where the first difference is and what it looks like."""
    for number, (have, want) in enumerate(zip(found, expected, strict=True)):
        if have == want:
            continue
        pairs = enumerate(zip(have, want, strict=False))
        at = next((row for row, (one, other) in pairs if one != other), min(len(have), len(want)))
        missing, again = len(set(want) - set(have)), len(have) - len(set(have))
        raise AssertionError(
            f"{topic}:{number} differs from the truth from record {at} on: {len(have)} records, expected "
            f"{len(want)}; {missing} are missing, {again} stand there again.\n"
            f"found    {have[at : at + 3]}\nexpected {want[at : at + 3]}"
        )
