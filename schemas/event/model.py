"""Loads the pydantic model that an aggregate names for the values of its topic.

Reads the model's core schema, which pydantic documents, and not its annotations: aliases, generics, unions and
constrained types have been resolved there. Invariant: a type that is derived here reads everything that the
model writes as JSON, or says of each value that it cannot; what would need a guess is refused by name.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from schemas import events
from schemas.event.derive import Derivation
from schemas.event.types import FieldType, ObjectType
from schemas.near import did_you_mean, near

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

_EXAMPLE = "schemas.events"
"""The module of the examples' models: ours, where the user has none of this name."""
_MOST_NAMES = 10
_NAME = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)")


class EventModelError(ValueError):
    """The model cannot be found, or a field of it cannot be read; says every fault."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(faults))


@dataclass(frozen=True, slots=True)
class EventModel:
    """A pydantic model as a reader of JSON sees it."""

    name: str
    """``MODULE:CLASS``."""
    root: ObjectType

    @classmethod
    def load(cls, name: str) -> EventModel:
        """Import a model and derive its fields.

        Modules are looked for where Python looks, and last in the working folder, which a program that was
        installed would not search. The examples' `schemas.events` is ours where the user has none: a wheel has
        our modules below ``seqmark``, and leaves ``schemas`` to him.

        Args:
            name: ``MODULE:CLASS``.

        Raises:
            EventModelError: There is no such model, or it has fields that cannot be read.
        """
        model = _imported(name)
        return cls.of(model, name)

    @classmethod
    def of(cls, model: type[BaseModel], name: str | None = None) -> EventModel:
        """Derive the fields of a model that is at hand.

        Raises:
            EventModelError: It has fields that cannot be read; every one is named.
        """
        derivation = Derivation(model)
        derived = derivation.run()
        if derivation.faults or derived is None:
            raise EventModelError(derivation.faults)
        return cls(name or f"{model.__module__}:{model.__qualname__}", derived)

    @property
    def fields(self) -> Mapping[str, FieldType]:
        """The types of the fields by their names in JSON, in the model's order."""
        return {name: member.type for name, member in self.root.members.items()}

    def resolve(self, path: str) -> FieldType | None:
        """Return the type of a column such as ``user.country``; None: there is no such column.

        It is nullable where anything on the way to it may be null.
        """
        found: FieldType = self.root
        nullable = False
        for step in path.split("."):
            if not isinstance(found, ObjectType) or step not in found.members:
                return None
            found = found.members[step].type
            nullable = nullable or found.nullable
        return replace(found, nullable=nullable)

    def paths(self) -> list[str]:
        """Return every column there is, objects included."""
        return list(_paths(self.root, ""))


def _paths(kind: ObjectType, prefix: str) -> list[str]:
    found = []
    for name, member in kind.members.items():
        found.append(prefix + name)
        if isinstance(member.type, ObjectType):
            found += _paths(member.type, f"{prefix}{name}.")
    return found


def _imported(name: str) -> type[BaseModel]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise EventModelError([f"{name} is not MODULE:CLASS"])
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        module = _module(match["module"])
    except Exception as error:  # a module of the user's own may raise anything
        raise EventModelError([_unimportable(match["module"], error)]) from error
    model = getattr(module, match["name"], None)
    if model is None:
        raise EventModelError([f"{match['module']} has no {match['name']}; {_models(module, match['name'])}"])
    if not _is_model(model):
        raise EventModelError([f"{name} is no pydantic model; {_models(module, match['name'])}"])
    found: type[BaseModel] = model
    return found


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if name == _EXAMPLE and _is_missing(name, error):
            return events
        raise


def _is_missing(module: str, error: Exception) -> bool:
    """Say whether it is the module itself that is not there, or a package that it is in."""
    return isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")


def _unimportable(module: str, error: Exception) -> str:
    if _is_missing(module, error):
        near = _near_module(str(getattr(error, "name", module)))
        return f"there is no module {module}{near}: install it, or put its folder on PYTHONPATH"
    return f"{module} cannot be imported: {type(error).__name__}: {error}"


def _models(module: ModuleType, meant: str) -> str:
    """Return which model of a module may be meant, or those that there are."""
    known = [key for key, each in vars(module).items() if _is_model(each)]
    some = ", ".join([*known[:_MOST_NAMES], *["…"][: len(known) > _MOST_NAMES]])
    there = f"models in it: {some}" if known else "there is no model in it"
    return f"{did_you_mean(meant, known)} {there}".lstrip()


def _near_module(missing: str) -> str:
    """Return in words which module may be meant by one that is missing; nothing where none is like it."""
    package, _, last = missing.rpartition(".")
    # What is missing is below a package that was found: the import of that went well.
    places = getattr(sys.modules.get(package), "__path__", None) if package else None
    close = near(last, [each.name for each in pkgutil.iter_modules(places)])
    return f" (did you mean {f'{package}.{close}' if package else close}?)" if close else ""


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel) and value is not BaseModel
