"""Finds values of the aggregates that are wrong together.

As in `schemas.config.rules`, which calls this: rules look at right values only, so that a wrong one does not
hide the others.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from schemas.config.aggregates import (
    DeltaOutput,
    FolderOutput,
    IcebergOutput,
    KafkaOutput,
    PostgresOutput,
    default_aside,
    output_column,
)
from schemas.config.values import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WINDOW_COLUMNS = ("window_start", "window_end")
"""The first columns of every output row."""
DELTA_DATE, ICEBERG_DAY = "window_date", "window_start_day"
"""What a table of Delta and of Iceberg is parted by: the date at which a window begins, UTC."""
_PARTS: dict[type, str] = {DeltaOutput: DELTA_DATE, IcebergOutput: ICEBERG_DAY}
_NOT_DELTAS = " ,;{}()\n\t="
"""Characters that Delta takes in no column's name, unless names are mapped."""

Where = tuple[str | int, ...]
Violation = tuple[Where, str]


def aggregate_violations(
    sinks: Sequence[Mapping[str, Any]],
    written: Sequence[Mapping[str, Any]],
    pipelines: Sequence[Mapping[str, Any]],
) -> Iterator[Violation]:
    """Yield every broken rule of the aggregates.

    Args:
        sinks: Right values of the aggregates.
        written: The same as they were written: a key with a wrong value is not a missing one.
        pipelines: Right values of the pipelines.
    """
    for index, (sink, table) in enumerate(zip(sinks, written, strict=True)):
        verdicts = _verdicts(sink, table, pipelines)
        for where, message in [*_windows(sink, table), *_columns(sink), *_topic(sink, pipelines), *verdicts]:
            yield ("aggregates", index, *where), message
    yield from _places(sinks)


def _windows(sink: Mapping[str, Any], written: Mapping[str, Any]) -> Iterator[Violation]:
    given = [key for key in ("window", "session_gap") if key in written]
    if not given:
        yield ("window",), 'is missing: write window = "1h", or session_gap = "30m" for sessions'
    if len(given) == 2:
        yield ("session_gap",), "does not go with window: take one of them"
    if "slide" not in written:
        return
    if "window" not in written:
        yield ("slide",), "needs window; sessions do not slide"
        return
    window, slide = sink.get("window"), sink.get("slide")
    if window and slide and slide > window:
        told = f"the window ({duration_text(window)})"
        yield ("slide",), f"must not be longer than {told}: events between two would be lost"


def _columns(sink: Mapping[str, Any]) -> Iterator[Violation]:
    """Compare output columns without regard to case, as Spark and SQL do."""
    taken = dict.fromkeys(WINDOW_COLUMNS, "a column of every output")
    output = sink.get("output")
    if (part := _PARTS.get(type(output))) is not None:
        taken[part] = "what the table is parted by"
    for index, path in enumerate(sink.get("group_by", [])):
        name = output_column(path).lower()
        if isinstance(output, DeltaOutput) and (odd := set(name) & set(_NOT_DELTAS)):
            told = f"makes the column {name}, and Delta takes no {min(odd)!r} in a column's name"
            yield ("group_by", index), told
        if name in taken:
            yield ("group_by", index), f"makes the column {name}, which is {taken[name]}"
        taken.setdefault(name, f"made by group_by.{index}")
    for key in sink.get("aggregates", {}):
        if key.lower() in taken:
            yield ("aggregates", key), f"is {taken[key.lower()]} already; give it another name"
        taken.setdefault(key.lower(), f"made by aggregates.{key}")


def _topic(sink: Mapping[str, Any], pipelines: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    output = sink.get("output")
    if not isinstance(output, KafkaOutput):
        return
    topic = output.topic
    if topic == sink.get("topic"):
        yield ("output", "topic"), "must not be the topic that the aggregate reads"
    for index, pipeline in enumerate(pipelines):
        for role in ("source", "sink", "verdicts", "duplicates", "quarantine"):
            if pipeline.get(role) == topic:
                yield ("output", "topic"), f"is used by pipelines.{index}.{role} already"
                return
    if topic == sink.get("verdicts"):
        yield ("output", "topic"), "must not be the topic of verdicts that the aggregate reads"


def _verdicts(
    sink: Mapping[str, Any], written: Mapping[str, Any], pipelines: Sequence[Mapping[str, Any]]
) -> Iterator[Violation]:
    """Compare the topics that an aggregate reads with those of the pipeline whose source it is."""
    topic, verdicts = sink.get("topic"), sink.get("verdicts")
    if verdicts is not None and verdicts == topic:
        yield ("verdicts",), "must not be the topic itself: it names the source, and verdicts another topic"
        return
    if "verdicts" in written and "max_offsets_per_trigger" in written:
        yield ("max_offsets_per_trigger",), "does not go with verdicts: a batch is all that they cover"
    for index, pipeline in enumerate(pipelines):
        name, theirs = f"pipelines.{index}", pipeline.get("verdicts")
        if topic is None or pipeline.get("source") != topic:
            if verdicts is not None and theirs == verdicts:
                yield (
                    ("topic",),
                    f"must be the source of {name} ({pipeline.get('source')}), as verdicts are its",
                )
        elif "verdicts" not in written and pipeline.get("output") == "verdicts":
            right = f'write beside it verdicts = "{theirs}"; to count duplicates too, name no pipeline here'
            yield ("topic",), f"is the source of {name}, whose verdicts say what to skip: {right}"
        elif verdicts is not None and theirs != verdicts:
            right = f'must be those of {name}: "{theirs}"' if theirs else f"has no effect: {name} writes none"
            yield ("verdicts",), right


def _places(sinks: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    """Two queries that write to one place destroy each other's results."""
    seen: dict[tuple[Any, ...], Where] = {}
    for index, sink in enumerate(sinks):
        for where, place in _written(sink):
            here = ("aggregates", index, *where)
            # Checkpoints that are the same have been named as such.
            if place in seen and not seen[place][-1] == where[-1] == "checkpoint":
                yield here, f"is the same place as {'.'.join(map(str, seen[place]))}; each needs its own"
            seen.setdefault(place, here)


def _written(sink: Mapping[str, Any]) -> Iterator[tuple[Where, tuple[Any, ...]]]:
    """Yield the places that an aggregate writes to; its checkpoint has a rule of its own."""
    output = sink.get("output")
    if isinstance(output, FolderOutput):
        yield ("output", "path"), ("folder", posixpath.normpath(output.path))
    elif isinstance(output, PostgresOutput):
        yield ("output", "table"), ("table", output.url, output.table)
    elif isinstance(output, KafkaOutput):
        yield ("output", "topic"), ("topic", output.topic)
    checkpoint, aside = sink.get("checkpoint"), sink.get("aside")
    if aside is not None:
        yield ("aside",), ("folder", posixpath.normpath(aside))
    elif checkpoint is not None:
        yield ("checkpoint",), ("folder", posixpath.normpath(default_aside(checkpoint)))
