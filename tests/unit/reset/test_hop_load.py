"""What a load finds of a hop before it loads anything, over brokers in memory."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from processor.errors import StopError
from processor.kafka.client import KafkaCode, TopicPartition
from processor.kafka.topics.ensure import ensure
from processor.reset.backfill.load import loading
from processor.reset.backfill.staging import StagedPartition, Staging
from processor.reset.context import connected
from processor.wire.encode import plain_batch
from tests.simulation import scenario
from tests.simulation.brokers.kafka.cluster import Brokers
from tests.simulation.brokers.kafka.connection import calm_process
from tests.support.worker.routed import RoutedRules

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.config import Settings

INTERNAL = TopicPartition(f"{scenario.APPLICATION}-p-repartition", 0)
PRODUCER = 7


@pytest.fixture
def settings() -> Settings:
    """A pipeline with ``route``."""
    return scenario._settings(RoutedRules(), {"quarantine": "quarantine"})


@pytest.fixture
def brokers() -> Brokers:
    """Brokers with its topics."""
    made = Brokers(random.Random(1), verifies=False)
    for topic in ("source", "sink", "quarantine"):
        made.create(topic, 1, {"max.message.bytes": "1048588"})
    return made


def write(brokers: Brokers) -> None:
    """Write a record into the internal topic, in a transaction that is open."""
    batch = plain_batch([(b"key", b"value", int(time.time() * 1000), ())])
    code, _ = brokers.append(INTERNAL, None, batch.build(PRODUCER, 0, 0, transactional=True))
    assert code == KafkaCode.NONE


async def load(settings: Settings, folder: Path) -> None:
    """Load a history with nothing in it."""
    (pipeline,) = settings.pipelines
    async with connected(settings, pipeline, "backfill", "again", create=True) as context:
        empty = {0: StagedPartition(0, 0, 0, 0, 0)}
        staging = Staging(folder, "run", "p", context.definition, bytes(16), False, empty, cuts={0: 0})
    (folder / "partition-0").write_bytes(b"")
    async with loading(settings, pipeline, staging.write()) as loading_:
        await loading_.apply(await loading_.plan(), lambda _: None)


@pytest.mark.parametrize("commit", [False, None])
def test_a_routed_load_goes_on_where_the_internal_topic_has_nothing_but_markers(
    settings: Settings, brokers: Brokers, tmp_path: Path, *, commit: bool | None
) -> None:
    async def run() -> None:
        await ensure(settings, create=True)
        if commit is not None:
            write(brokers)
        brokers.mark(INTERNAL, PRODUCER, 0, commit=commit or False)
        await load(settings, tmp_path)

    with calm_process(brokers) as process:
        process(run())


@pytest.mark.parametrize("commit", [True, None])
def test_it_is_refused_where_a_worker_has_sent_records_or_may_have(
    settings: Settings, brokers: Brokers, tmp_path: Path, *, commit: bool | None
) -> None:
    async def run() -> None:
        await ensure(settings, create=True)
        write(brokers)
        if commit is not None:
            brokers.mark(INTERNAL, PRODUCER, 0, commit=commit)
        with pytest.raises(StopError, match="repartition:0 has records"):
            await load(settings, tmp_path)

    with calm_process(brokers) as process:
        process(run())
