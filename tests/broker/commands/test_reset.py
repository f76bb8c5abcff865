"""A reset sets a pipeline back, its state with it, and it goes on as one that has come just so far."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from processor.config.load import load
from processor.errors import StopError
from processor.ops.fault_points import CommitStep as FaultStep
from processor.ops.fault_points import heard_by
from processor.reset import fences
from processor.reset.decide import ToEarliest
from processor.reset.run import opened
from tests.support.kafka.topics import (
    New,
    alter_topic,
    create_topic,
    delete_records,
    delete_topic,
    group_members,
    group_offsets,
    int64,
    open_transaction,
    open_transactions,
    produce_transaction,
    sequences,
)
from tests.support.verify.certificate import certificate
from tests.support.worker.process import (
    WorkerConfig,
    new,
    new_config,
    produce,
    read_topic,
    run_drain,
    start_worker,
    until,
)
from tests.support.worker.reset import remembered, run_reset
from tests.support.worker.several import alone, pipelines_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import StrEnum
    from pathlib import Path

    from tests.support.kafka.broker import Broker
    from tests.support.worker.reset import Answer

pytestmark = pytest.mark.broker

EPOCH = {"from": "header", "name": "epoch", "format": "int64"}
HOUR_MS = 3_600_000
WHEN = 1_700_000_000_000
LARGE = new(100, value=bytes(range(256)) * 80)
"""More than a sink of `narrow` takes."""


def drain(config: WorkerConfig) -> str:
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    return ended.stderr


def done(answer: Answer) -> list[dict[str, Any]]:
    assert answer.code == 0, answer.stderr
    return answer.lines


def passed(config: WorkerConfig, partition: int = 0) -> list[int]:
    return sequences(read_topic(config.bootstrap_servers, config.sink), partition)


def thirty(broker: Broker, folder: Path, **worker: Any) -> WorkerConfig:
    """Return a config whose pipeline has passed 0 to 29, ten a batch, each batch an hour later."""
    config = new_config(broker.bootstrap_servers, folder, **worker)
    for at in range(3):
        some = [new(10 * at + i, timestamp=WHEN + at * HOUR_MS) for i in range(10)]
        produce(config.bootstrap_servers, config.source, some)
    drain(config)
    return config


def narrow(broker: Broker, folder: Path, *records: New) -> WorkerConfig:
    """Return a config with a quarantine and a sink that takes 10,000 B, to which these records have come."""
    config = new_config(broker.bootstrap_servers, folder).with_quarantine()
    create_topic(config.bootstrap_servers, config.sink, 1, {"max.message.bytes": "10000"})
    produce(config.bootstrap_servers, config.source, records)
    drain(config)
    return config


# ---------------------------------------------------------------- the state at an offset


def mixed(count: int) -> list[New]:
    """Return records of 7 producers with repeats, late ones, gaps and new epochs."""
    records = []
    for i in range(count):
        number, scope = (i * 7919) % (i // 3 + 5), b"%d" % (i % 7)
        headers = (("epoch", int64(i // 50)), ("producer", scope))
        records.append(New(scope, b"%d" % i, (*headers, ("seq", int64(number))), WHEN + i))
    return records


def batches(records: Sequence[New], size: int) -> list[Sequence[New]]:
    return [records[at : at + size] for at in range(0, len(records), size)]


DEFINITIONS: dict[str, tuple[dict[str, Any], int]] = {
    "partition": ({}, 83),
    "key": ({"scope": "key"}, 60),
    "header": ({"scope": "header:producer", "epoch": EPOCH}, 83),
    "window": ({"scope": "key", "reorder_window": 8}, 83),
    "all": ({"scope": "partition", "epoch": EPOCH, "reorder_window": 70}, 60),
}
"""And where the pipeline is reset to."""


def test_after_a_reset_a_pipeline_is_as_one_that_has_come_just_so_far(broker: Broker, tmp_path: Path) -> None:
    records = mixed(200)
    reset, fresh = (
        pipelines_of(
            new_config(broker.bootstrap_servers, tmp_path), {n: d for n, (d, _) in DEFINITIONS.items()}
        )
        for _ in range(2)
    )
    pairs = {name: (alone(reset, name), alone(fresh, name), to) for name, (_, to) in DEFINITIONS.items()}
    for one, other, to in pairs.values():
        produce(broker.bootstrap_servers, one.source, *batches(records, 20), codec="lz4")
        produce(broker.bootstrap_servers, other.source, *batches(records[:to], 20), codec="lz4")
    drain(reset)
    drain(fresh)
    before = {name: read_topic(broker.bootstrap_servers, one.sink) for name, (one, _, _) in pairs.items()}

    for name, (one, other, to) in pairs.items():
        (line,) = done(run_reset(one, "--to-offset", f"0:{to}", pipeline=name))
        state = {"state": "recomputed", "records": to, "unjudged": 0, "done": True}
        assert line == {"pipeline": name, "partition": 0, "from": 200, "to": to, **state}
        assert read_topic(broker.bootstrap_servers, one.sink) == before[name]
        assert remembered(one).scopes == remembered(other).scopes
        produce(broker.bootstrap_servers, other.source, *batches(records[to:], 20))

    # What follows is judged the same: by the local state that is of no use any more, too.
    said = drain(reset)
    drain(fresh)
    for name, (one, other, to) in pairs.items():
        assert f"local state of {one.changelog}:0 belongs to another changelog" in said
        after = read_topic(broker.bootstrap_servers, one.sink)[len(before[name]) :]
        expected = [r for r in read_topic(broker.bootstrap_servers, other.sink) if int(r.value or b"") >= to]
        assert [record.content for record in after] == [record.content for record in expected]
        assert remembered(one).scopes == remembered(other).scopes


def test_to_earliest_everything_is_processed_once_more_and_a_second_time_too(
    broker: Broker, tmp_path: Path
) -> None:
    config = thirty(broker, tmp_path)

    for times in (1, 2):
        (line,) = done(run_reset(config, "--to-earliest"))
        assert (line["from"], line["to"], line["state"], line["records"]) == (30, 0, "empty", 0)
        assert group_offsets(config.bootstrap_servers, config.application_id) == {(config.source, 0): 0}
        drain(config)
        assert passed(config) == [*range(30)] * (times + 1)


def test_to_time_goes_to_the_first_record_of_that_time_and_to_the_end_where_there_is_none(
    broker: Broker, tmp_path: Path
) -> None:
    config = thirty(broker, tmp_path)
    times = {
        str(WHEN): 0,
        "2023-11-14T23:13:20Z": 10,
        "2023-11-15T00:13:20.0005+01:00": 20,
        "2100-01-01T00:00:00Z": 30,
    }
    for time, to in times.items():
        (line,) = done(run_reset(config, "--to-time", time, "--dry-run"))
        assert line["to"] == to

    (line,) = done(run_reset(config, "--to-time", str(WHEN + HOUR_MS)))

    assert line["to"] == 10
    drain(config)
    assert passed(config) == [*range(30), *range(10, 30)]


def test_a_second_reset_knows_what_the_first_one_knew(broker: Broker, tmp_path: Path) -> None:
    config = thirty(broker, tmp_path)
    done(run_reset(config, "--to-offset", "0:20"))
    origin = remembered(config).origin
    assert origin is not None
    assert (origin.source_offset, origin.known_from, origin.sink_offset) == (20, 0, 31)

    (line,) = done(run_reset(config, "--to-offset", "0:10"))

    assert (line["from"], line["state"], line["records"]) == (20, "recomputed", 10)
    produce(config.bootstrap_servers, config.source, [new(9), new(30)])
    drain(config)
    assert passed(config) == [*range(30), *range(10, 31)]


def test_only_the_partitions_that_are_named_move(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 6, slots=4)
    for number in range(6):
        produce(config.bootstrap_servers, config.source, [new(i) for i in range(10)], partition=number)
    drain(config)
    before = {number: remembered(config, number) for number in range(6)}

    lines = done(run_reset(config, "--to-offset", "0:4", "--to-offset", "5:0"))

    assert [(line["partition"], line["to"], line["state"]) for line in lines] == [
        (0, 4, "recomputed"),
        (5, 0, "empty"),
    ]
    assert all(remembered(config, number) == before[number] for number in (1, 2, 3, 4))
    positions = group_offsets(config.bootstrap_servers, config.application_id)
    assert [positions[config.source, number] for number in range(6)] == [4, 10, 10, 10, 10, 0]
    drain(config)
    assert [len(passed(config, number)) for number in range(6)] == [16, 10, 10, 10, 10, 20]


def test_control_records_and_aborted_transactions_are_no_part_of_the_state(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    bootstrap = config.bootstrap_servers
    produce_transaction(bootstrap, config.source, [new(1), new(2)])
    produce_transaction(bootstrap, config.source, [new(50)], commit=False)
    produce(bootstrap, config.source, [new(3)])
    produce_transaction(bootstrap, config.source, [new(4)])
    drain(config)

    (line,) = done(run_reset(config, "--to-offset", "0:6"))

    assert line["records"] == 3
    assert remembered(config).scopes[b"W"].sequence == 3
    drain(config)
    assert passed(config) == [1, 2, 3, 4, 4]


def test_what_was_too_large_then_is_left_out_whatever_the_sink_takes_now(
    broker: Broker, tmp_path: Path
) -> None:
    config = narrow(broker, tmp_path, new(1), LARGE, new(7), new(8))
    assert passed(config) == [1, 7, 8]
    alter_topic(config.bootstrap_servers, config.sink, **{"max.message.bytes": "1000000"})

    (line,) = done(run_reset(config, "--to-offset", "0:3"))

    assert (line["records"], line["unjudged"]) == (3, 1)
    assert remembered(config).scopes[b"W"].sequence == 7
    produce(config.bootstrap_servers, config.source, [new(100)])
    drain(config)
    assert passed(config) == [1, 7, 8, 8, 100]
    assert certificate(config).code == 0


def test_so_it_is_where_the_changelog_is_lost(broker: Broker, tmp_path: Path) -> None:
    config = narrow(broker, tmp_path, new(1), LARGE, new(7))
    alter_topic(config.bootstrap_servers, config.sink, **{"max.message.bytes": "1000000"})
    delete_topic(config.bootstrap_servers, config.changelog)
    shutil.rmtree(config.state_dir)

    (line,) = done(run_reset(config, "--to-offset", "0:3"))

    assert (line["state"], line["unjudged"]) == ("recomputed", 1)
    assert remembered(config).scopes[b"W"].sequence == 7


def test_what_was_too_large_and_has_passed_since_may_pass_once_more(broker: Broker, tmp_path: Path) -> None:
    config = narrow(broker, tmp_path, new(1), LARGE, new(50))
    alter_topic(config.bootstrap_servers, config.sink, **{"max.message.bytes": "1000000"})
    done(run_reset(config, "--to-earliest"))
    drain(config)
    assert passed(config) == [1, 50, 1, 100]

    (line,) = done(run_reset(config, "--to-offset", "0:2"))

    assert line["unjudged"] == 1
    drain(config)
    assert passed(config) == [1, 50, 1, 100, 50]
    assert certificate(config).code == 0


def test_what_the_quarantine_says_of_a_source_that_is_gone_says_nothing_of_the_one_made_anew(
    broker: Broker, tmp_path: Path
) -> None:
    config = narrow(broker, tmp_path, new(1), LARGE)
    delete_topic(config.bootstrap_servers, config.source)
    create_topic(config.bootstrap_servers, config.source, 1)
    produce(config.bootstrap_servers, config.source, [new(1), new(2, timestamp=WHEN + 1), new(3)])
    done(run_reset(config, "--to-earliest"))
    drain(config)

    (line,) = done(run_reset(config, "--to-offset", "0:2"))

    assert line["unjudged"] == 0
    assert remembered(config).scopes[b"W"].sequence == 2
    drain(config)
    assert certificate(config).code == 0


def test_where_the_quarantine_has_forgotten_the_sink_says_what_was_too_large(
    broker: Broker, tmp_path: Path
) -> None:
    config = narrow(broker, tmp_path, new(1), LARGE, new(2))
    delete_records(config.bootstrap_servers, config.quarantine, 1)

    (line,) = done(run_reset(config, "--to-offset", "0:2"))

    assert line["unjudged"] == 1
    assert remembered(config).scopes[b"W"].sequence == 1


def test_a_partition_that_no_worker_has_read_gets_a_position_too(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(10)])

    (line,) = done(run_reset(config, "--to-offset", "0:6"))

    assert (line["from"], line["to"], line["state"], line["records"]) == (None, 6, "recomputed", 6)
    produce(config.bootstrap_servers, config.source, [new(5), new(10)])
    drain(config)
    assert passed(config) == [6, 7, 8, 9, 10]


def test_a_changelog_that_is_lost_is_made_anew_by_the_command_that_the_worker_names(
    broker: Broker, tmp_path: Path
) -> None:
    config = thirty(broker, tmp_path)
    delete_topic(config.bootstrap_servers, config.changelog)
    shutil.rmtree(config.state_dir)
    ended = run_drain(config)
    assert ended.code == 1
    command = ended.stderr.rpartition("seqmark reset -c FILE ")[2].partition(";")[0].split()

    (line,) = done(run_reset(config, *command[2:]))

    assert command == ["--pipeline", "p", "--to-offset", "0:30"]
    assert (line["from"], line["to"], line["state"], line["records"]) == (None, 30, "recomputed", 30)
    produce(config.bootstrap_servers, config.source, [new(29), new(30)])
    drain(config)
    assert passed(config) == [*range(31)]


def test_a_source_made_anew_is_begun_by_a_reset_to_earliest_wherever_its_partitions_stood(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 4, slots=2)
    for number, count in ((0, 10), (1, 3)):
        produce(config.bootstrap_servers, config.source, [new(i) for i in range(count)], partition=number)
    drain(config)
    # Partitions 2 and 3 get a position, 0, and never a record.
    done(run_reset(config, "--to-offset", "2:0", "--to-offset", "3:0"))
    delete_topic(config.bootstrap_servers, config.source)
    create_topic(config.bootstrap_servers, config.source, 4)
    for number in range(3):
        produce(config.bootstrap_servers, config.source, [new(i) for i in range(5)], partition=number)
    delete_records(config.bootstrap_servers, config.source, 4, partition=1)

    refused = run_reset(config, "--to-offset", "0:3")
    assert refused.code == 1
    assert "made anew" in refused.stderr
    lines = done(run_reset(config, "--to-earliest"))

    assert {line["partition"]: (line["from"], line["to"], line["state"]) for line in lines} == {
        0: (10, 0, "empty"),
        1: (3, 4, "empty"),
        2: (0, 0, "empty"),
        3: (0, 0, "empty"),
    }
    drain(config)
    assert passed(config, 0) == [*range(10), *range(5)]
    assert passed(config, 1) == [*range(3), 4]
    assert passed(config, 2) == [*range(5)]


def test_at_least_once_is_reset_in_one_transaction_as_well(broker: Broker, tmp_path: Path) -> None:
    config = thirty(broker, tmp_path, guarantee="at_least_once")

    done(run_reset(config, "--to-offset", "0:15"))

    drain(config)
    assert passed(config) == [*range(30), *range(15, 30)]


def test_a_state_that_other_slots_wrote_is_reset_and_its_writer_fenced(broker: Broker, tmp_path: Path) -> None:
    config = thirty(broker, tmp_path, slots=1, session_timeout_ms=1000, transaction_timeout_ms=30_000)
    bootstrap = config.bootstrap_servers
    produce(bootstrap, config.source, [new(i) for i in range(25, 35)])
    halt = {"SEQMARK_FAULT_STEP": "offsets", "SEQMARK_FAULT_ACTION": "stop"}
    with start_worker(config, env=halt) as zombie:
        until(lambda: zombie.paused, "the zombie is halted")
        until(lambda: not group_members(bootstrap, config.application_id), "its session is over")

        done(run_reset(config.but(slots=3), "--to-offset", "0:15"))

        assert not open_transactions(bootstrap, config.application_id)
        zombie.resume()
        zombie.wait_says("is not held by this producer any more")
        zombie.kill()
    drain(config.but(slots=3))
    assert passed(config) == [*range(30), *range(15, 35)]


# ---------------------------------------------------------------- forward


def test_forward_the_state_is_kept_and_what_is_stepped_over_counts_as_seen(
    broker: Broker, tmp_path: Path
) -> None:
    config = thirty(broker, tmp_path)
    produce(config.bootstrap_servers, config.source, [new(i) for i in range(30, 40)])

    (line,) = done(run_reset(config, "--to-offset", "0:35"))

    assert (line["from"], line["to"], line["state"], line["records"]) == (30, 35, "kept", 5)
    produce(config.bootstrap_servers, config.source, [new(3), new(33), new(40)])
    drain(config)
    assert passed(config) == [*range(30), *range(35, 41)]


@pytest.mark.parametrize("dedup", [{"scope": "key"}, {"scope": "key", "reorder_window": 4}])
def test_a_kept_state_is_written_whole(broker: Broker, tmp_path: Path, dedup: dict[str, Any]) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    config = replace(config, pipelines=(replace(config.pipelines[0], dedup=dedup),))
    some = [new(i, b"%d" % scope) for i in range(5) for scope in range(500)]
    produce(config.bootstrap_servers, config.source, some)
    drain(config)
    before = remembered(config).scopes
    produce(config.bootstrap_servers, config.source, [new(9, b"7")])

    done(run_reset(config, "--to-offset", "0:2501"))

    after = remembered(config).scopes
    assert after.pop(b"W7").sequence == 9
    assert after == {key: value for key, value in before.items() if key != b"W7"}


def test_a_record_that_cannot_be_judged_is_stepped_over_by_the_command_that_the_worker_names(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)
    bad = New(b"key", b"value", (("seq", b"short"),), WHEN)
    produce(config.bootstrap_servers, config.source, [new(1), new(2), bad, new(2), new(3)])
    ended = run_drain(config)
    assert ended.code == 1
    command = ended.stderr.rpartition("seqmark reset -c FILE ")[2].split()
    assert command == ["--pipeline", "p", "--to-offset", "0:3"]

    (line,) = done(run_reset(config, *command[2:]))

    assert (line["records"], line["unjudged"]) == (1, 1)
    drain(config)
    assert passed(config) == [1, 2, 3]


# ---------------------------------------------------------------- refused


def test_while_a_worker_reads_the_source_a_reset_is_refused_also_where_it_is_silent(
    broker: Broker, tmp_path: Path
) -> None:
    config = thirty(broker, tmp_path, session_timeout_ms=30_000)
    before = remembered(config)
    with start_worker(config) as worker:
        worker.wait_ready()
        for paused in (False, True):
            if paused:  # within its session
                worker.pause()
            answer = run_reset(config, "--to-earliest")
            assert (answer.code, answer.stdout) == (1, "")
            assert "pipeline p is not stopped" in answer.stderr
            assert "(partitions 0)" in answer.stderr
        worker.resume()
        produce(config.bootstrap_servers, config.source, [new(30)])
        until(lambda: passed(config) == [*range(31)], "the worker was not disturbed")
        worker.terminate()
        assert worker.wait(15) == 0
    assert remembered(config).origin == before.origin
    done(run_reset(config, "--to-earliest"))


def test_a_worker_of_other_pipelines_of_the_application_goes_on(broker: Broker, tmp_path: Path) -> None:
    config = thirty(broker, tmp_path)
    other = new_config(broker.bootstrap_servers, tmp_path)
    other = replace(
        other, application_id=config.application_id, pipelines=(replace(other.pipelines[0], name="q"),)
    )
    with start_worker(other) as worker:
        worker.wait_ready()

        done(run_reset(config, "--to-offset", "0:15"))

        assert group_offsets(config.bootstrap_servers, config.application_id)[config.source, 0] == 15
        produce(config.bootstrap_servers, other.source, [new(1)])
        until(lambda: passed(other) == [1], "the other pipeline goes on")
        worker.terminate()
        assert worker.wait(15) == 0
    drain(config)
    assert passed(config) == [*range(30), *range(15, 30)]


def test_where_the_records_of_the_state_are_gone_a_reset_is_refused_unless_it_may_forget(
    broker: Broker, tmp_path: Path
) -> None:
    config = thirty(broker, tmp_path)
    delete_records(config.bootstrap_servers, config.source, 5)
    before = remembered(config)

    for arguments in (["--to-offset", "0:20"], ["--to-earliest"]):
        refused = run_reset(config, *arguments)
        assert (refused.code, refused.stdout) == (1, "")
        assert f"{config.source}:0: the state at offset" in refused.stderr
        assert "none before 5 any more" in refused.stderr
        assert "from its position on, which is 30" in refused.stderr
        assert "--forget" in refused.stderr
    assert remembered(config) == before
    (line,) = done(run_reset(config, "--to-offset", "0:20", "--forget"))

    assert (line["state"], line["records"]) == ("empty", 0)
    origin = remembered(config).origin
    assert origin is not None
    assert (origin.source_offset, origin.known_from) == (20, 20)
    produce(config.bootstrap_servers, config.source, [new(30)])
    drain(config)
    assert passed(config) == [*range(30), *range(20, 31)]


def test_places_outside_the_source_are_refused_all_at_once(broker: Broker, tmp_path: Path) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 3, slots=1)
    for number in range(3):
        produce(config.bootstrap_servers, config.source, [new(i) for i in range(10)], partition=number)
    drain(config)
    delete_records(config.bootstrap_servers, config.source, 5, 2)
    producer = open_transaction(config.bootstrap_servers, config.source, [new(10), new(11)], partition=1)

    places = ["--to-offset", "0:11", "--to-offset", "1:11", "--to-offset", "2:4"]
    refused = run_reset(config, *places)

    producer.abort_transaction(30)
    assert refused.code == 1
    assert f"{config.source}:0: offset 11 lies beyond the end, which is 10" in refused.stderr
    assert f"{config.source}:1: offset 11 lies behind offset 10" in refused.stderr
    assert f"{config.source}:2: offset 4 is no longer retained: the first one there is is 5" in refused.stderr
    drain(config)
    assert [len(passed(config, number)) for number in range(3)] == [10, 10, 10]


@pytest.mark.parametrize(
    ("arguments", "pipeline", "said"),
    [
        ([], "p", "give one of --to-earliest, --to-time and --to-offset"),
        (["--to-earliest", "--to-time", "0"], "p", "give one of"),
        (["--to-offset", "0:x"], "p", "PARTITION:OFFSET"),
        (["--to-offset", "1:0"], "p", "there is no partition 1"),
        (["--to-earliest"], "pp", "there is no pipeline pp; did you mean p?"),
    ],
)
def test_a_wrong_command_line_exits_2(
    broker: Broker, tmp_path: Path, arguments: list[str], pipeline: str, said: str
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path)

    answer = run_reset(config, *arguments, pipeline=pipeline)

    assert (answer.code, answer.stdout) == (2, "")
    assert said in answer.stderr


def test_without_a_broker_a_reset_exits_1(tmp_path: Path, broker: Broker) -> None:
    config = replace(new_config(broker.bootstrap_servers, tmp_path), bootstrap_servers="127.0.0.1:1")

    answer = run_reset(config, "--to-earliest")

    assert (answer.code, answer.stdout) == (1, "")
    assert "127.0.0.1:1" in answer.stderr


def test_a_worker_that_comes_in_between_wins_and_the_reset_changes_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    config = thirty(broker, tmp_path)
    produce(config.bootstrap_servers, config.source, [new(30)])
    settings = load(config.write())

    async def reset() -> None:
        async with opened(settings, settings.pipelines[0], create=False) as resetting:
            steps = await resetting.plan(ToEarliest(), forget=False, fence=True)
            await asyncio.to_thread(drain, config)
            async for _ in resetting.apply(steps, lambda _: None):
                pass

    with pytest.raises(StopError, match=r"a worker has started in between.*nothing was changed before"):
        asyncio.run(reset())

    drain(config)
    assert passed(config) == [*range(31)]


def test_a_worker_without_transactions_that_comes_right_before_the_commit_is_seen(
    broker: Broker, tmp_path: Path
) -> None:
    config = thirty(broker, tmp_path, guarantee="at_least_once")
    before = remembered(config)
    settings = load(config.write())

    async def reset() -> None:
        async with opened(settings, settings.pipelines[0], create=False) as resetting:
            steps = await resetting.plan(ToEarliest(), forget=False, fence=True)
            async for _ in resetting.apply(steps, lambda _: None):
                pass

    with ExitStack() as stack:

        def start(step: StrEnum, _pipeline: str) -> None:
            if step is FaultStep.BEGUN:
                stack.enter_context(start_worker(config)).wait_ready()

        with (
            heard_by(start),
            pytest.raises(StopError, match=r"partitions \[0\] were not reset: pipeline p is not stopped"),
        ):
            asyncio.run(reset())

    assert remembered(config) == before


def test_where_the_broker_allows_less_time_the_workers_time_out_is_taken(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = thirty(broker, tmp_path)
    settings = load(config.write())
    # Kafka allows 15 minutes by default.
    monkeypatch.setattr(fences, "TIMEOUT_MS", 900_001)

    async def reset() -> list[int]:
        async with opened(settings, settings.pipelines[0], create=False) as resetting:
            steps = await resetting.plan(ToEarliest(), forget=False, fence=True)
            return [step.to_offset async for step, _ in resetting.apply(steps, lambda _: None)]

    assert asyncio.run(reset()) == [0]


# ---------------------------------------------------------------- another definition


def test_a_changed_definition_takes_over_where_the_state_is_recomputed(broker: Broker, tmp_path: Path) -> None:
    config = thirty(broker, tmp_path)
    (pipeline,) = config.pipelines
    changed = replace(config, pipelines=(replace(pipeline, dedup={"scope": "key"}),))
    produce(config.bootstrap_servers, config.source, [new(3, b"other"), new(4)])
    assert run_drain(changed).code == 1

    refused = run_reset(changed, "--to-offset", "0:31")
    assert refused.code == 1
    assert "its dedup definition differs" in refused.stderr
    assert "Go to 30 or before" in refused.stderr
    (line,) = done(run_reset(changed, "--to-offset", "0:30"))

    assert (line["from"], line["to"], line["state"], line["records"]) == (30, 30, "recomputed", 30)
    drain(changed)
    assert passed(config) == [*range(30), 3]


# ---------------------------------------------------------------- interrupted


def test_a_reset_that_is_killed_has_changed_nothing(broker: Broker, tmp_path: Path) -> None:
    config = thirty(broker, tmp_path)
    before = remembered(config)

    for step in ("begun", "changelog", "offsets"):
        killed = run_reset(config, "--to-earliest", env={"SEQMARK_FAULT_STEP": step})
        assert killed.code == -9, killed.stderr
        assert remembered(config) == before

    produce(config.bootstrap_servers, config.source, [new(29), new(30)])
    drain(config)
    assert passed(config) == [*range(31)]
    assert not open_transactions(config.bootstrap_servers, config.application_id)


def test_a_reset_that_is_killed_right_after_its_commit_is_done(broker: Broker, tmp_path: Path) -> None:
    config = thirty(broker, tmp_path)

    killed = run_reset(config, "--to-offset", "0:15", env={"SEQMARK_FAULT_STEP": "ended"})

    assert killed.code == -9, killed.stderr
    (line,) = done(run_reset(config, "--to-offset", "0:15"))
    assert (line["from"], line["to"], line["state"], line["records"]) == (15, 15, "kept", 0)
    drain(config)
    assert passed(config) == [*range(30), *range(15, 30)]


def test_a_reset_killed_between_two_slots_is_finished_by_the_same_command(
    broker: Broker, tmp_path: Path
) -> None:
    config = new_config(broker.bootstrap_servers, tmp_path, 2, slots=2)
    for number in range(2):
        produce(config.bootstrap_servers, config.source, [new(i) for i in range(10)], partition=number)
    drain(config)
    places = ["--to-offset", "0:4", "--to-offset", "1:4"]

    killed = run_reset(config, *places, env={"SEQMARK_FAULT_STEP": "offsets:2"})

    assert killed.code == -9, killed.stderr
    offsets = group_offsets(config.bootstrap_servers, config.application_id)
    assert offsets[config.source, 0] == 4
    lines = done(run_reset(config, *places))
    assert [(line["from"], line["to"], line["state"]) for line in lines] == [
        (4, 4, "kept"),
        (10, 4, "recomputed"),
    ]
    drain(config)
    assert [passed(config, number) for number in range(2)] == [[*range(10), *range(4, 10)]] * 2


def test_a_dry_run_says_what_would_be_done_and_does_nothing(broker: Broker, tmp_path: Path) -> None:
    config = thirty(broker, tmp_path)
    before = read_topic(config.bootstrap_servers, config.changelog)

    (line,) = done(run_reset(config, "--to-offset", "0:12", "--dry-run"))

    assert (line["from"], line["to"], line["state"], line["records"], line["done"]) == (
        30,
        12,
        "recomputed",
        None,
        False,
    )
    assert read_topic(config.bootstrap_servers, config.changelog) == before
    assert group_offsets(config.bootstrap_servers, config.application_id) == {(config.source, 0): 30}
