"""Finds values of the aggregates that are wrong together.

As in `schemas.config.rules`, which calls this: rules look at right values only, so that a wrong one does not
hide the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schemas.config.aggregates import (
    KafkaOutput,
    ParquetOutput,
    PostgresOutput,
    default_aside,
    output_column,
)
from schemas.config.values import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WINDOW_COLUMNS = ("window_start", "window_end")
"""The first columns of every output row."""

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
        for where, message in [*_windows(sink, table), *_columns(sink), *_topic(sink, pipelines)]:
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
    for index, path in enumerate(sink.get("group_by", [])):
        name = output_column(path).lower()
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
        for role in ("source", "sink", "duplicates", "quarantine"):
            if pipeline.get(role) == topic:
                yield ("output", "topic"), f"is used by pipelines.{index}.{role} already"
                return


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
    if isinstance(output, ParquetOutput):
        yield ("output", "path"), ("folder", output.path.rstrip("/"))
    elif isinstance(output, PostgresOutput):
        yield ("output", "table"), ("table", output.url, output.table)
    elif isinstance(output, KafkaOutput):
        yield ("output", "topic"), ("topic", output.topic)
    checkpoint, aside = sink.get("checkpoint"), sink.get("aside")
    if aside is not None:
        yield ("aside",), ("folder", aside.rstrip("/"))
    elif checkpoint is not None:
        yield ("checkpoint",), ("folder", default_aside(checkpoint))
