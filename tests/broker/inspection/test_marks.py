"""Marks say where in the outputs a record's fate stands, whatever happened to the worker: they never lie."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka.topics import New, delete_topic, dice, int64, read_topic
from tests.support.worker.marks import EVERY_COMMIT, assert_frames, frames_around, index_of, marks
from tests.support.worker.process import WorkerConfig, new_config, produce, run_drain, start_worker, until
from tests.support.worker.reset import run_reset
from tests.support.worker.routed import RoutedRules, routed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

POSITION = "seqmark_position{partition=0,pipeline=p}"
NOW_MS = int(time.time() * 1000) - 3_600_000


def stream(start: int, count: int, seed: int = 1) -> list[New]:
    """Return records with unique values: new ones, repeats, and some that cannot be judged."""
    some = dice(seed + start)
    records = []
    for number in range(start, start + count):
        kind = some.random()
        sequence = number if kind < 0.7 else some.randrange(number + 1)
        headers = () if kind > 0.95 else (("seq", int64(sequence)),)
        records.append(New(b"key", b"%d" % number, headers, 1_700_000_000_000 + number))
    return records


def config_of(broker: Broker, folder: Path, partitions: int = 1) -> WorkerConfig:
    made = new_config(broker.bootstrap_servers, folder, partitions)
    return made.with_quarantine().with_duplicates()


def send(config: WorkerConfig, start: int, count: int, partitions: int = 1) -> None:
    for number in range(partitions):
        some = stream(start, count, number)
        produce(
            config.bootstrap_servers, config.source, some[: count // 2], some[count // 2 :], partition=number
        )


def all_marked(config: WorkerConfig, sent: int) -> bool:
    return all(some[-1].next_offset == sent for some in marks(config).values())


def drain(config: WorkerConfig) -> str:
    ended = run_drain(config, env=EVERY_COMMIT)
    assert ended.code == 0, ended.stderr
    return ended.stderr


def test_between_two_marks_stands_what_became_of_the_records_between_them_through_kills_and_resets(
    broker: Broker, tmp_path: Path
) -> None:
    config = config_of(broker, tmp_path, partitions=2)
    sent = 0
    for turn in range(3):
        with start_worker(config, env=EVERY_COMMIT) as worker:
            worker.wait_ready()
            for _ in range(2):
                send(config, sent, 80, partitions=2)
                sent += 80
                until(partial(all_marked, config, sent), "what was sent is marked")
            send(config, sent, 40, partitions=2)
            sent += 40
            if turn:
                worker.kill()
            else:
                worker.terminate()
                worker.wait()
        if not turn:
            assert run_reset(config, "--to-offset", "0:100").code == 0
            # Who comes back after a kill need not wait for its own session to end.
            config = config.but(group_instance_id="one")
    drain(config)

    assert assert_frames(config) > 10
    first = marks(config)[0]
    assert len({mark.since_ms for mark in first}) == 2
    assert len({mark.since_ms for mark in marks(config)[1]}) == 1
    # What is looked up frames each offset, once per state that has taken it in.
    offsets = range(0, sent, 5)
    for offset, found in zip(offsets, frames_around(config, 0, offsets), strict=True):
        assert len(found) >= (2 if 100 <= offset < 200 else 1)
        (before, after), *_ = ((each.before, each.after) for each in found)
        assert before is not None
        assert after is not None
        assert before.next_offset <= offset < after.next_offset


def test_a_worker_without_an_index_topic_says_so_works_and_takes_it_up_when_it_is_there(
    broker: Broker, tmp_path: Path
) -> None:
    config = config_of(broker, tmp_path)
    send(config, 0, 50)
    soon = {**EVERY_COMMIT, "SEQMARK_TEST_METADATA_MAX_AGE_MS": "500"}
    with start_worker(config.but(create_topics=True), env=soon) as worker:
        worker.wait_ready()
        until(lambda: worker.metrics().get(POSITION) == 50, "the first are in")
        delete_topic(config.bootstrap_servers, index_of(config))
        send(config, 50, 50)
        until(lambda: worker.metrics().get(POSITION) == 100, f"it goes on without it:\n{worker.stderr}")
        worker.terminate()
        assert worker.wait() == 0, worker.stderr

    said = drain(config.but(create_topics=False))
    assert said.count(f"{index_of(config)}: index of pipeline p: does not exist") == 1
    assert frames_around(config, 0, [99]) == [[]]

    send(config, 100, 50)
    assert "Without it" not in drain(config)
    ((frame,),) = frames_around(config, 0, [120])
    assert frame.after is not None
    assert frame.after.next_offset == 150
    assert assert_frames(config) == len(marks(config)[0]) - 1


def test_at_least_once_marks_frame_what_they_say_while_nothing_is_repeated(
    broker: Broker, tmp_path: Path
) -> None:
    config = config_of(broker, tmp_path).but(guarantee="at_least_once")
    for turn in range(2):
        send(config, 50 * turn, 50)
        drain(config)
    assert assert_frames(config) >= 2
    assert marks(config)[0][-1].next_offset == 100


def test_with_route_each_hop_has_marks_of_its_own(broker: Broker, tmp_path: Path) -> None:
    config = routed(new_config(broker.bootstrap_servers, tmp_path, 2), RoutedRules())
    for turn in range(3):
        for number in range(2):
            new = [New(b"key", b"v", (("id", b"%d" % n),), NOW_MS) for n in range(20 * turn, 20 * turn + 20)]
            produce(config.bootstrap_servers, config.source, new, partition=number)
        drain(config)

    first, second = marks(config, "route-index"), marks(config)
    assert [some[-1].next_offset for _, some in sorted(first.items())] == [60, 60]
    # What passes is dealt out: its place is found by time.
    assert {mark.ends.sink for some in first.values() for mark in some} == {-1}
    passed = read_topic(config.bootstrap_servers, config.sink)
    assert len(passed) == 60
    for number, some in second.items():
        mine = [each.offset for each in passed if each.partition == number]
        assert sum(offset < some[-1].ends.sink for offset in mine) == len(mine)
        times = [mark.time_ms for mark in some]
        assert times == sorted(times)
