"""Looks at the cluster: whether it can be reached, the topics of the pipelines, and those of the aggregates."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from processor.errors import SeqmarkError, StopError
from processor.inspection.findings import Level
from processor.kafka.topics.ensure import (
    UnreachableError,
    UnresolvedError,
    connected,
    ensure,
    topic_names,
)
from processor.kafka.topics.writers import other_writers
from processor.ops.status_text import count
from processor.reset.changed import changed
from schemas.near import near

if TYPE_CHECKING:
    from processor.inspection.findings import Findings
    from processor.kafka.topics.plan import ClusterPlan
    from schemas.config import Settings

KEY = "kafka.bootstrap_servers"
BROKER, TOPICS = "broker", "topics"
UNCHECKED = "the topics were not checked, nor what the changelogs hold"


def check_cluster(settings: Settings, found: Findings, *, require_broker: bool) -> ClusterPlan | None:
    """Look at the cluster, if it can be reached.

    Args:
        settings: The config.
        found: What is found is added to it.
        require_broker: Brokers that cannot be reached are a problem, and not a warning; a host that does
            not resolve always is.

    Returns:
        What should be there and what is; None: nobody answers, or the broker refuses.

    Raises:
        ConfigError: Files of certificates or keys are wrong.
    """
    try:
        plan, names = asyncio.run(_look(settings))
    except (UnreachableError, UnresolvedError) as error:
        # A broker may be down for a while; a name that nobody knows is a mistake in it, or here.
        wrong = require_broker or isinstance(error, UnresolvedError)
        (found.problem if wrong else found.warning)(BROKER, KEY, f"{UNCHECKED}: {error}")
        return None
    except StopError as error:
        found.problem(BROKER, "kafka", str(error))
        return None
    found.ok(BROKER, KEY, f"brokers answer at {settings.kafka.bootstrap_servers}")
    _pipelines(settings, plan, found)
    _aggregates(settings, plan, names, found)
    if not found.problems:
        _changelogs(settings, found)
    return plan


async def _look(settings: Settings) -> tuple[ClusterPlan, list[str]]:
    plan = await ensure(settings, create=False)
    plan.problems += await other_writers(settings, settings.pipelines)
    if not settings.aggregates:
        return plan, []
    async with connected(settings.kafka) as admin:
        return plan, await topic_names(admin)


def _pipelines(settings: Settings, plan: ClusterPlan, found: Findings) -> None:
    found.add(TOPICS, Level.PROBLEM, plan.problems)
    found.add(TOPICS, Level.WARNING, plan.warnings)
    if settings.worker.create_topics:
        for each in plan.missing:
            what = f"{each.purpose} of pipeline {each.pipeline} does not exist"
            parts = count(each.partitions, "partition")
            found.note(TOPICS, each.topic, f"{what}; the worker will create it with {parts}")
    else:
        found.add(TOPICS, Level.PROBLEM, plan.absent)
        found.add(TOPICS, Level.WARNING, plan.unmarked)
    said = {problem.key for problem in (*plan.problems, *plan.warnings)}
    for each in plan.topics:
        if each.exists and each.topic not in said:
            parts = count(each.partitions, "partition")
            found.ok(TOPICS, each.topic, f"{each.purpose} of pipeline {each.pipeline}, {parts}")


def _aggregates(settings: Settings, plan: ClusterPlan, names: list[str], found: Findings) -> None:
    """Warn of topics that no pipeline writes and that are not there."""
    pipelines = settings.pipelines
    written = {topic for pipeline in pipelines for topic in pipeline.outputs}
    written |= {pipeline.sink for pipeline in pipelines if pipeline.sink is not None}
    sources = {pipeline.source for pipeline in pipelines}
    spoken = {pipeline.verdicts for pipeline in pipelines if pipeline.verdicts is not None}
    there = {*names, *(each.topic for each in plan.topics if each.exists)}
    for index, sink in enumerate(settings.aggregates):
        looked_at = [("topic", sink.topic, written, "writes", "the sink of a pipeline")]
        if sink.verdicts is not None:
            looked_at = [
                ("topic", sink.topic, sources, "reads", "the source of a pipeline"),
                ("verdicts", sink.verdicts, spoken, "writes", "the verdicts of that pipeline"),
            ]
        for name, topic, known, does, right in looked_at:
            key = f"aggregates.{index}.{name}"
            if topic in there:
                found.ok(TOPICS, key, f"{topic} is there")
            elif topic not in known:
                meant = near(topic, sorted(known)) or near(topic, names)
                hint = f"did you mean {meant}?" if meant else f"no record will come: name {right}"
                found.warn_once(
                    TOPICS, key, f"no pipeline of this config {does} {topic}, and it does not exist; {hint}"
                )


def _changelogs(settings: Settings, found: Findings) -> None:
    """Warn of each pipeline whose state was made by other rules than its config has now."""
    try:
        for problem in asyncio.run(changed(settings)):
            found.warn_once(TOPICS, problem.key, problem.message)
    except SeqmarkError as error:
        found.warn_once(BROKER, KEY, f"the changelogs were not looked at: {error}")
