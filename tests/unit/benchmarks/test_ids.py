"""Are the cases with ids what they say, and would a wrong output or a missing part be noticed?"""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from benchmarks.cases import FINGERPRINTS, ID_CASES, ID_HEADER_CASE, SIZES, choose, scaled, turns
from benchmarks.load import DAY_MS, START_MS, Load, as_columns
from benchmarks.measure.cost import Figures, Sample, figures, state_bytes
from benchmarks.measure.truth import WrongOutputError, read_numbers
from benchmarks.options import Options
from benchmarks.pages import publish
from benchmarks.peers import BLOOM, ID_PEERS, PEERS, SEQMARK, WINDOW_DAYS, FailedError, Job, find_peer
from benchmarks.results import Results, Run
from benchmarks.run import lacking
from benchmarks.studies.redis_ids import MOST_BUCKET_IDS, command, filled, hashed, plain, run_redis

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.peers import Guarantee, IdPlace

PLACES: tuple[IdPlace, ...] = ("text", "binary", "json", "fingerprint", "content", "bytes")


def ids_of(load: Load, partition: int) -> list[tuple[object, ...] | bytes]:
    """Return the id of each record, read by another parser than the project's."""
    found: list[tuple[object, ...] | bytes] = []
    for batch in load.batches(partition):
        for record in DefaultRecordBatch(batch.build(1, 0, 0, transactional=False)):
            value, headers = json.loads(record.value), dict(record.headers)
            match load.ids:
                case "json":
                    found.append((value["event_id"], value["user_id"]))
                case "content" | "bytes":
                    found.append(record.value)
                case _:
                    found.append(headers["id"])
    return found


@pytest.mark.parametrize("place", PLACES)
def test_an_id_belongs_to_one_number_of_one_partition(place: IdPlace) -> None:
    load = Load(records=4_000, ids=place)
    seen = set()

    for partition in range(load.partitions):
        numbers, ids = load.numbers(partition).tolist(), ids_of(load, partition)
        assert len(set(ids)) == load.passing(partition) == len(set(zip(numbers, ids, strict=True)))
        seen |= set(ids)

    assert len(seen) == load.all_passing()


def test_an_id_in_a_header_is_a_random_uuid_in_both_forms() -> None:
    text, binary = Load(records=4, ids="text"), Load(records=4, ids="binary")

    for one, other in zip(ids_of(text, 1), ids_of(binary, 1), strict=True):
        assert isinstance(one, bytes)
        assert isinstance(other, bytes)
        assert uuid.UUID(one.decode()).bytes == other
        assert uuid.UUID(bytes=other).version == 4
    assert all(120 <= Load(ids=place).form.width <= 160 for place in ("text", "binary", "json", "bytes"))


def leaves(value: object) -> int:
    """Count what is in a JSON value."""
    match value:
        case dict():
            return sum(map(leaves, value.values()))
        case list():
            return sum(map(leaves, value))
        case _:
            return 1


@pytest.mark.parametrize("place", ["fingerprint", "content"])
def test_a_value_has_ten_leaves_where_its_content_counts(place: IdPlace) -> None:
    (batch,) = Load(records=4, ids=place, partitions=1).batches(0)

    for record in DefaultRecordBatch(batch.build(1, 0, 0, transactional=False)):
        assert leaves(json.loads(record.value)) == 10


def test_a_collision_has_the_id_of_an_earlier_number_and_a_content_of_its_own() -> None:
    load = Load(records=40_000, partitions=1, duplicates=0.0, ids="fingerprint", collisions=0.01, far=True)
    numbers = load.numbers(0)
    named = load.named(numbers)

    # 400 are meant; six standard deviations are 120.
    assert 280 < (named != numbers).sum() < 520
    assert bool((named <= numbers).all())
    assert len(set(ids_of(load, 0))) == np.unique(named).size
    bodies = load.bodies(0, numbers)
    assert len(np.unique(bodies[:, load.form.fields["seq"]], axis=0)) == numbers.size


def test_far_resends_repeat_any_earlier_record_and_the_same_ones_pass() -> None:
    load = Load(records=40_000, partitions=1, far=True, duplicates=0.5)
    numbers = load.numbers(0)
    back = np.maximum.accumulate(numbers) - numbers

    # Of 20,000 resends that reach over half of what came before on average, few stay within the last 50.
    assert int(back.max()) > 15_000
    assert 0 < ((back > 0) & (back < 50)).sum() < 1_000
    assert sorted(set(numbers.tolist())) == list(range(load.passing(0)))


@pytest.mark.parametrize("name", [each.name for each in ID_CASES if each.load.records < 20_000_000])
def test_a_load_lies_in_the_window_and_in_eight_days(name: str) -> None:
    (case,) = choose(name, among=ID_CASES)
    load = case.load
    times = load.stamps(np.arange(load.passing(0)))
    assert 6.8 * DAY_MS < times[-1] - times[0] < WINDOW_DAYS * DAY_MS
    days, ids = np.unique(times // DAY_MS, return_counts=True)
    assert days.size == WINDOW_DAYS + 1
    assert load.a_day(0) - 1 <= ids.max() <= load.a_day(0)


@pytest.mark.parametrize("place", [None, *PLACES])
def test_records_give_their_numbers_and_a_changed_byte_is_noticed(place: IdPlace | None) -> None:
    load, numbers = Load(ids=place, step_ms=7), np.array([3, 1, 4, 1, 5])
    bodies = load.bodies(2, numbers)

    assert read_numbers(as_columns(bodies, START_MS + 7 * numbers), load, 2).tolist() == numbers.tolist()
    for field in load.form.fields.values():
        wrong = bodies.copy()
        wrong[1, field.stop - 1] ^= 1
        with pytest.raises(WrongOutputError):
            read_numbers(as_columns(wrong, START_MS + 7 * numbers), load, 2)


def test_timestamps_are_left_out_only_where_a_system_cannot_keep_them() -> None:
    load, numbers = Load(ids="text"), np.arange(5)
    columns = as_columns(load.bodies(0, numbers), np.zeros(5, np.int64))

    assert read_numbers(columns, load, 0, timestamps=False).tolist() == numbers.tolist()
    with pytest.raises(WrongOutputError, match="timestamp"):
        read_numbers(columns, load, 0)
    assert [name for name in (SEQMARK, BLOOM, *PEERS, *ID_PEERS) if not find_peer(name).keeps_timestamps] == [
        "spark"
    ]


def test_all_of_a_load_lies_in_the_window() -> None:
    longest = max(case.load.records // case.load.partitions for case in ID_CASES)

    # Timestamps are a millisecond apart.
    assert longest < WINDOW_DAYS * 86_400_000 / 10


def test_seqmark_takes_part_in_each_round_and_peers_as_the_case_says() -> None:
    exact: tuple[Guarantee, ...] = ("exactly_once",)
    guarantees = dict.fromkeys((SEQMARK, BLOOM, "kafka_streams", "quix", "faust"), exact)
    header, ten = choose(f"{ID_HEADER_CASE},ids-10m", among=ID_CASES)

    counted = [
        [sum(turn.system == name for turn in turns(case, guarantees, 3)) for name in guarantees]
        for case in (header, ten)
    ]

    assert counted == [[3, 3, 3, 1, 0], [2, 2, 1, 0, 0]]


def test_what_is_measured_is_the_last_million_and_half_of_a_smaller_load() -> None:
    (ten,) = choose("ids-10m", among=ID_CASES)
    looks = [Sample(float(at), 2.0 * at, 0.0, at * 100) for at in range(11)]

    found = figures(looks, 0, 1, 0.2, 0.2, measured=300)

    # From the first look at 700 or more to the last but one.
    assert (found.half_records, found.half_cpu_s) == (200, 4.0)
    assert scaled(ten, 1_000_000).load.measured == 500_000
    assert scaled(ten, 5_000_000).load.measured == 1_000_000


@pytest.mark.parametrize(
    ("environ", "kind"),
    [({}, "ids"), ({"QUICK": "1"}, "ids-quick"), ({"PEERS": "none"}, "ids-partial")],
)
def test_runs_with_ids_are_kept_apart(environ: dict[str, str], kind: str) -> None:
    options = Options.read(environ, ids=True)

    assert options.kind == kind
    assert not options.spark_records
    assert not options.latency
    assert all(case.load.ids for case in options.cases)


def test_a_quick_run_has_no_large_window() -> None:
    assert {case.name for case in Options.read({"QUICK": "1"}, ids=True).cases}.isdisjoint(SIZES[1:])


def test_a_case_that_does_not_fit_is_left_out_and_says_why() -> None:
    (case,) = choose("ids-100m", among=ID_CASES)

    assert "memory" in lacking(case, 4 << 30, 100 << 30)
    assert "disk" in lacking(case, 16 << 30, 4 << 30)
    assert not lacking(case, 16 << 30, 100 << 30)


def test_state_is_counted_where_it_is(tmp_path: Path) -> None:
    folder, data = tmp_path / "job", tmp_path / "broker"
    job = Job("h:1", "a", "g-1-sink", "g-1", 4, "exactly_once", folder, ids="text")
    for name, size in (
        ("job/log", 1_000),
        ("job/state/a", 10),
        ("job/checkpoints/chk-1/b", 20),
        ("job/lib/rocksdb.so", 3_000),
        ("job/local/blockmgr-1/0f/shuffle_0", 5_000),
        ("broker/logs/g-1-changelog-0/0.log", 40),
        ("broker/logs/g-1-changelog-0/0.index", 4_000),
        ("broker/logs/g-1-sink-0/0.log", 8_000),
        ("broker/logs/g-2-changelog-0/0.log", 9_000),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(size))

    assert state_bytes(job, data) == (10, 60)
    assert state_bytes(job, None) == (10, 20)


@pytest.mark.parametrize("place", PLACES)
def test_seqmark_is_told_where_the_id_is(place: IdPlace, tmp_path: Path) -> None:
    job = Job("h:1", "a", "b", "g", 4, "exactly_once", tmp_path, ids=place, expected=1_000)

    find_peer(SEQMARK).command(job)

    config = (tmp_path / "seqmark.toml").read_text()
    assert 'mode = "insert-id"' in config
    assert ("/event_id" in config) == (place == "json")
    assert 'backend = "exact"' in config
    assert ("fingerprint = " in config) == (place == "fingerprint")
    assert ('from = "content"' in config) == (place in {"content", "bytes"})
    find_peer(BLOOM).command(job)
    config = (tmp_path / "seqmark.toml").read_text()
    assert "expected_per_bucket = 1000 }" in config


def test_who_keeps_no_ids_is_not_asked_to(tmp_path: Path) -> None:
    job = Job("h:1", "a", "b", "g", 4, "at_least_once", tmp_path, ids="text")
    plain = Job("h:1", "a", "b", "g", 4, "at_least_once", tmp_path)

    assert not any(find_peer(name).supports(job) for name in ("confluent", "faust"))
    assert not find_peer(BLOOM).supports(plain)


def test_redis_is_filled_where_there_are_peers() -> None:
    assert Options.read({"RECORDS": "5000"}, ids=True).redis_ids == 5_000
    assert Options.read({"PEERS": "none"}, ids=True).redis_ids == 0
    assert Options.read({}).redis_ids == 0


def test_a_redis_command_says_the_length_of_each_word() -> None:
    assert command(b"SET", b"a\r\n", b"") == b"*3\r\n$3\r\nSET\r\n$3\r\na\r\n\r\n$0\r\n\r\n"


def test_ids_go_into_redis_once_each_and_buckets_stay_listpacks() -> None:
    ids = [number.to_bytes(8) * 2 for number in np.random.default_rng(1).integers(0, 2**62, 20_000).tolist()]

    buckets = Counter(each.split(b"\r\n")[4] for each in hashed(ids))

    assert sum(buckets.values()) == len(ids) == len(set(plain(ids)))
    assert max(buckets.values()) < MOST_BUCKET_IDS
    assert len(buckets) == len(ids) // 100


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="needs Redis")
def test_a_refused_command_is_told() -> None:
    with pytest.raises(FailedError, match="unknown command"):
        filled([command(b"NOSUCH")])


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="needs Redis")
def test_a_listpack_takes_a_fraction_of_plain_keys() -> None:
    plain_way, hashes = run_redis(20_000).values()

    # 24 B of payload and 2 to 4 of frame, against a key, an entry, an expiry: 146 B at a full table.
    assert 24 * 20_000 < hashes["bytes"] < 60 * 20_000
    assert plain_way["bytes"] > 80 * 20_000


def made(rate: float, ids: int, rss_mb: int) -> Figures:
    """Return figures with this warm rate and state."""
    return Figures(
        ids, 0, 1.0, 4.0, 3.0, 2.0, 500_000, 1.0, 500_000 / rate, rss_mb * 1_000_000, 0.2, 0.21,
        ids, ids * 24, ids * 22,
    )  # fmt: skip


def results() -> Results:
    return Results(
        "ids",
        systems={"kafka_streams": "Kafka Streams 4", SEQMARK: "Seqmark"},
        runs=[
            Run(ID_HEADER_CASE, SEQMARK, "exactly_once", 0, made(700_000, 4_000_000, 400)),
            Run(ID_HEADER_CASE, "kafka_streams", "exactly_once", 0, made(70_000, 4_000_000, 1_000)),
            Run(FINGERPRINTS, SEQMARK, "exactly_once", 0, made(450_000, 11_000_000, 500)),
            Run(FINGERPRINTS, "kafka_streams", "exactly_once", 0, made(90_000, 11_000_000, 1_500)),
            Run("ids-bytes", SEQMARK, "exactly_once", 0, made(560_000, 4_000_000, 400)),
            Run("ids-1m", SEQMARK, "exactly_once", 0, made(600_000, 2_000_000, 300)),
            Run("ids-10m", SEQMARK, "exactly_once", 0, made(400_000, 11_000_000, 480)),
            Run("ids-100m", SEQMARK, "exactly_once", 0, made(300_000, 101_000_000, 2_280)),
            Run("ids-1m", "flink", "exactly_once", 0, failure="it ended by itself with 1"),
        ],
        redis={"Redis 7, hashes": {"ids": 1_000_000, "bytes": 32_000_000}},
    )


def test_the_page_has_all_blocks_of_ids() -> None:
    text = (publish.ROOT / "docs/benchmarks.md").read_text()

    assert all(f"<!-- bench:{name} -->" in text for name in ("ids-rates", "ids-bytes", "ids-promises"))
    assert "<!-- bench:ids-short -->" in (publish.ROOT / "README.md").read_text()
