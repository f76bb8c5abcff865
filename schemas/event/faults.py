"""Finds columns of an aggregate that its event does not have, and aggregates that do not fit them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.config.aggregates import AggregateCall, aggregate_call
from schemas.event.model import EventModel, EventModelError
from schemas.event.types import (
    BoolType,
    DateType,
    DecimalType,
    FieldType,
    FloatType,
    IntType,
    TextType,
    TimestampType,
    describe,
)
from schemas.near import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.config import Settings, Sink

Fault = tuple[str, str]
"""Dotted key in the config, and what would be right."""

_NUMBERS = (IntType, FloatType, DecimalType)
_ORDERED = (*_NUMBERS, TextType, TimestampType, DateType, BoolType)
_ACCEPTED: dict[str, tuple[tuple[type[FieldType], ...], str]] = {
    "sum": (_NUMBERS, "a number"),
    "avg": (_NUMBERS, "a number"),
    "percentile": (_NUMBERS, "a number"),
    "min": (_ORDERED, "a number, a time, a string or a bool"),
    "max": (_ORDERED, "a number, a time, a string or a bool"),
    "approx_count_distinct": (_ORDERED, "a single value"),
}


def aggregate_faults(settings: Settings) -> list[Fault]:
    """Return everything in which the aggregates and their models do not fit, without starting Spark.

    Imports the models: code of the user's runs.
    """
    each = enumerate(settings.aggregates)
    return [fault for index, sink in each for fault in _sink(f"aggregates.{index}", sink)]


def _sink(key: str, sink: Sink) -> Iterator[Fault]:
    try:
        model = EventModel.load(sink.event)
    except EventModelError as error:
        yield from ((f"{key}.event", fault) for fault in error.faults)
        return
    yield from _time_field(f"{key}.time_field", sink.time_field, model)
    for index, path in enumerate(sink.group_by):
        kind = model.resolve(path)
        if kind is None:
            yield f"{key}.group_by.{index}", _unknown(path, model)
        elif not isinstance(kind, _ORDERED):
            yield f"{key}.group_by.{index}", f"{path} is a {describe(kind)}: group by single values"
    for name, text in sink.aggregates.items():
        yield from _aggregate(f"{key}.aggregates.{name}", aggregate_call(text), model)


def _time_field(key: str, path: str, model: EventModel) -> Iterator[Fault]:
    kind = model.resolve(path)
    if kind is None:
        yield key, _unknown(path, model)
    elif not isinstance(kind, TimestampType) or kind.zone == "none":
        yield key, f"{path} is a {describe(kind)}: it must be a point in time, such as AwareDatetime"
    elif kind.nullable:
        # An event without a time belongs to no window: it would be neither counted nor late.
        yield key, f"{path} may be null: events without a time belong to no window"


def _aggregate(key: str, call: AggregateCall, model: EventModel) -> Iterator[Fault]:
    if call.function == "count":
        return
    kind = model.resolve(call.column)
    if kind is None:
        yield key, _unknown(call.column, model)
        return
    accepted, words = _ACCEPTED[call.function]
    if not isinstance(kind, accepted):
        name = "a percentile" if call.function == "percentile" else call.function
        yield key, f"{call.column} is a {describe(kind)}: {name} needs {words}"


def _unknown(path: str, model: EventModel) -> str:
    known = model.paths()
    return f"{model.name} has no column {path}; " + did_you_mean(path, known, f"known: {', '.join(known)}")
