"""Pipelines of mode watermark that begin with a backfill go on as workers that have judged the history.

One scene: a pipeline for each kind of state, two partitions each, loaded one after the other, and one worker.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from processor.wire.receipt_values import RecordRef
from schemas.changelog.position import Origin
from schemas.changelog.values import BROUGHT_KIND, ORIGIN_KEY
from tests.support.backfill.load import RUN, explained, kill_load, run_load, sampled, stage_sequences
from tests.support.judges.rules import EPOCH_HEADER, Model, Rules, scope_of
from tests.support.kafka.topics import New, Record, create_topic, dice, int64, unique
from tests.support.verify.certificate import certificate, corrupted
from tests.support.worker.process import PipelineConfig, WorkerConfig, produce, read_topic, run_drain
from tests.support.worker.reset import run_reset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.judges.rules import Said
    from tests.support.kafka.broker import Broker

pytestmark = pytest.mark.broker

RULES = {
    "plain": Rules(),
    "keys": Rules(scope="key", epoch=EPOCH_HEADER, reorder_window=70),
    "producers": Rules(scope="header:producer"),
}
COUNT = 150
# Of 150 records per partition: a history that overlaps with what the topic has, and all of it.
HISTORY = {0: 90, 1: COUNT}
CUTS = {0: 60, 1: COUNT}
KILLS = ["changelog", "begun:3", "offsets"]
"""Before anything is there, between blocks, in the first state."""


def stream(seed: int, count: int = COUNT, start: int = 0) -> list[New]:
    """Return records of seven producers, of which some come again, some late, some with a higher epoch."""
    chance, made = dice(seed), []
    for number in range(start, start + count):
        name = b"p%d" % chance.randrange(7)
        sequence = max(0, number - chance.choice((0, 0, 0, 1, 4, 30, 90)))
        epoch = (number // 60 - (chance.random() < 0.1)).to_bytes(4, "big", signed=True)
        headers = (("producer", name), ("epoch", epoch), ("seq", int64(sequence)))
        made.append(New(name, b"%d" % number, headers, 1_700_000_000_000 + number))
    return made


@dataclass
class Flow:
    """One partition of one pipeline: what the naive model has, and what the topics should hold."""

    pipeline: PipelineConfig
    rules: Rules
    number: int
    model: Model
    begun: Model
    next_offset: int
    passed: list[bytes | None] = field(default_factory=list)
    said: dict[int, Said] = field(default_factory=dict)
    brought: list[int] = field(default_factory=list)
    """Offsets of what was dropped by a watermark as the history has left it."""

    def take(self, records: Sequence[Record], *, written: bool = True) -> None:
        """Judge what is in the source from where the flow stands; ``written``: its output is to be seen."""
        for each in records[self.next_offset :]:
            name = scope_of(each, self.rules.scope)
            left, stands = self.begun.scopes.get(name), self.model.scopes.get(name)
            same = left and stands and (left.watermark, left.epoch) == (stands.watermark, stands.epoch)
            said = self.model.judge(each)
            if not written:
                continue
            if said.verdict == "pass":
                self.passed.append(each.value)
            else:
                self.said[each.offset] = said
                self.brought += [each.offset] if same else []
        self.next_offset = len(records)


class Scene:
    """All pipelines, each with a history, and their flows."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        name = unique("t")
        pipelines = []
        for each, rules in RULES.items():
            topic = f"{name}.{each}"
            create_topic(broker.bootstrap_servers, f"{topic}.raw", 2)
            made = PipelineConfig(each, f"{topic}.raw", f"{topic}.clean", None, f"{topic}.dropped")
            pipelines.append(rules.applied(made))
        self.config = WorkerConfig(folder, broker.bootstrap_servers, name, tuple(pipelines), {"slots": 2})
        self.flows: list[Flow] = []
        for which, pipeline in enumerate(self.config.pipelines):
            rules = RULES[pipeline.name]
            history: dict[int, list[New]] = {}
            for number in range(2):
                some = stream(10 * which + number)
                produce(broker.bootstrap_servers, pipeline.source, some, partition=number)
                history[number] = some[: HISTORY[number]]
                models = Model(rules), Model(rules)
                for model in models:
                    model.judge_all([Record(number, 0, *record, True) for record in history[number]])
                self.flows.append(Flow(pipeline, rules, number, *models, CUTS[number]))
            dice(which).shuffle(history[0])
            stage_sequences(self.config, folder / pipeline.name, pipeline.name, history, CUTS)

    def read(self, topic: str | None) -> tuple[list[Record], list[Record]]:
        found = read_topic(self.config.bootstrap_servers, topic or "")
        of_first = [each for each in found if not each.partition]
        return of_first, found[len(of_first) :]

    def drain(self) -> None:
        ended = run_drain(self.config)
        assert ended.code == 0, ended.stderr
        self.follow()

    def follow(self, *names: str, written: bool = True) -> None:
        """Have the models judge what is in the sources; of some pipelines, or of all."""
        for pipeline in self.config.pipelines:
            if not names or pipeline.name in names:
                source = self.read(pipeline.source)
                for flow in self.flows_of(pipeline):
                    flow.take(source[flow.number], written=written)

    def flows_of(self, pipeline: PipelineConfig) -> list[Flow]:
        return [flow for flow in self.flows if flow.pipeline.name == pipeline.name]

    def check(self) -> int:
        """Compare all topics with the models; return how many records were dropped by the history alone."""
        for pipeline in self.config.pipelines:
            sink, receipts = self.read(pipeline.sink), self.read(pipeline.duplicates)
            for flow in self.flows_of(pipeline):
                assert [each.value for each in sink[flow.number]] == flow.passed
                told = [json.loads(each.value or b"") for each in receipts[flow.number]]
                names = "offset", "verdict", "sequence", "watermark"
                assert [tuple(each[name] for name in names) for each in told] == [
                    (offset, said.verdict, said.sequence, said.watermark) for offset, said in flow.said.items()
                ]
        return sum(len(flow.brought) for flow in self.flows)

    def feed(self, seed: int) -> None:
        """Produce more, of which some is late even for the history."""
        for which, flow in enumerate(self.flows):
            some = stream(seed + which, 30, COUNT)
            produce(self.config.bootstrap_servers, flow.pipeline.source, some, partition=flow.number)

    def alone(self, name: str) -> WorkerConfig:
        pipelines = tuple(each for each in self.config.pipelines if each.name == name)
        return replace(self.config, pipelines=pipelines)


def load_all(scene: Scene) -> None:
    """Load each pipeline; one through kills, and with a worker that comes in between."""
    folder, config = scene.config.folder, scene.config
    for step in KILLS:
        kill_load(config, folder / "keys", step, "keys")
        if step == "begun:3":
            refused = run_drain(scene.alone("keys"))
            assert refused.code == 1
            assert f"its state is backfill {RUN}, which is not loaded to its end" in refused.stderr
    for name in RULES:
        assert run_load(config, folder / name, name)[0] == 0
    assert run_load(config, folder / "keys", "keys") == (0, "0 blocks, 2 partitions were whole")
    (pipeline,) = scene.alone("keys").pipelines
    keys = [each.key or b"" for each in read_topic(config.bootstrap_servers, changelog(config, pipeline.name))]
    blocks = [key for key in keys if key.startswith(BROUGHT_KIND)]
    # The partitions have the same keys.
    assert len(blocks) > len(set(blocks)) > 1


def changelog(config: WorkerConfig, name: str) -> str:
    return f"{config.application_id}-{name}-changelog"


def without_the_last(records: list[Record]) -> list[Record]:
    return records[:-1]


def test_backfill_and_worker_are_a_worker_over_all_of_it_whatever_the_scope(
    broker: Broker, tmp_path: Path
) -> None:
    scene = Scene(broker, tmp_path)
    config = scene.config
    found = sampled(config, tmp_path / "keys", "keys")
    # All before the cut is in the history, and of what follows as much as they have in common.
    assert (found[0].before, found[0].before_known) == (CUTS[0], CUTS[0])
    assert (found[0].after, found[1].after) == (COUNT - CUTS[0], 0)
    assert found[0].after_known >= HISTORY[0] - CUTS[0]
    load_all(scene)

    scene.drain()
    assert scene.check() > 50
    # A worker without local state, and then one with it, still know it.
    scene.feed(100)
    shutil.rmtree(config.state_dir)
    scene.drain()
    scene.feed(200)
    scene.drain()
    brought = scene.check()
    proof = certificate(config)
    assert (proof.code, proof.violations) == (0, []), proof.details or proof.stderr
    assert (proof.last["backfilled"], proof.last["unproved"]) == (brought, 0)
    assert [each["backfilled"] for each in proof.partitions] == [len(flow.brought) for flow in scene.flows]
    forged = certificate(corrupted(scene.alone("keys"), "duplicates", without_the_last))
    assert {rule for *_, rule in forged.violations} == {"receipt_missing"}

    flow = next(flow for flow in scene.flows if flow.rules.scope == "key")
    ref = RecordRef(flow.pipeline.source, flow.number, flow.brought[0])
    assert f", in backfill {RUN}; there is no record of it in the source" in explained(config, ref)
    reset_keeps_what_a_backfill_has_brought_or_is_refused(scene, brought)


def reset_keeps_what_a_backfill_has_brought_or_is_refused(scene: Scene, before: int) -> None:
    config = scene.config
    answer = run_reset(config, "--to-earliest", pipeline="keys")
    assert answer.code == 1
    assert f"the state began with backfill {RUN}, which the source cannot give back" in answer.stderr
    # Over some records, of which no output is written.
    scene.feed(300)
    reset = "plain", "keys"
    scene.follow(*reset, written=False)
    for name in reset:
        ends = [f"{flow.number}:{flow.next_offset}" for flow in scene.flows if flow.pipeline.name == name]
        answer = run_reset(config, "--to-offset", ends[0], "--to-offset", ends[1], pipeline=name)
        assert answer.code == 0, answer.stderr
        found = [each.value or b"" for each in scene.read(changelog(config, name))[1] if each.key == ORIGIN_KEY]
        origin = Origin.decode(found[-1])
        assert (origin.backfill, origin.by_reset) == (RUN, True)
    scene.feed(400)
    scene.drain()
    scene.check()
    proof = certificate(config)
    assert (proof.code, proof.violations) == (0, []), proof.details or proof.stderr
    assert proof.last["backfilled"] < before, "of what was reset only what came then is compared"
