"""Writes an event model down as JSON, and reads it again: what judged a batch has to judge it once more."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from schemas.event.model import EventModel
from schemas.event.types import (
    BoolType,
    DateType,
    DecimalType,
    FieldType,
    FloatType,
    IntType,
    ListType,
    MapType,
    Member,
    ObjectType,
    TextType,
    TimestampType,
)

_KINDS: dict[str, type[FieldType | Member]] = {
    "text": TextType,
    "bool": BoolType,
    "int": IntType,
    "float": FloatType,
    "decimal": DecimalType,
    "timestamp": TimestampType,
    "date": DateType,
    "list": ListType,
    "map": MapType,
    "member": Member,
    "object": ObjectType,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def written_model(model: EventModel) -> dict[str, Any]:
    """Return a model as JSON."""
    return {"name": model.name, "root": _written(model.root)}


def read_model(written: dict[str, Any]) -> EventModel:
    """Return the model that `written_model` has written.

    Raises:
        ValueError: It is none.
    """
    try:
        root = _read(written["root"])
        name = written["name"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no event model that this build reads ({error!r})") from error
    if not isinstance(root, ObjectType) or not isinstance(name, str):
        raise ValueError("no event model that this build reads")  # noqa: TRY004 - of what was read
    return EventModel(name, root)


def _written(value: Any) -> Any:
    if type(value) in _NAMES:
        told = {each.name: _written(getattr(value, each.name)) for each in fields(value)}
        return {"kind": _NAMES[type(value)], **told}
    if isinstance(value, dict):  # members: a list, for their names may be anything
        return [[name, _written(each)] for name, each in value.items()]
    return list(value) if isinstance(value, tuple) else value


def _read(written: Any) -> Any:
    if not isinstance(written, dict):
        return tuple(written) if isinstance(written, list) else written
    told = {name: value for name, value in written.items() if name != "kind"}
    kind = _KINDS[written["kind"]]
    if kind is ObjectType:
        members = {name: _read(each) for name, each in told.pop("members")}
        return ObjectType(members=members, **{name: _read(each) for name, each in told.items()})
    return kind(**{name: _read(each) for name, each in told.items()})
