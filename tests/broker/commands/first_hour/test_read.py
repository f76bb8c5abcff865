"""`seqmark read` shows what is in a topic, as a plain consumer sees it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import (
    create_topic,
    delete_records,
    delete_topic,
    environment,
    group_offsets,
    open_transaction,
    produce_transaction,
    until,
)
from tests.support.suite.terminal import OnTerminal
from tests.support.worker.forks import ROOT, start
from tests.support.worker.process import New, WorkerConfig, new, new_config, produce, read_topic, run_drain

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.support.kafka.broker import Broker, OwnBroker

pytestmark = pytest.mark.broker
START_MS = 1_767_592_800_000  # 2026-01-05T06:00:00Z
SENT = 30


@pytest.fixture(scope="module")
def config(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> WorkerConfig:
    """Give a pipeline that has run: two partitions, with duplicates, a late record and one without sequence."""
    folder = tmp_path_factory.mktemp("read")
    config = new_config(broker.bootstrap_servers, folder, partitions=2).with_quarantine().with_duplicates()
    for partition in range(2):
        records = [
            new(number, b"k%d" % (number % 3), b'{"n": %d}' % number, timestamp=START_MS + 1000 * number)
            for number in [*range(1, SENT + 1), SENT, 7]
        ]
        records.append(New(b"bad\x1b", b"\xff", (), START_MS))
        produce(broker.bootstrap_servers, config.source, records, partition=partition, codec="lz4")
    assert run_drain(config).code == 0
    return config


def read(config: WorkerConfig, topic: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["read", "-c", str(config.write()), topic, *arguments])


def objects(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def places(done: Result) -> list[tuple[int, int]]:
    return [(each["partition"], each["offset"]) for each in objects(done)]


def test_programs_get_every_record_that_a_plain_consumer_gets(config: WorkerConfig) -> None:
    for topic in (config.source, config.sink):
        shown = objects(read(config, topic, "--json"))

        seen = read_topic(config.bootstrap_servers, topic)
        assert [(each["partition"], each["offset"], each["timestamp"]) for each in shown] == [
            (record.partition, record.offset, record.timestamp) for record in seen
        ]
        sink = [record for record in seen if record.value != b"\xff"]
        assert [each["value"] for each in shown if isinstance(each["value"], str)] == [
            (record.value or b"").decode() for record in sink
        ]
        assert {(each["topic"], each["timestamp_type"]) for each in shown} == {(topic, "CreateTime")}
        assert shown[0]["headers"] == [["seq", "\0\0\0\0\0\0\0\1"]]
    assert set(group_offsets(config.bootstrap_servers, config.application_id)) == {
        (config.source, number) for number in range(2)
    }


def test_receipts_and_quarantined_records_are_sentences(config: WorkerConfig) -> None:
    dropped, bad = (read(config, topic).stdout for topic in (config.duplicates, config.quarantine))

    source = config.source
    assert (
        f"dropped: duplicate: sequence 30 is the sequence watermark, it came before ({source}:1:30)" in dropped
    )
    assert f"dropped: late: sequence 7 is not above the sequence watermark 30 ({source}:0:31)" in dropped
    assert re.search(rf"bad\\x1b  quarantined: header_missing: .+, came from {source}:0:32  \\xff\n", bad)
    assert "\x1b" not in bad


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--from", "1:28"], [(1, 28), (1, 29)]),
        (["--from", "2026-01-05T06:00:29Z", "--partition", "0"], [(0, 28), (0, 29)]),
        (["--from", "2026-01-05T07:00:30+01:00"], [(0, 29), (1, 29)]),
        (["--from", "2027-01-01", "--partition", "0"], []),
        (["--from", "latest"], []),
        (["--partition", "1", "--limit", "2"], [(1, 0), (1, 1)]),
        (["--key", "k0", "--limit", "11"], [(0, at) for at in range(2, 30, 3)] + [(1, 2)]),
        (["--key", "nobody"], []),
        (["--follow", "--limit", "3"], [(0, 0), (0, 1), (0, 2)]),
    ],
)
def test_what_is_asked_for_is_shown(
    config: WorkerConfig, arguments: list[str], wanted: list[tuple[int, int]]
) -> None:
    assert places(read(config, config.sink, "--json", *arguments)) == wanted


def test_what_is_not_shown_is_said(config: WorkerConfig) -> None:
    few, none = read(config, config.sink, "--limit", "3"), read(config, config.sink, "--key", "nobody")
    naive = read(config, config.sink, "--from", "2026-01-05T06:00:29", "--limit", "1")

    # Each partition has a marker of the worker's transaction behind its records.
    assert re.search(r"3 records shown, up to (5[7-9]|6\d) more; --limit N shows N", few.stderr)
    assert "no record with this key there" in none.stderr
    assert "has no zone and is taken as UTC" in naive.stderr
    assert naive.stdout.startswith("0:28 ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--partition", "2"], "must name one of the partitions 0 to 1"),
        (["--from", "5:0"], "must name one of the partitions 0 to 1"),
        (["--from", "1:0", "--partition", "0"], "--from names partition 1"),
        (["--from", "yesterday"], "is none of: earliest, latest, PARTITION:OFFSET"),
    ],
)
def test_a_wrong_command_line_is_refused(config: WorkerConfig, arguments: list[str], said: str) -> None:
    done = read(config, config.sink, *arguments)

    assert done.exit_code == 2
    assert said in re.sub(r"\s+", " ", done.stderr)


def test_a_topic_that_does_not_exist_yet_says_who_creates_it(broker: Broker, config: WorkerConfig) -> None:
    fresh = new_config(broker.bootstrap_servers, config.folder)

    done = read(fresh, fresh.sink)

    assert done.exit_code == 1
    assert "does not exist: `seqmark topics` creates" in done.stderr


def test_only_what_is_committed_and_retained_is_shown(broker: Broker, config: WorkerConfig) -> None:
    fresh = new_config(broker.bootstrap_servers, config.folder)
    servers, topic = broker.bootstrap_servers, fresh.source
    produce_transaction(servers, topic, [new(1), new(2)])
    produce_transaction(servers, topic, [new(3)], commit=False)
    produce(servers, topic, [new(4)])
    delete_records(servers, topic, 1)
    hanging = open_transaction(servers, topic, [new(5), new(6)])

    done = read(fresh, topic, "--json", "--from", "0:0")

    assert places(done) == [(0, 1), (0, 5)]
    assert "begins at offset 1 now: offset 0 is not retained any more" in done.stderr
    assert "2 offsets behind an open transaction are not shown" in done.stderr
    hanging.abort_transaction(60)


def test_a_time_that_the_broker_set_is_told_from_one_of_the_producer(
    broker: Broker, config: WorkerConfig
) -> None:
    appended = {"message.timestamp.type": "LogAppendTime"}
    fresh = new_config(broker.bootstrap_servers, config.folder, source_configs=appended)
    produce(broker.bootstrap_servers, fresh.source, [new(1)])

    (shown,) = objects(read(fresh, fresh.source, "--json"))

    assert shown["timestamp_type"] == "LogAppendTime"
    assert shown["timestamp"] == read_topic(broker.bootstrap_servers, fresh.source)[0].timestamp


def test_following_shows_what_comes_and_ends_with_0_on_sigterm(broker: Broker, config: WorkerConfig) -> None:
    fresh = new_config(broker.bootstrap_servers, config.folder, partitions=2)
    produce(broker.bootstrap_servers, fresh.source, [new(1)])
    out, err = fresh.folder / "followed", fresh.folder / "followed.err"
    command = ["read", "-c", str(fresh.write()), fresh.source, "--follow"]
    process = start(*command, folder=fresh.folder, stdout=out, stderr=err)

    until(lambda: "seq=1\n" in out.read_text(), "the first record")
    produce(broker.bootstrap_servers, fresh.source, [new(2)], partition=1)
    until(lambda: "seq=2\n" in out.read_text(), "the second record")
    process.terminate()

    assert process.wait(60) == 0
    assert err.read_text() == ""
    assert [line.split()[0] for line in out.read_text().splitlines()] == ["0:0", "1:0"]


def test_following_goes_on_where_a_topic_is_created_again_and_ends_where_it_is_not(
    broker: Broker, config: WorkerConfig
) -> None:
    fresh = new_config(broker.bootstrap_servers, config.folder)
    servers, topic = broker.bootstrap_servers, fresh.source
    produce(servers, topic, [new(1), new(2)])
    out, err = fresh.folder / "anew", fresh.folder / "anew.err"
    command = ["read", "-c", str(fresh.write()), topic, "--follow"]
    process = start(*command, folder=fresh.folder, stdout=out, stderr=err)

    until(lambda: "seq=2\n" in out.read_text(), "the first topic's records")
    for numbers in ([3], [4, 5, 6]):  # fewer records than before, and more
        delete_topic(servers, topic)
        create_topic(servers, topic)
        produce(servers, topic, [new(number) for number in numbers])
        until(lambda: out.read_text().endswith(f"seq={numbers[-1]}\n"), "the new topic's records")  # noqa: B023 - called here
    delete_topic(servers, topic)

    assert process.wait(60) == 1
    said = re.sub(r"\s+", " ", err.read_text())
    assert said.count(f"{topic} was deleted and created again: reading it from its beginning") == 2
    assert f"the topic {topic} does not exist any more" in said
    places = [line.split()[0] for line in out.read_text().splitlines()]
    assert places == ["0:0", "0:1", "0:0", "0:0", "0:1", "0:2"]


def test_following_waits_for_a_broker_that_is_away_and_says_so_once(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    broker = own_broker()
    fresh = new_config(broker.bootstrap_servers, tmp_path)
    produce(broker.bootstrap_servers, fresh.source, [new(1)])
    out, err = tmp_path / "out", tmp_path / "err"
    command = ["read", "-c", str(fresh.write()), fresh.source, "--follow"]
    process = start(*command, folder=tmp_path, stdout=out, stderr=err)
    until(lambda: "seq=1\n" in out.read_text(), "the first record")

    broker.kill()
    until(lambda: "no broker answers; waiting" in err.read_text(), "that no broker answers")
    broker.start()
    produce(broker.bootstrap_servers, fresh.source, [new(2)])
    until(lambda: "seq=2\n" in out.read_text(), "the second record")
    until(lambda: "the broker is back" in err.read_text(), "that the broker is back")
    process.terminate()

    assert process.wait(60) == 0
    assert re.fullmatch(r"no broker answers; waiting \([^)]+\(.*\)\)\nthe broker is back\n", err.read_text())


def test_a_key_may_be_any_bytes(broker: Broker, config: WorkerConfig) -> None:
    fresh = new_config(broker.bootstrap_servers, config.folder)
    produce(broker.bootstrap_servers, fresh.source, [New(key, b"", (), 1) for key in (b"\xff", b"\xff\xfe")])

    done = read(fresh, fresh.source, "--json", "--key", os.fsdecode(b"\xff\xfe"))

    assert places(done) == [(0, 1)]


def test_a_reader_that_has_enough_ends_it_quietly(broker: Broker, config: WorkerConfig) -> None:
    create_topic(broker.bootstrap_servers, topic := f"{config.source}.long")
    batch = [New(None, b"x" * 1000, (), START_MS)] * 500
    produce(broker.bootstrap_servers, topic, *[batch] * 4)
    words = [sys.executable, "-m", "processor", "read", "-c", str(config.write()), topic]
    env = environment({"PYTHONPATH": str(ROOT), "SEQMARK_PIPELINES__0__SOURCE": topic})

    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()

    assert (first[:4], process.returncode, said) == ("0:0 ", 0, "")


def test_a_person_gets_one_screen_of_short_lines(config: WorkerConfig) -> None:
    command = [sys.executable, "-m", "processor", "read", "-c", str(config.write()), config.sink]
    variables = environment({"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"})
    for name in ("COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        variables.pop(name, None)

    with OnTerminal(command, config.folder, variables, columns=48) as terminal:
        assert terminal.ended() == 0

    *lines, said = terminal.screen.text.strip().splitlines()
    assert lines[0] == '0:0  2026-01-05T06:00:01.000Z  k1  {"n":…  seq=1'
    assert "20 records shown, up to" in " ".join([*lines[20:], said])
    assert max(map(len, lines[:20])) <= 48
