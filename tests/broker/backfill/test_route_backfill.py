"""A routed pipeline that begins with a backfill goes on as one that has judged the history itself.

Histories are topics here: no Spark is needed. What files say is the same from then on.
"""

from __future__ import annotations

import asyncio
import copy
import re
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from processor.config.load import load as read_config
from processor.errors import StopError
from processor.reset.backfill.load import loading
from processor.reset.backfill.staging import Staging
from processor.wire.receipt_values import RecordRef
from schemas.changelog.backfill import BACKFILL_KEY
from tests.support.backfill.load import explained
from tests.support.backfill.route_fill import RUN, SINKS, SOURCES, RouteFill
from tests.support.kafka.topics import dice, group_offsets, produce, read_topic
from tests.support.worker.process import new_config, run_drain
from tests.support.worker.routed import internal_topics, routed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka.broker import Broker
    from tests.support.kafka.topics import New

pytestmark = pytest.mark.broker

COUNT = 120


def whole_run(scene: RouteFill, folder: Path, records: dict[int, list[New]]) -> dict[bytes, int]:
    """Return where each id passes to with a worker over all of it."""
    folder.mkdir()
    config = routed(new_config(scene.config.bootstrap_servers, folder, SOURCES), scene.rules, SINKS)
    for number, some in records.items():
        produce(config.bootstrap_servers, config.source, some, partition=number)
    ended = run_drain(config)
    assert ended.code == 0, ended.stderr
    return scene.places(config.sink)


@pytest.mark.drawn("seed")
@pytest.mark.parametrize("seed", [1, 2])
def test_backfill_and_routed_worker_are_a_routed_worker_over_all_of_it_at_any_cut(
    broker: Broker, tmp_path: Path, seed: int
) -> None:
    scene, chance = RouteFill(broker, tmp_path / "warm"), dice(seed)
    scene.stream(seed, COUNT)
    until = {number: chance.randrange(COUNT // 3, COUNT + 1) for number in range(SOURCES)}
    cuts = {number: chance.randrange(until[number] + 1) for number in range(SOURCES)}
    history = scene.history(until)
    topic = scene.as_topic(history, seed)

    told = scene.loaded(*scene.arguments(topic, cuts))

    sinks, sources = told[:SINKS], told[SINKS:-1]
    assert [each["sink_partition"] for each in sinks] == list(range(SINKS))
    assert [(each["partition"], each["cut"]) for each in sources] == sorted(cuts.items())
    assert sum(each["rows"] for each in sinks) == told[-1]["rows"] == len(history)
    for each in sources:
        sample = each["sample"]
        assert sample["before_known"] == sample["before"]
        assert each["partition"] in until
        assert sample["after_known"] >= (until[each["partition"]] > cuts[each["partition"]])
    scene.drain()
    assert scene.assert_goes_on(history, cuts) > 10

    # And so it does where a worker has judged all of it: the same ids, each where it belongs.
    everywhere = whole_run(scene, tmp_path / "cold", scene.records)
    passed = scene.places(scene.config.sink)
    assert everywhere.keys() == passed.keys() | {dict(each.headers)["id"] for each in history}
    assert passed.items() <= everywhere.items()


def test_a_load_that_is_killed_goes_on_and_a_worker_refuses_both_hops_until_it_is_whole(
    broker: Broker, tmp_path: Path
) -> None:
    scene = RouteFill(broker, tmp_path)
    scene.stream(3, COUNT)
    cuts = {0: 60, 1: 40}
    history = scene.expired(20) + scene.history(cuts)
    produce(broker.bootstrap_servers, scene.config.source, scene.expired(20)[:5], partition=0)
    arguments = scene.arguments(scene.as_topic(history), cuts)

    def refused(partitions: str) -> None:
        ended = run_drain(scene.config)
        assert ended.code == 1
        why = rf"{partitions}: its state is backfill {RUN}, which is not loaded to its end"
        assert re.search(why, ended.stderr), ended.stderr

    def kill(step: str) -> None:
        assert scene.killed(step, *arguments) == -signal.SIGKILL

    changelog, positions = scene.config.changelog, internal_topics(scene.config)[1]
    # One transaction marks both hops, three have blocks, three the states of ids, two the positions.
    kill("changelog")
    assert not marked(scene, changelog) | marked(scene, positions), "nothing of it is committed"
    kill("begun:3")
    assert marked(scene, changelog) == set(range(SINKS))
    assert marked(scene, positions) == set(range(SOURCES))
    refused(rf"({changelog}|{positions}):\d")
    assert not read_topic(broker.bootstrap_servers, internal_topics(scene.config)[0]), "nothing is on its way"
    kill("offsets:2")
    # All ids are there: the second hop would begin, the first one does not.
    kill("ended:2")
    refused(rf"{positions}:\d")
    assert not read_topic(broker.bootstrap_servers, scene.config.sink)
    kill("ended")
    # One partition of the source is whole: whoever begins it finds all ids.
    refused(f"{positions}:1")

    told = scene.loaded(*arguments)
    assert told[-1]["expired"] == 20
    assert [each["sample"] is None for each in told[SINKS:-1]] == [True, False]
    assert scene.loaded(*arguments)[-1]["loaded_before"] is True
    group = group_offsets(broker.bootstrap_servers, scene.config.application_id)
    assert group[scene.config.source, 1] == cuts[1]

    scene.drain()
    assert scene.assert_goes_on(history, cuts) > 10
    first = next(each for each in scene.receipts() if "backfill" in each["owner"])
    said = explained(scene.config, RecordRef(scene.config.source, first["partition"], first["offset"]))
    assert f"its id was delivered before, in backfill {RUN}; there is no record of it in the source" in said


def marked(scene: RouteFill, topic: str) -> set[int]:
    """Return the partitions of a changelog that have a committed mark."""
    return {
        each.partition for each in read_topic(scene.config.bootstrap_servers, topic) if each.key == BACKFILL_KEY
    }


def test_what_cannot_be_backfilled_with_a_route_is_refused_and_nothing_is_loaded(
    broker: Broker, tmp_path: Path
) -> None:
    scene = RouteFill(broker, tmp_path)
    scene.stream(4, 20)
    topic = scene.as_topic(scene.records[0])

    def refused(
        cuts: dict[int, int], code: int, message: str, where: RouteFill = scene, history: str = topic
    ) -> None:
        done = where.run(*where.arguments(history, cuts))
        assert done.exit_code == code, done.output
        assert message in " ".join(done.stderr.split())

    refused({0: 5}, 2, "where does the stream go on in partition 1")
    refused({0: 5, 1: 5, 2: 0}, 2, "there is no partition 2")
    refused({0: 5, 1: 21}, 1, f"{scene.config.source}:1: the cut, offset 21, lies beyond the end, which is 20")
    tagged = copy.copy(scene)
    (pipeline,) = scene.config.pipelines
    tags = {"fingerprint": {"of": "value"}, "on_collision": "tag"}
    tagged.config = replace(scene.config, pipelines=(replace(pipeline, dedup={**pipeline.dedup, **tags}),))
    # Before the history is looked at, which may take hours.
    refused({0: 5, 1: 5}, 1, "tags collisions with the first record", tagged, "there-is-none")
    internal = internal_topics(scene.config)[0]
    produce(broker.bootstrap_servers, internal, scene.records[0][:1], partition=1)
    refused({0: 5, 1: 5}, 1, f"{internal}:1 has records, which a worker has sent")
    assert not marked(scene, scene.config.changelog)


def test_a_routed_pipeline_with_a_state_is_refused_in_both_hops(broker: Broker, tmp_path: Path) -> None:
    scene = RouteFill(broker, tmp_path)
    scene.stream(5, 20)
    scene.drain()

    done = scene.run(*scene.arguments(scene.config.source, {0: 5, 1: 5}))

    assert done.exit_code == 1
    said = " ".join(done.stderr.split())
    for name in (scene.config.source, internal_topics(scene.config)[0]):
        assert f"{name}:0 has a state already: only a pipeline that has not begun can be backfilled" in said


def test_a_load_is_given_up_where_a_worker_has_written_to_either_hop_since_the_look(
    broker: Broker, tmp_path: Path
) -> None:
    scene = RouteFill(broker, tmp_path)
    scene.stream(6, 20)
    assert scene.run(*scene.arguments(scene.config.source, {0: 5, 1: 5}), "--dry-run").exit_code == 0
    staging = Staging.read(next(scene.config.state_dir.rglob(RUN)))
    positions = internal_topics(scene.config)[1]

    async def load() -> None:
        settings = read_config(scene.config.write())
        async with loading(settings, settings.pipelines[0], staging) as work:
            plan = await work.plan()
            await asyncio.to_thread(
                produce, broker.bootstrap_servers, positions, scene.records[0][:1], partition=1
            )
            await work.apply(plan, lambda _: None)

    with pytest.raises(StopError, match=f"{positions}:1 was written to meanwhile: a worker has begun"):
        asyncio.run(load())
    assert not marked(scene, scene.config.changelog) | marked(scene, positions)
