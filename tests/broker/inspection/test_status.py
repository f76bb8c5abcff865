"""`seqmark status` tells how pipelines stand, with a worker and without, and disturbs nobody."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from processor.commands.cli import main
from tests.support.kafka.topics import (
    CALL_S,
    New,
    add_partitions,
    create_topic,
    environment,
    group_members,
    group_offsets,
    open_transaction,
    until,
)
from tests.support.suite.terminal import OnTerminal
from tests.support.worker import forks
from tests.support.worker.process import (
    PipelineConfig,
    Worker,
    WorkerConfig,
    new,
    new_config,
    produce,
    run_drain,
    start_worker,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker
NOW_MS = int(time.time() * 1000)
NOBODY = {"SEQMARK_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9"}


def seqmark(config: WorkerConfig, *words: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["status", "-c", str(config.write()), *words], env=env)


@dataclass(frozen=True)
class Told:
    """What `--json` says."""

    group: dict[str, Any]
    pipelines: dict[str, dict[str, Any]]


def told(config: WorkerConfig, env: dict[str, str] | None = None, code: int = 0) -> Told:
    result = seqmark(config, "--json", env=env)
    assert result.exit_code == code, result.output
    group, *pipelines = map(json.loads, result.stdout.splitlines())
    return Told(group, {each["pipeline"]: each for each in pipelines})


def partitions(pipeline: dict[str, Any], hop: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pipeline["hops"][hop]["partitions"]
    return found


@pytest.fixture(scope="module")
def config(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> WorkerConfig:
    """Give a drained application, one pipeline with quarantine and one with route; 3 records came later."""
    config = new_config(broker.bootstrap_servers, tmp_path_factory.mktemp("status"), 2).with_quarantine()
    dedup = {"mode": "insert-id", "id": [{"from": "key"}], "window": "1h", "route": "by-id"}
    routed = PipelineConfig("routed", f"{config.source}.2", f"{config.sink}.2", dedup=dedup)
    create_topic(config.bootstrap_servers, routed.source)
    config = replace(config, pipelines=(*config.pipelines, routed))
    bad = New(b"k", b"no sequence", (), NOW_MS)
    produce(config.bootstrap_servers, config.source, [new(1), new(2), bad], partition=1)
    produce(config.bootstrap_servers, routed.source, [new(1)])
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    produce(config.bootstrap_servers, config.source, [new(3), new(4), new(5)])
    return config


@pytest.fixture(scope="module")
def drained(config: WorkerConfig) -> Told:
    return told(config)


@pytest.fixture(scope="module")
def worker(config: WorkerConfig, drained: Told) -> Iterator[Worker]:
    """Run a worker; what is asked without one is asked before."""
    del drained
    with start_worker(config) as worker:
        worker.wait_ready()
        yield worker


def test_a_worker_that_waits_says_what_for(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 2)
    with start_worker(config, env={"SEQMARK_TEST_METADATA_MAX_AGE_MS": "500"}) as worker:
        worker.wait_ready()
        assert told(config).pipelines["p"]["states"] == []
        add_partitions(config.bootstrap_servers, config.source, 3)
        until(lambda: told(config).pipelines["p"]["states"], "it says that it waits")

        found = told(config).pipelines["p"]
        (state,) = found["states"]

    assert found["level"] != "ok"
    assert ": waiting: " in state
    assert f"partitions [2] of {config.source} wait" in state


def test_without_a_worker_it_says_what_waits(drained: Told) -> None:
    assert (drained.group["state"], drained.group["workers"]) == ("Empty", [])
    pipeline = drained.pipelines["p"]
    assert (pipeline["level"], pipeline["says"]) == (
        "problem",
        "p: no worker runs, lag 3 records; 1 record quarantined in the last hour",
    )
    first, second = partitions(pipeline)
    assert (first["position"], first["end"], first["lag"], first["worker"]) == (0, 3, 3, None)
    assert (second["position"], second["stable"], second["lag_to_end"]) == (3, 3, 0)


def test_the_time_of_the_last_commit_and_the_size_of_the_state_are_the_changelogs(drained: Told) -> None:
    pipeline = drained.pipelines["p"]

    assert partitions(pipeline)[1]["committed_ms"] >= NOW_MS
    assert pipeline["hops"][0]["changelog_bytes"] > 0


def test_a_quarantined_record_is_found_with_its_place_in_the_source(
    config: WorkerConfig, drained: Told
) -> None:
    (code,) = drained.pipelines["p"]["quarantine"]

    assert (code["code"], code["recent"]) == ("header_missing", 1)
    assert code["example"]["source"] == f"{config.source}:1:2"
    assert (code["example"]["topic"], code["example"]["partition"]) == (config.quarantine, 1)
    assert code["example"]["detail"] == "header seq is missing; 8 bytes (int64) are wanted"


def test_a_pipeline_with_route_shows_both_its_hops(drained: Told) -> None:
    hops = drained.pipelines["routed"]["hops"]

    assert [hop["hop"] for hop in hops] == ["routed.route", "routed"]
    assert [partition["lag"] for hop in hops for partition in hop["partitions"]] == [0, 0]


def test_a_worker_is_named_with_its_slots_and_what_it_does_per_second(
    config: WorkerConfig, worker: Worker
) -> None:
    env = {"SEQMARK_WORKER__WEB_PORT": str(worker.web_port)}

    found = until(lambda: _caught_up(told(config, env)), "all is taken in")

    (member,) = found.group["workers"]
    assert member["partitions"] == {"p": [0, 1], "routed.route": [0], "routed": [0]}
    assert member["slots"]["p"] == [0, 1]
    assert {each["worker"] for each in partitions(found.pipelines["p"])} == {member["worker"]}
    assert found.pipelines["routed"]["says"].startswith("routed: 2 of 2 partitions have an owner, no lag")
    assert found.pipelines["p"]["hops"][0]["records_per_s"] is not None


def _caught_up(found: Told) -> Told | None:
    return found if found.pipelines["p"]["hops"][0]["lag"] == 0 else None


def test_the_group_is_the_same_after_it_was_looked_at(
    broker: Broker, config: WorkerConfig, worker: Worker
) -> None:
    def group() -> tuple[object, object]:
        name, servers = config.application_id, broker.bootstrap_servers
        return group_members(servers, name), group_offsets(servers, name)

    until(lambda: _caught_up(told(config)), "all is taken in")
    before = group()
    told(config)

    assert group() == before
    assert "joining" not in worker.stderr


def test_a_transaction_that_holds_the_source_up_is_named_with_its_age(
    broker: Broker, config: WorkerConfig, worker: Worker
) -> None:
    assert worker.alive
    foreign = open_transaction(broker.bootstrap_servers, config.source, [new(6), new(7)], partition=1)
    try:
        found = told(config).pipelines["p"]
    finally:
        foreign.abort_transaction(CALL_S)

    ours = [each for each in found["open_transactions"] if each["topic"] == config.source]
    assert [(each["partition"], each["state"]) for each in ours] == [(1, "Ongoing")]
    assert ours[0]["transactional_id"].startswith("test-")
    assert ours[0]["age_s"] >= 0
    assert f"holds back 2 records of {config.source}:1" in found["says"]
    assert partitions(found)[1]["lag_to_end"] == partitions(found)[1]["lag"] + 2


def test_people_read_the_sentence_first_and_then_tables_without_codes(config: WorkerConfig) -> None:
    result = seqmark(config, "--pipeline", "p")

    assert result.exit_code == 0
    assert result.stdout.startswith("p: ")
    for word in ("last stable", config.changelog, "header_missing", f"{config.source}:1:2"):
        assert word in result.stdout
    assert "routed" not in result.stdout
    assert "\x1b" not in result.stdout


def test_at_a_terminal_it_is_drawn_again_until_it_is_interrupted(config: WorkerConfig) -> None:
    variables = environment({"PYTHONPATH": str(forks.ROOT), "TERM": "xterm-256color"})
    command = [sys.executable, "-m", "processor", "status", "-c", str(config.write()), "--watch", "0.2"]
    with OnTerminal(command, config.folder, variables) as terminal:
        looks = "quarantined in the last hour"
        until(lambda: terminal.raw.count(looks) > 2, "three looks")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 0
        assert terminal.screen.text.count(looks) == 1
        assert terminal.screen.cursor


def test_a_watch_into_a_file_prints_look_after_look(config: WorkerConfig, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ("status", "-c", str(config.write()), "--json", "--watch", "0.2")
    process = forks.start(*arguments, folder=tmp_path, stdout=out, stderr=tmp_path / "err")
    until(lambda: out.read_text().count('"kind": "group"') > 2, "three looks")
    process.send_signal(signal.SIGTERM)

    assert process.wait(30) == 0
    assert (tmp_path / "err").read_text() == ""


def test_where_no_broker_answers_it_says_so_and_shows_what_lies_here(config: WorkerConfig) -> None:
    result = seqmark(config, env=NOBODY)

    assert result.exit_code == 1
    assert "p: nothing is known, no broker answers" in result.stdout
    assert config.changelog in result.stdout
    assert "no broker at 127.0.0.1:9: is it running" in result.stderr
    assert told(config, NOBODY, 1).group["reachable"] is False
