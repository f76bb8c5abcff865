"""The certificate says what is true, of topics that are right and of topics with one thing changed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.kafka.topics import (
    Record,
    add_partitions,
    create_topic,
    delete_records,
    int64,
    produce_transaction,
)
from tests.support.verify.certificate import certificate, corrupted, run_verify
from tests.support.verify.corruptions import BAD, PLANTED, STREAM, numbered
from tests.support.worker.process import (
    New,
    WorkerConfig,
    new,
    new_config,
    produce,
    run_drain,
    start_worker,
    until,
)
from tests.support.worker.reset import run_reset
from tests.support.worker.several import pipelines_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

EPOCH = {"from": "header", "name": "epoch", "format": "int64"}


def config_of(broker: Broker, folder: Path, partitions: int = 1, **dedup: Any) -> WorkerConfig:
    """Return a config with all outputs."""
    config = new_config(broker.bootstrap_servers, folder, partitions).with_quarantine().with_duplicates()
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(replace(pipeline, dedup=dedup),))


def drained(config: WorkerConfig) -> WorkerConfig:
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    return config


ON_A_BROKER = ("two neighbours change places", "a receipt's watermark", "a code")
"""The others of `PLANTED` are found without a broker, in tests/unit/verify/test_partition.py."""


@pytest.fixture(scope="module")
def clean(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> WorkerConfig:
    """Return the config of a pipeline that has cleaned `STREAM`; its topics stay as they are."""
    return cleaned(broker, tmp_path_factory.mktemp("clean"))


def cleaned(broker: Broker, folder: Path) -> WorkerConfig:
    config = config_of(broker, folder)
    produce(config.bootstrap_servers, config.source, *STREAM)
    return drained(config)


def test_what_a_worker_made_is_proved_and_counted(clean: WorkerConfig) -> None:
    told = certificate(clean)

    assert (told.code, told.last["ok"]) == (0, True), told.details
    (line,) = told.partitions
    counts = {"source": 15, "sink": 10, "duplicates": 3, "quarantine": 2}
    place = {"pipeline": "p", "partition": 0, "violations": [], "pending": 0, "from": 0}
    assert line.items() >= (place | counts).items()
    assert told.last.items() >= counts.items()


def test_what_was_covered_is_noted_and_a_proof_needs_no_note(clean: WorkerConfig) -> None:
    certificates = clean.state_dir / clean.application_id / "certificates"
    told = certificate(clean)
    note = json.loads((certificates / "p.json").read_bytes())

    assert (note["proved"], [each["stop"] for each in note["partitions"]]) == (True, [told.partitions[0]["to"]])
    assert len(note["topic_ids"][clean.source]) == 32
    assert "noted" not in told.stderr

    # A file where the folder should be: not even root can write there.
    (certificates / "p.json").unlink()
    certificates.rmdir()
    certificates.touch()
    told = certificate(clean)
    certificates.unlink()
    assert (told.code, told.last["ok"]) == (0, True)
    assert "explain` will not know of this certificate" in told.stderr


DEFINITIONS: dict[str, dict[str, Any]] = {
    "key": {"scope": "key"},
    "header": {"scope": "header:producer"},
    "epoch": {"epoch": EPOCH},
    "window": {"reorder_window": 5},
    "all": {"scope": "key", "epoch": EPOCH, "reorder_window": 100},
}


def test_every_definition_is_proved(broker: Broker, tmp_path: Path) -> None:
    config = pipelines_of(config_of(broker, tmp_path), DEFINITIONS, 2)
    some = [numbered(n * 7 % 40, key=b"%d" % (n % 3), epoch=n // 50) for n in range(100)]
    for each in config.pipelines:
        produce(config.bootstrap_servers, each.source, some, [BAD], some[:30])
        produce(config.bootstrap_servers, each.source, some[40:], some, partition=1)

    told = certificate(drained(config))

    assert (told.code, told.last["ok"]) == (0, True), told.details
    assert [(line["pipeline"], line["source"]) for line in told.partitions] == [
        (name, records) for name in DEFINITIONS for records in (131, 160)
    ]
    assert all(line["duplicates"] for line in told.partitions)


def test_sequences_in_values_are_proved(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path)
    (pipeline,) = config.pipelines
    config = replace(config, pipelines=(replace(pipeline, sequence={"from": "value", "pointer": "/n"}),))
    values = [b'{"n": 1}', b'{"n": 1}', b'{"n": 5}', b'{"n": 2}', b"{", None, b'{"n": "6"}', b'{"n": 7}']
    produce(config.bootstrap_servers, config.source, [New(None, value, (), 5) for value in values])

    told = certificate(drained(config))

    assert (told.code, told.last["ok"]) == (0, True), told.details
    assert [told.last[name] for name in ("source", "sink", "duplicates", "quarantine")] == [8, 3, 2, 3]


def test_without_duplicates_topic_and_quarantine_the_verdicts_alone_are_proved(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    produce(config.bootstrap_servers, config.source, [numbered(n) for n in (1, 2, 2, 3, 1)])

    told = certificate(drained(config))
    assert (told.code, told.last["sink"], told.last["duplicates"]) == (0, 3, 2), told.details

    broken = corrupted(config, "sink", lambda sink: [*sink[:2], sink[1], *sink[2:]])
    assert certificate(broken).violations == [(0, 2, "duplicate_passed")]


def test_aborted_transactions_of_the_source_count_for_nothing(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path)
    for start, commit in ((0, True), (100, False), (10, True), (200, False)):
        some = [numbered(n) for n in range(start, start + 10)]
        produce_transaction(config.bootstrap_servers, config.source, [*some, some[3]], commit=commit)

    told = certificate(drained(config))

    assert (told.code, told.last["source"], told.last["sink"]) == (0, 22, 20), told.details
    assert told.last["pending"] == 0


def test_a_pipeline_that_has_never_run_is_judged_from_the_topics_alone(clean: WorkerConfig) -> None:
    copied = corrupted(clean, "sink", lambda sink: sink)  # nobody's, as far as a changelog says
    assert certificate(replace(copied, application_id=f"{clean.application_id}-other")).code == 0
    broken = corrupted(clean, "sink", lambda sink: sink[:-1])
    told = certificate(replace(broken, application_id=f"{clean.application_id}-other"))
    assert (told.code, told.violations) == (3, [(0, 14, "lost")])


def test_after_a_reset_it_begins_there_and_knows_what_the_state_remembers(
    broker: Broker, tmp_path: Path
) -> None:
    config = config_of(broker, tmp_path)
    create_topic(config.bootstrap_servers, config.sink, 1, {"max.message.bytes": "10000"})
    large = numbered(100, bytes(range(256)) * 80)
    produce(config.bootstrap_servers, config.source, [numbered(0), large, BAD, numbered(1)], *STREAM)
    drained(config)
    assert certificate(config).code == 0
    reset = run_reset(config, "--to-offset", "0:10")
    assert reset.code == 0, reset.stderr

    told = certificate(drained(config))

    assert (told.code, told.last["ok"]) == (0, True), told.details
    (line,) = told.partitions
    # Of 1 4 5 5 bad 6 7 8 9 behind the reset 1, for what is remembered, and the second 5 are dropped.
    assert [line[name] for name in ("from", "source", "sink", "duplicates", "quarantine")] == [10, 9, 6, 2, 1]


def test_what_is_not_committed_yet_is_pending(broker: Broker, tmp_path: Path) -> None:
    clean = cleaned(broker, tmp_path)
    produce(clean.bootstrap_servers, clean.source, [numbered(20), numbered(20)])
    told = certificate(clean)
    assert (told.code, told.last["pending"], told.last["source"]) == (0, 2, 15), told.details


def test_a_worker_that_runs_meanwhile_breaks_nothing(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path, 2).but(commit_interval_ms=10)
    sent = 0
    with start_worker(config) as worker:
        worker.wait_ready()
        for _ in range(4):
            for partition in range(2):
                some = [numbered(n) for n in range(sent, sent + 500)]
                produce(config.bootstrap_servers, config.source, some, some[100:200], partition=partition)
            sent += 500
            told = certificate(config)
            assert (told.code, told.last["ok"]) == (0, True), told.details
        until(lambda: certificate(config).last["source"] == sent * 2 * 6 // 5, "all is proved")


@pytest.mark.parametrize("name", ON_A_BROKER)
def test_a_planted_corruption_is_found_where_it_is(clean: WorkerConfig, name: str) -> None:
    which, change, expected, text = PLANTED[name]
    told = certificate(corrupted(clean, which, change))
    assert [(offset, rule) for _, offset, rule in told.violations] == expected, told.details
    assert text in told.details
    assert (told.code, told.last["ok"]) == (3, False)


def test_a_source_record_that_nobody_has_taken_in_is_lost(clean: WorkerConfig) -> None:
    """The copy of the source is another topic: neither receipts nor group know it."""
    config = corrupted(clean, "source", lambda r: [*r, r[14]._replace(headers=(("seq", int64(77)),))])
    (pipeline,) = config.pipelines
    told = certificate(replace(config, pipelines=(replace(pipeline, duplicates=None, quarantine=None),)))
    assert [each[1:] for each in told.violations if each[2] != "not_quarantined"] == [(15, "lost")]


def test_a_copy_with_other_spaces_and_keys_in_another_order_is_right(clean: WorkerConfig) -> None:
    def change(records: list[Record]) -> list[Record]:
        return [
            each._replace(
                value=json.dumps(dict(reversed(json.loads(each.value or b"").items())), indent=2).encode()
            )
            for each in records
        ]

    told = certificate(corrupted(clean, "duplicates", change))
    assert (told.code, told.last["duplicates"]) == (0, 3), told.details


def test_people_see_a_table_and_where_it_is_broken(clean: WorkerConfig) -> None:
    right = run_verify(clean)
    assert right.returncode == 0
    assert (
        "certificate: ok, 15 records of 1 partition\n"
        "of 3 dropped records looked at, 0 have a content that never passed\n"
    ) in right.stdout
    broken = run_verify(corrupted(clean, "sink", PLANTED["a record is lost"][1]))
    assert broken.returncode == 3
    assert "p 0:7 lost: passes, and is not in the sink" in broken.stdout
    assert "certificate: broken, 1 violation in 15 records" in broken.stdout


def test_what_cannot_be_compared_is_said_and_ends_with_1(broker: Broker, tmp_path: Path) -> None:
    clean = cleaned(broker, tmp_path)
    (pipeline,) = clean.pipelines
    missing = replace(clean, pipelines=(replace(pipeline, sink="not-there", duplicates="nor-there"),))
    ended = run_verify(missing)
    assert ended.returncode == 1
    assert "not-there: there is no such topic" in ended.stderr
    assert "nor-there: there is no such topic" in ended.stderr

    add_partitions(clean.bootstrap_servers, clean.sink, 2)
    ended = run_verify(clean)
    assert (ended.returncode, "certificate: ok" in ended.stdout) == (0, True)
    produce(clean.bootstrap_servers, clean.sink, [new(1)], partition=1)
    ended = run_verify(clean)
    assert ended.returncode == 1
    assert f"{clean.sink}:1: holds records, and the source has no such partition" in ended.stderr
    delete_records(clean.bootstrap_servers, clean.sink, 1, partition=1)

    ended = run_verify(clean, "--pipeline", "other")
    assert ended.returncode == 2
    assert "there is no pipeline other; in this config: p" in ended.stderr

    delete_records(clean.bootstrap_servers, clean.source, 3)
    ended = run_verify(clean)
    assert ended.returncode == 1
    assert f"{clean.source}:0 begins at offset 3" in ended.stderr


def test_pipelines_may_share_their_receipts_and_their_quarantine(broker: Broker, tmp_path: Path) -> None:
    one = config_of(broker, tmp_path, 2)
    (first,) = one.pipelines
    create_topic(one.bootstrap_servers, f"{first.source}.two", 2)
    second = replace(first, name="two", source=f"{first.source}.two", sink=f"{first.sink}.two")
    config = replace(one, pipelines=(first, second))
    for pipeline in config.pipelines:
        for partition in range(2):
            produce(config.bootstrap_servers, pipeline.source, *STREAM, partition=partition)

    told = certificate(drained(config))

    assert (told.code, told.last["ok"]) == (0, True), told.details
    counts = [
        (line["source"], line["sink"], line["duplicates"], line["quarantine"]) for line in told.partitions
    ]
    assert counts == [(15, 10, 3, 2)] * 4
    assert certificate(config, "--pipeline", "two").code == 0

    # One that shares them and that no worker has come to has nothing there that must be explained.
    late = replace(first, name="late", source=f"{first.source}.late", sink=f"{first.sink}.late")
    for topic in (late.source, late.sink):
        create_topic(one.bootstrap_servers, topic, 2)
    create_topic(
        one.bootstrap_servers, f"{one.application_id}-late-changelog", 2, {"cleanup.policy": "compact"}
    )
    produce(config.bootstrap_servers, late.source, *STREAM)
    told = certificate(replace(config, pipelines=(first, second, late)), "--pipeline", "late")
    assert (told.code, told.last["source"], told.last["pending"]) == (0, 0, 15), told.details

    # What is another's is left out only where that other shares the topic: here nobody is left to look at it.
    told = certificate(one)
    assert told.code == 3
    assert {"receipt_forged", "quarantine_forged"} <= {rule for _, _, rule in told.violations}


def test_a_partition_that_no_worker_has_come_to_is_pending(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path)
    produce(config.bootstrap_servers, config.source, *STREAM)
    create_topic(config.bootstrap_servers, config.sink, 1)
    for topic in (config.duplicates, config.quarantine, config.changelog):
        policy = {"cleanup.policy": "compact"} if topic == config.changelog else {}
        create_topic(config.bootstrap_servers, topic, 1, policy)

    told = certificate(config)

    assert (told.code, told.last["source"], told.last["pending"]) == (0, 0, 15), told.details
    # A record in the sink has to be explained, as long as nothing says that it is not of the pipeline.
    produce(config.bootstrap_servers, config.sink, [numbered(1)])
    assert certificate(config).code == 3
    # What the sink held before is not of the pipeline.
    told = certificate(drained(config))
    assert (told.code, told.last["source"], told.last["sink"]) == (0, 15, 10), told.details


def test_records_of_every_kind_of_time_and_key_are_proved(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path, 2)
    (pipeline,) = config.pipelines
    appended = f"{pipeline.source}.appended"
    create_topic(config.bootstrap_servers, appended, 2, {"message.timestamp.type": "LogAppendTime"})
    outputs: dict[str, Any] = {which: f"{appended}.{which}" for which in ("sink", "duplicates", "quarantine")}
    config = replace(config, pipelines=(pipeline, replace(pipeline, name="q", source=appended, **outputs)))
    keys = (None, b"", b"k" * 600_000, bytes(range(256)) * 3_900)
    some = [numbered(at, key=b"")._replace(key=key) for at, key in enumerate(keys)]
    for source in (pipeline.source, appended):
        for codec in ("none", "lz4"):
            produce(config.bootstrap_servers, source, *([each] for each in some), some[:2], codec=codec)
        untimed = [each._replace(timestamp=-1) for each in (*some[:2], numbered(9), numbered(9))]
        mixed = [untimed[0], some[1], untimed[3], some[0]]
        produce(config.bootstrap_servers, source, untimed, mixed, mixed[::-1], partition=1)

    told = certificate(drained(config))

    assert (told.code, told.last["ok"]) == (0, True), told.details
    assert told.last["duplicates"] == 2 * (8 + 9), told.partitions
