"""Does ``format("seqmark")`` give by verdicts what the clean topic holds, once, whatever is killed or gone?"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.errors import PySparkException

from processor.errors import StopError
from processor.kafka.plain.topic_log import close_topics
from schemas.events import ClickEvent
from schemas.verdicts import ranges
from schemas.verdicts.record import VerdictRecord
from spark_sink import clean_topic
from spark_sink.source.format import TopicReader, VerdictStreamReader, read_spans
from spark_sink.source.options import SourceOptions
from tests.support.kafka.topics import (
    New,
    Record,
    create_topic,
    delete_records,
    delete_topic,
    dice,
    produce,
    produce_transaction,
    read_topic,
    unique,
)
from tests.support.spark_sink.job import Silent, run, settings, sink
from tests.support.spark_sink.sinks import HOUR, START, Click, click, numbers, written_aside
from tests.support.verify.certificate import corrupted
from tests.support.verify.corruptions import without
from tests.support.worker import forks
from tests.support.worker.process import PipelineConfig, WorkerConfig, run_drain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka.broker import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    # PySpark 4.0 leaves the socket of each `collect` to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
IDS = {"mode": "insert-id", "window": "30d", "id": [{"from": "value", "pointer": "/event_id"}]}
CODECS = ("none", "lz4", "gzip", "snappy", "zstd")
PARTITIONS = 2


class Scene(NamedTuple):
    """A pipeline with `output = "both"`, and where its verdicts ended after each of some runs of its worker."""

    config: WorkerConfig
    places: list[dict[str, Any]]

    @property
    def options(self) -> dict[str, str]:
        """Of the source, without a model."""
        return options_of(self.config)

    def place(self) -> dict[str, Any]:
        """Return where the verdicts end now, as it stands in a checkpoint."""
        return ended(self.options)


def options_of(config: WorkerConfig) -> dict[str, str]:
    servers = {"bootstrap_servers": config.bootstrap_servers}
    return {"topic": config.source, "verdicts": config.verdicts, **servers}


def ended(options: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        json.dumps(VerdictStreamReader(SourceOptions.of(options)).latestOffset())
    )
    return found


def new_pipeline(broker: Broker, folder: Path, partitions: int = PARTITIONS) -> WorkerConfig:
    """Return a pipeline of clicks whose topics are there."""
    name, servers = unique("by"), broker.bootstrap_servers
    topics = f"{name}.clean", f"{name}.aside", f"{name}.receipts"
    create_topic(servers, f"{name}.raw", partitions)
    one = PipelineConfig("clicks", f"{name}.raw", *topics, dedup=IDS)
    return WorkerConfig(folder, servers, name, (one,)).with_verdicts("both")


def drained(config: WorkerConfig) -> None:
    worker = run_drain(config)
    assert worker.code == 0, worker.stderr


def record(one: Click, ahead: int = 0) -> New:
    return New(str(one.number).encode(), one.value, (), one.timestamp + ahead)


def feed(config: WorkerConfig, first: int, count: int, codecs: Sequence[str] = CODECS) -> None:
    """Send clicks to both partitions, a part of them again, in some codecs, with transactions that fail."""
    chance, servers, topic = dice(first), config.bootstrap_servers, config.source
    for partition in range(PARTITIONS):
        for at, codec in enumerate(codecs):
            sent = [
                record(click(chance, 10 * number + partition, START + number * HOUR / 4, HOUR / 4))
                for number in range(first + at * count, first + (at + 1) * count)
            ]
            again = [each._replace(timestamp=each.timestamp + 1) for each in sent[::3]]
            produce(servers, topic, sent, again, partition=partition, codec=codec)
            if not at:
                lost = [each._replace(key=b"lost") for each in sent]
                produce_transaction(servers, topic, lost, partition=partition, commit=False)
                more = [record(click(chance, 10 * (first + 99) + partition, START, HOUR)), sent[0]]
                produce_transaction(servers, topic, more, partition=partition)
        produce(servers, topic, [New(b"bad", b"{}", (), int(START.timestamp() * 1000))], partition=partition)


@pytest.fixture(scope="module")
def scene(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Give a pipeline after three runs, the source of which has what aborts and codecs make of it."""
    config = new_pipeline(broker, tmp_path_factory.mktemp("scene"))
    made = Scene(config, [])
    for first in (0, 100, 200):
        feed(config, first, 8)
        drained(config)
        made.places.append(made.place())
    return made


@pytest.fixture(autouse=True)
def topics_are_closed() -> Iterator[None]:
    """Close what this process has opened of topics."""
    yield
    close_topics()


Row = tuple[int, bytes | None, bytes | None, int]


def rows(options: dict[str, str], start: dict[str, Any] | None, end: dict[str, Any]) -> list[Row]:
    """Return what a batch has, by a reader that has just been made: partition by partition, in its order."""
    known = SourceOptions.of(options)
    reader = VerdictStreamReader(known)
    tasks = reader.partitions(reader.initialOffset() if start is None else start, end)
    found = [row for task in tasks for batch in read_spans(known, task) for row in batch.to_pylist()]
    placed = [(each["partition"], each["key"], each["value"], each["timestamp"]) for each in found]
    rows = [(*place, int(at.timestamp() * 1000)) for *place, at in placed]
    return sorted(rows, key=lambda row: row[0])


def clean(config: WorkerConfig) -> list[Row]:
    """Return what the clean topic holds."""
    return in_order(read_topic(config.bootstrap_servers, config.sink))


def in_order(records: Sequence[Record]) -> list[Row]:
    found = [(each.partition, each.key, each.value, each.timestamp) for each in records]
    return sorted(found, key=lambda row: row[0])


def test_by_verdicts_come_the_records_of_the_clean_topic_in_its_order(scene: Scene) -> None:
    whole = rows(scene.options, None, scene.places[-1])

    assert len(whole) > 200
    assert whole == clean(scene.config)
    assert not [key for _, key, _, _ in whole if key in {b"lost", b"bad"}]


def test_a_batch_has_the_same_rows_whenever_it_runs_and_batches_leave_nothing_between_them(
    scene: Scene,
) -> None:
    first, second, third = scene.places
    parts = [rows(scene.options, *each) for each in ((None, first), (first, second), (second, third))]

    assert all(parts)
    assert sorted(itertools.chain(*parts), key=lambda row: row[0]) == clean(scene.config)
    assert rows(scene.options, third, third) == []
    assert rows(scene.options, first, third) == sorted(parts[1] + parts[2], key=lambda row: row[0])


def test_what_is_read_ends_where_the_verdicts_end(scene: Scene, broker: Broker) -> None:
    ahead = [New(b"ahead", b'{"event_id": "ahead"}', (), int(START.timestamp() * 1000))]
    produce(broker.bootstrap_servers, scene.config.source, ahead)
    at = scene.place()

    assert at == scene.places[-1]
    assert b"ahead" not in {row[1] for row in rows(scene.options, None, at)}


def stream(spark: SparkSession, config: WorkerConfig, folder: Path) -> list[str]:
    """Run a stream of the pipeline's clicks until all that is there is done; returns all ids of all runs."""
    frame = clean_topic(
        spark,
        config.bootstrap_servers,
        config.source,
        ClickEvent,
        verdicts=config.verdicts,
        unreadable="skip",
    )
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted(row["event_id"] for row in spark.read.parquet(str(folder / "rows")).collect())


def ids(config: WorkerConfig) -> list[str]:
    """Return the ids in the clean topic."""
    values = [each.value for each in read_topic(config.bootstrap_servers, config.sink)]
    return sorted(json.loads(value or b"")["event_id"] for value in values)


def test_a_batch_that_was_killed_comes_again_without_what_was_judged_since(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    config = new_pipeline(broker, tmp_path)
    feed(config, 0, 4, ["lz4"])
    drained(config)
    assert stream(spark, config, tmp_path) == (first := ids(config))
    assert len(first) == len(set(first)) == 10
    feed(config, 100, 4, ["lz4"])
    drained(config)
    # As a crash leaves it between the batch and its commit.
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()

    assert stream(spark, config, tmp_path) == ids(config)
    ends = [json.loads((tmp_path / f"checkpoint/offsets/{n}").read_text().splitlines()[2]) for n in (0, 1)]
    assert [each["verdicts"]["topic"] for each in ends] == [config.verdicts] * 2
    assert len(rows(options_of(config), None, ends[0])) == len(first)


def test_records_that_expired_before_they_were_read_are_told_and_what_went_before_a_stream_began_is_not(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_pipeline(broker, tmp_path, 1)
    options, servers = options_of(config), broker.bootstrap_servers
    sent = [record(click(dice(1), number, START, HOUR)) for number in range(8)]
    produce(servers, config.source, sent[:4], [*sent[:1], *sent[4:]])
    drained(config)
    before = ended(options)
    produce(servers, config.source, sent, [new for new in sent if new.key == b"7"])
    more = [record(click(dice(2), 20 + number, START, HOUR)) for number in range(6)]
    produce(servers, config.source, more)
    drained(config)
    now = ended(options)
    # Within the first range, behind where a stream could have ended, and a new one begins there.
    delete_records(servers, config.source, 2)
    began = VerdictStreamReader(SourceOptions.of(options)).latestOffset()
    with pytest.raises(StopError, match=r"of offsets 0 to 1, 2 records are gone: retention has removed"):
        rows(options, None, now)
    assert began["first"] == {"0": 2}
    assert rows(options, None, began) == clean(config)[2:]
    # Two of the second.
    delete_records(servers, config.source, 20)
    with pytest.raises(StopError, match=r"of offsets 9 to 19, 11 records are gone.*`accept_loss`"):
        rows(options, before, now)
    with pytest.raises(StopError, match="of offsets 2 to 8, up to 7 records are gone"):
        rows(options, None, began)
    # What a stream never could have had it does not miss.
    began_late = {**before, "first": {"0": 20}, "began": {"0": 20}}
    assert rows(options, None, began_late) == []
    assert rows({**options, "accept_loss": "true"}, before, now) == clean(config)[-4:]
    assert rows({**options, "accept_loss": "true"}, None, began) == clean(config)[-4:]
    # Verdicts that are gone are told, too.
    delete_records(servers, config.verdicts, before["verdicts"]["next"]["0"] + 1)
    with pytest.raises(StopError, match=rf"{config.verdicts}.*retention has removed what was not read"):
        rows(options, before, now)


def test_a_partition_whose_verdicts_have_all_expired_goes_on_where_they_do_and_not_where_they_begin_anew(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_pipeline(broker, tmp_path, 1)
    options, servers = options_of(config), broker.bootstrap_servers

    def fed(first: int) -> None:
        sent = [record(click(dice(first), first + number, START, HOUR)) for number in range(6)]
        produce(servers, config.source, sent)

    def forgotten() -> dict[str, Any]:
        at = ended(options)
        delete_records(servers, config.verdicts, at["verdicts"]["next"]["0"])
        close_topics()
        return ended(options)

    fed(0)
    drained(config)
    at = forgotten()
    assert at["next"] == {"0": -1}
    fed(10)
    drained(config)
    assert rows(options, at, ended(options)) == clean(config)[6:]
    at = forgotten()
    fed(20)
    words = ("reset", "-c", str(config.write()), "--pipeline", "clicks", "--to-offset", "0:15")
    reset = forks.inside(*words, folder=config.folder)
    assert reset.returncode == 0, reset.stderr
    drained(config)
    with pytest.raises(StopError, match=r"begins anew at source offset 15.*`accept_loss`"):
        rows(options, at, ended(options))
    accepted = rows({**options, "accept_loss": "true"}, at, ended(options))
    assert accepted == clean(config)[12:]
    assert len(accepted) == 3


def test_a_task_that_holds_few_verdicts_at_a_time_has_the_same_rows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "MOST_VERDICTS", 1)

    assert rows(scene.options, None, scene.places[-1]) == clean(scene.config)


def test_a_batch_that_is_no_stream_has_all_wherever_a_stream_would_begin(scene: Scene) -> None:
    options = SourceOptions.of({**scene.options, "starting": "latest"})
    reader = TopicReader(options)
    found = [len(batch) for task in reader.partitions() for batch in read_spans(options, task)]

    assert sum(found) >= len(clean(scene.config))


def copied(config: WorkerConfig, change: Any) -> dict[str, str]:
    """Return options by which the source is read by a changed copy of its verdicts."""
    return options_of(corrupted(config, "verdicts", change))


def test_verdicts_that_are_cut_doubled_forged_or_of_another_topic_are_refused(scene: Scene) -> None:
    def forged(found: list[Record]) -> list[Record]:
        was = VerdictRecord.decode(found[1].value)
        sums = replace(was.sums, timestamps=was.sums.timestamps ^ 1)
        return [found[0], found[1]._replace(value=replace(was, sums=sums).encode()), *found[2:]]

    def cut(found: list[Record]) -> list[Record]:
        return [found[0], found[1]._replace(value=(found[1].value or b"")[:-1]), *found[2:]]

    def doubled(found: list[Record]) -> list[Record]:
        return [*found[:2], found[1], *found[2:]]

    def another(found: list[Record]) -> list[Record]:
        others = [replace(VerdictRecord.decode(each.value), topic_id=b"o" * 16) for each in found]
        return [each._replace(value=other.encode()) for each, other in zip(found, others, strict=True)]

    said = {cut: "fails its checksum", doubled: "overlaps with", without(1): "leaves a gap"}
    said |= {forged: "are not what was judged", another: "made from another topic"}
    for change, text in said.items():
        options = copied(scene.config, change)
        with pytest.raises(StopError, match=text):
            rows(options, None, ended(options))


def test_what_no_verdict_speaks_of_and_what_changed_in_the_source_is_passed_over_when_it_is_accepted(
    scene: Scene,
) -> None:
    def records_meanwhile(found: list[Record]) -> list[Record]:
        after = replace(VerdictRecord.decode(found[3].value), begins=True)
        return [*found[:2], found[3]._replace(value=after.encode()), *found[4:]]

    def rewritten(found: list[Record]) -> list[Record]:
        was = VerdictRecord.decode(found[1].value)
        sums = replace(was.sums, batches_crc=was.sums.batches_crc ^ 1)
        return [found[0], found[1]._replace(value=replace(was, sums=sums).encode()), *found[2:]]

    whole = clean(scene.config)
    for change, said, all_there in (
        (records_meanwhile, r"have no verdict: .* `accept_loss`", False),
        (without(2), "leaves a gap", False),
        (rewritten, "are not what was judged", True),
    ):
        options = copied(scene.config, change)
        with pytest.raises(StopError, match=said):
            rows(options, None, ended(options))
        found = rows({**options, "accept_loss": "true"}, None, ended(options))
        assert (found == whole) is all_there
        assert set(found) <= set(whole)
        assert found[0] == whole[0]
        assert found[-1] == whole[-1]


def test_verdicts_that_do_not_go_on_where_a_checkpoint_ended_are_refused(scene: Scene) -> None:
    first, second, _ = scene.places
    before = {**first, "next": {number: at - 1 for number, at in first["next"].items()}}
    beyond = {**second, "next": {number: at + 1 for number, at in second["next"].items()}}

    with pytest.raises(StopError, match="leaves a gap behind the one before"):
        rows(scene.options, before, second)
    with pytest.raises(StopError, match="the topic has lost records"):
        rows(scene.options, first, beyond)


def test_a_topic_of_verdicts_made_anew_or_left_out_is_refused(broker: Broker, tmp_path: Path) -> None:
    config = new_pipeline(broker, tmp_path, 1)
    options, servers = options_of(config), broker.bootstrap_servers
    produce(servers, config.source, [record(click(dice(1), number, START, HOUR)) for number in range(8)])
    drained(config)
    at = ended(options)
    plain = {name: value for name, value in options.items() if name != "verdicts"}
    with pytest.raises(StopError, match="without verdicts, and it is to be read by them"):
        rows(options, {name: value for name, value in at.items() if name != "verdicts"}, at)
    assert TopicReader(SourceOptions.of(plain)).partitions()
    close_topics()
    delete_topic(servers, config.verdicts)
    create_topic(servers, config.verdicts)

    with pytest.raises(StopError, match=rf"topic {config.verdicts} was deleted and made anew"):
        rows(options, at, at)


def test_what_a_reset_puts_there_again_comes_again_as_it_stands_in_the_clean_topic(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_pipeline(broker, tmp_path, 1)
    options, servers = options_of(config), broker.bootstrap_servers
    produce(servers, config.source, [record(click(dice(1), number, START, HOUR)) for number in range(8)])
    drained(config)
    before = ended(options)
    words = ("reset", "-c", str(config.write()), "--pipeline", "clicks", "--to-offset", "0:5")
    reset = forks.inside(*words, folder=config.folder)
    assert reset.returncode == 0, reset.stderr
    drained(config)
    after = ended(options)

    again = rows(options, before, after)
    assert [key for _, key, _, _ in again] == [b"5", b"6", b"7"]
    assert rows(options, None, before) + again == rows(options, None, after) == clean(config)


AGGREGATES = {"events": "count", "revenue": "sum:amount", "least": "min:amount"}
BY_ROWS = {**AGGREGATES, "middle": "p50:amount"}


def test_an_aggregate_by_verdicts_is_that_of_the_clean_topic_however_its_events_are_read(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    config = new_pipeline(broker, tmp_path, 1)
    servers, ways = broker.bootstrap_servers, dict[str, Any]()
    by = {"verdicts": config.verdicts}
    for name, topic, calls, more in (
        ("clean", config.sink, AGGREGATES, {}),
        ("by-kernels", config.source, AGGREGATES, by),
        ("by-rows", config.source, BY_ROWS, by),
    ):
        output = {"kind": "parquet", "path": str(tmp_path / name)}
        windows = {"window": "1 hour", "slide": "20 minutes", "aggregates": calls}
        ways[name] = sink(tmp_path, topic, name, output, **windows, **more)
    said: list[str] = []
    for first in (0, 30):
        chance = dice(first)
        sent = [record(click(chance, n, START + n * HOUR / 2, HOUR / 3)) for n in range(first, first + 30)]
        late = [record(click(chance, 1000 + first, START, HOUR / 3))] if first else []
        bad = [New(b"7777", b'{"event_id": "7777"}', (), sent[0].timestamp)] * bool(first)
        produce(servers, config.source, sent, sent[5:9], [*late, *bad, *late], codec="zstd")
        drained(config)
        audience = Silent()
        run(settings(servers, *ways.values()), audience)
        said += [
            line for line in audience.said if "summed up as it is read" in line or "event by event" in line
        ]

    assert ["summed up" in line for line in said] == [True, True, False] * 2
    found = {name: spark.read.parquet(str(tmp_path / name)).drop("middle") for name in ways}
    kept = {name: sorted(map(str, frame.collect())) for name, frame in found.items()}
    assert len(kept["clean"]) > 50
    assert len({json.dumps(each) for each in kept.values()}) == 1
    for what, right in (("late", [1030]), ("bad", [7777])):
        for name in ways:
            assert numbers(written_aside(tmp_path / f"checkpoint-{name}-aside", what)) == right, name
    means = json.loads((tmp_path / "checkpoint-by-rows" / "seqmark.json").read_text())
    assert (means["version"], means["means"]["verdicts"]) == (1, config.verdicts)


def test_a_source_that_cannot_be_read_by_verdicts_ends_a_query_with_what_to_do(
    spark: SparkSession, scene: Scene
) -> None:
    with pytest.raises(PySparkException, match=r"topic nowhere does not exist"):
        clean_topic(
            spark, scene.config.bootstrap_servers, scene.config.source, verdicts="nowhere", stream=False
        ).collect()
