"""What a kill test stands on: workers to kill, and the truth to compare with.

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

import json
import os
import random
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ClusterMetadata, OffsetSpec

from processor.state.kv.rocks import open_store
from processor.state.table import Table
from schemas.changelog.position import Position
from schemas.changelog.values import POSITION_KEY, WATERMARK_KIND
from schemas.changelog.watermark import ScopeValue, watermark_key
from tests.support.judges.fingerprints import FingerprintRules
from tests.support.judges.id_rules import IdModel, IdRules
from tests.support.judges.outcomes import (
    Outcomes,
    assert_hashes,
    foretold,
    new_ids_of,
    outcomes,
    plain,
    without_detail,
)
from tests.support.judges.rules import Model, Rules, Scope
from tests.support.kafka.topics import (
    CALL_S,
    New,
    Record,
    admin,
    group_members,
    group_offsets,
    open_transactions,
    read_topic,
    until,
)
from tests.support.worker.feed import Feed
from tests.support.worker.id_feed import CollisionFeed, IdFeed, assert_ids
from tests.support.worker.process import Worker, WorkerConfig, new_config, start_worker
from tests.support.worker.verdicts import read_clean

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable
    from pathlib import Path

SESSION_TIMEOUT_MS = 6_000
"""The least that a broker with Kafka's own defaults takes; restarts are static, so nobody waits for it."""
SOON_S = 1.0
"""For an answer that a feed waits for; of a topic that is not there yet none comes."""
SHORT_CALL_S = 10.0
"""For an answer that another broker can give as well."""
WAIT_S = 120.0
"""For any condition: far above what it takes on a machine that does something else beside."""
READY = ": ready, partitions"
"""What a worker logs for each slot that begins to work."""
_NOT_YET = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._NOENT,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
"""Of a topic that has just been made, or a broker that has just come back."""


class Part(NamedTuple):
    """What the rules say of one source partition."""

    outcomes: Outcomes
    model: Model | IdModel
    """With the state."""
    end: int
    """The offset behind the last record."""

    @property
    def passed(self) -> list[New]:
        """What is in the sink."""
        return self.outcomes.passed

    @property
    def quarantined(self) -> list[New]:
        """What is in quarantine, without the detail, which is for people."""
        return self.outcomes.quarantined

    @property
    def scopes(self) -> dict[bytes, Scope]:
        """State by scope, of mode watermark."""
        assert isinstance(self.model, Model)
        return self.model.scopes


def seeded() -> random.Random:
    """Return dice by SEQMARK_TEST_SEED, or by a new seed; printed, and pytest shows it with a failure."""
    seed = int(os.environ.get("SEQMARK_TEST_SEED") or secrets.randbits(32))
    print(f"repeat with SEQMARK_TEST_SEED={seed}")  # noqa: T201 - shown when the test fails
    return random.Random(seed)


class Scene:
    """One application on a broker: its topics, its workers, its truth. Workers end with it.

    Args:
        bootstrap: Of the broker.
        folder: For configs, logs and state.
        partitions: Of the source.
        rules: What records are judged by.
        scopes: How many the feed sends in each partition.
        worker: Keys of ``[worker]`` beside or instead of those set here.
    """

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        partitions: int = 2,
        *,
        rules: Rules | IdRules | None = None,
        scopes: int = 1,
        **worker: str | int,
    ) -> None:
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._rules = rules or Rules()
        self._scopes = scopes
        keys: dict[str, Any] = {
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "transaction_timeout_ms": 20_000,
            "slots": 1,
            **worker,
        }
        config = new_config(bootstrap, folder, partitions, **keys).with_quarantine()
        if isinstance(self._rules, FingerprintRules):
            config = config.with_duplicates()
        (pipeline,) = config.pipelines
        self.config: WorkerConfig = replace(config, pipelines=(self._rules.applied(pipeline),))
        # One client for all questions: a new one now and then waits seconds for its first answer.
        self._admin = admin(bootstrap)
        self._workers: list[tuple[str, Worker]] = []
        self._written = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for _member, worker in self._workers:
            worker.kill()

    def feed(self, dice: random.Random) -> Feed:
        """Return a producer for the source."""
        source = self.config.source
        if isinstance(self._rules, FingerprintRules):
            return CollisionFeed(self._bootstrap, source, self._partitions, dice, progress=self._progress)
        if isinstance(self._rules, IdRules):
            return IdFeed(self._bootstrap, source, self._partitions, dice, progress=self._progress)
        rules, scopes = self._rules, self._scopes
        return Feed(self._bootstrap, source, self._partitions, dice, rules, scopes, progress=self._progress)

    def _progress(self) -> int:
        """Return how much stands in the changelog; what it was before where nobody can say."""
        wanted = {
            TopicPartition(self.config.changelog, number): OffsetSpec.latest()
            for number in range(self._partitions)
        }
        try:
            answers = self._admin.list_offsets(wanted, request_timeout=SOON_S)
            ends = [each.result(CALL_S).offset for each in answers.values()]
        except KafkaException:  # no worker has made it yet, or its broker is away
            return self._written
        self._written = sum(ends)
        return self._written

    def worker(
        self,
        member: str = "a",
        *,
        drain: bool = False,
        state: str | None = None,
        fault: str = "",
        hop: str = "",
        stop: bool = False,
        local_s: float | None = None,
        fresh: bool = False,
    ) -> Worker:
        """Start a worker.

        Args:
            member: Static membership: a worker of the same name takes the place of the one before.
            drain: End when everything is done.
            state: The name of its state folder; None: that of the member.
            fault: SEQMARK_FAULT_STEP.
            hop: SEQMARK_FAULT_PIPELINE, where only one pipeline's or hop's commits count.
            stop: Halt at the step by SIGSTOP instead of ending.
            local_s: Seconds between local writes of scopes; None: those of the product.
            fresh: In an interpreter of its own, see `tests.support.worker.forks`.
        """
        config = self.config.but(
            group_instance_id=f"{self.config.application_id}-{member}",
            state_dir=str(self.config.folder / f"state-{state or member}"),
        )
        env = {"SEQMARK_FAULT_STEP": fault, "SEQMARK_FAULT_ACTION": "stop" if stop else ""} if fault else {}
        if hop:
            env["SEQMARK_FAULT_PIPELINE"] = hop
        if local_s is not None:
            env["SEQMARK_TEST_LOCAL_WRITE_S"] = str(local_s)
        worker = start_worker(config, env=env, drain=drain, web=False, fresh=fresh)
        self._workers.append((member, worker))
        return worker

    def drain(self, member: str = "a", state: str | None = None) -> None:
        """Run a worker until everything is done.

        Members that are dead hold their slots until their session is over, and a drain would leave these.
        """
        living = {member, *(name for name, worker in self._workers if worker.alive)}
        dead = {name for name, _ in self._workers} - living
        until(lambda: not self._in_group(dead), f"the sessions of {sorted(dead)} are over", WAIT_S)
        worker = self.worker(member, drain=True, state=state)
        assert worker.wait() == 0, worker.stderr

    def _in_group(self, members: set[str]) -> bool:
        """Whether one of these is in the group, as far as is known."""
        if not members:
            return False
        try:
            # A static member's id begins with the name of its instance.
            found = group_members(self._bootstrap, self.config.application_id)
        except KafkaException:  # who coordinates it is not known yet
            return True
        starts = tuple(f"{self.config.application_id}-{member}-" for member in members)
        return any(each.startswith(starts) for each in found)

    def local_marks(self, member: str = "a") -> list[int | None]:
        """Return how far the local state of a member that has ended has taken in each changelog partition."""
        found: list[int | None] = []
        for number in range(self._partitions):
            (folder,) = (self.config.folder / f"state-{member}").glob(f"*/home-*/p/{number}")
            table = Table(open_store(folder)[0])
            mark = table.mark()
            table.close()
            found.append(None if mark is None else mark.changelog_offset)
        return found

    # ------------------------------------------------------------------ what the topics hold

    def truth(self) -> list[Part]:
        """Judge the source as it stands, record by record."""
        source = self.config.source
        rows: list[list[Record]] = [[] for _ in range(self._partitions)]
        for record in read_topic(self._bootstrap, source):
            rows[record.partition].append(record)
        ends = self._ends(source, IsolationLevel.READ_UNCOMMITTED)
        told = self._told()
        found = []
        for number, part in enumerate(rows):
            model = self._rules.model()
            said = outcomes(model, self._rules, self.config.pipelines[0], part, new_ids_of(told[number]))
            found.append(Part(said, model, ends[number]))
        return found

    def _told(self, isolation: str = "read_committed") -> list[list[dict[str, Any]]]:
        """Return what stands in the duplicates topic by partition, where there is one."""
        duplicates = self.config.pipelines[0].duplicates
        rows = [[]] * self._partitions if duplicates is None else self.read(duplicates, isolation)
        return [[json.loads(each.value or b"") for each in part] for part in rows]

    def _assert_told(self, truth: list[Part]) -> None:
        """Receipts and notes say what the rules do, and of one id and content the same, aborted ones too."""
        source: list[dict[int, Record]] = [{} for _ in range(self._partitions)]
        for record in read_topic(self._bootstrap, self.config.source):
            source[record.partition][record.offset] = record
        committed, all_of_them = self._told(), self._told("read_uncommitted")
        for number, part in enumerate(truth):
            assert foretold(committed[number]) == part.outcomes.told, f"receipts of partition {number}"
            assert isinstance(self._rules, FingerprintRules)
            assert_hashes(self._rules, source[number], all_of_them[number])

    def exists(self, topic: str) -> bool:
        """Say whether there is such a topic."""
        found: ClusterMetadata = until(self._metadata, "metadata", WAIT_S)
        return topic in found.topics

    def _metadata(self) -> ClusterMetadata | None:
        """Return what is known of the topics; None where a broker that hangs was asked."""
        try:
            return self._admin.list_topics(timeout=SHORT_CALL_S)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET:
                raise
            return None

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
            rows[record.partition].append(plain(record))
        return rows

    def assert_exactly_once(self) -> list[Part]:
        """Compare everything with the truth, byte for byte and in order; nothing may be open."""
        self.assert_nothing_open()
        truth = self.truth()
        config = self.config
        if config.pipelines[0].output != "verdicts":
            _assert_same(config.sink, self.read(config.sink), [part.passed for part in truth])
        if config.pipelines[0].output != "records":
            self._assert_verdicts([part.passed for part in truth])
        found = [[without_detail(record) for record in part] for part in self.read(config.quarantine)]
        _assert_same(config.quarantine, found, [part.quarantined for part in truth])
        if config.pipelines[0].duplicates is not None:
            self._assert_told(truth)
        self.assert_state(truth)
        return truth

    def _assert_verdicts(self, passed: list[list[New]]) -> None:
        """The source without what its verdicts skip is what passes."""
        found: list[list[New]] = [[] for _ in range(self._partitions)]
        for record in read_clean(self.config):
            found[record.partition].append(plain(record))
        _assert_same(self.config.verdicts, found, passed)

    def assert_at_least_once(self) -> None:
        """Nothing is lost or invented, and the first occurrence of every record stands in order."""
        truth = self.truth()
        config = self.config
        found = [_firsts(part) for part in self.read(config.sink)]
        _assert_same(config.sink, found, [part.passed for part in truth])
        found = [_firsts(map(without_detail, part)) for part in self.read(config.quarantine)]
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
            if isinstance(self._rules, IdRules):
                model = truth[number].model
                assert isinstance(model, IdModel)
                assert_ids(number, records, model, self._rules.window_ms)
            else:
                self._assert_scopes(self._rules, number, values, truth[number].scopes)

    def _assert_scopes(
        self, rules: Rules, number: int, values: dict[bytes | None, bytes], scopes: dict[bytes, Scope]
    ) -> None:
        """Each scope stands in the changelog with its watermark, its epoch, and what its window has seen."""
        found = {key[1:]: value for key, value in values.items() if key and key.startswith(WATERMARK_KIND)}
        assert found.keys() == scopes.keys(), f"scopes of partition {number}"
        for name, scope in scopes.items():
            value = ScopeValue.decode(watermark_key(name), found[name])
            state = (value.sequence, value.epoch, _remembered(value, rules.reorder_window))
            epoch = None if rules.epoch is None else scope.epoch
            expected = (scope.watermark, epoch, scope.window(rules.reorder_window))
            assert state == expected, f"partition {number}, scope {name!r}"

    def assert_nothing_open(self) -> None:
        """No topic holds an open transaction; markers are written just after the end."""
        until(lambda: not self.open_partitions(), f"nothing is open: {self.open_partitions()}", WAIT_S)
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
                self._metadata()  # it knows the new leaders then
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
    seconds = time.monotonic() - began
    print(f"ended {seconds:.1f} s after {number.name}")  # noqa: T201 - shown when the test fails
    return seconds


def _firsts(records: Iterable[New]) -> list[New]:
    return list(dict.fromkeys(records))


def _remembered(value: ScopeValue, window: int) -> set[int]:
    """Return which numbers of the window a changelog value says were seen."""
    below = range(value.sequence - window, value.sequence)
    if value.run is not None:
        return set(below[len(below) - value.run :])
    bits = 64 * len(value.ring)
    return {n for n in below if value.ring[n % bits // 64] >> (n % 64) & 1}


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
