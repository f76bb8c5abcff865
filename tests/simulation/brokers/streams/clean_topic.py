"""Writes the clean topic from verdicts as the command does, through kills, and what that has to refuse."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from processor.errors import SeqmarkError, StopError
from processor.kafka.client import KafkaError, TopicPartition
from processor.wire.encode import plain_batch
from processor.worker.materialize import Skipping, materialize
from tests.simulation.brokers.processes import Process
from tests.simulation.brokers.streams.readers import clean, has_gap, tampered, verdicts_in
from tests.simulation.faults import Killed
from tests.simulation.truth.oracle import read
from tests.support.judges.outcomes import plain

if TYPE_CHECKING:
    from tests.simulation.brokers.episode import WorkerEpisode
    from tests.simulation.faults import Fate
    from tests.support.kafka.topics import New

TRIES = 5
"""Through faults; then without."""
NOTHING, UNJUDGED = Skipping(), Skipping(unjudged=True)


async def materialized(episode: WorkerEpisode) -> bool:
    """What is written from verdicts is the clean stream, up to where they end; other sources are refused.

    Returns:
        Whether that was looked at: no verdict is left then.
    """
    brokers, records = episode.brokers, episode.scenario.records
    said = {number: verdicts_in(brokers, number) for number in range(len(records))}
    if not any(said.values()) or any(each.records for some in episode.story.values() for each in some):
        return False
    skipping = NOTHING
    if any(map(has_gap, said.values())):
        await _refused(episode, "offsets that have no verdict")
        skipping = UNJUDGED
    else:
        await _other_source_refused(episode)
    await _through_faults(episode, skipping)
    wanted = {number: clean(some, records[number]) for number, some in said.items()}
    _require_sink(episode, wanted)
    for number in range(brokers.topics["verdicts"].partitions):
        log = brokers.log("verdicts", number)
        log.delete_before(log.stable)
    # Of what was read nothing is missing, and what was not is nothing but markers.
    await _run(episode, episode.calm, NOTHING)
    _require_sink(episode, wanted)
    foreign = plain_batch([(b"somebody", b"else", 0, ())]).build(-1, -1, -1, transactional=False)
    brokers.log("sink", 0).append(foreign)
    await _refused(episode, "a sink that others have written to")
    return True


async def _other_source_refused(episode: WorkerEpisode) -> None:
    brokers, number = episode.brokers, episode.dice.randrange(len(episode.scenario.records))
    said = verdicts_in(brokers, number)
    tp = TopicPartition("source", number)
    whole = brokers.logs[tp]
    other = tampered(whole, said[0][1].base, said[-1][1].end) if said else None
    if other is not None:
        brokers.logs[tp] = other
        await _refused(episode, "another source")
        brokers.logs[tp] = whole


def _require_sink(episode: WorkerEpisode, wanted: dict[int, list[New]]) -> None:
    for number, some in wanted.items():
        found = [plain(each) for each in read(episode.brokers, "sink", number)]
        assert found == some, f"{len(found)} records are written from verdicts, {len(some)} wanted"


async def _through_faults(episode: WorkerEpisode, skipping: Skipping) -> None:
    for _ in range(TRIES):
        try:
            await _run(episode, episode.fate, skipping)
        except (Killed, asyncio.CancelledError, SeqmarkError, KafkaError):
            continue
        return
    await _run(episode, episode.calm, skipping)


async def _run(episode: WorkerEpisode, fate: Fate, skipping: Skipping) -> None:
    settings = episode.now
    (pipeline,) = settings.pipelines
    process = Process(episode.brokers, fate)
    try:
        await process.begin(materialize(settings, pipeline, lambda _: None, lambda _: None, skipping))
    finally:
        await process.gone()


async def _refused(episode: WorkerEpisode, what: str) -> None:
    try:
        await _run(episode, episode.calm, NOTHING)
    except StopError:
        return
    raise AssertionError(f"a clean topic is made of {what}")
