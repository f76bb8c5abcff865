"""Insert ids on a real broker, across restarts of every kind and whatever happens to the local state.

What is of pages is the exact backend's; all else holds for Bloom filters too, confirmed or not.
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

from processor.state.kv.rocks import RocksStore
from schemas.changelog.bloom import PIECE_KIND, RUN_KIND, RUN_PAGE_KIND
from schemas.changelog.ids import ID_BLOCK_KIND, ID_PAGE_KIND, IDS_KEY, ORIGIN_COPY_KEY, IdState, id_block_key
from schemas.changelog.values import POSITION_KEY
from tests.support.judges.id_rules import IdModel, IdRules
from tests.support.kafka.topics import New, bounds, contents, create_topic, delete_records, delete_topic
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
# Filters outgrow 1,000 ids; without confirmation 1e-12 is a rate that no test meets.
CONFIRMED = {"bucket": "1s", "expected_per_bucket": 1000, "false_positive_rate": 0.01}
UNCONFIRMED = {"bucket": "1s", "expected_per_bucket": 1000, "false_positive_rate": 1e-12, "confirm": False}
EXACT_VERDICTS = pytest.mark.parametrize("bloom", [None, CONFIRMED], ids=["exact", "confirmed"])
EACH_BACKEND = pytest.mark.parametrize(
    "bloom", [None, CONFIRMED, UNCONFIRMED], ids=["exact", "confirmed", "unconfirmed"]
)
Bloom = dict[str, object] | None


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


@EXACT_VERDICTS
def test_verdicts_and_receipts_are_the_naive_models_over_many_restarts(
    broker: Broker, tmp_path: Path, bloom: Bloom
) -> None:
    dice = random.Random(20261121)
    rules = IdRules(window="1s", refresh=True, bloom=bloom)
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


@EACH_BACKEND
def test_a_restart_reads_only_what_is_new_and_one_without_a_disk_reads_all(
    broker: Broker, tmp_path: Path, bloom: Bloom
) -> None:
    config = judging(broker, tmp_path, IdRules(bloom=bloom))
    assert passed(config, *some(0, 5000), *some(100, 400)) == names(0, 5000)
    assert passed(config, *some(0, 5010)) == names(0, 5010)
    shutil.rmtree(config.state_dir)
    assert passed(config, *some(0, 5020)) == names(0, 5020)


def test_a_commit_is_one_block_and_one_record_of_the_state_before_the_position(
    broker: Broker, tmp_path: Path
) -> None:
    config = judging(broker, tmp_path, IdRules())
    passed(config, *some(0, 2000))
    passed(config, *some(0, 2000))
    rows = read_topic(config.bootstrap_servers, config.changelog)
    keys = [row.key or b"" for row in rows]
    assert keys[:3] == [b"O", IDS_KEY, POSITION_KEY]
    assert {key[:1] for key in keys} == {b"O", IDS_KEY, POSITION_KEY, ID_BLOCK_KIND}
    states = [IdState.decode(row.value or b"") for row in rows if row.key == IDS_KEY]
    assert len({state.secret for state in states}) == 1
    assert (states[0].next_number, states[-1].next_number, states[-1].clock_ms) == (1, 2001, NOW_MS)
    blocks = [row for row in rows if (row.key or b"").startswith(ID_BLOCK_KIND)]
    assert sum(len(row.value or b"") for row in blocks) < 2000 * 24


@EACH_BACKEND
def test_a_killed_worker_forgets_nothing(broker: Broker, tmp_path: Path, bloom: Bloom) -> None:
    config = judging(broker, tmp_path, IdRules(bloom=bloom))
    produce(config.bootstrap_servers, config.source, some(0, 3000))
    with start_worker(config) as worker:
        worker.wait_ready()
        until(lambda: len(read_topic(config.bootstrap_servers, config.sink)) == 3000, "all have passed")
        worker.kill()
    assert passed(config, *some(0, 3001)) == names(0, 3001)


@EXACT_VERDICTS
def test_what_expired_while_no_worker_ran_passes_again_and_nothing_else_does(
    broker: Broker, tmp_path: Path, bloom: Bloom
) -> None:
    config = judging(broker, tmp_path, IdRules(window="1s", bloom=bloom))
    begun = NOW_MS - 90 * DAY_MS
    first = passed(config, of(b"a", begun), of(b"b", begun + 500), of(b"a", begun + 999), of(b"b", begun))
    assert first == [b"a", b"b"]
    again = passed(config, of(b"b", begun + 1499), of(b"a", begun), of(b"b", begun), of(b"b", begun + 1500))
    assert again == [b"a", b"b", b"a", b"b"]


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


@pytest.mark.parametrize("ahead_ms", [2 * DAY_MS, -2 * DAY_MS], ids=["ahead", "behind"])
def test_a_wrong_clock_of_a_worker_is_not_committed_and_expires_nothing(
    broker: Broker, tmp_path: Path, ahead_ms: int
) -> None:
    config = judging(broker, tmp_path, IdRules(window="1d", time="arrival"))
    assert passed(config, *some(0, 3)) == names(0, 3)
    produce(config.bootstrap_servers, config.source, some(0, 5))
    given = "-c", str(config.write())

    said = at_another_time(ahead_ms, "worker", *given, "--drain")
    reset = at_another_time(ahead_ms, "reset", *given, "--pipeline", "p", "--to-offset", "0:2")

    which = "2 d 0 h ahead of" if ahead_ms > 0 else "2 d 0 h behind"
    for text in (said, reset):
        assert f"is, or was a moment ago, {which} the brokers'" in " ".join(text.split())
    assert len(read_topic(config.bootstrap_servers, config.sink)) == 3
    assert passed(config) == names(0, 5)


def lose_a_page(folder: Path) -> None:
    store = RocksStore(folder)
    key = list(store.items(ID_PAGE_KIND))[2][0]
    store.write({key: None})
    store.close()


def spoil_a_page(folder: Path) -> None:
    store = RocksStore(folder)
    key, page = list(store.items(ID_PAGE_KIND))[2]
    store.write({key: page[:-3] + bytes(3)})
    store.close()


def cut_the_log(folder: Path) -> None:
    for log in folder.glob("*.log"):
        log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def spoil_the_list(folder: Path) -> None:
    (folder / "CURRENT").write_bytes(b"noise")


@pytest.mark.parametrize("damage", [lose_a_page, spoil_a_page, cut_the_log, spoil_the_list, remove])
def test_a_local_state_that_is_damaged_is_rebuilt_from_the_changelog(
    broker: Broker, tmp_path: Path, damage: object
) -> None:
    config = judging(broker, tmp_path, IdRules())
    once = passed(config, *some(0, 3000))
    (folder,) = stores(config)
    assert callable(damage)
    damage(folder)
    produce(config.bootstrap_servers, config.source, some(0, 3005))
    said = drained(config)
    found = [dict(each.headers)["id"] for each in read_topic(config.bootstrap_servers, config.sink)]
    assert found == [*once, *names(3000, 3005)]
    if damage in {lose_a_page, spoil_a_page}:
        assert "is corrupt" in said
    if damage is spoil_the_list:
        assert "is damaged, reading it again" in said
    if damage is remove:
        assert "there is no local state" in said
    # A log that is cut leaves an earlier state, whole: what came since is read, as after every kill.


def spoil_values(folder: Path) -> None:
    for file in (*folder.glob("*.sst"), *folder.rglob("*.pages")):
        spoil(file)


def test_files_that_go_bad_between_two_runs_are_found_and_rebuilt(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules())
    once = passed(config, *some(0, 20_000))
    drained(config)  # what was in RocksDB's log is in files now
    (folder,) = stores(config)
    spoil_values(folder)
    produce(config.bootstrap_servers, config.source, some(0, 20_005))
    said = drained(config)
    found = [dict(each.headers)["id"] for each in read_topic(config.bootstrap_servers, config.sink)]
    assert found == [*once, *names(20_000, 20_005)]
    assert "reading it again" in said
    assert "checksum" in said


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


@EACH_BACKEND
def test_a_changelog_without_ids_that_are_inside_the_window_is_refused(
    broker: Broker, tmp_path: Path, bloom: Bloom
) -> None:
    config = judging(broker, tmp_path, IdRules(bloom=bloom))
    passed(config, *some(0, 1000))
    passed(config, *some(0, 1010))
    rows = read_topic(config.bootstrap_servers, config.changelog)
    last = [row.offset for row in rows if (row.key or b"").startswith(ID_BLOCK_KIND)][-1]
    delete_records(config.bootstrap_servers, config.changelog, last)
    shutil.rmtree(config.state_dir)
    for _ in range(2):
        ended = run_drain(config)
        assert ended.code == 1
        assert "inside the window" in ended.stderr
        assert "Restore the topic from a copy" in ended.stderr


def test_a_changelog_that_ends_before_the_local_state_is_refused(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules())
    passed(config, *some(0, 1000))
    delete_topic(config.bootstrap_servers, config.changelog)
    policy = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    create_topic(config.bootstrap_servers, config.changelog, 1, policy)
    assert bounds(config.bootstrap_servers, config.changelog) == (0, 0)
    ended = run_drain(config)
    assert ended.code == 1
    assert "was deleted or cut" in ended.stderr
    assert "Restore the topic, or see 'Beginning anew'" in ended.stderr


@pytest.mark.parametrize(
    ("key", "other"),
    [
        ("window", IdRules(window="2h")),
        ("refresh", IdRules(refresh=True)),
        ("id", IdRules(({"from": "key"},))),
        ("time", IdRules(time="arrival")),
        ("backend", IdRules(bloom=CONFIRMED)),
    ],
)
def test_another_definition_is_refused_and_changes_nothing(
    broker: Broker, tmp_path: Path, key: str, other: IdRules
) -> None:
    config = judging(broker, tmp_path, IdRules())
    once = passed(config, *some(0, 10))
    changed = replace(config, pipelines=(other.applied(config.pipelines[0]),))
    for _ in range(2):
        ended = run_drain(changed)
        assert ended.code == 1
        assert f"{key} was " in ended.stderr
        assert "set the definition back" in ended.stderr
    assert passed(config, *some(5, 11)) == [*once, b"id-10"]


@EACH_BACKEND
def test_two_workers_share_the_partitions_and_hand_them_over(
    broker: Broker, tmp_path: Path, bloom: Bloom
) -> None:
    config = judging(broker, tmp_path, IdRules(bloom=bloom), partitions=2).but(slots=2)
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


def slide(config: WorkerConfig, clock: int) -> None:
    """Have a worker take in 12 times 300 ids, 400 ms apart, until its changelog is deleted in front."""
    servers = config.bootstrap_servers
    with start_worker(config, env={"SEQMARK_TEST_PLACE_IDS": "100"}) as worker:
        worker.wait_ready()
        for number in range(12):
            produce(servers, config.source, some(300 * number, 300 * (number + 1), clock + 400 * number))
            end = 300 * (number + 1)
            until(lambda end=end: len(read_topic(servers, config.sink)) == end, "all have passed")  # type: ignore[misc]
        until(lambda: bounds(servers, config.changelog)[0] > 10, "what is expired is deleted")
        worker.terminate()
        assert worker.wait() == 0


def test_the_changelog_is_deleted_up_to_the_live_window_and_no_further(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules(window="1s"))
    servers, changelog = config.bootstrap_servers, config.changelog
    clock = NOW_MS - DAY_MS
    slide(config, clock)
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


@EACH_BACKEND
def test_ids_are_known_under_another_number_of_slots(broker: Broker, tmp_path: Path, bloom: Bloom) -> None:
    config = judging(broker, tmp_path, IdRules(bloom=bloom))
    once = passed(config, *some(0, 2000))
    assert passed(config.but(slots=3), *some(0, 2001)) == [*once, b"id-2000"]
    shutil.rmtree(config.state_dir)
    assert passed(config.but(slots=2), *some(0, 2002)) == [*once, b"id-2000", b"id-2001"]


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


@EACH_BACKEND
def test_metrics_say_at_which_rate_filters_take_a_new_id_for_an_old_one(
    broker: Broker, tmp_path: Path, bloom: Bloom
) -> None:
    config = judging(broker, tmp_path, IdRules(bloom=bloom))
    produce(config.bootstrap_servers, config.source, some(0, 5000))
    with start_worker(config) as worker:
        worker.wait_ready()
        until(
            lambda: worker.metrics().get("seqmark_lag_records{partition=0,pipeline=p}") == 0, "all are judged"
        )
        found = worker.metrics()
    rate = found.get("seqmark_false_positive_rate{partition=0,pipeline=p}")
    assert (rate is None) == (bloom is None)
    if bloom is not None:
        # One of the window's 3,601 buckets: filters of a thousand, 250, 500, 1,000 and 2,000 ids, all but full.
        promised = float(str(bloom["false_positive_rate"])) / 3601
        assert promised / 2 < (rate or 0) < 2 * promised
        # An id that all bits are set of already takes no room.
        assert 4_990 <= found["seqmark_ids{partition=0,pipeline=p}"] <= 5_000


def spoil_the_first(kind: bytes, folder: Path) -> None:
    store = RocksStore(folder)
    key, value = next(iter(store.items(kind)))
    store.write({key: value[:-1] + bytes([value[-1] ^ 1])})
    store.close()


def spoil_a_page_of_a_run(folder: Path) -> None:
    spoil_the_first(RUN_PAGE_KIND, folder)


def spoil_a_run(folder: Path) -> None:
    spoil_the_first(RUN_KIND, folder)


def lose_a_piece(folder: Path) -> None:
    store = RocksStore(folder)
    store.write({next(iter(store.items(PIECE_KIND)))[0]: None})
    store.close()


@pytest.mark.parametrize(
    "damage", [spoil_a_page_of_a_run, spoil_a_run, lose_a_piece, cut_the_log, spoil_the_list, shutil.rmtree]
)
def test_filters_and_runs_that_are_damaged_are_rebuilt_from_the_changelog(
    broker: Broker, tmp_path: Path, damage: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Workers take it over: several runs of the 3,000 ids.
    monkeypatch.setenv("SEQMARK_TEST_RUN_IDS", "500")
    config = judging(broker, tmp_path, IdRules(bloom=CONFIRMED))
    once = passed(config, *some(0, 3000))
    # The snapshot of what has passed is written with the commits after it.
    for number in range(4):
        passed(config, of(b"more-%d" % number))
    (folder,) = stores(config)
    assert callable(damage)
    damage(folder)
    produce(config.bootstrap_servers, config.source, some(0, 3005))
    said = drained(config)
    found = [dict(each.headers)["id"] for each in read_topic(config.bootstrap_servers, config.sink)]
    assert found == [*once, *(b"more-%d" % number for number in range(4)), *names(3000, 3005)]
    if damage in {spoil_a_page_of_a_run, spoil_a_run, lose_a_piece}:
        assert "is corrupt" in said
    if damage is spoil_the_list:
        assert "is damaged, reading it again" in said


def test_without_confirmation_no_id_is_kept_on_the_disk(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules(bloom=UNCONFIRMED))
    assert passed(config, *some(0, 3000), *some(0, 3000)) == names(0, 3000)
    (folder,) = stores(config)
    store = RocksStore(folder)
    kinds = {key[:2] for key, _ in store.items(b"")}
    store.close()
    assert kinds <= {b"I", b"P", b"o", b"\0L", b"\0E", b"\0F", b"\0J"}


@pytest.mark.parametrize("bloom", [CONFIRMED, UNCONFIRMED], ids=["confirmed", "unconfirmed"])
def test_the_changelog_of_filters_is_deleted_up_to_the_first_live_bucket_and_no_further(
    broker: Broker, tmp_path: Path, bloom: Bloom
) -> None:
    config = judging(broker, tmp_path, IdRules(window="2s", bloom=bloom))
    servers, changelog = config.bootstrap_servers, config.changelog
    clock = (NOW_MS - DAY_MS) // 1000 * 1000
    slide(config, clock)
    assert id_block_key(1) not in {row.key for row in read_topic(servers, changelog)}

    shutil.rmtree(config.state_dir)
    last = clock + 400 * 11
    # At 4.4 s the ids of 2.4 s on, those of 2.8 s first, are inside the window of 2 s.
    once = names(0, 3600)
    assert passed(config, *some(2100, 3600, last)) == once
    # Those of before 2 s are of buckets that are dropped.
    assert passed(config, *some(0, 1500, last)) == [*once, *names(0, 1500)]


def test_a_worker_above_its_memory_limit_stops_with_what_to_do(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules())
    passed(config, *some(0, 100))
    ended = run_drain(config.but(memory_limit="20MB"))
    assert ended.code == 1
    assert "worker.memory_limit is 20 MB" in ended.stderr
    assert passed(config, *some(0, 101)) == names(0, 101)
