"""Does the certificate say what is true: of topics that are right, and of topics with one thing changed?"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.certificate import certificate, corrupted, run_verify
from tests.support.topics import (
    CODECS,
    Record,
    create_topic,
    delete_records,
    int64,
    produce_transaction,
    read_topic,
)
from tests.support.worker import New, WorkerConfig, new, new_config, produce, run_drain, start_worker, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.broker import Broker

pytestmark = pytest.mark.broker

EPOCH = {"from": "header", "name": "epoch", "format": "int64"}
BAD = New(b"key", b"bad", (("seq", b"short"),), 1_700_000_000_000)


def record(number: int, value: bytes = b"value", key: bytes = b"key", epoch: int = 0) -> New:
    """Return a record that every rule here can judge; each has content of its own."""
    return new(
        number,
        key,
        value + b" %d" % number,
        headers=[("epoch", int64(epoch)), ("producer", key), ("none", None)],
        timestamp=1_700_000_000_000 + number,
    )


def config_of(broker: Broker, folder: Path, partitions: int = 1, **dedup: Any) -> WorkerConfig:
    """Return a config with all outputs."""
    config = new_config(broker.bootstrap_servers, folder, partitions).with_quarantine().with_duplicates()
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(replace(pipeline, dedup=dedup),))


def drained(config: WorkerConfig) -> WorkerConfig:
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    return config


STREAM = [
    [record(0), record(1), record(2), record(2), BAD],
    [record(3), record(1), record(4), record(5), record(5), BAD._replace(value=b"bad too")],
    [record(6), record(7), record(8), record(9)],
]
"""Offsets 3 and 9 are duplicates, 6 is late, 4 and 10 cannot be judged; the sink has 10 records."""


@pytest.fixture
def clean(broker: Broker, tmp_path: Path) -> WorkerConfig:
    """Return the config of a pipeline that has cleaned `STREAM`."""
    config = config_of(broker, tmp_path)
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


@pytest.mark.parametrize(
    "dedup",
    [
        {"scope": "key"},
        {"scope": "header:producer"},
        {"epoch": EPOCH},
        {"reorder_window": 5},
        {"scope": "key", "epoch": EPOCH, "reorder_window": 100},
    ],
    ids=str,
)
def test_every_definition_is_proved(broker: Broker, tmp_path: Path, dedup: dict[str, Any]) -> None:
    config = config_of(broker, tmp_path, 2, **dedup)
    some = [record(n * 7 % 40, key=b"%d" % (n % 3), epoch=n // 50) for n in range(100)]
    produce(config.bootstrap_servers, config.source, some, [BAD], some[:30])
    produce(config.bootstrap_servers, config.source, some[40:], some, partition=1)

    told = certificate(drained(config))

    assert (told.code, told.last["ok"]) == (0, True), told.details
    assert [line["source"] for line in told.partitions] == [131, 160]
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


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_proved(broker: Broker, tmp_path: Path, codec: str) -> None:
    config = config_of(broker, tmp_path)
    produce(config.bootstrap_servers, config.source, *STREAM, codec=codec)
    told = certificate(drained(config))
    assert (told.code, told.last["sink"], told.last["duplicates"]) == (0, 10, 3), told.details


def test_without_duplicates_topic_and_quarantine_the_verdicts_alone_are_proved(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    produce(config.bootstrap_servers, config.source, [record(n) for n in (1, 2, 2, 3, 1)])

    told = certificate(drained(config))
    assert (told.code, told.last["sink"], told.last["duplicates"]) == (0, 3, 2), told.details

    broken = corrupted(config, "sink", lambda sink: [*sink[:2], sink[1], *sink[2:]])
    assert certificate(broken).violations == [(0, 2, "duplicate_passed")]


def test_aborted_transactions_of_the_source_count_for_nothing(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path)
    for start, commit in ((0, True), (100, False), (10, True), (200, False)):
        some = [record(n) for n in range(start, start + 10)]
        produce_transaction(config.bootstrap_servers, config.source, [*some, some[3]], commit=commit)

    told = certificate(drained(config))

    assert (told.code, told.last["source"], told.last["sink"]) == (0, 22, 20), told.details
    assert told.last["pending"] == 0


def test_a_pipeline_that_has_never_run_is_judged_from_the_topics_alone(clean: WorkerConfig) -> None:
    assert certificate(replace(clean, application_id=f"{clean.application_id}-other")).code == 0
    broken = corrupted(clean, "sink", lambda sink: sink[:-1])
    told = certificate(replace(broken, application_id=f"{clean.application_id}-other"))
    assert (told.code, told.violations) == (3, [(0, 14, "lost")])


def test_what_is_not_committed_yet_is_pending(clean: WorkerConfig) -> None:
    produce(clean.bootstrap_servers, clean.source, [record(20), record(20)])
    told = certificate(clean)
    assert (told.code, told.last["pending"], told.last["source"]) == (0, 2, 15), told.details


def test_a_worker_that_runs_meanwhile_breaks_nothing(broker: Broker, tmp_path: Path) -> None:
    config = config_of(broker, tmp_path, 2).but(commit_interval_ms=10)
    sent = 0
    with start_worker(config) as worker:
        worker.wait_ready()
        for _ in range(6):
            for partition in range(2):
                some = [record(n) for n in range(sent, sent + 500)]
                produce(config.bootstrap_servers, config.source, some, some[100:200], partition=partition)
            sent += 500
            told = certificate(config)
            assert (told.code, told.last["ok"]) == (0, True), told.details
        until(lambda: certificate(config).last["source"] == sent * 2 * 6 // 5, "all is proved")


# ------------------------------------------------------------------ planted corruptions


def without(*places: int) -> Callable[[list[Record]], list[Record]]:
    return lambda records: [each for place, each in enumerate(records) if place not in places]


def at(place: int, **changed: Any) -> Callable[[list[Record]], list[Record]]:
    return lambda records: [
        each._replace(**changed) if number == place else each for number, each in enumerate(records)
    ]


def moved(place: int, to: int) -> Callable[[list[Record]], list[Record]]:
    def change(records: list[Record]) -> list[Record]:
        left = [*records[:place], *records[place + 1 :]]
        return [*left[:to], records[place], *left[to:]]

    return change


def inserted(place: int, made: Callable[[list[Record]], Record]) -> Callable[[list[Record]], list[Record]]:
    return lambda records: [*records[:place], made(records), *records[place:]]


def said(place: int, **fields: Any) -> Callable[[list[Record]], list[Record]]:
    """Change fields of a receipt."""

    def change(records: list[Record]) -> list[Record]:
        value = json.loads(records[place].value or b"") | fields
        return at(place, value=json.dumps(value).encode())(records)

    return change


def headed(place: int, name: str, value: bytes) -> Callable[[list[Record]], list[Record]]:
    """Change a header of a record."""

    def change(records: list[Record]) -> list[Record]:
        headers = tuple((each, value if each == name else old) for each, old in records[place].headers)
        return at(place, headers=headers)(records)

    return change


NOTHING = New(b"key", b"of nowhere", (("seq", int64(50)),), 1_700_000_000_000)


def foreign(records: list[Record]) -> Record:
    return records[0]._replace(key=NOTHING.key, value=NOTHING.value, headers=NOTHING.headers)


PLANTED: dict[str, tuple[str, Any, list[tuple[int, str]], str]] = {
    # name: (topic, change, offsets and rules, what the detail says)
    "a record is lost": ("sink", without(4), [(7, "lost")], ":4"),
    "the first is lost": ("sink", without(0), [(0, "lost")], ""),
    "the last is lost": ("sink", without(9), [(14, "lost")], "the end of"),
    "three are lost": ("sink", without(3, 4, 5), [(5, "lost"), (7, "lost"), (8, "lost")], ""),
    "a duplicate passed": ("sink", inserted(3, lambda r: r[2]), [(3, "duplicate_passed")], "duplicate"),
    "a late one passed": ("sink", inserted(4, lambda r: r[1]), [(6, "duplicate_passed")], "late"),
    "a duplicate at the end": ("sink", inserted(10, lambda r: r[5]), [(9, "duplicate_passed")], ""),
    "the last stands twice": ("sink", inserted(10, lambda r: r[9]), [(14, "duplicate_passed")], "once more"),
    "two neighbours change places": ("sink", moved(4, 5), [(7, "reordered")], "later"),
    "one is too late": ("sink", moved(1, 8), [(1, "reordered")], "later"),
    "one is too early": ("sink", moved(9, 2), [(14, "reordered")], "earlier"),
    "a byte of a value": ("sink", at(4, value=b"Value 4"), [(7, "changed")], "value"),
    "a value became null": ("sink", at(9, value=None), [(14, "changed")], "value"),
    "a byte of a key": ("sink", at(4, key=b"kez"), [(7, "changed")], "key"),
    "an empty key for none": ("sink", at(0, key=b""), [(0, "changed")], "key"),
    "a header's value": ("sink", headed(4, "producer", b"kez"), [(7, "changed")], "headers"),
    "a header is null no more": ("sink", headed(4, "none", b""), [(7, "changed")], "headers"),
    "a timestamp": ("sink", at(4, timestamp=1_700_000_000_005), [(7, "changed")], "timestamp"),
    "a record of nowhere": ("sink", inserted(5, foreign), [(5, "extra")], "nothing"),
    "a receipt is missing": ("duplicates", without(1), [(6, "receipt_missing")], "late"),
    "all receipts are missing": (
        "duplicates",
        lambda records: [records[0]._replace(partition=0, value=b"none")],
        [(3, "receipt_wrong"), (6, "receipt_missing"), (9, "receipt_missing")],
        "not valid JSON",
    ),
    "a receipt for what passed": (
        "duplicates",
        lambda records: [*records[:1], said(0, offset=5, sequence=3)(records)[0], *records[1:]],
        [(5, "receipt_forged")],
        "pass",
    ),
    "a receipt for nothing": (
        "duplicates",
        lambda records: [*records, said(2, offset=99)(records)[2]],
        [(3, "receipt_forged")],
        "no such record",
    ),
    "a receipt stands twice": (
        "duplicates",
        inserted(2, lambda r: r[1]),
        [(6, "receipt_forged")],
        "already",
    ),
    "two receipts change places": ("duplicates", moved(0, 1), [(3, "reordered")], "later"),
    "a receipt's watermark": (
        "duplicates",
        said(1, watermark=4),
        [(6, "receipt_wrong")],
        "watermark is 4, must be 3",
    ),
    "a receipt's sequence": (
        "duplicates",
        said(0, sequence="2"),
        [(3, "receipt_wrong")],
        'sequence is "2", must be 2',
    ),
    "a receipt's verdict": ("duplicates", said(1, verdict="duplicate"), [(6, "receipt_wrong")], "verdict"),
    "a receipt's partition": ("duplicates", said(2, partition=1), [(9, "receipt_wrong")], "partition is 1"),
    "a receipt's offset": ("duplicates", said(1, offset=77), [(6, "receipt_wrong")], "offset is 77, must be 6"),
    "an owner is claimed": ("duplicates", said(2, owner={"offset": 1}), [(9, "receipt_wrong")], "owner"),
    "a receipt's key": ("duplicates", at(0, key=b"kez"), [(3, "receipt_wrong")], "key"),
    "a receipt's timestamp": ("duplicates", at(0, timestamp=5), [(3, "receipt_wrong")], "timestamp"),
    "a receipt that is no JSON": ("duplicates", at(0, value=b"{"), [(3, "receipt_wrong")], "not valid JSON"),
    "a quarantined one is missing": ("quarantine", without(0), [(4, "quarantine_missing")], "header_malformed"),
    "the last quarantined one is missing": (
        "quarantine",
        without(1),
        [(10, "quarantine_missing")],
        "the end of",
    ),
    "a quarantined value": ("quarantine", at(0, value=b"Bad"), [(4, "quarantine_wrong")], "value"),
    "a quarantined header": ("quarantine", headed(0, "seq", b"shorT"), [(4, "quarantine_wrong")], "headers"),
    "a code": (
        "quarantine",
        headed(1, "seqmark.error", b"header_missing"),
        [(10, "quarantine_wrong")],
        "must be header_malformed",
    ),
    "a quarantined record's source": (
        "quarantine",
        headed(1, "seqmark.source", b"elsewhere:0:10"),
        [(10, "quarantine_wrong")],
        "elsewhere",
    ),
    "a quarantined one stands twice": (
        "quarantine",
        inserted(1, lambda r: r[0]),
        [(4, "quarantine_forged")],
        "already",
    ),
    "a source record appeared": (
        "source",
        inserted(15, lambda r: r[14]._replace(value=b"new", headers=(("seq", int64(77)),))),
        [(15, "lost")],
        "",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_corruption_is_found_where_it_is(clean: WorkerConfig, name: str) -> None:
    which, change, expected, text = PLANTED[name]
    config = corrupted(clean, which, change)
    if which == "source":
        # The receipts name another topic, and the group knows nothing of this one.
        (pipeline,) = config.pipelines
        config = replace(config, pipelines=(replace(pipeline, duplicates=None, quarantine=None),))

    told = certificate(config)

    found = [(offset, rule) for _, offset, rule in told.violations]
    if which == "source":
        found = [each for each in found if each[1] != "not_quarantined"]
    assert found == expected, told.details
    assert text in told.details
    assert (told.code, told.last["ok"]) == (3, False)


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
    assert "certificate: ok, 15 records of 1 partition" in right.stdout
    broken = run_verify(corrupted(clean, "sink", without(4)))
    assert broken.returncode == 3
    assert "p 0:7 lost: passes, and is not in the sink" in broken.stdout
    assert "certificate: broken, 1 violation in 15 records" in broken.stdout


def test_what_cannot_be_compared_is_said_and_ends_with_1(clean: WorkerConfig) -> None:
    (pipeline,) = clean.pipelines
    missing = replace(clean, pipelines=(replace(pipeline, sink="not-there", duplicates="nor-there"),))
    ended = run_verify(missing)
    assert ended.returncode == 1
    assert "not-there: there is no such topic" in ended.stderr
    assert "nor-there: there is no such topic" in ended.stderr

    create_topic(clean.bootstrap_servers, f"{clean.sink}.two", 2)
    ended = run_verify(replace(clean, pipelines=(replace(pipeline, sink=f"{clean.sink}.two"),)))
    assert ended.returncode == 1
    assert "has 2 partitions, its source" in ended.stderr

    ended = run_verify(clean, "--pipeline", "other")
    assert ended.returncode == 2
    assert "there is no pipeline other; in this config: p" in ended.stderr

    delete_records(clean.bootstrap_servers, clean.source, 3)
    ended = run_verify(clean)
    assert ended.returncode == 1
    assert f"{clean.source}:0 begins at offset 3" in ended.stderr
    assert read_topic(clean.bootstrap_servers, clean.sink)
