"""Queries that Spark's own Kafka source feeds, which knows a topic by its name: what the product lets count."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from processor.errors import StopError
from schemas.config import Settings
from schemas.event import EventModel
from spark_sink.outputs.output import OutputPlace, each_batch
from spark_sink.query.partial_rows import bounded, chosen_way
from tests.simulation.brokers.processes import Process
from tests.simulation.brokers.streams.blocking import awaited, without_loop
from tests.simulation.brokers.streams.histories import MINUTE_MS, made_again
from tests.simulation.brokers.streams.tapes import SOURCE, Row
from tests.simulation.brokers.troubles import BrokerOdds
from tests.simulation.faults import Fate

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.brokers.streams.tapes import World

BATCHES = 6


class _Writer:
    """Spark's writer of a stream, which has what is done with each batch."""

    def foreachBatch(self, function: Callable[[Any, int], None]) -> _Writer:  # noqa: N802 - Spark's name
        self.write = function
        return self

    def start(self) -> None:
        """Begin; who drives it says when there is a batch."""


class NamedQuery:
    """A query over a topic that may be created again at any moment.

    Args:
        dice: Decide everything.
        world: Has the topic.
    """

    def __init__(self, dice: random.Random, world: World) -> None:
        self._dice, self._world, self._topic_id = dice, world, world.id_of(SOURCE)
        self._rows: list[tuple[int, Row]] = []
        self._at = dict.fromkeys(range(len(world.tapes(SOURCE))), 0)
        self._stops: dict[int, int] = {}

    async def run(self) -> None:
        """Run batches until there are no more, or one is refused; what counts is of one topic."""
        world, counted = self._world, list[tuple[int, Row]]()
        writer, process = _Writer(), Process(world.brokers, Fate(self._dice, BrokerOdds(), 0, 0))
        place = OutputPlace(*(cast("Any", None),) * 3, False, lambda _: None, None, self._require_topic)
        each_batch(place, cast("Any", writer), self._write)
        change = asyncio.get_running_loop().call_later(self._dice.uniform(0, 2 * BATCHES), self._change)
        for number in range(BATCHES):
            world.play_some()
            self._stops = {each: world.tape(SOURCE, each).stable for each in self._at}
            self._rows = []
            try:
                await process.begin(without_loop(partial(writer.write, None, number)))
            except StopError:
                assert world.id_of(SOURCE) != self._topic_id, "a topic is refused that is still the same"
                break
            counted += self._rows
            self._at = self._stops
        change.cancel()
        await process.gone()
        truth = world.incarnations[self._topic_id].rows
        for number, stop in self._at.items():
            found = [row for of, row in counted if of == number]
            wanted = [row for row in truth[number] if row.offset < stop]
            assert found == wanted, f"{len(found)} records of {number} count, {len(wanted)} wanted"

    def _write(self, _rows: object, _number: int) -> None:
        """Read what the batch has, by the topic's name, and write it."""
        for number, stop in self._stops.items():
            _pass(self._dice.expovariate(2))
            tape = self._world.tape(SOURCE, number)
            self._rows += [
                (number, row)
                for row in self._world.now(SOURCE).rows[number]
                if self._at[number] <= row.offset < min(stop, tape.stable)
            ]
        _pass(self._dice.expovariate(2))

    def _require_topic(self) -> None:
        _pass(0)
        if self._world.id_of(SOURCE) != self._topic_id:
            raise StopError("it is another topic")

    def _change(self) -> None:
        tapes = self._world.tapes(SOURCE)
        made_again(self._dice, self._world, SOURCE)
        for number, tape in enumerate(tapes):
            self._world.tape(SOURCE, number).play_to(tape.end)


def _pass(seconds: float) -> None:
    awaited(asyncio.sleep(seconds)).result()


# ---------------------------------------------------------------- batches that are bounded


def require_backlog(dice: random.Random) -> None:
    """Of a backlog that Spark reads event by event nothing is late, however far partitions are apart."""
    partitions, delay, window = dice.choice((1, 1, 2, 3)), 30 * MINUTE_MS, 60 * MINUTE_MS
    bound = dice.choice((5, 20, 100))
    begin = {number: dice.randrange(20) * window for number in range(partitions)}
    step = dice.choice((1, 10, 60)) * MINUTE_MS
    left = {n: [at + step * each for each in range(dice.randrange(1, 60))] for n, at in begin.items()}
    way_bound, said = _bound(bound, partitions)
    watermark = late = batches = 0
    while any(left.values()):
        taken, batches = _taken(left, way_bound), batches + 1
        late += sum(time - time % window + window <= watermark for time in taken)
        watermark = max([watermark, *(time - delay for time in taken)])
        assert partitions > 1 or len(taken) <= bound, "a batch has more than its bound"
    assert not late, f"{late} events of a backlog are late, in {batches} batches of {partitions} partitions"
    assert bool(said) == (partitions > 1), "nobody says that the bound is not used"


def _taken(left: dict[int, list[int]], bound: int | None) -> list[int]:
    """Take the next batch as Spark's Kafka source does: of each partition its share of what is left."""
    total, taken = sum(map(len, left.values())), list[int]()
    for number, times in left.items():
        size = len(times)
        if bound is not None and total > bound:
            share = bound * size / total
            size = math.ceil(share) if share < 1 else math.floor(share)
        taken += times[:size]
        left[number] = times[size:]
    return taken


def _bound(bound: int, partitions: int) -> tuple[int | None, list[str]]:
    """Return the bound that an aggregate heeds, and what is said of it."""
    sink = {
        "name": "a",
        "topic": SOURCE,
        "event": "schemas.events:ClickEvent",
        "time_field": "occurred_at",
        "window": "1 hour",
        "watermark": "30 minutes",
        "aggregates": {"events": "count"},
        "output": {"kind": "console"},
        "checkpoint": "checkpoint",
        "max_offsets_per_trigger": bound,
    }
    kafka = {"bootstrap_servers": "nowhere:9092"}
    config = Settings.model_validate(
        {"kafka": kafka, "worker": {"application_id": "sim"}, "aggregates": [sink]}
    )
    (aggregate,) = config.aggregates
    model, said = EventModel.load(aggregate.event), list[str]()
    way = chosen_way(aggregate, model, began=None, lacking=lambda: "executors have no such Python")
    return bounded(aggregate, way, partitions, said.append).bound, said
