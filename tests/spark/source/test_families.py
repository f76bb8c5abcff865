"""Aggregates of one topic in one job read it once, and come to the rows that each comes to alone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.core.files import SparkFiles
from typing_extensions import override

from processor.errors import StopError
from processor.kafka.plain.topic_log import LogSpan, TopicLog
from schemas.event import EventModel
from spark_sink.job import SinkJob, SinkOptions
from spark_sink.query.partial_rows import ReadingWay, chosen_way
from spark_sink.query.running import RunningQuery
from spark_sink.source.options import PARTIALS, SHARED, SourceOptions, kafka_options
from spark_sink.source.shared.plan import SharedRead
from spark_sink.source.task import task_batches
from tests.support.kafka.topics import create_topic, delete_records, dice, new, produce, unique
from tests.support.spark_sink.job import Silent, run, settings, sink
from tests.support.spark_sink.sinks import HOUR, START, click, send, written_aside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from schemas.config import Settings, Sink
    from spark_sink.query.progress import Totals
    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
PARTITIONS = 2
MORE: dict[str, dict[str, Any]] = {
    "hourly": {"window": "1 hour"},
    "again": {"window": "1 hour"},
    "users": {"window": "1 hour", "slide": "20 minutes", "group_by": ["user_id"]},
}
"""Two of them count the same, and one has other windows and groups."""


def aggregates(folder: Path, topic: str, names: list[str]) -> list[dict[str, Any]]:
    """Return the config of some, whose files lie in ``folder``."""
    folder.mkdir(exist_ok=True)
    outputs = {name: {"kind": "parquet", "path": str(folder / name)} for name in names}
    return [sink(folder, topic, name, outputs[name], **MORE[name]) for name in names]


def sending(broker: Broker, topic: str, start: int, stop: int) -> None:
    """Send a click in each half hour, and with the later ones one that is late and one that is no event."""
    chance = dice(start)
    clicks = [
        click(chance, number, START + number * HOUR / 2, timedelta(minutes=29)) for number in range(start, stop)
    ]
    if start:
        clicks.append(click(chance, 1000 + start, START, timedelta(minutes=29)))
        produce(broker.bootstrap_servers, topic, [new(start, value=b"{}")])
    send(broker.bootstrap_servers, topic, clicks, PARTITIONS)


def rows(spark: SparkSession, folder: Path, name: str) -> list[Any]:
    """Return what an aggregate has written, in one order."""
    found = spark.read.parquet(str(folder / name))
    return sorted(map(tuple, found.select(sorted(found.columns)).collect()))


class InTurn(Silent):
    """Lets an aggregate begin when the one before has done a batch."""

    def __init__(self) -> None:
        super().__init__()
        self._done: set[str] = set()

    @override
    def progress(self, totals: Mapping[str, Totals]) -> None:
        for name in {name for name, each in totals.items() if each.batches} - self._done:
            self.has_read(name)
            self._done.add(name)

    def has_read(self, name: str) -> None:
        """Do something before the next one begins."""

    def run(self, config: Settings, **options: Any) -> SinkJob:
        """Run all aggregates of a config."""

        def is_beginning(each: RunningQuery) -> bool:
            return each.query is not None and not each.ended and each.sink.name not in self._done

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunningQuery, "is_beginning", is_beginning)
            return run(config, self, **options)


def test_members_of_a_family_have_the_rows_and_what_is_aside_that_each_has_alone(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, said = unique("clean"), list[str]()
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    together, alone = tmp_path / "together", tmp_path / "alone"
    for start, stop in ((0, 30), (30, 50)):
        sending(broker, topic, start, stop)
        audience = InTurn()
        names = ["hourly", "again", "users"]
        job = audience.run(settings(broker.bootstrap_servers, *aggregates(together, topic, names)))
        said += [line for line in audience.said if "read and parsed once" in line]
        assert len({totals.rows for totals in job.totals.values()}) == 1
        for name in ("hourly", "users"):
            audience = InTurn()
            audience.run(settings(broker.bootstrap_servers, *aggregates(alone, topic, [name])))
            assert not any("read and parsed once" in line for line in audience.said)

    assert said == [f"hourly, again, users: {topic} is read and parsed once for all of them"] * 2
    for name, same in (("hourly", "hourly"), ("again", "hourly"), ("users", "users")):
        assert len(rows(spark, together, name)) > 20
        assert rows(spark, together, name) == rows(spark, alone, same)
        for what in ("late", "bad"):
            places = together / f"checkpoint-{name}-aside", alone / f"checkpoint-{same}-aside"
            aside = [written_aside(each, what) for each in places]
            assert len(aside[0]) == 1
            assert aside[0] == aside[1]
    # What members have left each other goes with the run.
    assert not [*Path(SparkFiles.getRootDirectory()).glob("seqmark-*")]


class Deleting(InTurn):
    """Removes all records of the topic when the first aggregate has read them, before another one starts."""

    def __init__(self, broker: Broker, topic: str, end: int) -> None:
        super().__init__()
        self._broker, self._topic, self._end = broker, topic, end

    @override
    def has_read(self, name: str) -> None:
        if name == "hourly":
            delete_records(self._broker.bootstrap_servers, self._topic, self._end)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("names", [["hourly", "again"], ["hourly", "users", "again"]])
def test_what_the_first_has_read_the_others_do_not_fetch(
    broker: Broker, tmp_path: Path, names: list[str]
) -> None:
    topic = unique("clean")
    create_topic(broker.bootstrap_servers, topic)
    chance = dice(3)
    clicks = [click(chance, number, START + number * HOUR / 2, timedelta(minutes=29)) for number in range(40)]
    config = settings(broker.bootstrap_servers, *aggregates(tmp_path, topic, names))
    send(broker.bootstrap_servers, topic, clicks[:20], 1)
    InTurn().run(config)
    send(broker.bootstrap_servers, topic, clicks[20:], 1)

    job = Deleting(broker, topic, 40).run(config)

    assert {name: totals.rows for name, totals in job.totals.items()} == dict.fromkeys(names, 20)


def test_a_task_takes_what_another_ones_task_has_left_and_fetches_the_rest(
    broker: Broker, tmp_path: Path
) -> None:
    topic, bootstrap = unique("clean"), broker.bootstrap_servers
    create_topic(bootstrap, topic)
    send(bootstrap, topic, [click(dice(5), number, START, HOUR) for number in range(40)], 1)
    config = settings(bootstrap, *aggregates(tmp_path, topic, ["hourly", "users"]))
    model = EventModel.load("schemas.events:ClickEvent")
    plans = [each.plan for each in (way(one, model) for one in config.aggregates) if each.plan]
    topic_id = TopicLog.open(config.kafka, topic).id

    def counted(mine: int, stop: int, **more: str) -> int:
        shared = SharedRead("run", str(tmp_path), plans, mine).written()
        options = {"topic": topic, PARTIALS: plans[mine].written(), SHARED: shared, **more}
        read = SourceOptions.of(options | kafka_options(config.kafka))
        batches = task_batches(read, topic_id, [LogSpan(0, 0, stop)])
        return sum(events for batch in batches for events in batch["events"].to_pylist())

    assert counted(0, 30) == 30
    delete_records(bootstrap, topic, 30)
    with pytest.raises(StopError, match="retention has removed"):
        counted(0, 40)
    assert counted(1, 40, accept_loss="true") == 10
    assert counted(1, 40) == 40


def way(one: Sink, model: EventModel) -> ReadingWay:
    """Return how an aggregate on a new checkpoint reads."""
    return chosen_way(one, model, began=None, lacking=lambda: "")


@pytest.mark.usefixtures("spark")
def test_where_loss_is_accepted_each_reads_for_itself(broker: Broker, tmp_path: Path) -> None:
    topic, audience = unique("clean"), InTurn()
    create_topic(broker.bootstrap_servers, topic)
    send(broker.bootstrap_servers, topic, [click(dice(4), 0, START, HOUR)], 1)
    config = settings(broker.bootstrap_servers, *aggregates(tmp_path, topic, ["hourly", "again"]))
    audience.run(config, accept_loss=True)
    assert not any("read and parsed once" in line for line in audience.said)


@pytest.mark.usefixtures("spark")
def test_none_has_begun_where_the_last_is_refused(broker: Broker, tmp_path: Path) -> None:
    topic, audience = unique("clean"), InTurn()
    create_topic(broker.bootstrap_servers, topic)
    run(settings(broker.bootstrap_servers, *aggregates(tmp_path, topic, ["again"])))
    first, last = aggregates(tmp_path, topic, ["hourly", "again"])
    config = settings(broker.bootstrap_servers, first, {**last, "group_by": []})
    with pytest.raises(StopError, match="again"):
        SinkJob(config, config.aggregates, SinkOptions(available_now=True), audience).run()
    assert not (tmp_path / "checkpoint-hourly" / "offsets").exists()
