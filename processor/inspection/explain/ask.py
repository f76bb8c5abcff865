"""Reads what was asked for: which position, of which topic of which pipeline."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from processor.errors import ConfigError, Problem
from processor.kafka.topics.plan import INTERNAL, MARKED, Purpose, topics_of
from processor.wire.receipt_values import RecordRef
from schemas.near import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.config import Pipeline, Settings

_FORM = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249}):(?P<partition>[0-9]{1,30}):(?P<offset>[0-9]{1,30})")
_READABLE = (Purpose.SOURCE, Purpose.SINK, Purpose.DUPLICATES, Purpose.QUARANTINE)
MOST_OFFSET = 2**63 - 1
MOST_PARTITION = 2**31 - 1


@dataclass(frozen=True)
class Question:
    """A position, and what its topic is to which pipeline.

    Attributes:
        ref: The position.
        pipeline: Whose topic it is. Where several share it, any of them: what stands there says whose it is.
        role: What it is to that pipeline.
        sharing: All pipelines that have the topic in this role.
    """

    ref: RecordRef
    pipeline: Pipeline
    role: Purpose
    sharing: tuple[Pipeline, ...]


def read_ref(text: str) -> RecordRef:
    """Return a position from ``TOPIC:PARTITION:OFFSET``.

    Raises:
        ConfigError: It is none; says what would be right.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ConfigError([Problem("TOPIC:PARTITION:OFFSET", f"{text[:300]!r} {_not_a_ref(text.strip())}")])
    partition, offset = int(found["partition"]), int(found["offset"])
    for name, number, most in (("partition", partition, MOST_PARTITION), ("offset", offset, MOST_OFFSET)):
        if number > most:
            raise ConfigError([Problem("TOPIC:PARTITION:OFFSET", f"{number} is no {name}: at most {most}")])
    return RecordRef(found["topic"], partition, offset)


def _not_a_ref(text: str) -> str:
    """Say what is wrong with a position."""
    parts = text.split(":")
    example = "write it like clicks.raw:3:8101"
    if len(parts) < 3:
        missing = {1: "has no partition and no offset", 2: "has no offset"}[len(parts)]
        return f"{missing}: {example}"
    if len(parts) > 3:
        return f"has too many parts: {example}"
    topic, partition, offset = parts
    if not partition.isdecimal():
        return f"has {partition[:50]!r} for a partition, which is a number from 0 on: {example}"
    if not offset.isdecimal():
        return f"has {offset[:50]!r} for an offset, which is a number from 0 on: {example}"
    return f"has {topic[:50]!r} for a topic, which has letters, digits, '.', '_' and '-': {example}"


def question_of(settings: Settings, ref: RecordRef, pipeline: str | None = None) -> Question:
    """Find out what the topic of a position is.

    A topic that is the sink of one pipeline and the source of another is taken as the source; ``pipeline``
    names another.

    Raises:
        ConfigError: It is no topic of this config, or not of this pipeline, or an internal one.
    """
    uses = [
        (purpose, topic, each)
        for each in settings.pipelines
        for purpose, topic in ((Purpose.SOURCE, each.source), *topics_of(settings, each))
        if pipeline is None or each.name == pipeline
    ]
    for purpose, topic, each in uses:
        if topic == ref.topic and purpose in INTERNAL | MARKED:
            what = f"{topic} is the {purpose} of pipeline {each.name}, which is internal"
            right = f"name a position in its source {each.source}, or in what it writes"
            raise ConfigError([Problem("TOPIC:PARTITION:OFFSET", f"{what}: {right}")])
    _refuse_verdicts(ref.topic, uses)
    for role in _READABLE:
        users = tuple(each for purpose, topic, each in uses if topic == ref.topic and purpose is role)
        if users:
            return Question(ref, users[0], role, users)
    known = {topic for purpose, topic, _ in uses if purpose not in INTERNAL | MARKED}
    of = "of this config" if pipeline is None else f"of pipeline {pipeline}"
    raise ConfigError(
        [Problem("TOPIC:PARTITION:OFFSET", f"{ref.topic} is no topic {of}; {nearest(ref.topic, known)}")]
    )


def _refuse_verdicts(topic: str, uses: Sequence[tuple[Purpose, str, Pipeline]]) -> None:
    """Refuse a topic of verdicts, and a sink that is made of them: both speak of positions in the source.

    Raises:
        ConfigError: It is one.
    """
    made = [(purpose, each) for purpose, name, each in uses if name == topic]
    for purpose, each in made:
        if purpose is Purpose.VERDICTS:
            what = f"{topic} has the verdicts of pipeline {each.name}, which `seqmark read` prints"
        elif purpose is Purpose.SINK and not each.writes_records and len(made) == 1:
            what = f"{topic} is written by `seqmark materialize`, which says of no record where it comes from"
        else:
            continue
        right = f"name a position in the source {each.source}"
        raise ConfigError([Problem("TOPIC:PARTITION:OFFSET", f"{what}: {right}")])
