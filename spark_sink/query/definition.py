"""Says beside a checkpoint what its state means, and refuses an aggregate that means something else by now.

Spark compares the names and types of its state's columns, and no more: a sum of another field over the same
checkpoint would go on where the old one stood. So what was counted stands in a file of its own:

    CHECKPOINT/seqmark.json    {"version": 1, "summed_by": "seqmark" or "spark", "topic_id": ID or null,
                                "means": {KEY: TEXT, ...}}

`summed_by` says of which source Spark's own offsets and state are: a query goes on by the one that it began
with.

`KEY` is that of the config, `TEXT` its value with the types of the fields that are used, in one form: intervals
in the largest unit. It is written before the first batch, and compared at each start after that.

Not part of it, because the numbers that are there stay right: the event-time watermark (Spark's own never goes
back, so that what is closed stays closed), fields that the aggregate does not use, how a field is checked,
`max_ahead` (each batch is judged by its own, `spark_sink.side_output`), the trigger, and where the output lies.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, Protocol

from processor.errors import StopError
from schemas.config.aggregates import aggregate_call
from schemas.config.values import duration_words
from schemas.event import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.config import Sink
    from schemas.event import EventModel
    from spark_sink.files import Files

NAME = "seqmark.json"
VERSION = 1
_KERNELS, _SPARK = "seqmark", "spark"
_AGGREGATES = "aggregates"


class TextFolder(Protocol):
    """A folder with texts in it: through Spark, or of this machine."""

    @property
    def folder(self) -> str:
        """Its path."""
        ...

    def read(self, name: str) -> str | None:
        """Return a file's text; None where there is no such file."""
        ...


class Definition(NamedTuple):
    """What stands beside a checkpoint."""

    means: Mapping[str, str]
    topic_id: str | None
    """None: not known, of brokers before Kafka 2.8."""
    by_kernels: bool = False
    """Whether the query sums up in Seqmark's own source (`spark_sink.query.partial_rows`)."""


def meaning(sink: Sink, model: EventModel) -> dict[str, str]:
    """Return what the numbers of an aggregate mean, by key of the config.

    Raises:
        ValueError: A field is not in the model; `schemas.event.aggregate_faults` says so beforehand.
    """

    def typed(path: str) -> str:
        kind = model.resolve(path)
        if kind is None:
            raise ValueError(f"{model.name} has no column {path}")
        return f"{path} ({describe(kind)})"

    means = {"topic": sink.topic, "time_field": typed(sink.time_field)}
    if sink.verdicts is not None:
        means["verdicts"] = sink.verdicts
    if sink.session_gap is not None:
        means["session_gap"] = duration_words(sink.session_gap)
    if sink.window is not None:
        means["window"] = duration_words(sink.window)
        # Windows that follow one another slide by their width.
        means["slide"] = duration_words(sink.slide or sink.window)
    # The order counts in both: it is that of the state's columns.
    means["group_by"] = ", ".join(map(typed, sink.group_by)) or "nothing"
    means[_AGGREGATES] = ", ".join(sink.aggregates)
    for name, text in sink.aggregates.items():
        column = aggregate_call(text).column
        means[f"{_AGGREGATES}.{name}"] = text.removesuffix(column) + typed(column) if column else text
    means["output.kind"] = sink.output.kind
    return means


def differences(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return in words every key that has changed."""
    keys = list(dict.fromkeys((*was, *now)))
    changed = [key for key in keys if was.get(key) != now.get(key)]
    if any(key.startswith(f"{_AGGREGATES}.") for key in set(was) ^ set(now)):
        # An aggregate that came or went is named by its own key; this one has only their order.
        changed.remove(_AGGREGATES)
    nothing = "not set"
    return [f"{key} was {was.get(key, nothing)}, is {now.get(key, nothing)}" for key in changed]


def read_definition(files: TextFolder) -> Definition | None:
    """Return what stands beside a checkpoint; None: nothing.

    Raises:
        StopError: It cannot be read, or a later version wrote it.
    """
    text = files.read(NAME)
    if text is None:
        return None
    where = f"{files.folder}/{NAME}"
    try:
        written = json.loads(text)
        version = written["version"]
        if version == VERSION:
            by_kernels = {_KERNELS: True, _SPARK: False}[written["summed_by"]]
            return Definition(dict(written["means"]), written["topic_id"], by_kernels)
    except (ValueError, KeyError, TypeError) as error:
        raise StopError(
            f"{where} cannot be read ({error}); put it back, or begin with a new checkpoint"
        ) from None
    raise StopError(f"{where} is of version {version}, which this version of Seqmark does not know: upgrade it")


def write_definition(files: Files, written: Definition) -> None:
    """Write it, whole or not at all."""
    by = _KERNELS if written.by_kernels else _SPARK
    content = {"version": VERSION, "summed_by": by, "topic_id": written.topic_id, "means": written.means}
    text = json.dumps(content, indent=1)
    files.write(NAME, text + "\n")


def require_same(sink: Sink, means: Mapping[str, str], written: Definition | None) -> None:
    """Refuse an aggregate whose checkpoint has counted something else, or nobody says what.

    Raises:
        StopError: It has counted something else, and the message has every difference; or nothing says what.
    """
    if written is None:
        raise StopError(
            f"aggregate {sink.name}: its checkpoint {sink.checkpoint} has no {NAME}, which says what it has "
            "counted: put it back, or begin with a new checkpoint and a new output"
        )
    if found := differences(written.means, means):
        raise StopError(
            f"aggregate {sink.name}: its checkpoint {sink.checkpoint} has counted something else than the "
            f"config says now: {'; '.join(found)}. Going on would mix both in one row. Set it back; or, to "
            f"count anew from the topic's first record, name a new checkpoint and a new output"
        )
