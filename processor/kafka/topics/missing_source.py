"""Says how a source that does not exist is made: its partition count is the producer's to decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.config.near import near

if TYPE_CHECKING:
    from collections.abc import Collection

    from schemas.config import Pipeline, Settings


def no_source(settings: Settings, pipeline: Pipeline, others: Collection[str]) -> str:
    """Return what to say of it; ``others``: all topics there, of which one may be meant."""
    text = f"the source of pipeline {pipeline.name} does not exist: create it first"
    if meant := near(pipeline.source, others):
        text += f", or did you mean {meant}?"
    secured = "" if settings.kafka.security_protocol == "PLAINTEXT" else " --command-config client.properties"
    return (
        f"{text}; `kafka-topics.sh --bootstrap-server {settings.kafka.bootstrap_servers}{secured} --create "
        f"--topic {pipeline.source} --partitions 4` creates it, `seqmark generate -c FILE --pipeline "
        f"{pipeline.name} --records 100000` creates it with a test stream in it"
    )
