"""Where many records fail a line says so: what is wanted, what is there, an example and what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.kafka.topics import New, create_topic, unique
from tests.support.worker.process import (
    PipelineConfig,
    WorkerConfig,
    new,
    new_config,
    produce,
    run_drain,
    start_worker,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.kafka.broker import Broker
    from tests.support.worker.process import Ended

pytestmark = pytest.mark.broker
VALUE = "hidden-4711"
ID = {"mode": "insert-id", "window": "1h", "id": [{"from": "value", "pointer": "/insert_id"}]}


def valued(value: Any, count: int = 3) -> list[New]:
    """Records that have a value and a header."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return [New(b"key", text, (("trace", VALUE.encode()), ("seq", VALUE.encode())), 1_700_000_000_000)] * count


CASES: dict[str, tuple[dict[str, Any], Sequence[New]]] = {
    "header": ({"sequence": {"from": "header", "name": "seqno", "format": "int64"}}, valued({})),
    "width": ({"sequence": {"from": "header", "name": "seq", "format": "int64"}}, valued({})),
    "pointer": (ID, valued({"event_id": VALUE, "at": 1})),
    "routed": ({**ID, "route": "by-id"}, valued({"event_id": VALUE})),
    "avro": (ID, valued(b"\0\0\0\0\1" + VALUE.encode())),
    "late": ({}, [new(5_000), *(new(number) for number in range(199))]),
    "ids": (ID, valued({"insert_id": "one"}, 200)),
    "well": ({}, [new(number) for number in range(200)]),
    "part": ({}, [*valued({}), new(1), new(2)]),
    "few": ({}, [new(9), new(1), new(2)]),
}


@pytest.fixture(scope="module")
def ended(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """One drain over a pipeline per case."""
    name, pipelines = unique("first"), []
    for case, (dedup, records) in CASES.items():
        source = f"{name}.{case}"
        create_topic(broker.bootstrap_servers, source, 1)
        produce(broker.bootstrap_servers, source, list(records))
        rest = {key: value for key, value in dedup.items() if key != "sequence"}
        sequence = dedup.get("sequence", PipelineConfig("", "", "").sequence)
        pipelines.append(
            PipelineConfig(case, source, f"{source}.clean", f"{source}.bad", sequence=sequence, dedup=rest)
        )
    config = WorkerConfig(
        tmp_path_factory.mktemp("first"), broker.bootstrap_servers, name, tuple(pipelines), {"slots": 1}
    )
    return run_drain(config)


LOST = "have a content that never passed"


def warned(ended: Ended, case: str) -> list[str]:
    return [line for line in ended.stderr.splitlines() if f"pipeline {case}: " in line and LOST not in line]


SAID = {
    "header": ".header:0:0: header seqno is missing; 8 bytes (int64) are wanted; its headers: trace, seq",
    "width": "header seq has 11 bytes; 8 bytes (int64) are wanted",
    "pointer": "/insert_id is missing; a string, number or boolean is wanted; members: event_id, at",
    "avro": "(value_not_json), such as ",
    "part": "3 of the first 5 records (60 %) are quarantined (header_malformed), such as ",
    "late": "99 % of the first 200 records are late or duplicates: their sequences are not above the "
    "sequence watermark",
    "ids": "99 % of the first 200 records are duplicates: their ids are known within the window",
}


@pytest.mark.parametrize(("case", "said"), SAID.items())
def test_a_pipeline_of_which_much_fails_is_warned_of_once_and_before_a_drain_ends(
    ended: Ended, case: str, said: str
) -> None:
    assert ended.code == 0
    (line,) = warned(ended, case)
    assert " WARNING " in line
    assert said in line


def test_the_warning_says_what_to_do(ended: Ended) -> None:
    (line,) = warned(ended, "header")
    assert "all of the first 3 records are quarantined (header_missing), such as " in line
    assert "Set dedup of the pipeline right" in line
    assert "seqmark reset -c FILE --pipeline header --to-earliest" in line
    (line,) = warned(ended, "routed")
    assert "have them judged again: give the pipeline another name" in line
    (line,) = warned(ended, "late")
    assert "with an epoch" in line
    assert "set scope" in line


@pytest.mark.parametrize("case", ["well", "few"])
def test_what_is_well_or_too_little_to_tell_is_not_warned_of(ended: Ended, case: str) -> None:
    assert warned(ended, case) == []


def test_new_records_that_are_dropped_are_warned_of_however_few(ended: Ended) -> None:
    lost = [line for line in ended.stderr.splitlines() if LOST in line]
    assert {line.partition(" WARNING pipeline ")[2].partition(":")[0] for line in lost} == {"late", "few"}
    (few,) = (line for line in lost if "pipeline few: " in line)
    assert "of 2 dropped records looked at, 2 have" in few


def test_bad_first_records_switch_no_gauge_off(ended: Ended) -> None:
    assert "escape gauge" not in ended.stderr


def test_no_value_of_a_record_is_said(ended: Ended) -> None:
    assert VALUE not in ended.stderr


def test_without_a_quarantine_the_error_names_what_is_there_too(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    wrong = {"from": "header", "name": "seqno", "format": "int64"}
    config = replace(config, pipelines=(replace(config.pipelines[0], sequence=wrong),))
    produce(config.bootstrap_servers, config.source, valued({}))

    ended = run_drain(config)

    assert ended.code == 1
    assert "the record cannot be judged: header_missing" in ended.stderr
    assert "; header seqno is missing; 8 bytes (int64) are wanted; its headers: trace, seq. Everything" in (
        ended.stderr
    )
    assert ended.stdout == ""
    assert VALUE not in ended.stderr


def test_a_worker_that_runs_on_warns_once_nothing_more_comes_and_not_again(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 2).with_quarantine()
    with start_worker(config) as worker:
        worker.wait_ready()
        for partition in range(2):
            produce(config.bootstrap_servers, config.source, valued({}), partition=partition)
        worker.wait_says("all of the first 6 records are quarantined")
        produce(config.bootstrap_servers, config.source, valued({}))
        worker.terminate()
        assert worker.wait() == 0
    assert worker.stderr.count("are quarantined") == 1
