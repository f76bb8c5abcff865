"""Several pipelines in one worker: a definition each, so that one start answers for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.support.kafka.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.worker.process import WorkerConfig


def pipelines_of(
    config: WorkerConfig, definitions: Mapping[str, Mapping[str, Any]], partitions: int = 1
) -> WorkerConfig:
    """Return a config with a pipeline for each ``dedup``, each with topics of its own; its sources are made."""
    first, pipelines = config.pipelines[0], []
    for name, dedup in definitions.items():
        source = f"{first.source}.{name}"
        create_topic(config.bootstrap_servers, source, partitions)
        outputs: dict[str, Any] = {
            role: topic and f"{source}.{role}"
            for role, topic in (
                ("sink", first.sink),
                ("duplicates", first.duplicates),
                ("quarantine", first.quarantine),
            )
        }
        pipelines.append(replace(first, name=name, source=source, dedup=dedup, **outputs))
    return replace(config, pipelines=tuple(pipelines))


def alone(config: WorkerConfig, name: str) -> WorkerConfig:
    """Return a config with one of its pipelines."""
    return replace(config, pipelines=tuple(each for each in config.pipelines if each.name == name))
