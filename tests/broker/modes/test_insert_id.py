"""Insert ids on a real broker, across restarts of every kind, and where its disk fails it.

A run draws the backend. What each holds of its ids, and what is damaged of them, is asked in
`tests/unit/state`, `tests/property/state` and `tests/simulation`.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from schemas.changelog.ids import IDS_KEY, ORIGIN_COPY_KEY, id_block_key
from schemas.changelog.values import POSITION_KEY
from tests.support.judges.id_rules import IdModel, IdRules
from tests.support.kafka.topics import New, bounds, contents
from tests.support.worker.disk import mounted, spoil
from tests.support.worker.process import (
    WorkerConfig,
    new_config,
    produce,
    read_topic,
    run_drain,
    start_worker,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

NOW_MS = int(time.time() * 1000)
DAY_MS = 86_400_000
# Filters outgrow 1,000 ids; 1e-12 is a rate that no test meets.
BLOOM = {"bucket": "1s", "expected_per_bucket": 1000, "false_positive_rate": 1e-12}
BACKENDS: dict[str, dict[str, object] | None] = {"exact": None, "bloom": BLOOM}


def judging(broker: Broker, folder: Path, rules: IdRules, partitions: int = 1) -> WorkerConfig:
    config = (
        new_config(broker.bootstrap_servers, folder, partitions, slots=1).with_duplicates().with_quarantine()
    )
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(rules.applied(pipeline),))


def of(name: bytes, timestamp: int = NOW_MS, value: bytes = b"value") -> New:
    return New(b"key", value, (("id", name),), timestamp)


def some(start: int, stop: int, timestamp: int = NOW_MS) -> list[New]:
    return [of(b"id-%d" % number, timestamp) for number in range(start, stop)]


def drained(config: WorkerConfig) -> str:
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    return ended.stderr


def passed(config: WorkerConfig, *more: New) -> list[bytes]:
    """Produce, drain, and return the ids that are in the sink by then."""
    produce(config.bootstrap_servers, config.source, more)
    drained(config)
    return [dict(record.headers)["id"] or b"" for record in read_topic(config.bootstrap_servers, config.sink)]


def names(start: int, stop: int) -> list[bytes]:
    return [b"id-%d" % number for number in range(start, stop)]


def stores(config: WorkerConfig) -> list[Path]:
    return sorted(config.state_dir.glob("*/home-*/p/[0-9]*"))


def test_verdicts_and_receipts_are_the_naive_models_over_many_restarts(broker: Broker, tmp_path: Path) -> None:
    dice = random.Random(20261121)
    rules = IdRules(window="1s", refresh=True)
    config = judging(broker, tmp_path, rules, partitions=2)
    clock = NOW_MS - DAY_MS
    for run in range(4):
        for partition in range(2):
            more: list[New] = []
            for _ in range(1500):
                clock += dice.choice((0, 0, 0, 1, 2, 5)) if dice.random() < 0.995 else 700
                name = b"%d" % dice.randrange(400) if dice.random() < 0.98 else dice.randbytes(5)
                late_ms = dice.choice((0, 0, 5, 900, 5_000, 90 * DAY_MS))
                more.append(of(name, clock - late_ms, b"%d" % len(more)))
                if dice.random() < 0.01:
                    more.append(New(b"key", b"value", (), clock + 5_000))
            produce(config.bootstrap_servers, config.source, more, partition=partition)
        if run == 2:
            shutil.rmtree(config.state_dir)
        drained(config)

    source = read_topic(config.bootstrap_servers, config.source)
    models = [IdModel(rules), IdModel(rules)]
    said = [(record, models[record.partition].judge(record)) for record in source]
    sink = read_topic(config.bootstrap_servers, config.sink)
    assert contents(sink) == contents(record for record, each in said if each.verdict == "pass")
    receipts = [
        json.loads(each.value or b"") for each in read_topic(config.bootstrap_servers, config.duplicates)
    ]
    assert [
        (told["partition"], told["offset"], told["owner"]["offset"], told["expires_at"]) for told in receipts
    ] == [
        (record.partition, record.offset, each.owner, each.expires_ms)
        for record, each in said
        if each.verdict == "duplicate"
    ]
    assert len(receipts) > 1000
    assert len(sink) > 1000
    assert len(read_topic(config.bootstrap_servers, config.quarantine)) == len(source) - len(sink) - len(
        receipts
    )


@pytest.mark.drawn("backend")
@pytest.mark.parametrize("backend", BACKENDS)
def test_after_a_kill_with_other_slots_and_without_a_disk_all_ids_are_known(
    broker: Broker, tmp_path: Path, backend: str
) -> None:
    config = judging(broker, tmp_path, IdRules(bloom=BACKENDS[backend]))
    produce(config.bootstrap_servers, config.source, some(0, 3000))
    with start_worker(config) as worker:
        worker.wait_ready()
        until(lambda: len(read_topic(config.bootstrap_servers, config.sink)) == 3000, "all have passed")
        worker.kill()
    assert passed(config, *some(0, 3001)) == names(0, 3001)
    assert passed(config.but(slots=3), *some(0, 3002)) == names(0, 3002)
    shutil.rmtree(config.state_dir)
    assert passed(config.but(slots=2), *some(0, 3003)) == names(0, 3003)


def at_another_time(ahead_ms: int, *arguments: str) -> str:
    """Return what a command says on a machine whose clock is wrong; in a process of its own."""
    program = (
        "import time; right = time.time_ns; "
        f"time.time_ns = lambda: right() + {ahead_ms} * 1_000_000; "
        f"from seqmark.__main__ import main; main({list(arguments)!r})"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_a_wrong_clock_of_a_worker_is_not_committed_and_expires_nothing(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules(window="1d", time="arrival"))
    assert passed(config, *some(0, 3)) == names(0, 3)
    produce(config.bootstrap_servers, config.source, some(0, 5))
    given = "-c", str(config.write())

    said = at_another_time(2 * DAY_MS, "worker", *given, "--drain")
    reset = at_another_time(-2 * DAY_MS, "reset", *given, "--pipeline", "p", "--to-offset", "0:2")

    for text, which in ((said, "ahead of"), (reset, "behind")):
        assert f"is, or was a moment ago, 2 d 0 h {which} the brokers'" in " ".join(text.split())
    assert len(read_topic(config.bootstrap_servers, config.sink)) == 3
    assert passed(config) == names(0, 5)


def spoil_values(folder: Path) -> None:
    for file in (*folder.glob("*.sst"), *folder.rglob("*.pages")):
        spoil(file)


def test_files_that_go_bad_while_they_are_judged_by_are_found_and_rebuilt(
    broker: Broker, tmp_path: Path
) -> None:
    config = judging(broker, tmp_path, IdRules())
    once = passed(config, *some(0, 20_000))
    (folder,) = stores(config)
    with start_worker(config) as worker:
        worker.wait_ready()
        # All that it had was read when it started, and nothing of it is in RocksDB's cache.
        spoil_values(folder)
        produce(config.bootstrap_servers, config.source, some(0, 20_005))
        worker.wait_says("the local state is corrupt, reading it again from the changelog")
        until(lambda: len(read_topic(config.bootstrap_servers, config.sink)) >= 20_005, "new ids pass")
        worker.terminate()
        assert worker.wait() == 0
        said = worker.stderr
    assert "checksum" in said
    produce(config.bootstrap_servers, config.source, some(0, 20_005))
    drained(config)
    found = [dict(each.headers)["id"] for each in read_topic(config.bootstrap_servers, config.sink)]
    assert found == [*once, *names(20_000, 20_005)]


def test_a_disk_that_is_full_stops_the_worker_with_a_word_and_nothing_is_lost(
    broker: Broker, tmp_path: Path
) -> None:
    with mounted("32m") as disk:
        config = judging(broker, tmp_path, IdRules()).but(state_dir=str(disk.path / "state"))
        once = passed(config, *some(0, 20_000))
        disk.fill()
        for start in (0, 20_000, 40_000):
            produce(config.bootstrap_servers, config.source, some(start, start + 20_000))
        for _ in range(2):
            ended = run_drain(config)
            assert ended.code == 1
            assert "No space left on device" in ended.stderr
            assert "reading it again" not in ended.stderr
        disk.free()
        drained(config)
        found = [dict(each.headers)["id"] for each in read_topic(config.bootstrap_servers, config.sink)]
        assert found == [*once, *names(20_000, 60_000)]


@pytest.mark.drawn("backend")
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_workers_share_the_partitions_and_hand_them_over(
    broker: Broker, tmp_path: Path, backend: str
) -> None:
    config = judging(broker, tmp_path, IdRules(bloom=BACKENDS[backend]), partitions=2).but(slots=2)
    for partition in range(2):
        produce(config.bootstrap_servers, config.source, some(0, 1000), partition=partition)
    other = config.but(state_dir=str(tmp_path / "other"))
    with start_worker(config) as one:
        one.wait_ready()
        with start_worker(other) as two:
            two.wait_ready()
            until(lambda: len(read_topic(config.bootstrap_servers, config.sink)) == 2000, "all have passed")
            one.terminate()
            assert one.wait() == 0
            for partition in range(2):
                produce(config.bootstrap_servers, config.source, some(0, 1001), partition=partition)
            until(lambda: len(read_topic(config.bootstrap_servers, config.sink)) >= 2002, "the new ones passed")
            two.terminate()
            assert two.wait() == 0
    drained(config)
    assert len(read_topic(config.bootstrap_servers, config.sink)) == 2002


def test_the_changelog_is_deleted_up_to_the_live_window_and_no_further(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules(window="1s"))
    servers, changelog = config.bootstrap_servers, config.changelog
    clock = NOW_MS - DAY_MS
    with start_worker(config, env={"SEQMARK_TEST_PLACE_IDS": "100"}) as worker:
        worker.wait_ready()
        for number in range(12):
            produce(servers, config.source, some(300 * number, 300 * (number + 1), clock + 400 * number))
            end = 300 * (number + 1)
            until(lambda end=end: len(read_topic(servers, config.sink)) == end, "all have passed")  # type: ignore[misc]
        until(lambda: bounds(servers, changelog)[0] > 10, "what is expired is deleted")
        worker.terminate()
        assert worker.wait() == 0
    left = {row.key for row in read_topic(servers, changelog)}
    assert id_block_key(1) not in left
    assert {IDS_KEY, ORIGIN_COPY_KEY, POSITION_KEY} < left

    drained(config)
    shutil.rmtree(config.state_dir)
    last = clock + 400 * 11
    # Three commits' ids are inside the window, of 400 ms each; the one before is expired.
    once = names(0, 3600)
    assert passed(config, *some(3600 - 900, 3600, last)) == once
    assert passed(config, *some(3600 - 1200, 3600, last)) == [*once, *names(2400, 2700)]


def test_metrics_say_how_many_ids_there_are_and_what_the_clock_has_met(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules(), partitions=2)
    servers, begun = config.bootstrap_servers, NOW_MS - 90 * DAY_MS
    produce(servers, config.source, [*some(0, 500, begun), *some(400, 600, begun - 5)])
    produce(servers, config.source, [of(b"of the future", int(time.time() * 1000) + 1_800_000)], partition=1)
    with start_worker(config) as worker:
        worker.wait_ready()
        until(
            lambda: worker.metrics().get("seqmark_lag_records{partition=0,pipeline=p}") == 0, "all are judged"
        )
        until(lambda: worker.metrics().get("seqmark_lag_records{partition=1,pipeline=p}") == 0, "there too")
        found = worker.metrics()
    assert found["seqmark_ids{partition=0,pipeline=p}"] == 600
    assert found["seqmark_ids{partition=1,pipeline=p}"] == 1
    assert found["seqmark_clock_seconds{partition=0,pipeline=p}"] == begun / 1000
    assert found["seqmark_records_behind_clock_total{pipeline=p}"] == 200
    assert found["seqmark_records_ahead_of_clock_total{pipeline=p}"] == 1
    assert found["seqmark_state_bytes{partition=0,pipeline=p}"] > 600 * 8
    assert found["seqmark_memory_bytes"] > 0
    assert "seqmark_false_positive_rate{partition=0,pipeline=p}" not in found


def test_metrics_say_at_which_rate_filters_take_a_new_id_for_an_old_one(broker: Broker, tmp_path: Path) -> None:
    rate = {**BLOOM, "false_positive_rate": 0.01}
    config = judging(broker, tmp_path, IdRules(bloom=rate))
    produce(config.bootstrap_servers, config.source, some(0, 5000))
    with start_worker(config) as worker:
        worker.wait_ready()
        until(
            lambda: worker.metrics().get("seqmark_lag_records{partition=0,pipeline=p}") == 0, "all are judged"
        )
        found = worker.metrics()
    # One of the window's 3,601 buckets: filters of a thousand, 250, 500, 1,000 and 2,000 ids, all but full.
    promised = 0.01 / 3601
    assert promised / 2 < found["seqmark_false_positive_rate{partition=0,pipeline=p}"] < 2 * promised
    # An id that all bits are set of already takes no room.
    assert 4_990 <= found["seqmark_ids{partition=0,pipeline=p}"] <= 5_000


def test_a_worker_above_its_memory_limit_stops_with_what_to_do(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules())
    passed(config, *some(0, 100))
    ended = run_drain(config.but(memory_limit="20MB"))
    assert ended.code == 1
    assert "worker.memory_limit is 20 MB" in ended.stderr
    assert passed(config, *some(0, 101)) == names(0, 101)
