"""A pipeline that begins with a backfill goes on as a worker that has judged the history itself.

The load is killed between every two steps on the way, and goes on where it was.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from processor.reset.backfill.sample import CutSample
from processor.wire.receipt_values import RecordRef
from schemas.changelog.backfill import BACKFILL_KEY
from schemas.changelog.ids import ID_BLOCK_KIND, IDS_KEY, IdState
from tests.support.backfill.load import RUN, explained, kill_load, run_load, sampled, stage
from tests.support.judges.id_rules import IdModel, IdRules, IdSaid
from tests.support.kafka.topics import New, Record, dice, group_offsets
from tests.support.verify.certificate import certificate, corrupted, run_verify
from tests.support.worker.process import (
    WorkerConfig,
    new_config,
    produce,
    read_topic,
    run_drain,
    start_worker,
)
from tests.support.worker.reset import run_reset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from processor.reset.backfill.staging import Staging
    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

RULES = IdRules(window="1h")
WHEN_MS = 1_700_000_000_000
COUNT = 200
# Of 200 records: no history at all, one that overlaps with what the topic has, all of it.
HISTORY = {0: 0, 1: 130, 2: COUNT}
CUTS = {0: 0, 1: 100, 2: COUNT}
# One transaction marks all partitions, two have the blocks of 1 and 2, three the states of all.
KILLS = ["changelog", "begun:3", "offsets", "changelog:2"]
"""One after the other: before anything is there, between blocks, in the first state, in the second one."""


def config_of(broker: Broker, folder: Path, partitions: int = 3) -> WorkerConfig:
    config = new_config(broker.bootstrap_servers, folder, partitions, slots=2).with_duplicates()
    (pipeline,) = config.pipelines
    return replace(config, pipelines=(RULES.applied(pipeline),))


def stream(partition: int, count: int = COUNT) -> list[New]:
    """Return records of three hours, of which many come again; some when their hour is over, some late."""
    chance = dice(partition)
    times = [WHEN_MS + 54_000 * number - chance.choice((0, 0, 900_000)) for number in range(count)]
    ids = [b"%d" % chance.randrange(max(1, number // 2), number + 2) for number in range(count)]
    return [New(b"k", b"%d" % n, (("id", ids[n]),), times[n]) for n in range(count)]


def model_of(history: Sequence[New]) -> IdModel:
    model = RULES.model()
    for number, each in enumerate(history):
        # Before all offsets there are: these stand in no source.
        model.judge(Record(0, number - len(history), each.key, each.value, each.headers, each.timestamp, True))
    return model


def judged(model: IdModel, source: Sequence[Record]) -> list[IdSaid]:
    return model.judge_all(source)


def read(config: WorkerConfig, topic: str, partition: int) -> list[Record]:
    return [each for each in read_topic(config.bootstrap_servers, topic) if each.partition == partition]


def assert_goes_on(config: WorkerConfig, models: dict[int, IdModel], since: dict[int, int]) -> int:
    """Check sink and receipts from source offsets on; return how many receipts name the backfill."""
    named = 0
    for partition, model in models.items():
        source = [each for each in read(config, config.source, partition) if each.offset >= since[partition]]
        said = judged(model, source)
        passed = [each.content[1:] for each, what in zip(source, said, strict=True) if what.verdict == "pass"]
        sink = [each.content[1:] for each in read(config, config.sink, partition)]
        assert sink[len(sink) - len(passed) :] == passed
        assert since[partition] > CUTS[partition] or len(sink) == len(passed)
        receipts = {each["offset"]: each for each in told(config, partition)}
        for each, what in zip(source, said, strict=True):
            receipt = receipts.get(each.offset)
            assert (receipt is not None) == (what.verdict == "duplicate")
            if receipt is None:
                continue
            source_owner = {"topic": config.source, "partition": partition, "offset": what.owner}
            assert receipt["owner"] == ({"backfill": RUN} if what.owner < 0 else source_owner)
            assert receipt["expires_at"] == what.expires_ms
            named += what.owner < 0
    return named


def told(config: WorkerConfig, partition: int) -> list[dict[str, Any]]:
    return [json.loads(each.value or b"") for each in read(config, config.duplicates, partition)]


def with_another_backfill(receipts: list[Record]) -> list[Record]:
    last = max(n for n, each in enumerate(receipts) if b'"backfill"' in (each.value or b""))
    wrong = (receipts[last].value or b"").replace(RUN.encode(), b"another")
    return [each._replace(value=wrong) if n == last else each for n, each in enumerate(receipts)]


def load_through_kills(config: WorkerConfig, staged: Path, staging: Staging) -> None:
    """Kill the load after each of `KILLS`, load the rest, and check that nothing was written twice."""
    for step in KILLS:
        kill_load(config, staged, step)
        if step == "begun:3":
            refused = run_drain(config)
            assert refused.code == 1
            assert f"its state is backfill {RUN}, which is not loaded to its end" in refused.stderr
            assert not read_topic(config.bootstrap_servers, config.sink), "no partition has begun without it"
    assert run_load(config, staged) == (0, "0 blocks, 1 partitions were whole")
    assert run_load(config, staged) == (0, "0 blocks, 3 partitions were whole")
    keys = Counter(
        (each.partition, each.key) for each in read_topic(config.bootstrap_servers, config.changelog)
    )
    blocks = {key: count for key, count in keys.items() if (key[1] or b"").startswith(ID_BLOCK_KIND)}
    assert set(blocks.values()) == {1}
    assert len(blocks) == sum(part.blocks for part in staging.partitions.values()) > 4
    offsets = {
        tp[1]: offset for tp, offset in group_offsets(config.bootstrap_servers, config.application_id).items()
    }
    assert offsets == CUTS


def test_backfill_and_worker_are_a_worker_over_all_of_it_through_kills(broker: Broker, tmp_path: Path) -> None:
    config, staged = config_of(broker, tmp_path), tmp_path / "staged"
    records = {number: stream(number) for number in range(3)}
    for number, some in records.items():
        produce(config.bootstrap_servers, config.source, some, partition=number)
    history = {number: some[: HISTORY[number]] for number, some in records.items()}
    staging = stage(config, staged, history, CUTS)

    found = sampled(config, staged)
    assert {number: each.gap for number, each in found.items()} == {0: False, 1: False, 2: False}
    assert (found[0].before, found[0].after_known, found[2].after) == (0, 0, 0)
    # But copies of what had passed a window before.
    assert found[1].before >= found[1].before_known > 10
    assert found[1].after > found[1].after_known > 10, "they overlap"

    load_through_kills(config, staged, staging)

    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    models = {number: model_of(some) for number, some in history.items()}
    brought = assert_goes_on(config, models, CUTS)
    assert brought > 10
    # What the history dropped is not to be proved from the topics; all else is.
    proof = certificate(config)
    assert (proof.code, proof.violations) == (0, []), proof.details or proof.stderr
    assert (proof.last["backfilled"], proof.last["unproved"]) == (brought, 0)
    said = run_verify(config).stdout
    assert "backfilled" in said
    assert f"dropped by what backfill {RUN} has brought, which the source does not hold" in said
    assert f"{brought} dropped by a backfill" in said
    first = next(each for each in told(config, 1) if "backfill" in each["owner"])
    assert (
        f"its id was delivered before, in backfill {RUN}; there is no record of it in the source"
        in explained(config, RecordRef(config.source, 1, first["offset"]))
    )

    # A worker without local state, and then one with it, still know it.
    again = {number: records[number][-1].timestamp for number in records}
    for restart in range(2):
        since = dict.fromkeys(records, COUNT + restart * 20)
        for number, some in records.items():
            late = [each._replace(timestamp=again[number]) for each in some[-20:]]
            produce(config.bootstrap_servers, config.source, late, partition=number)
        if not restart:
            shutil.rmtree(config.state_dir)
        ended = run_drain(config)
        assert ended.code == 0, ended.stderr
        assert assert_goes_on(config, models, since) > 5

    assert certificate(config).code == 0
    forged = certificate(corrupted(config, "duplicates", with_another_backfill))
    assert {rule for *_, rule in forged.violations} == {"receipt_wrong"}

    # The source cannot give the history back.
    answer = run_reset(config, "--to-earliest")
    assert answer.code == 1
    assert f"the state began with backfill {RUN}, which the source cannot give back" in answer.stderr
    answer = run_reset(config, "--to-offset", f"2:{COUNT + 40}")
    assert answer.code == 0, answer.stderr
    states = [each for each in read(config, config.changelog, 2) if each.key == IDS_KEY]
    assert IdState.decode(states[-1].value or b"").backfill == RUN


def test_what_a_backfill_does_not_fit_is_refused_and_nothing_is_loaded(broker: Broker, tmp_path: Path) -> None:
    config, staged = config_of(broker, tmp_path, 2), tmp_path / "staged"
    records = stream(0, 20)
    produce(config.bootstrap_servers, config.source, records)
    history = {0: records[:10], 1: []}

    def refused(partitions: dict[int, int], loaded: WorkerConfig = config) -> str:
        stage(config, staged, history, partitions)
        code, said = run_load(loaded, staged)
        assert code == 1, said
        return said

    assert "has the partitions 0 to 1: stage it again" in refused({0: 10})
    assert "the cut, offset 21, lies beyond the end, which is 20" in refused({0: 21, 1: 0})
    other = replace(config, pipelines=(replace(RULES, window="2h").applied(config.pipelines[0]),))
    assert "staged for another dedup definition of p" in refused({0: 10, 1: 0}, other)
    with start_worker(config) as worker:
        worker.wait_ready()
        assert "pipeline p is not stopped" in refused({0: 10, 1: 0})
        worker.terminate()
        worker.wait()
    assert f"{config.source}:0 has a state already" in refused({0: 10, 1: 0})
    assert not [each for each in read(config, config.changelog, 0) if each.key == BACKFILL_KEY]


def test_a_history_that_ends_long_before_the_cut_leaves_a_gap(broker: Broker, tmp_path: Path) -> None:
    config, records = config_of(broker, tmp_path, 1), stream(0, 100)
    produce(config.bootstrap_servers, config.source, records)
    for history, gap in ((20, True), (100, False)):
        stage(config, tmp_path / "staged", {0: records[:history]}, {0: 100})
        assert sampled(config, tmp_path / "staged")[0].gap is gap


def test_another_history_takes_the_place_of_one_that_is_not_loaded_to_its_end(
    broker: Broker, tmp_path: Path
) -> None:
    config = config_of(broker, tmp_path, 1)
    wrong, right = [New(b"k", b"w", (("id", b"w%d" % n),), WHEN_MS) for n in range(90)], stream(0, 50)
    produce(config.bootstrap_servers, config.source, [*wrong, *right])
    stage(config, tmp_path / "wrong", {0: wrong}, {0: 0}, "wrong")
    assert sampled(config, tmp_path / "wrong") == {
        0: CutSample(0, 0, 90 + len({each.headers for each in right}), 90)
    }
    kill_load(config, tmp_path / "wrong", "ended")
    stage(config, tmp_path / "right", {0: right}, {0: 0})
    # Another number of slots: who began to load is fenced by the name that it had.
    assert run_load(config.but(slots=1), tmp_path / "right")[0] == 0
    ended = run_drain(config.but(slots=1))
    assert ended.code == 0, ended.stderr
    sink = [dict(each.headers)["id"] or b"" for each in read(config, config.sink, 0)]
    assert sink[:90] == [b"w%d" % n for n in range(90)]
    assert {each["owner"].get("backfill") for each in told(config, 0)} == {RUN}
