"""A state belongs to one pipeline and the topics it was made with: whatever else has their names is refused."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from processor.errors import RebuildError
from processor.kafka.client import Client, TopicPartition
from processor.kafka.fetch import Fetcher
from tests.support.kafka.topics import (
    add_partitions,
    admin,
    create_topic,
    delete_topic,
    produce_transaction,
    sequences,
    unique,
    until,
)
from tests.support.verify.certificate import certificate, run_verify
from tests.support.worker import forks
from tests.support.worker.process import (
    New,
    PipelineConfig,
    WorkerConfig,
    new,
    new_config,
    produce,
    read_topic,
    run_drain,
    start_worker,
)
from tests.support.worker.reset import run_reset

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.kafka.broker import Broker, OwnBroker

pytestmark = pytest.mark.broker

ROUTED = {"mode": "insert-id", "id": [{"from": "header", "name": "seq"}], "window": "7d", "route": "by-id"}


def drained(config: WorkerConfig) -> WorkerConfig:
    """Drain with exit 0."""
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    return config


def run_check(config: WorkerConfig) -> subprocess.CompletedProcess[str]:
    """Run ``seqmark check`` to its end."""
    return forks.inside("check", "-c", str(config.write()), folder=config.folder)


def ten(broker: Broker, folder: Path, **worker: object) -> WorkerConfig:
    """Return a config whose pipeline has passed the records 0 to 9."""
    config = new_config(broker.bootstrap_servers, folder).but(**worker)
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(10)])
    return drained(config)


def test_a_state_of_another_application_whose_name_runs_together_with_ours_is_refused_by_name(
    broker: Broker, tmp_path: Path
) -> None:
    a = unique("a")
    first = new_config(broker.bootstrap_servers, tmp_path)
    topics = first.pipelines[0]
    theirs = replace(first, application_id=a, pipelines=(replace(topics, name="b-c"),))
    ours = replace(
        first, application_id=f"{a}-b", pipelines=(PipelineConfig("c", topics.source, f"{topics.sink}.2"),)
    )
    assert theirs.changelog == ours.changelog
    produce(first.bootstrap_servers, first.source, [new(i) for i in range(10)])
    drained(theirs)

    refused = run_drain(ours)
    asked = run_reset(ours, "--to-earliest", pipeline="c")
    checked = run_check(ours)

    named = f"holds the state of application {a}, pipeline b-c"
    assert (refused.code, asked.code, checked.returncode) == (1, 1, 0)
    assert named in refused.stderr
    assert named in asked.stderr
    assert named in checked.stdout
    assert not read_topic(ours.bootstrap_servers, ours.sink)
    produce(first.bootstrap_servers, first.source, [new(i) for i in range(5, 12)])
    drained(theirs)
    assert sequences(read_topic(theirs.bootstrap_servers, theirs.sink)) == list(range(12))


@pytest.mark.drawn("routed")
@pytest.mark.parametrize("routed", [False, True])
def test_a_second_application_writes_a_source_into_a_sink_only_where_it_takes_that_over(
    broker: Broker, tmp_path: Path, *, routed: bool
) -> None:
    first = new_config(broker.bootstrap_servers, tmp_path)
    if routed:
        first = replace(first, pipelines=(replace(first.pipelines[0], dedup=ROUTED),))
    bootstrap = first.bootstrap_servers
    other = replace(first, application_id=unique("renamed"))
    produce(bootstrap, first.source, [new(i) for i in range(10)])
    drained(first)

    def refused(config: WorkerConfig, owner: WorkerConfig) -> None:
        ended, checked = run_drain(config), run_check(config)
        codes, said = [ended.code, checked.returncode], [ended.stderr, checked.stdout]
        if not routed:  # of which nothing is proved at all
            proved = run_verify(config)
            codes, said = [*codes, proved.returncode], [*said, proved.stderr]
        assert set(codes) == {1}, said
        for text in said:
            assert f"application {owner.application_id} (pipeline p) writes {first.source} into it" in text
            assert "--take-over-sink" in text

    refused(other, first)
    assert len(read_topic(bootstrap, first.sink)) == 10
    taken = run_drain(other, "--take-over-sink")
    assert taken.code == 0, taken.stderr
    assert len(read_topic(bootstrap, first.sink)) == 20
    drained(other)
    refused(first, other)
    assert run_drain(first, "--take-over-sink").code == 0  # without a record to commit
    drained(first)
    refused(other, first)
    # Several sources may go into one sink.
    create_topic(bootstrap, f"{first.source}.2", 1)
    produce(bootstrap, f"{first.source}.2", [new(10)])
    pipeline = replace(other.pipelines[0], source=f"{first.source}.2")
    drained(replace(other, pipelines=(pipeline,), application_id=unique("another")))
    assert len(read_topic(bootstrap, first.sink)) == 21


def test_a_second_application_writes_verdicts_of_a_source_only_where_it_takes_their_topic_over(
    broker: Broker, tmp_path: Path
) -> None:
    first = new_config(broker.bootstrap_servers, tmp_path).with_verdicts("verdicts")
    other = replace(first, application_id=unique("renamed"))
    produce(first.bootstrap_servers, first.source, [new(i) for i in range(10)])
    drained(first)

    ended = run_drain(other)

    assert ended.code == 1
    named = f"{first.verdicts}: application {first.application_id} (pipeline p) writes"
    assert f"{named} {first.source} into it" in ended.stderr
    taken = run_drain(other, "--take-over-sink")
    assert taken.code == 0, taken.stderr
    assert run_drain(first).code == 1


def remade(config: WorkerConfig, topic: str, configs: Mapping[str, str] | None = None) -> None:
    delete_topic(config.bootstrap_servers, topic)
    create_topic(config.bootstrap_servers, topic, 1, configs)


def test_a_source_made_anew_under_a_running_worker_stops_it_before_anything_of_it_is_taken_in(
    broker: Broker, tmp_path: Path
) -> None:
    config = ten(broker, tmp_path)
    bootstrap = config.bootstrap_servers
    with start_worker(config) as worker:
        worker.wait_ready()
        # Halted, so that it notices nothing between two fetches: the new topic has the position in its range.
        worker.pause()
        remade(config, config.source)
        produce(bootstrap, config.source, [new(i) for i in range(100, 120)])
        worker.resume()
        assert worker.wait() == 1
        said = worker.stderr

    assert f"topic {config.source} is not the one that the state was made from" in said
    assert sequences(read_topic(bootstrap, config.sink)) == list(range(10))
    again = run_drain(config)
    assert again.code == 1
    (command,) = {line.partition("seqmark reset -c FILE ")[2] for line in again.stderr.splitlines()} - {""}
    arguments = command.partition(";")[0].split()
    assert arguments == ["--pipeline", "p", "--to-earliest"]
    assert run_reset(config, *arguments[2:]).code == 0
    drained(config)
    assert sequences(read_topic(bootstrap, config.sink)) == [*range(10), *range(100, 120)]
    assert certificate(config).code == 0


def test_nothing_of_a_topic_made_anew_between_two_fetches_is_fetched(broker: Broker) -> None:
    name = unique("raw")
    bootstrap = broker.bootstrap_servers
    create_topic(bootstrap, name)
    produce(bootstrap, name, [new(i) for i in range(10)])
    tp = TopicPartition(name, 0)

    async def run() -> None:
        client = await Client.open({"bootstrap_servers": bootstrap}, "test", [name])
        fetcher = Fetcher(client)

        async def fetched(position: int) -> None:
            while not await fetcher.fetch({tp: position}):
                pass

        try:
            await fetched(0)
            await asyncio.to_thread(delete_topic, bootstrap, name)
            await asyncio.to_thread(create_topic, bootstrap, name)
            await asyncio.to_thread(produce, bootstrap, name, [new(i) for i in range(100, 120)])
            with pytest.raises(RebuildError, match="UNKNOWN_TOPIC_ID"):
                await fetched(10)
            assert name in client.lost
        finally:
            await client.close()

    asyncio.run(run())


def test_a_sink_made_anew_is_refused_and_a_reset_goes_on_into_the_new_one(
    broker: Broker, tmp_path: Path
) -> None:
    config = ten(broker, tmp_path)
    bootstrap = config.bootstrap_servers
    remade(config, config.sink)
    produce(bootstrap, config.source, [new(i) for i in range(5, 12)])

    refused = run_drain(config)

    assert refused.code == 1
    named = f"topic {config.sink}, the sink, is not the one that was written to"
    assert named in refused.stderr
    assert named in run_check(config).stdout
    command = refused.stderr.partition("state as it is: seqmark reset -c FILE ")[2].partition(";")[0].split()
    assert command == ["--pipeline", "p", "--to-offset", "0:10"]
    assert run_reset(config, *command[2:]).code == 0
    drained(config)
    assert sequences(read_topic(bootstrap, config.sink)) == [10, 11]
    assert certificate(config).code == 0


def test_a_sink_that_the_config_has_been_changed_to_is_taken_on(broker: Broker, tmp_path: Path) -> None:
    config = ten(broker, tmp_path)
    (pipeline,) = config.pipelines
    other = replace(config, pipelines=(replace(pipeline, sink=f"{pipeline.sink}.2"),))
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(5, 12)])

    drained(other)

    assert sequences(read_topic(config.bootstrap_servers, other.sink)) == [10, 11]


def test_a_changelog_restored_from_a_copy_is_kept_by_the_reset_that_the_worker_names(
    broker: Broker, tmp_path: Path
) -> None:
    config = ten(broker, tmp_path)
    copy = read_topic(config.bootstrap_servers, config.changelog)
    remade(config, config.changelog, {"cleanup.policy": "compact"})
    entries = [New(record.key, record.value, record.headers, record.timestamp) for record in copy]
    produce_transaction(config.bootstrap_servers, config.changelog, entries)
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(5, 12)])
    shutil.rmtree(config.state_dir)

    refused = run_drain(config)

    assert refused.code == 1
    assert f"topic {config.changelog}, the changelog, is not the one" in refused.stderr
    told = run_reset(config, "--to-offset", "0:10")
    assert (told.code, told.lines[0]["state"]) == (0, "kept")
    drained(config)
    assert sequences(read_topic(config.bootstrap_servers, config.sink)) == list(range(12))


def test_a_worker_does_not_bring_a_deleted_topic_back_and_looks_at_the_settings_of_the_next_one(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    bootstrap = own_broker(overrides={"auto.create.topics.enable": "true"}).bootstrap_servers
    config = new_config(bootstrap, tmp_path)
    produce(bootstrap, config.source, [new(i) for i in range(10)])
    with start_worker(config, env={"SEQMARK_TEST_METADATA_MAX_AGE_MS": "200"}) as worker:
        worker.wait_ready()
        until(lambda: len(read_topic(bootstrap, config.sink)) == 10, "all has passed")
        delete_topic(bootstrap, config.sink)
        worker.wait_says(f"not there: {config.sink}; waiting")
        # It has asked for it since, and for its settings; whoever asks may not make it.
        assert config.sink not in admin(bootstrap).list_topics(timeout=60).topics
        create_topic(bootstrap, config.sink, 1, {"message.timestamp.type": "LogAppendTime"})
        assert worker.wait() == 1

    assert "the topics are not right any more" in worker.stderr
    assert "LogAppendTime" in worker.stderr


def test_a_partition_that_is_added_to_a_pipeline_that_began_at_latest_loses_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, partitions=2).but(start="latest", slots=3)
    bootstrap = config.bootstrap_servers
    for partition in range(2):
        produce(bootstrap, config.source, [new(i) for i in range(3)], partition=partition)
    drained(config)
    assert not read_topic(bootstrap, config.sink)
    for topic in (config.source, config.sink, config.changelog):
        add_partitions(bootstrap, topic, 3)
    for partition in range(3):
        produce(bootstrap, config.source, [new(i) for i in range(10, 15)], partition=partition)

    drained(config)

    found = read_topic(bootstrap, config.sink)
    assert [sequences(found, partition) for partition in range(3)] == [list(range(10, 15))] * 3
    told = certificate(config)
    assert [(line["from"], line["source"], line["unjudged"]) for line in told.partitions] == [
        (3, 5, 3),
        (3, 5, 3),
        (0, 5, 0),
    ]
    said = run_verify(config).stdout
    assert "p 0: begins at origin 3; retained before it, not judged: up to 3 records" in said
    assert "since the reset" not in said
    done = run_reset(config, "--to-offset", "0:5")
    assert done.code == 0
    drained(config)
    (first, _, last) = certificate(config).partitions
    assert (first["from"], first["unjudged"], last["since_reset"]) == (5, 3, None)
    lines = run_verify(config).stdout.splitlines()
    assert ", since the reset of 20" in next(line for line in lines if line.startswith("certificate: ok"))
