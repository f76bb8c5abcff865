"""Reads the settings of this process, and names everything that is wrong with them.

File and environment are read as one: the environment overrides the file key by key, lists by index, and
what comes out is checked once, by the models of `schemas.config`. Invariant: a message names place and key,
what was given unless it may be a secret (`processor.config.echo`), and what would be right.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from typing_extensions import override

from processor.config.echo import Echo, quoted, secret_text
from processor.config.environment import overlay, variables
from processor.config.lines import key_lines
from processor.config.messages import message, suggestion
from processor.config.toml_file import read_toml
from processor.errors import ConfigError, Place, Problem
from schemas.config import InsertIdDedup, Settings
from schemas.config.reference import (
    ENV_DELIMITER,
    ENV_PREFIX,
    ConfigPath,
    declared,
    holds_secret,
    is_list,
    place,
)
from schemas.event import aggregate_faults
from schemas.near import near

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from pydantic.fields import FieldInfo

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


# What is meant is read on as such, so that a table by a wrong name is one problem and what is wrong in it
# is said at the same time.

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


_LATER = "is not available in this version yet"
_INSTEAD = {
    "verify": "name the other pipelines with --pipeline; seqmark explain proves single records of this one",
    "redrive": "produce the records to the source once more instead, without their seqmark headers",
    "reset": 'begin it again under a new name (docs/operations.md, "Beginning anew")',
}
"""What is done where a command does not know routes."""
_COPY_BY_HAND = "Produce it to the source once more instead, without its seqmark headers (docs/operations.md)"
_EXPANDS_NOTHING = "has a variable in it, and Seqmark does not expand variables: "
_OF_VARIABLES = "the environment variable has to hold the value itself"
_OF_FILES = "leave the key out, and set the environment variable that overrides it: "


def load(path: Path, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read a config file, with the environment laid over it.

    Raises:
        ConfigError: With every problem at once, each with its place: line or environment variable, and the
            name of the pipeline or aggregate that it is in.
    """
    config = _Given(path, environ)
    problems = config.problems
    try:
        settings = _both(config.tables)()
        if not problems:
            return settings
    except ValidationError as error:
        problems += config.problems_of(error)
    raise ConfigError(sorted(dict.fromkeys(problems), key=_order))


def located(problems: Iterable[Problem], path: Path, environ: Mapping[str, str] = os.environ) -> list[Problem]:
    """Return problems that were found after a config was read, with the places of their keys in it."""
    try:
        places = _Given(path, environ).places
    except ConfigError:
        return list(problems)
    return [places.located(problem) for problem in problems]


class _Given:
    """What a file and the environment say, before it is checked.

    Raises:
        ConfigError: The file cannot be read.
    """

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        written, text = read_toml(path)
        declared, called, renamed = by_declared_names(written)
        given, unknown = variables(environ)
        self.tables, unplaced = overlay(declared, given)
        self.places = KeyPlaces(str(path), key_lines(text), self.tables, given, called)
        self._echo = Echo(self.tables, environ)
        problems = [replace(each, place=self.places.place((each.key,))) for each in renamed]
        problems += [*unknown, *map(self.places.located, unplaced)]
        self._unexpanded = {
            where: _EXPANDS_NOTHING + (_OF_VARIABLES if self.places.place(where).variable else _OF_FILES + name)
            for where, name in unexpanded(self.tables)
        }
        problems += [self._problem(where, text) for where, text in self._unexpanded.items()]
        self.problems: list[Problem] = problems

    def problems_of(self, error: ValidationError) -> Iterator[Problem]:
        """Yield what the models refuse; what follows from another mistake is left out."""
        found = list(map(_Refused, error.errors(include_url=False, include_input=False)))
        # A key by a wrong name is not missing as well, nor needed by another.
        meant = {(*each.at.path[:-1], suggestion(each.at)) for each in found if each.kind == "extra_forbidden"}
        for each in found:
            path = each.at.path
            if path in self._unexpanded or (path in meant and self._echo.value(path) is None):
                continue
            yield self._problem(
                path, message(each.kind, each.text, each.context, each.at, self._echo), each.kind
            )

    def _problem(self, path: KeyPath, text: str, kind: str = "") -> Problem:
        text = self.places.by_name(text)
        # What an unknown key is for nobody knows: it may be a secret.
        shown = None if kind in {"extra_forbidden", "missing"} else self._echo.shown(path)
        if shown is not None and not (shown.startswith('"') and shown in text):
            text = f"{text.rstrip('.')}; given: {shown}"
        return Problem(dotted(path), text, self.places.place(path))


def _order(problem: Problem) -> float:
    """As the file has them; first what has no line."""
    return (problem.place and problem.place.line) or 0


class _Refused:
    """One error of pydantic's."""

    def __init__(self, details: Any) -> None:
        self.kind = str(details["type"])
        self.text = str(details["msg"])
        self.context: dict[str, Any] = details.get("ctx", {})
        self.at = place(details["loc"])
        if self.kind in {"union_tag_invalid", "union_tag_not_found"}:
            # The error is the table's; what is wrong is the key that chooses its form.
            # pydantic calls it 'mode', or 'from_' | 'from' where the key is a word of Python.
            key = str(self.context["discriminator"]).split("|")[-1].strip(" '")
            self.at = ConfigPath((*self.at.path, key), self.at.parents)


def require_provable(settings: Settings, names: Collection[str]) -> None:
    """Refuse to prove pipelines that cannot be yet: routed ones, and those of Bloom filters.

    Raises:
        ConfigError: With every such pipeline.
    """
    filtered = [
        Problem(
            f"pipelines.{index}.dedup.backend",
            "what Bloom filters drop does not follow from the rules, so nothing can be proved of it",
        )
        for index, dedup in _with_ids(settings, names)
        if dedup.backend == "bloom"
    ]
    _refuse(_routed(settings, "verify", names) + filtered)


def require_unrouted(settings: Settings, what: str, names: Collection[str]) -> None:
    """Refuse pipelines with ``route``, where a command does not know them yet.

    Raises:
        ConfigError: With every such pipeline.
    """
    _refuse(_routed(settings, what, names))


def require_redrivable(settings: Settings, names: Collection[str]) -> None:
    """Refuse pipelines whose quarantined records cannot be judged again.

    Raises:
        ConfigError: With every such pipeline.
    """
    problems = _routed(settings, "redrive", names)
    for index, pipeline in enumerate(settings.pipelines):
        if pipeline.name not in names:
            continue
        key = f"pipelines.{index}"
        if pipeline.quarantine is None:
            problems.append(Problem(f"{key}.quarantine", "there is none, so there is nothing to judge again"))
        if pipeline.verdicts is not None:
            problems.append(
                Problem(
                    f"{key}.output",
                    "verdicts say for good that readers skip a quarantined record: what is judged again could "
                    f"not reach them. {_COPY_BY_HAND}",
                )
            )
        if pipeline.observe:
            problems.append(
                Problem(
                    f"{key}.observe",
                    "while the pipeline observes all its records pass, quarantined ones too: set it to false",
                )
            )
    _refuse(problems)


def _routed(settings: Settings, what: str, names: Collection[str]) -> list[Problem]:
    return [
        Problem(f"pipelines.{index}.dedup.route", f"{what} of a pipeline with route {_LATER}; {_INSTEAD[what]}")
        for index, dedup in _with_ids(settings, names)
        if dedup.route is not None
    ]


def _with_ids(settings: Settings, names: Collection[str]) -> list[tuple[int, InsertIdDedup]]:
    return [
        (index, pipeline.id_dedup)
        for index, pipeline in enumerate(settings.pipelines)
        if pipeline.name in names and pipeline.id_dedup is not None
    ]


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise ConfigError(problems)


def require_aggregates(settings: Settings) -> None:
    """Refuse aggregates that do not fit their event models; imports those models.

    Raises:
        ConfigError: With everything that does not fit.
    """
    _refuse([Problem(key, message) for key, message in aggregate_faults(settings)])


def require_pipelines(settings: Settings) -> None:
    """Refuse a config without pipelines.

    Raises:
        ConfigError: There is no pipeline.
    """
    if not settings.pipelines:
        raise ConfigError([Problem("pipelines", "there is none: add a [[pipelines]] table")])


class _Merged(PydanticBaseSettingsSource):
    """File and environment as one source: pydantic-settings' own cannot override list elements."""

    def __init__(self, settings_cls: type[BaseSettings], raw: dict[str, Any]) -> None:
        super().__init__(settings_cls)
        self._raw = raw

    @override
    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._raw.get(field_name), field_name, False

    @override
    def __call__(self) -> dict[str, Any]:
        return self._raw  # unknown keys included: the model refuses them


def _both(raw: dict[str, Any]) -> Callable[[], Settings]:
    class FileAndEnvironment(Settings, BaseSettings):
        model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

        @classmethod
        @override
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            *_: PydanticBaseSettingsSource,
            **__: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (_Merged(settings_cls, raw),)

    # The fields are given by the source, not by the caller.
    return cast("Callable[[], Settings]", FileAndEnvironment)
