"""Overrides keys from the environment: ``SEQMARK_`` + path, ``__`` between levels, lists by index.

A variable for a single value is taken as it stands. One for a table or a list is JSON or TOML:
``SEQMARK_PIPELINES__0__DEDUP__SEQUENCE={ from = "header", name = "seq" }``. An empty one for a table or a
list, or for a key that need not be set, takes the key away.
"""

from __future__ import annotations

import copy
import json
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from processor.config.bounds import OutOfBoundsError, within_bounds
from processor.config.messages import what_became
from processor.errors import Problem
from schemas.config.reference import (
    ENV_DELIMITER,
    ENV_PREFIX,
    declared,
    fields_by_key,
    is_list,
    is_single,
    is_word_or_table,
    keys,
    variants,
)
from schemas.near import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

# Read by tests, demo and the fault points, not by the config.
_RESERVED_PREFIXES = (f"{ENV_PREFIX}TEST_", f"{ENV_PREFIX}FAULT_")
_RESERVED_NAMES = (f"{ENV_PREFIX}BROKER", f"{ENV_PREFIX}BROKER_START_TIMEOUT")
_MOST_DIGITS = 9
"""Of an index: no list is longer."""


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that overrides a key."""

    name: str
    path: tuple[str | int, ...]
    text: str
    """May be a secret: never shown."""

    def __repr__(self) -> str:
        return f"Variable({self.name})"


def variables(environ: Mapping[str, str]) -> tuple[list[Variable], list[Problem]]:
    """Return the variables that override a key, the outer before the inner, and the unknown ones."""
    found: list[Variable] = []
    problems: list[Problem] = []
    for name in sorted(environ):
        reserved = name in _RESERVED_NAMES or name.startswith(_RESERVED_PREFIXES)
        if not name.startswith(ENV_PREFIX) or reserved:
            continue
        path = _path(name)
        if declared(path):
            found.append(Variable(name, path, environ[name]))
        else:
            told = what_became(path) or f"overrides no known key; {_nearest_variable(path)}"
            problems.append(Problem(name, told))
    return sorted(found, key=_order), problems


def overlay(written: Mapping[str, Any], given: list[Variable]) -> tuple[dict[str, Any], list[Problem]]:
    """Lay variables over the file's tables; returns a new tree and what cannot be placed or parsed."""
    raw = copy.deepcopy(dict(written))
    problems: list[Problem] = []
    for variable in given:
        try:
            _put(raw, variable)
        except ValueError as error:
            problems.append(Problem(".".join(map(str, variable.path)), str(error)))
    return raw, problems


def _order(variable: Variable) -> tuple[int, list[tuple[bool, str | int]]]:
    """A whole table first, then single keys in it; list elements by number, so that 10 follows 9."""
    return len(variable.path), [(isinstance(step, str), step) for step in variable.path]


def _path(name: str) -> tuple[str | int, ...]:
    first, *steps = name.removeprefix(ENV_PREFIX).lower().split(ENV_DELIMITER)
    return first, *(int(step) if _is_index(step) else step for step in steps)


def _is_index(step: str) -> bool:
    return step.isdecimal() and len(step) <= _MOST_DIGITS


def _put(raw: dict[str, Any], variable: Variable) -> None:
    types = declared(variable.path)
    node: Any = raw
    for step, following in zip(variable.path, variable.path[1:], strict=False):
        node = _step(node, step, [] if isinstance(following, int) else {})
    last = variable.path[-1]
    remove = not variable.text and _optional(variable.path)
    as_word = variable.text[:1] not in {"{", "["} and any(map(is_word_or_table, types))
    single = as_word or any(map(is_single, types))
    value = variable.text if single or remove else _parse(variable.text, types)
    _step(node, last, None)
    if remove:
        del node[last]
    else:
        node[last] = value


def _step(node: Any, step: str | int, empty: Any) -> Any:
    """Go one level down; what is not there yet is made."""
    if isinstance(step, int):
        if not isinstance(node, list):
            raise ValueError("is not a list in the file")  # noqa: TRY004 - a fault of the config
        if step > len(node):
            raise ValueError(f"skips an element: the next index is {len(node)}")
        if step == len(node):
            node.append(empty)
    elif not isinstance(node, dict):
        raise ValueError("is not a table in the file")  # noqa: TRY004 - a fault of the config
    else:
        node.setdefault(step, empty)
    return node[step]


def _parse(text: str, types: list[Any]) -> Any:
    try:
        for parse in (json.loads, _toml_value):
            with suppress(ValueError):
                return within_bounds(parse, text)
    except OutOfBoundsError as error:
        raise ValueError(str(error)) from None
    # Without the cause: it could show the value.
    wanted = "list" if any(map(is_list, types)) else "table"
    raise ValueError(f"must be a {wanted}, as JSON or TOML in one line")


def _toml_value(text: str) -> Any:
    return tomllib.loads(f"value = {text}")["value"]


def _optional(path: tuple[str | int, ...]) -> bool:
    """Return whether a key may be left out, in every variant that has it."""
    fields = [
        fields_by_key(model)[str(path[-1])]
        for above in declared(path[:-1])
        for model in variants(above).values()
        if path[-1] in fields_by_key(model)
    ]
    return bool(fields) and not any(field.is_required() for field in fields)


def _nearest_variable(path: tuple[str | int, ...]) -> str:
    """Suggest a variable with the indices of the one that was meant."""
    given = ENV_PREFIX + ENV_DELIMITER.join(map(str, path)).upper()
    indices = [str(step) for step in path if isinstance(step, int)]
    names = set()
    for key in keys():
        name = key.env
        for index in indices:
            name = name.replace("__N__", f"__{index}__", 1)
        names.add(name)
    return did_you_mean(given, sorted(names), "see docs/configuration.md for all of them")
