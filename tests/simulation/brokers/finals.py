"""What is looked at when all is taken in: a certificate, readers by verdicts, and who has to be refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from processor.verify.certificate import Certificate
from processor.wire.encode import plain_batch
from tests.simulation.brokers import incidents
from tests.simulation.brokers.streams.readers import require_readable, verdicts_in
from tests.simulation.truth.oracle import read, require_outputs
from tests.support.judges.id_rules import IdRules

if TYPE_CHECKING:
    from processor.verify.report import VerifyReport
    from schemas.config import Settings
    from tests.simulation.brokers.episode import WorkerEpisode
    from tests.simulation.brokers.kafka.cluster import Topic

SAME_NAMES = "sim", "a-p"
"""Application and pipeline, of which the internal topics have the names of the simulated pipeline's."""


async def certified(episode: WorkerEpisode) -> None:
    """A certificate holds; not where a verdict record stands twice."""
    scenario, brokers = episode.scenario, episode.brokers
    rules = scenario.rules
    if episode.shared:
        return  # a certificate knows the pipelines of its config alone
    if episode.switches or scenario.small or (isinstance(rules, IdRules) and not rules.exact):
        return
    if episode.backfilled and isinstance(rules, IdRules) and rules.refresh:
        return  # nobody knows what was renewed before
    settings = episode.now
    for report in await _reports(episode, settings):
        assert report.ok, f"the certificate of partition {report.partition} is broken: {report.violations}"
        assert not report.pending, f"{report.pending} offsets of partition {report.partition} are pending"
    if scenario.kind.topics.verdicts is None:
        return
    number = episode.dice.randrange(len(scenario.records))
    said = [at for at, verdict in verdicts_in(brokers, number) if verdict.base < verdict.end]
    log = brokers.log("verdicts", number)
    if said:
        (again,) = (each for each in read(brokers, "verdicts", number) if each.offset == said[-1])
        kept = list(log._batches), log.end
        batch = plain_batch([(again.key, again.value, again.timestamp, ())])
        log.append(batch.build(-1, -1, -1, transactional=False))
        reports = await _reports(episode, settings)
        assert not reports[number].ok, "a certificate takes a verdict record that stands twice"
        log._batches, log.end = kept


async def _reports(episode: WorkerEpisode, settings: Settings) -> list[VerifyReport]:
    async def run() -> list[VerifyReport]:
        certificate = Certificate(settings, settings.pipelines)
        await certificate.open()
        return await certificate.run(lambda _: None, lambda _: None)

    found: list[VerifyReport] = await episode.calmly(run())
    return found


async def read_by_verdicts(episode: WorkerEpisode) -> None:
    """Read the source by its verdicts, which say nothing of the last that came."""
    scenario, dice = episode.scenario, episode.dice
    for number, records in enumerate(scenario.records):
        if verdicts_in(episode.brokers, number):
            judged = list(records)
            scenario.fill(dice, episode.brokers, number)
            require_readable(dice, episode.brokers, number, judged)


async def foreign(episode: WorkerEpisode) -> None:
    """Another application, whose topics have the same names, does not take the state over."""
    settings = episode.now
    application, name = SAME_NAMES
    (pipeline,) = settings.pipelines
    theirs = settings.model_copy(
        update={
            "worker": settings.worker.model_copy(update={"application_id": application}),
            "pipelines": [pipeline.model_copy(update={"name": name})],
        }
    )
    await episode.refused(theirs, "the state of another application")


async def grown(episode: WorkerEpisode) -> None:
    """The source grows first: its new partition waits for the other topics, and the others go on."""
    scenario, dice, brokers = episode.scenario, episode.dice, episode.brokers
    for number in range(len(scenario.records)):
        scenario.fill(dice, brokers, number)
    brokers.grow("source")
    await episode.work(episode.now, interrupted=True)
    episode.note()
    for topic in sorted(brokers.topics.keys() - {"source"}):
        brokers.grow(topic)
    await episode.work(episode.now)
    episode.note()
    for number in range(len(scenario.records)):
        require_outputs(scenario, brokers, number, episode.story[number])


async def source_made_again(episode: WorkerEpisode) -> None:
    """The source is deleted and made again under a worker, which takes in nothing of the new one."""
    scenario, dice, brokers = episode.scenario, episode.dice, episode.brokers
    numbers = range(len(scenario.records))
    for number in numbers:
        scenario.fill(dice, brokers, number)

    loop = asyncio.get_running_loop()

    def delete() -> None:
        ends = [brokers.log("source", number).end for number in numbers]
        loop.call_later(dice.choice((0, 1)), make_again, brokers.delete("source", late=True), ends)

    def make_again(topic: Topic, ends: list[int]) -> None:
        nobody_else.append("source" not in brokers.topics)
        if not nobody_else[0]:
            brokers.delete("source")
        brokers.create("source", topic.partitions, topic.configs)
        for number, end in zip(numbers, ends, strict=True):
            while brokers.log("source", number).end <= end:
                scenario.fill_other(dice, brokers, number)

    nobody_else: list[bool] = []
    incidents.after_some_ends(episode, delete)
    episode.may_stop = True
    await episode.work(episode.now)
    incidents.nothing_more(episode)
    await asyncio.sleep(1)
    assert all(nobody_else), "a worker has brought a deleted topic back"
    episode.note()
    for number in numbers:
        require_outputs(scenario, brokers, number, episode.story[number])
