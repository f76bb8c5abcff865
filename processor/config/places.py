"""Says where in a config something stands: line or variable, and elements of lists by their name."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from processor.config.echo import quoted, secret_text
from processor.errors import Place, Problem
from schemas.config.reference import declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from processor.config.environment import Variable
    from processor.config.lines import KeyPath

_BARE = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""What TOML takes as a key without quotes; of any length there, here of one that is fit to be shown."""
_REFERENCE = re.compile(r"\b([a-z]+)\.([0-9]+)\b")


class KeyPlaces:
    """The keys of one config.

    Args:
        file: As its user called it.
        lines: Of the file, by path as it is written there.
        tables: File and environment as one, by the names that are declared.
        variables: Those that override a key.
        written: Top-level tables that the file calls otherwise than they are declared.
    """

    def __init__(
        self,
        file: str,
        lines: Mapping[KeyPath, int],
        tables: Mapping[str, Any],
        variables: Iterable[Variable] = (),
        written: Mapping[str, str] | None = None,
    ) -> None:
        self._file = file
        self._lines = lines
        self._variables = tuple(variables)
        self._written = written or {}
        self._names = {
            table: _names(elements) for table, elements in tables.items() if isinstance(elements, list)
        }

    def place(self, path: KeyPath) -> Place:
        """Return where a key stands, or would stand."""
        table, *below = path
        named: list[str | int] = [self._written.get(str(table), table), *below]
        element = ""
        if below and isinstance(below[0], int) and (name := self._name(str(table), below[0])):
            named[1] = element = name
        variable = self._variable(path)
        line = None if variable else self._line(path)
        return Place(dotted(named), element, self._file, line, variable)

    def located(self, problem: Problem) -> Problem:
        """Return a problem that speaks of elements by their names, and one of a config key with its place."""
        if problem.place is not None:
            return problem
        path = self._path(problem.key)
        message = self.by_name(problem.message)
        if not declared(path):
            return replace(problem, message=message)
        return replace(problem, key=dotted(path), message=message, place=self.place(path))

    def by_name(self, text: str) -> str:
        """Call the elements that a message speaks of by their names."""

        def named(match: re.Match[str]) -> str:
            table, number = match[1], int(match[2])
            name = self._name(table, number)
            return f"{self._written.get(table, table)}.{name or number}" if table in self._names else match[0]

        return _REFERENCE.sub(named, text)

    def _name(self, table: str, number: int) -> str:
        names = self._names.get(table, [])
        return names[number] if number < len(names) else ""

    def _path(self, key: str) -> KeyPath:
        table, *below = key.split(".")
        names = self._names.get(table, [])
        if below and below[0] in names:
            below[0] = str(names.index(below[0]))
        return table, *(int(step) if step.isdecimal() else step for step in below)

    def _variable(self, path: KeyPath) -> str:
        """Return the variable that gave a key's value, or gave what is in a table that is not in the file."""
        outer = [each.name for each in self._variables if path[: len(each.path)] == each.path]
        if outer:
            return outer[-1]
        inner = [each.name for each in self._variables if each.path[: len(path)] == path]
        return "" if self._as_written(path) in self._lines else ", ".join(inner)

    def _line(self, path: KeyPath) -> int | None:
        """Return the line of a key, or of the table that it is missing in."""
        here = self._as_written(path)
        return next((self._lines[here[:n]] for n in range(len(here), 0, -1) if here[:n] in self._lines), None)

    def _as_written(self, path: KeyPath) -> KeyPath:
        table, *below = path
        table = self._written.get(str(table), table)
        # One table where a list of tables belongs is taken as its first element.
        if below[:1] == [0] and (table, 0) not in self._lines and (table,) in self._lines:
            del below[0]
        return table, *below


def dotted(path: Iterable[str | int]) -> str:
    """Return a key as TOML writes it; what of it may hold a secret is hidden."""
    return ".".join(step if _BARE.fullmatch(step) else _quoted(step) for step in map(str, path))


def _quoted(key: str) -> str:
    """Return a key that TOML wants in quotes; one that may hold a secret is hidden."""
    return "(a key that may hold a secret)" if secret_text(key) else quoted(key)


def _names(elements: list[Any]) -> list[str]:
    """Return the elements' names; empty where one has none, a wrong one, or that of another."""
    given = [each.get("name") if isinstance(each, dict) else None for each in elements]
    names = [name if isinstance(name, str) else "" for name in given]
    times = Counter(names)
    return [
        name if times[name] == 1 and _BARE.fullmatch(name) and not name.isdecimal() else "" for name in names
    ]
