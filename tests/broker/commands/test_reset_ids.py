"""A reset sets a pipeline of insert ids back, its ids with it, and lets only some changes through."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from schemas.changelog.ids import IDS_KEY
from tests.support.judges.id_rules import IdModel, IdRules
from tests.support.kafka.topics import New, Record, contents, delete_records
from tests.support.verify.certificate import certificate
from tests.support.worker import forks
from tests.support.worker.process import WorkerConfig, new_config, produce, read_topic, run_drain
from tests.support.worker.reset import run_reset
from tests.support.worker.several import alone, pipelines_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.kafka.broker import Broker
    from tests.support.worker.reset import Answer

pytestmark = pytest.mark.broker

NOW_MS = int(time.time() * 1000)
DAY_MS = 86_400_000
MINUTE_MS = 60_000
BLOOM = {"bucket": "10m", "expected_per_bucket": 70_000}


def judging(broker: Broker, folder: Path, rules: IdRules, partitions: int = 1) -> WorkerConfig:
    config = new_config(broker.bootstrap_servers, folder, partitions, slots=1)
    return by(config.with_duplicates().with_quarantine(), rules)


def by(config: WorkerConfig, rules: IdRules) -> WorkerConfig:
    """Return the same pipeline, judged by other rules."""
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(rules.applied(pipeline),))


def of(name: bytes, timestamp: int = NOW_MS) -> New:
    return New(b"key", b"value", (("id", name),), timestamp)


def some(start: int, stop: int, timestamp: int = NOW_MS) -> list[New]:
    return [of(b"id-%d" % number, timestamp) for number in range(start, stop)]


def drained(config: WorkerConfig, *more: New) -> None:
    if more:
        batches = [more[at : at + 5_000] for at in range(0, len(more), 5_000)]
        produce(config.bootstrap_servers, config.source, *batches)
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr


def done(answer: Answer) -> list[dict[str, Any]]:
    assert answer.code == 0, answer.stderr
    return answer.lines


def sink(config: WorkerConfig) -> list[Record]:
    return read_topic(config.bootstrap_servers, config.sink)


def minutes(count: int) -> list[New]:
    """Return records a minute apart with ids that come again, some late ones, some that cannot be judged."""
    made = []
    for number in range(count):
        name = b"%d" % (number * 7919 % (number // 4 + 5))
        late_ms = 3_600_000 if number % 11 == 0 else 0
        made.append(of(name, NOW_MS - DAY_MS + number * MINUTE_MS - late_ms))
        if number % 50 == 7:
            made.append(New(b"key", b"no id", (), NOW_MS - DAY_MS))
    return made


CASES = {
    "first": (IdRules(window="1h"), 1),
    "strict": (IdRules(window="1h"), 137),
    "renewed": (IdRules(window="20m", refresh=True), 300),
}
"""Rules, and where the pipeline is reset to."""


def judging_all(broker: Broker, folder: Path, rules: Mapping[str, IdRules]) -> WorkerConfig:
    """Return a config with a pipeline for each of these."""
    config = judging(broker, folder, IdRules())
    made = pipelines_of(config, {name: {} for name in rules})
    return replace(made, pipelines=tuple(rules[each.name].applied(each) for each in made.pipelines))


def test_after_a_reset_a_pipeline_is_as_one_that_has_come_just_so_far(broker: Broker, tmp_path: Path) -> None:
    config = judging_all(broker, tmp_path, {name: rules for name, (rules, _) in CASES.items()})
    stream = minutes(400)
    for name in CASES:
        for at in range(0, len(stream), 60):
            source = alone(config, name).source
            produce(config.bootstrap_servers, source, stream[at : at + 60], codec="lz4")
    drained(config)
    before = {name: len(sink(alone(config, name))) for name in CASES}

    for name, (_, to) in CASES.items():
        (line,) = done(run_reset(config, "--to-offset", f"0:{to}", pipeline=name))
        assert (line["state"], line["from"], line["to"], line["records"]) == ("recomputed", len(stream), to, to)
    shutil.rmtree(config.state_dir)
    drained(config)

    for name, (rules, to) in CASES.items():
        records = read_topic(config.bootstrap_servers, alone(config, name).source)
        said = zip(records, IdModel(rules).judge_all(records), strict=True)
        again = [record for record, each in said if each.verdict == "pass" and record.offset >= to]
        assert contents(sink(alone(config, name))[before[name] :]) == contents(again), name
    told = certificate(config)
    assert told.code == 0, told.details


BACKENDS = {"exact": None, "bloom": BLOOM}


def test_forward_ids_are_kept_whole_and_what_is_stepped_over_counts_as_seen(
    broker: Broker, tmp_path: Path
) -> None:
    config = judging_all(broker, tmp_path, {name: IdRules(bloom=bloom) for name, bloom in BACKENDS.items()})

    def come(start: int, stop: int) -> None:
        for each in config.pipelines:
            batches = (some(at, min(stop, at + 5_000)) for at in range(start, stop, 5_000))
            produce(config.bootstrap_servers, each.source, *batches)

    come(0, 60_000)
    drained(config)
    come(60_000, 60_100)
    for name in BACKENDS:
        (line,) = done(run_reset(config, "--to-offset", "0:60050", pipeline=name))
        assert (line["state"], line["records"]) == ("kept", 50)
    shutil.rmtree(config.state_dir)
    come(0, 60_100)
    drained(config)
    assert [len(sink(alone(config, name))) for name in BACKENDS] == [60_050] * 2


def test_renewed_ids_of_filters_are_not_kept_forward(broker: Broker, tmp_path: Path) -> None:
    # At minute 11 the id of minute 0, renewed at 9 in the same bucket, is inside the window of 10 minutes.
    config = judging(broker, tmp_path, IdRules(window="10m", refresh=True, bloom=BLOOM))
    begun = NOW_MS // DAY_MS * DAY_MS - DAY_MS
    drained(config, of(b"a", begun), of(b"a", begun + 9 * MINUTE_MS), of(b"b", begun + 9 * MINUTE_MS))
    produce(config.bootstrap_servers, config.source, [of(b"c", begun + 11 * MINUTE_MS)])
    refused = run_reset(config, "--to-offset", "0:4")
    assert refused.code == 1
    assert "Go to 3 or before" in refused.stderr.replace("\n", " ")
    (line,) = done(run_reset(config, "--to-offset", "0:3"))
    assert (line["state"], line["records"]) == ("kept", 0)
    drained(config, of(b"a", begun + 11 * MINUTE_MS))
    assert len(sink(config)) == 3


def test_whoever_forgets_passes_everything_once_more(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules())
    drained(config, *some(0, 100))
    (line,) = done(run_reset(config, "--to-offset", "0:40", "--forget"))
    assert line["state"] == "empty"
    drained(config, *some(0, 50))
    assert len(sink(config)) == 100 + 60 + 40
    assert certificate(config).code == 0
    (line,) = done(run_reset(config, "--to-earliest"))
    assert (line["state"], line["to"]) == ("empty", 0)
    drained(config)
    assert len(sink(config)) == 200 + 100


def test_a_corrupt_state_of_ids_is_reset_and_stops_nobody_behind_that(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules())
    drained(config, *some(0, 100))
    produce(config.bootstrap_servers, config.changelog, [New(IDS_KEY, b"\2 not whole", (), NOW_MS)])
    shutil.rmtree(config.state_dir)
    assert run_drain(config).code == 1
    (line,) = done(run_reset(config, "--to-offset", "0:40"))
    assert (line["state"], line["records"]) == ("recomputed", 40)
    drained(config, *some(0, 50))
    assert len(sink(config)) == 100 + 60
    assert certificate(config).code == 0


def test_where_a_whole_window_is_retained_ids_are_recomputed_from_there(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules(window="10m"))
    begun = NOW_MS - DAY_MS
    drained(config, *[of(b"%d" % number, begun + number * MINUTE_MS) for number in range(60)])
    delete_records(config.bootstrap_servers, config.source, 20)

    refused = run_reset(config, "--to-offset", "0:29")
    assert refused.code == 1
    assert "rests on the records from offset 0 on" in refused.stderr.replace("\n", " ")

    (line,) = done(run_reset(config, "--to-offset", "0:31"))
    assert (line["state"], line["records"]) == ("recomputed", 11)
    # At minute 31 what came from 22 on is inside the window.
    drained(config, *[of(b"%d" % number, begun + 59 * MINUTE_MS) for number in (49, 50, 51)])
    names = [dict(record.headers)["id"] for record in sink(config)][60:]
    assert names == [b"%d" % number for number in range(31, 60)] + [b"49"]
    told = certificate(config)
    assert (told.code, told.partitions[0]["from"]) == (0, 31), told.details


def test_a_changed_window_takes_over_where_the_ids_are_recomputed(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules(window="1h"))
    drained(config, *some(0, 10), *some(10, 20, NOW_MS + MINUTE_MS))
    changed = by(config, IdRules(window="1m"))
    refused = run_drain(changed)
    assert refused.code == 1
    assert "seqmark reset -c FILE --pipeline p --to-earliest" in refused.stderr.replace("\n", " ")
    assert "pipelines.0.dedup" in warnings(changed)
    assert "pipelines.0.dedup" not in warnings(config)

    (line,) = done(run_reset(changed, "--to-offset", "0:20"))
    assert line["state"] == "recomputed"
    drained(changed, *some(0, 20, NOW_MS))
    names = [dict(record.headers)["id"] for record in sink(config)][20:]
    assert names == [b"id-%d" % number for number in range(10)]
    assert certificate(changed).code == 0
    assert "pipelines.0.dedup" not in warnings(changed)


CHANGES: dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None]] = {
    "to filters": (None, BLOOM),
    "back": (BLOOM, None),
}


@pytest.mark.drawn("change")
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_backend_takes_over_where_the_ids_are_recomputed(
    broker: Broker, tmp_path: Path, change: str
) -> None:
    before, after = CHANGES[change]
    config = judging(broker, tmp_path, IdRules(bloom=before))
    drained(config, *some(0, 20), *some(0, 10))
    changed = by(config, IdRules(bloom=after))
    assert run_drain(changed).code == 1

    done(run_reset(changed, "--to-offset", "0:30"))

    drained(changed, *some(0, 30))
    names = [dict(record.headers)["id"] for record in sink(config)]
    assert names == [b"id-%d" % number for number in range(30)]
    shutil.rmtree(config.state_dir)
    drained(changed, *some(0, 40))
    assert len(sink(config)) == 40


def test_how_far_records_are_believed_may_change_over_the_state(broker: Broker, tmp_path: Path) -> None:
    config = judging(broker, tmp_path, IdRules(max_ahead="1s"))
    drained(config, *some(0, 10), of(b"ahead", NOW_MS + 10 * MINUTE_MS))
    other = by(config, IdRules(max_ahead="5m"))
    assert "pipelines.0.dedup" not in warnings(other)
    drained(other, *some(0, 11), of(b"ahead", NOW_MS + 20 * MINUTE_MS))
    assert len(sink(config)) == 12
    told = certificate(other)
    assert (told.code, told.last["unproved"]) == (0, 0), told.details


def warnings(config: WorkerConfig) -> list[str]:
    """Return the keys that ``seqmark check`` warns of; it has nothing against the topics."""
    ended = forks.inside("check", "-c", str(config.write()), "--json", folder=config.folder)
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    return [each["key"] for each in found if each["level"] == "warning"]
