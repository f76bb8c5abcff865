"""Finds a topic in a config: what it is for, and which of its headers hold binary numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.kafka.topics.plan import INTERNAL, MARKED, Purpose, topics_of
from schemas.near import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from schemas.config import Dedup, Pipeline, Settings

_NUMBER_BYTES = {"int64": 8, "int32": 4}


@dataclass(frozen=True)
class ReadableTopic:
    """A topic of a config whose records people can read.

    Attributes:
        name: Its name.
        purposes: What pipelines use it for; empty where only an aggregate knows it.
        numbers: By header name, how many bytes its big-endian number has.
        wraps: Whether sequences of one of these pipelines begin again.
    """

    name: str
    purposes: frozenset[Purpose]
    numbers: Mapping[bytes, int]
    wraps: bool = False

    @classmethod
    def of(cls, settings: Settings, name: str) -> ReadableTopic:
        """Return the topic of this name; `topic_fault` must not have found anything."""
        users = [(purpose, pipeline) for purpose, topic, pipeline in _uses(settings) if topic == name]
        numbers: dict[bytes, int] = {}
        for _, pipeline in users:
            numbers |= _binary_headers(pipeline.dedup)
        wraps = any(pipeline.sequences_wrap for _, pipeline in users)
        return cls(name, frozenset(purpose for purpose, _ in users), numbers, wraps)


def topic_fault(settings: Settings, name: str) -> str | None:
    """Return why a topic cannot be read, and what can be; None: it can."""
    readable: dict[str, None] = {}
    for purpose, topic, pipeline in _uses(settings):
        if topic == name and purpose in INTERNAL | MARKED:
            return (
                f"{name} is the {purpose} of pipeline {pipeline.name}: an internal topic, whose binary records "
                "only a worker reads; `seqmark verify` proves what follows from them"
            )
        if purpose not in INTERNAL | MARKED:
            readable[topic] = None
    readable |= dict.fromkeys(_aggregated(settings))
    if name in readable:
        return None
    return f"{name} is no topic of this config; {nearest(name, readable)}"


def _uses(settings: Settings) -> Iterator[tuple[Purpose, str, Pipeline]]:
    for pipeline in settings.pipelines:
        yield Purpose.SOURCE, pipeline.source, pipeline
        for purpose, topic in topics_of(settings, pipeline):
            yield purpose, topic, pipeline


def _aggregated(settings: Settings) -> Iterator[str]:
    """Yield the topics that Spark reads and writes."""
    for sink in settings.aggregates:
        yield sink.topic
        if sink.output.kind == "kafka":
            yield sink.output.topic


def _binary_headers(dedup: Dedup) -> dict[bytes, int]:
    """Return the headers that hold a sequence or an epoch in binary, and how many bytes each has."""
    if dedup.mode != "watermark":
        return {}
    return {
        source.name.encode(): _NUMBER_BYTES[source.format]
        for source in (dedup.sequence, None if dedup.changes else dedup.epoch)
        if source is not None and source.from_ == "header" and source.format in _NUMBER_BYTES
    }
