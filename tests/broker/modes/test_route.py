"""Does ``route = "by-id"`` do what the contract says of it, on a real broker?"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from typing import TYPE_CHECKING

import pytest

from processor.kafka.client import Client
from processor.kafka.group.drain import taken_in
from tests.support.kafka.topics import (
    CALL_S,
    PATIENCE_S,
    New,
    add_partitions,
    bounds,
    delete_records,
    open_transaction,
    produce,
    produce_transaction,
    read_topic,
    set_group_offset,
    until,
)
from tests.support.worker import forks
from tests.support.worker.process import new_config, run_drain, start_worker
from tests.support.worker.routed import RoutedRules, assert_routed, internal_topics, routed, routed_feed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker
    from tests.support.worker.process import WorkerConfig

pytestmark = pytest.mark.broker

NOW_MS = int(time.time() * 1000) - 7_200_000
HOUR_MS = 3_600_000
RULES = RoutedRules()


def record(name: bytes | None, later_ms: int = 0, value: bytes = b"value") -> New:
    headers = (("trace", None), ("id", name)) if name is not None else (("trace", None),)
    return New(b"key", value, headers, NOW_MS + later_ms)


def config_of(broker: Broker, folder: Path, partitions: int = 2, rules: RoutedRules = RULES) -> WorkerConfig:
    return routed(new_config(broker.bootstrap_servers, folder, partitions), rules)


def drain(config: WorkerConfig) -> None:
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr


def test_equal_ids_in_different_partitions_meet_and_the_receipt_names_where_they_were(
    broker: Broker, tmp_path: Path
) -> None:
    config = config_of(broker, tmp_path)
    bootstrap, source = config.bootstrap_servers, config.source
    produce(bootstrap, source, [record(b"a"), record(b"b"), record(b"a", 1)], partition=0)
    drain(config)
    produce(bootstrap, source, [record(b"c"), record(b"a", 2), record(None)], partition=1)
    drain(config)

    found = assert_routed(config, RULES)

    assert [(each["partition"], each["offset"], each["owner"]["offset"]) for each in found.receipts] == [
        (0, 2, 0),
        (1, 1, 0),
    ]
    assert {each["expires_at"] for each in found.receipts} == {NOW_MS + HOUR_MS}
    assert found.quarantined == [(1, 2)]


def test_a_drain_waits_for_what_the_first_hop_has_committed_not_for_the_groups_offset(
    broker: Broker, tmp_path: Path
) -> None:
    config = config_of(broker, tmp_path, 1)
    bootstrap, source = config.bootstrap_servers, config.source
    _, positions = internal_topics(config)
    produce(bootstrap, source, [record(b"a")])
    drain(config)
    produce(bootstrap, source, [record(b"b"), record(b"c")])
    set_group_offset(bootstrap, config.application_id, source, bounds(bootstrap, source)[1])

    async def waits(limit_s: float) -> bool:
        client = await Client.open({"bootstrap_servers": bootstrap}, "test", [source, positions])
        try:
            async with asyncio.timeout(limit_s):
                await taken_in(client, source, positions)
        except TimeoutError:
            return True
        finally:
            await client.close()
        return False

    assert asyncio.run(waits(2.0))
    set_group_offset(bootstrap, config.application_id, source, 1)  # or the worker refuses it
    drain(config)
    assert not asyncio.run(waits(PATIENCE_S))
    assert len(assert_routed(config, RULES).passed) == 3


BLOOM = RoutedRules(bloom={"bucket": "10m", "expected_per_bucket": 100_000})


@pytest.mark.drawn("backend")
@pytest.mark.parametrize("backend", ["exact", "bloom"])
def test_a_mixed_stream_from_all_partitions_is_exactly_once_in_both_hops(
    broker: Broker, tmp_path: Path, backend: str
) -> None:
    rules = BLOOM if backend == "bloom" else RULES
    config = config_of(broker, tmp_path, 4, rules)
    with contextlib.ExitStack() as stack:
        feed = routed_feed(config, 4, random.Random(7))
        feed.send(20_000)
        workers = [stack.enter_context(start_worker(config, drain=True)) for _ in range(2)]
        codes = [worker.wait() for worker in workers]

    assert codes == [0, 0], [worker.stderr for worker in workers]
    found = assert_routed(config, rules)
    assert len(found.passed) > 10_000
    assert len(found.receipts) > 1_000
    if backend == "exact":  # filters know no owner
        assert len({each["owner"]["partition"] for each in found.receipts}) == 4
    assert len(found.quarantined) > 10


def test_what_is_taken_in_is_deleted_from_the_internal_topic(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path)
    bootstrap, (internal, _) = config.bootstrap_servers, internal_topics(config)
    with start_worker(config) as worker:
        for turn in range(3):
            produce(bootstrap, config.source, [record(b"%d-%d" % (turn, n)) for n in range(100)])
            passed = 100 * (turn + 1)
            until(lambda: len(read_topic(bootstrap, config.sink)) == passed, "they have passed")  # noqa: B023
        until(lambda: min(bounds(bootstrap, internal, n)[0] for n in range(3)) > 0, "the front is deleted")
        worker.terminate()
        assert worker.wait() == 0

    drain(config)
    assert_routed(config, RULES)


def test_what_lacks_a_part_goes_by_its_source_partition_and_what_is_wrong_to_quarantine(
    broker: Broker, tmp_path: Path
) -> None:
    rules = RoutedRules(({"from": "value", "pointer": "/a"},), on_missing="pass")
    config = config_of(broker, tmp_path, 5, rules)
    some = [record(None, value=value) for value in (b"{}", b'{"a":null}', b'{"a":{}}', b'{"a":"x"}')]
    for number in range(5):
        produce(config.bootstrap_servers, config.source, some, partition=number)
    drain(config)

    sink = read_topic(config.bootstrap_servers, config.sink)
    unjudged = sorted(each.partition for each in sink if each.value != b'{"a":"x"}')
    assert unjudged == sorted(number % 3 for number in range(5) for _ in range(2))
    assert len([each for each in sink if each.value == b'{"a":"x"}']) == 1
    aside = read_topic(config.bootstrap_servers, config.quarantine)
    assert [each.partition for each in aside] == [0, 0, 0, 1, 1]
    assert {each.value for each in aside} == {b'{"a":{}}'}


def test_the_clock_is_that_of_the_partition_where_ids_meet(broker: Broker, tmp_path: Path) -> None:
    config = routed(new_config(broker.bootstrap_servers, tmp_path, 2), RULES, sinks=1)
    for number, (name, later_ms) in enumerate(
        [(b"a", 0), (b"a", HOUR_MS - 1), (b"x", HOUR_MS), (b"a", 1), (b"a", 2)]
    ):
        some = [record(name, later_ms)]
        produce(config.bootstrap_servers, config.source, some, partition=number % 2)
        drain(config)

    told = [json.loads(each.value or b"") for each in read_topic(config.bootstrap_servers, config.duplicates)]
    assert [(each["partition"], each["offset"], each["owner"]["partition"]) for each in told] == [
        (1, 0, 0),
        (0, 2, 1),
    ]
    assert [each["expires_at"] - NOW_MS for each in told] == [HOUR_MS, 2 * HOUR_MS]


def test_from_the_latest_on_nothing_that_was_routed_is_left_out(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path).but(start="latest")
    produce(config.bootstrap_servers, config.source, [record(b"before")])
    drain(config)
    produce(config.bootstrap_servers, config.source, [record(b"after"), record(b"before")])
    drain(config)

    sink = read_topic(config.bootstrap_servers, config.sink)
    assert {dict(each.headers)["id"] for each in sink} == {b"after", b"before"}
    assert min(each.timestamp for each in sink) == NOW_MS
    assert len(sink) == 2


def test_a_drain_ends_behind_aborted_tails_and_leaves_what_is_still_open(
    broker: Broker, tmp_path: Path
) -> None:
    config = config_of(broker, tmp_path)
    bootstrap, source = config.bootstrap_servers, config.source
    produce_transaction(bootstrap, source, [record(b"a")])
    produce_transaction(bootstrap, source, [record(b"b")], commit=False)
    drain(config)
    assert_routed(config, RULES)
    producer = open_transaction(bootstrap, source, [record(b"c")], partition=1)
    drain(config)
    open_then = len(read_topic(bootstrap, config.sink))
    producer.commit_transaction(CALL_S)
    drain(config)

    assert open_then == 1
    assert len(assert_routed(config, RULES).passed) == 2


def test_more_partitions_where_ids_meet_stop_the_worker(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path)
    bootstrap = config.bootstrap_servers
    produce(bootstrap, config.source, [record(b"a")])
    drain(config)
    add_partitions(bootstrap, config.sink, 4)
    apart = run_drain(config)
    for topic in (config.duplicates, config.changelog, internal_topics(config)[0]):
        add_partitions(bootstrap, topic, 4)

    together = run_drain(config)

    assert (apart.code, together.code) == (1, 1)
    assert f"its sink {config.sink} has 4" in apart.stderr
    assert f"the number of partitions of {internal_topics(config)[0]}" in together.stderr


def test_more_partitions_of_the_source_are_taken_in(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path)
    bootstrap = config.bootstrap_servers
    produce(bootstrap, config.source, [record(b"a")])
    drain(config)
    add_partitions(bootstrap, config.source, 3)
    add_partitions(bootstrap, internal_topics(config)[1], 3)
    produce(bootstrap, config.source, [record(b"a"), record(b"b")], partition=2)
    drain(config)

    found = assert_routed(config, RULES)

    assert [(each["partition"], each["owner"]["partition"]) for each in found.receipts] == [(2, 0)]


def test_the_worker_stops_before_a_record_that_others_wrote_into_the_internal_topic(
    broker: Broker, tmp_path: Path
) -> None:
    config = routed(new_config(broker.bootstrap_servers, tmp_path, 2), RULES, sinks=1)
    bootstrap, (internal, _) = config.bootstrap_servers, internal_topics(config)
    produce(bootstrap, config.source, [record(b"a")])
    drain(config)
    at = bounds(bootstrap, internal)[1]
    produce(bootstrap, internal, [record(b"foreign")])
    produce(bootstrap, config.source, [record(b"b")])

    ended = run_drain(config)
    delete_records(bootstrap, internal, at + 1)
    drain(config)

    assert ended.code == 1
    assert f"{internal}:0:{at}: the record does not say where it came from" in ended.stderr
    assert len(assert_routed(config, RULES).passed) == 2


@pytest.mark.parametrize(("command", "more"), [("verify", ()), ("reset", ("--pipeline", "p", "--to-earliest"))])
def test_what_does_not_know_routes_yet_refuses_them_by_name(
    broker: Broker, tmp_path: Path, command: str, more: tuple[str, ...]
) -> None:
    config = config_of(broker, tmp_path)
    done = forks.inside(command, "-c", str(config.write()), *more, folder=tmp_path)
    assert done.returncode == 2
    assert f"pipelines.p.dedup.route: {command} of a pipeline with route" in done.stderr


def test_records_from_the_future_are_believed_as_far_as_allowed_and_the_state_is_read_again(
    broker: Broker, tmp_path: Path
) -> None:
    config = routed(new_config(broker.bootstrap_servers, tmp_path, 2), RULES, sinks=1)
    for turn in range(2):
        # What the worker's clock has to do with the partition's is written down by positions of the topic read.
        for number in range(2):
            ahead = record(b"ahead %d %d" % (turn, number), 5 * HOUR_MS // 2)
            produce(config.bootstrap_servers, config.source, [ahead, record(b"a"), ahead], partition=number)
        drain(config.but(state_dir=str(tmp_path / f"state {turn}")))

    found = assert_routed(config, RULES)

    assert len(found.passed) == 5
    assert all(each["expires_at"] < NOW_MS + 4 * HOUR_MS for each in found.receipts)
