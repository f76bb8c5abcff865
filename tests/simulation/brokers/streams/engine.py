"""Runs a stream as Spark's micro-batch engine does, over the product's own source, and keeps its checkpoint.

A batch's end is written down, then the batch is planned, read by tasks and written, then it counts. Whoever
begins over a checkpoint runs a batch that was written down and does not count again, and goes on behind it.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from processor.errors import StopError
from spark_sink.source.format import SeqmarkSource, SpansStreamReader, read_spans
from spark_sink.source.options import SPANS, SourceOptions
from spark_sink.source.spans import written_spans
from tests.simulation.brokers.streams.blocking import without_loop
from tests.simulation.brokers.streams.tapes import SOURCE, VERDICTS, Row

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from spark_sink.source.format import SpanPartition
    from tests.simulation.brokers.processes import Process
    from tests.simulation.brokers.streams.tapes import TopicSeen, World

Rows = dict[int, list[Row]]
"""By partition, in the order in which they were read."""
INTERVALS_S = (0.0, 0.1, 1.0)


class Way(NamedTuple):
    """How a stream reads.

    Attributes:
        by_verdicts: Whether it reads the source by its verdicts.
        latest: Whether it begins at the ends.
        accept_loss: Whether it goes on behind what is gone.
        tasks: How many share a batch; None: one each.
    """

    by_verdicts: bool
    latest: bool
    accept_loss: bool
    tasks: int | None

    def options(self) -> dict[str, str]:
        """Return it in the words of the source."""
        named = {"verdicts": VERDICTS} if self.by_verdicts else {}
        named |= {"tasks": str(self.tasks)} if self.tasks else {}
        named |= {"starting": "latest"} if self.latest else {}
        lossy = str(self.accept_loss).lower()
        return {"topic": SOURCE, "bootstrap_servers": "nowhere:9092", "accept_loss": lossy, **named}

    @property
    def topics(self) -> tuple[str, ...]:
        """What it reads; the first one has its places."""
        return (VERDICTS, SOURCE) if self.by_verdicts else (SOURCE,)


class Planned(NamedTuple):
    """The end of a batch, and how the topics looked before and after it was asked for."""

    end: dict[str, Any]
    before: Mapping[str, TopicSeen]
    after: Mapping[str, TopicSeen]

    @property
    def place(self) -> dict[str, Any]:
        """The place in the topic that was planned."""
        place: dict[str, Any] = self.end.get("verdicts", self.end)
        return place

    @property
    def next(self) -> dict[int, int]:
        """Where it ends, by partition of that topic."""
        return {int(number): at for number, at in self.place["next"].items()}


class Checkpoint:
    """What a stream keeps, and what it has written.

    Attributes:
        plans: The ends of batches.
        outputs: Of batches that count.
        changed: What of the source was another batch when the last one began to be read.
    """

    def __init__(self) -> None:
        self.plans: list[Planned] = []
        self.outputs: list[Rows] = []
        self.changed: Mapping[int, frozenset[int]] = {}

    def set_back(self, batches: int) -> None:
        """Be as it was when so many batches counted, and its output, too."""
        del self.plans[batches:], self.outputs[batches:]


class Audience(NamedTuple):
    """Judges what a stream does."""

    planned: Callable[[Checkpoint], None]
    read: Callable[[Checkpoint, Rows], None]


class Engine:
    """One life of a stream's driver.

    Args:
        world: What it reads from.
        way: How.
        checkpoint: What it goes on from.
        audience: Judges each step.
    """

    def __init__(self, world: World, way: Way, checkpoint: Checkpoint, audience: Audience) -> None:
        self._world, self._way, self._checkpoint, self._audience = world, way, checkpoint, audience
        self._options = way.options()

    async def run(self, driver: Process, executor: Process, dice: random.Random, *, once: bool) -> None:
        """Run batches until somebody ends it; or, ``once``, until nothing is new.

        Raises:
            StopError: A batch is refused.
        """
        reader = SeqmarkSource(dict(self._options)).streamReader(StructType())
        known = self._checkpoint
        if len(known.plans) > len(known.outputs):
            await self._batch(reader, driver, executor)
        while True:
            before = self._seen()
            end = _as_written(await without_loop(reader.latestOffset))
            if not known.plans or known.plans[-1].end != end:
                known.plans.append(Planned(end, before, self._seen()))
                self._audience.planned(known)
                driver.end_here()
                await self._batch(reader, driver, executor)
            elif once:
                return
            await asyncio.sleep(dice.choice(INTERVALS_S))
            driver.end_here()

    def _seen(self) -> dict[str, TopicSeen]:
        return {topic: self._world.seen(topic) for topic in self._way.topics}

    async def _batch(self, reader: SpansStreamReader, driver: Process, executor: Process) -> None:
        known = self._checkpoint
        number = len(known.plans) - 1
        start = known.plans[number - 1].end if number else _as_written(reader.initialOffset())
        end = known.plans[number].end
        known.changed = self._world.changed
        tasks = await without_loop(lambda: reader.partitions(start, end))
        rows = await self._read(self._options, tasks, executor)
        driver.end_here()
        self._audience.read(known, rows)
        known.outputs.append(rows)
        driver.end_here()
        reader.commit(end)
        if not self._way.accept_loss and number % 3 == 0:
            await self._again(tasks, executor, rows)

    async def _again(self, tasks: Sequence[SpanPartition], executor: Process, rows: Rows) -> None:
        """Read what a batch had once more, as a side output does, from where it was written down."""
        spans = written_spans([span for task in tasks for span in task.spans])
        options = {name: value for name, value in self._options.items() if name != "starting"} | {SPANS: spans}
        reader = SeqmarkSource(dict(options)).reader(StructType())
        try:
            found = await self._read(options, await without_loop(reader.partitions), executor)
        except StopError:
            return  # it is gone by now
        assert found == rows, "a batch that is read again has other rows"

    @staticmethod
    async def _read(options: Mapping[str, str], tasks: Sequence[Any], executor: Process) -> Rows:
        known = SourceOptions.of(options)
        found: Rows = {}
        for task in tasks:
            for number, row in await executor.begin(without_loop(partial(_taken, known, task))):
                found.setdefault(number, []).append(row)
        return found


def _taken(options: SourceOptions, task: SpanPartition) -> list[tuple[int, Row]]:
    return [row for batch in read_spans(options, task) for row in _rows(batch)]


def _rows(batch: pa.RecordBatch) -> list[tuple[int, Row]]:
    names = ("partition", "offset", "key", "value")
    columns = [batch.column(name).to_pylist() for name in names]
    times = [each // 1000 for each in batch.column("timestamp").cast(pa.int64()).to_pylist()]
    assert not batch.num_rows or set(batch.column("topic").to_pylist()) == {SOURCE}
    return [(number, Row(*row)) for number, *row in zip(*columns, times, strict=True)]


def _as_written(place: Mapping[str, Any]) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(json.dumps(place))
    return written
