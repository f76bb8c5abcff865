"""Finds what was probably meant where a config says something else: tables by other names, variables in values.

What is meant is read on as such, so that a table by a wrong name is one problem and what is wrong in it is said
at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from processor.errors import Problem
from schemas.config import Settings
from schemas.config.reference import ENV_DELIMITER, ENV_PREFIX, declared, holds_secret, is_list
from schemas.near import near

if TYPE_CHECKING:
    from processor.config.lines import KeyPath

_VARIABLE = re.compile(r"\$\{[A-Za-z_][^}]*\}|\$[A-Za-z_][A-Za-z0-9_]*|%[A-Za-z_][A-Za-z0-9_]*%")
# Where a text with a dollar may be meant as it stands, it is no mistake: names of headers, JSON pointers.
_PLACES = (
    ("kafka",),
    ("worker", "state_dir"),
    ("aggregates", "output"),
    ("aggregates", "checkpoint"),
    ("aggregates", "aside"),
    ("batches", "input", "path"),
    ("batches", "output", "path"),
    ("batches", "duplicates"),
    ("batches", "quarantine"),
)


def by_declared_names(tables: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str], list[Problem]]:
    """Return the tables of a file by the names that are declared, what they are called there, and mistakes."""
    taken = {name: table for name, table in tables.items() if name in Settings.model_fields}
    called: dict[str, str] = {}
    problems: list[Problem] = []
    for name, table in tables.items():
        if name in Settings.model_fields:
            continue
        meant = near(name, Settings.model_fields)
        if not meant or meant in taken or not isinstance(table, dict | list):
            taken[name] = table
            continue
        listed = any(map(is_list, declared((meant,))))
        right = f"[[{meant}]]" if listed else f"[{meant}]"
        problems.append(Problem(name, f"is not a known key; did you mean {meant}? Write {right}"))
        taken[meant] = [table] if listed and isinstance(table, dict) else table
        called[meant] = name
    return taken, called, problems


def unexpanded(tables: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path of each value with a variable in it that its writer wanted replaced, and our own variable.

    A secret may have a dollar in it: there only what is a variable as a whole counts.
    """
    for path, text in _texts(tables, ()):
        plain = tuple(step for step in path if isinstance(step, str))
        secret = any(map(holds_secret, declared(path)))
        found = _VARIABLE.fullmatch(text) if secret else _VARIABLE.search(text)
        if found and any(plain[: len(place)] == place for place in _PLACES):
            yield path, ENV_PREFIX + ENV_DELIMITER.join(map(str, path)).upper()


def _texts(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _texts(below, (*path, key))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from _texts(below, (*path, number))
    elif isinstance(value, str):
        yield path, value
