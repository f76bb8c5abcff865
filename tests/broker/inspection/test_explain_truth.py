"""`seqmark explain` says of every record what is true of it, whatever has happened to its pipeline.

The stream holds everything (`tests.support.explain.streams`): all verdicts, all codes that a record can have,
what collides with every action, routed ids. It is judged by workers that are killed in between; pipelines are
reset and drained again; retention and compaction take parts of sources away; transactions were aborted, and
some records are still to come. Then every position is asked for, and compared with the naive models
(`tests.support.explain.truth`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer

from processor.config.load import load
from processor.inspection.explain.explainer import Explainer
from processor.inspection.explain.story import Outcome
from processor.wire.receipt_values import RecordRef
from tests.support.explain.compare import differs, grounds, outcome_of, owner, ref
from tests.support.explain.streams import STREAMS, Stream
from tests.support.explain.truth import JUDGED, Outputs, Place, Truth, origins, placed, verdicts
from tests.support.kafka.topics import (
    New,
    Record,
    alter_brokers,
    alter_topic,
    bounds,
    create_topic,
    delete_records,
    dice,
    produce,
    read_topic,
    unique,
    until,
)
from tests.support.suite.extent import everything, seed
from tests.support.worker.process import PipelineConfig, Worker, WorkerConfig, run_drain, start_worker
from tests.support.worker.reset import run_reset
from tests.support.worker.routed import QUARANTINES

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from processor.inspection.explain.story import Story
    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker
WHOLE, DRAWN = 100_000, 10_000
"""Records of all streams: with `--tier all`, and without."""
BATCH = 250
PENDING = 3
"""Records of each partition that nobody has judged yet."""
ALONE = 20
"""Positions of each pipeline that are also asked for with nothing known from other questions."""
TRACED = 50
"""Positions in the outputs of each pipeline."""
SINKS = 3
"""Partitions of the routed pipeline's clean topic."""
ELSEWHERE = {Outcome.CONTRADICTION, Outcome.SKIPPED, Outcome.NOT_THERE_YET, Outcome.FOREIGN}
"""What no record here can have become."""
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.001",
    "max_compaction_lag_ms": "100",
}


@dataclass
class Asked:
    """One pipeline, what is true of its records, and what became of its source afterwards."""

    stream: Stream
    pipeline: PipelineConfig
    records: dict[Place, Record] = field(default_factory=dict)
    truths: dict[Place, Truth] = field(default_factory=dict)
    again: dict[int, int] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    came: dict[RecordRef, RecordRef] = field(default_factory=dict)
    """Of each record of an output the position in the source."""

    def refs(self) -> list[RecordRef]:
        """Return every position of its source."""
        source = self.pipeline.source
        return [RecordRef(source, number, at) for number, end in enumerate(self.ends) for at in range(end)]


class History:
    """Makes all of it happen.

    Args:
        bootstrap: Of the broker.
        folder: For config, logs and state.
        count: Records of all streams.
        chance: Makes them.
    """

    def __init__(self, bootstrap: str, folder: Path, count: int, chance: random.Random) -> None:
        self._bootstrap = bootstrap
        self._chance = chance
        name = unique("told")
        self.asked = [Asked(each, _pipeline(name, each)) for each in STREAMS]
        pipelines = tuple(each.pipeline for each in self.asked)
        self.config = WorkerConfig(folder, bootstrap, name, pipelines, {"slots": 1})
        self._made = {
            (each.name, number): each.make(chance, count // len(STREAMS) // each.partitions)
            for each in STREAMS
            for number in range(each.partitions)
        }
        for each in self.asked:
            create_topic(bootstrap, each.pipeline.source, each.stream.partitions)
            if each.stream.routed:
                create_topic(bootstrap, each.pipeline.sink, SINKS)
                create_topic(bootstrap, each.pipeline.quarantine or "", QUARANTINES)

    def happen(self) -> None:
        """Send, judge with two kills in between, reset, and take away."""
        self._send(0.0, 0.5)
        self._judge_a_little()
        self._send(0.5, 1.0)
        self._judge_a_little()
        self._drain()
        self._send(0.0, 1.0, later=True)
        self._drain()
        for each in self.asked:
            each.records = {
                Place(r.partition, r.offset): r for r in read_topic(self._bootstrap, each.pipeline.source)
            }
        self._reset()
        self._tell_truths()
        self._leave_pending()
        self._take_away()
        for each in self.asked:
            parts = range(each.stream.partitions)
            each.ends = [bounds(self._bootstrap, each.pipeline.source, number)[1] for number in parts]

    def _send(self, begin: float, end: float, *, later: bool = False) -> None:
        """Send a part of what was made; of routed streams only the first partition, or ``later`` the others."""
        for each in self.asked:
            for number in range(each.stream.partitions):
                if later == (each.stream.routed and number > 0):
                    made = self._made[each.stream.name, number]
                    some = made[round(begin * len(made)) : round(end * len(made))]
                    self._put(each.pipeline.source, number, some)

    def _put(self, topic: str, partition: int, some: list[New]) -> None:
        batches = [some[at : at + BATCH] for at in range(0, len(some), BATCH)]
        produce(
            self._bootstrap, topic, *batches, partition=partition, codec=self._chance.choice(("none", "lz4"))
        )
        asyncio.run(self._abort(topic, partition, some[:5]))

    async def _abort(self, topic: str, partition: int, some: list[New]) -> None:
        """Leave aborted records and the end of a transaction, which nobody is to see."""
        async with AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=unique("aborted")
        ) as producer:
            await producer.begin_transaction()
            for record in some:
                # aiokafka sends no record that has neither.
                await producer.send_and_wait(topic, record.value, record.key or b"aborted", partition)
            await producer.abort_transaction()

    def _judge_a_little(self) -> None:
        """Judge a part, and end the worker in the middle of it."""
        with start_worker(self.config) as worker:
            until(lambda: _judged(worker) or not worker.alive, "a worker goes on")
            assert worker.alive, worker.stderr

    def _drain(self) -> None:
        ended = run_drain(self.config, timeout_s=300)
        assert ended.code == 0, ended.stderr

    def _reset(self) -> None:
        for each in self.asked:
            if each.stream.reset:
                last = max(place.offset for place in each.records if place.partition == 1)
                each.again = {1: round(each.stream.reset * last)}
                back = run_reset(self.config, "--to-offset", f"1:{each.again[1]}", pipeline=each.stream.name)
                assert back.code == 0, back.stderr
        self._drain()

    def _tell_truths(self) -> None:
        for each in self.asked:
            topics = each.pipeline.sink, each.pipeline.duplicates, each.pipeline.quarantine
            outputs = Outputs(
                *([] if topic is None else read_topic(self._bootstrap, topic) for topic in topics)
            )
            judged = verdicts(each.stream, list(each.records.values()))
            each.truths = placed(each.stream, judged, each.records, outputs, each.again)
            roles = dict(zip(("clean", "receipt", "quarantine"), topics, strict=True))
            for role, there, place in origins(each.stream, judged, each.records, outputs, each.again):
                each.came[RecordRef(roles[role] or "", *there)] = RecordRef(each.pipeline.source, *place)

    def _leave_pending(self) -> None:
        for each in self.asked:
            for number in range(each.stream.partitions):
                made = self._made[each.stream.name, number]
                produce(self._bootstrap, each.pipeline.source, made[:PENDING], partition=number)

    def _take_away(self) -> None:
        for each in self.asked:
            if each.stream.removed:
                last = max(place.offset for place in each.records if place.partition == 0)
                delete_records(self._bootstrap, each.pipeline.source, round(each.stream.removed * last))
        (compacted,) = (each for each in self.asked if each.stream.compacted)
        source = compacted.pipeline.source
        alter_topic(self._bootstrap, source, **COMPACTED)
        alter_brokers(self._bootstrap, log_cleaner_backoff_ms="200")

        def is_compacted() -> bool:
            # A newer record rolls the segment: the active one is never cleaned.
            for number in range(compacted.stream.partitions):
                some = New(b"roll", b"{}", (), int(time.time() * 1000))
                produce(self._bootstrap, source, [some], partition=number)
            return len(read_topic(self._bootstrap, source)) < len(compacted.records) // 2

        until(is_compacted, "the source is compacted")


def _pipeline(name: str, stream: Stream) -> PipelineConfig:
    topic = f"{name}.{stream.name}"
    made = PipelineConfig(stream.name, f"{topic}.raw", f"{topic}.clean", f"{topic}.quarantine")
    if stream.receipts:
        made = replace(made, duplicates=f"{topic}.duplicates")
    return stream.rules.applied(made)


def _judged(worker: Worker) -> bool:
    return any(value for name, value in worker.metrics().items() if name.startswith("seqmark_records_total"))


async def explained(history: History, refs: list[RecordRef], alone: list[RecordRef]) -> list[Story]:
    """Ask of all positions in their order, and of some more as if each were the only one that is asked for."""
    async with Explainer.open(load(history.config.write(), {})) as explainer:
        stories = await explainer.explain_many(refs)
        for each in alone:
            explainer.forget()
            stories.append(await explainer.explain(each))
        return stories


async def traced(history: History, refs: list[RecordRef]) -> list[Story]:
    """Ask of positions in outputs."""
    async with Explainer.open(load(history.config.write(), {})) as explainer:
        return await explainer.explain_many(refs)


@pytest.mark.timeout(3000)
def test_every_record_of_a_stream_with_everything_is_explained_as_it_was(
    request: pytest.FixtureRequest, broker: Broker, tmp_path: Path
) -> None:
    count = WHOLE if everything(request.config) else DRAWN
    chance = dice(seed(request.config))
    history = History(broker.bootstrap_servers, tmp_path, count, chance)
    history.happen()

    wrong: list[str] = []
    outcomes: Counter[Outcome] = Counter()
    codes: set[str | None] = set()
    for asked in history.asked:
        refs = asked.refs()
        alone = chance.sample(refs, ALONE)
        there = {
            (each.partition, each.offset)
            for each in read_topic(broker.bootstrap_servers, asked.pipeline.source)
        }
        firsts = [
            bounds(broker.bootstrap_servers, asked.pipeline.source, number)[0]
            for number in range(len(asked.ends))
        ]
        for story in asyncio.run(explained(history, refs, alone)):
            outcomes[story.outcome] += 1
            codes.add(story.grounds.code)
            wrong += [
                f"{story.asked} ({asked.stream.name}): {each}; {story.sentence}"
                for each in lies(asked, story, there, firsts)
            ]

        for story in asyncio.run(traced(history, chance.sample(sorted(asked.came), TRACED))):
            wrong += [
                f"{story.asked} ({asked.stream.name}): {each}; {story.sentence}"
                for each in strays(asked, story, there)
            ]

    assert not wrong, f"{len(wrong)} lies:\n" + "\n".join(wrong[:40])
    assert outcomes.keys() == set(Outcome) - ELSEWHERE
    assert len(codes) >= 8
    assert sum(outcomes.values()) > count


def lies(asked: Asked, story: Story, there: set[tuple[int, int]], firsts: list[int]) -> Iterator[str]:
    """Yield in what a story differs from the truth."""
    place = Place(story.asked.partition, story.asked.offset)
    truth = asked.truths.get(place)
    gone = place not in there
    yield from differs("problems", story.problems, [])
    if truth is None:
        expected = {Outcome.NO_RECORD} if gone else {Outcome.PENDING}
        if asked.stream.compacted and gone:
            # Compaction takes aborted records away, too: nothing says what has been there.
            expected.add(Outcome.NOT_RETAINED)
        if place.offset < firsts[place.partition]:
            expected = {Outcome.NOT_RETAINED}
        if story.outcome not in expected:
            yield from differs("outcome", story.outcome, expected)
        yield from differs("places", (story.clean, story.receipt, story.quarantine), (None, None, None))
        return
    yield from differs("outcome", story.outcome, outcome_of(truth, gone=gone))
    yield from differs("exit code", story.exit_code, 1 if story.outcome is Outcome.NOT_RETAINED else 0)
    yield from differs("source", story.source, story.asked)
    pipeline = asked.pipeline
    if story.clean is not None or not one_of_equals(asked, place):
        yield from differs("clean", story.clean, None if gone else ref(pipeline.sink, truth.clean))
    yield from differs("receipt", story.receipt, ref(pipeline.duplicates, truth.receipt))
    yield from differs("quarantine", story.quarantine, ref(pipeline.quarantine, truth.quarantine))
    if truth.verdict not in JUDGED:
        yield from differs("code", story.grounds.code, truth.verdict)
    if not gone:
        assert story.record is not None
        record = asked.records[place]
        yield from differs("record", (story.record.key, story.record.value), (record.key, record.value))
    # The clock of a routed partition follows how partitions fall in between each other.
    receipts, clocked = asked.stream.receipts, not asked.stream.routed
    yield from grounds(story, truth, receipts=receipts, gone=gone, clocked=clocked)
    yield from owner(
        story, truth, pipeline.source, there, lambda place: ref(pipeline.sink, asked.truths[place].clean)
    )


def one_of_equals(asked: Asked, place: Place) -> bool:
    """Return whether a record that was set back has equals: which is which nothing says, so nothing need be."""
    return bool(asked.stream.reset) and asked.records[place].key == b"nobody"


def strays(asked: Asked, story: Story, there: set[tuple[int, int]]) -> Iterator[str]:
    """Yield in what a story differs from the truth that a position of an output was traced back to."""
    source = asked.came[story.asked]
    yield from differs("problems", story.problems, [])
    if story.notes and story.asked.topic == asked.pipeline.sink and one_of_equals(asked, Place(*source[1:])):
        return
    if story.asked.topic != asked.pipeline.sink or (source.partition, source.offset) in there:
        yield from differs("source", story.source, source)
    elif story.source is not None:
        yield f"it came from {source}, which is gone, and is said to come from {story.source}"
