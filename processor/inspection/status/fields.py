"""Writes what is known of an application as JSON objects; docs/status.md explains each field.

Times are ms since 1970, sizes bytes; what is not known is null.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from processor.inspection.status.say import age_s, sentence

if TYPE_CHECKING:
    from processor.errors import Problem
    from processor.inspection.status.facts import (
        ApplicationProgress,
        HopProgress,
        PartitionProgress,
        PipelineProgress,
        QuarantineTally,
    )
    from processor.kafka.group.description import DescribedMember
    from processor.kafka.transactions.listing import OpenTransaction


def application_fields(application: ApplicationProgress) -> dict[str, Any]:
    """Return the object about the group and its workers."""
    group = application.group
    hops = [hop for pipeline in application.pipelines for hop in pipeline.hops]
    return {
        "kind": "group",
        "group": application.application_id,
        "at_ms": application.at_ms,
        "reachable": not application.unreachable,
        "state": None if group is None else group.state,
        "workers": None if group is None else [_worker(each, hops) for each in group.members],
        "notes": list(application.notes) + ([application.unreachable] if application.unreachable else []),
    }


def pipeline_fields(pipeline: PipelineProgress, application: ApplicationProgress) -> dict[str, Any]:
    """Return the object about a pipeline."""
    said = sentence(pipeline, application)
    return {
        "kind": "pipeline",
        "pipeline": pipeline.pipeline.name,
        "at_ms": application.at_ms,
        "observing": pipeline.pipeline.observe,
        "level": str(said.level),
        "says": said.text,
        "hops": [_hop(each) for each in pipeline.hops],
        "states": list(pipeline.states),
        "escaped": list(pipeline.escaped),
        "open_transactions": [_transaction(each, application.at_ms) for each in pipeline.open],
        "quarantine": list(map(_tally, pipeline.quarantine.tallies)),
        "quarantine_cut": pipeline.quarantine.cut,
        "verdicts": None if pipeline.verdicts is None else asdict(pipeline.verdicts),
        "missing_topics": list(pipeline.missing),
        "problems": list(map(_problem, pipeline.problems)),
        "warnings": list(map(_problem, pipeline.warnings)),
    }


def _tally(tally: QuarantineTally) -> dict[str, Any]:
    said = asdict(tally)
    del said["source_topic"]  # that of the pipeline; the example says it, too
    return said


def _worker(member: DescribedMember, hops: list[HopProgress]) -> dict[str, Any]:
    return {
        "worker": member.name,
        "client_id": member.client_id,
        "host": member.host,
        "slots": {hop.name: member.slots_of(hop.source) for hop in hops},
        "partitions": {
            hop.name: [tp.partition for tp in member.assigned if tp.topic == hop.source] for hop in hops
        },
    }


def _hop(hop: HopProgress) -> dict[str, Any]:
    return {
        "hop": hop.name,
        "source": hop.source,
        "lag": hop.lag,
        "records_per_s": None if hop.records_per_s is None else round(hop.records_per_s, 1),
        "changelog": hop.changelog,
        "changelog_bytes": hop.changelog_bytes,
        "local_bytes": list(hop.local_bytes),
        "partitions": [_partition(each) for each in hop.partitions],
    }


def _partition(partition: PartitionProgress) -> dict[str, Any]:
    fields = asdict(partition)
    number = fields.pop("number")
    return {"partition": number, **fields, "lag": partition.lag, "lag_to_end": partition.lag_to_end}


def _transaction(transaction: OpenTransaction, now_ms: int) -> dict[str, Any]:
    age = age_s(transaction, now_ms)
    fields = asdict(transaction)
    topic, number = fields.pop("partition")
    return {
        "topic": topic,
        "partition": number,
        **fields,
        "age_s": None if age is None else round(age, 1),
    }


def _problem(problem: Problem) -> dict[str, str]:
    return {"key": problem.key, "message": problem.message}
