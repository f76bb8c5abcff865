"""Reads the settings of this process, and names everything that is wrong with them.

File and environment are read as one: the environment overrides the file key by key, lists by index, and
what comes out is checked once, by the models of `schemas.config`. Invariant: a message names keys and what
would be right, never a value; a value may be a secret, even where none belongs.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from typing_extensions import override

from processor.config.environment import OTHERWISE, Variable, overlay, variables
from processor.errors import ConfigError, Problem
from schemas.config import InsertIdDedup, Settings
from schemas.config.reference import ConfigPath, declared, place, variants
from schemas.event import sink_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from pydantic.fields import FieldInfo

_LATER = "is not available in this version yet"
# pydantic's error type -> what would be right; {...} are taken from the error's context.
_RIGHT = {
    "literal_error": "must be {expected}",
    "union_tag_invalid": "must be one of {expected_tags}",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "too_short": "must have at least {min_length} element",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "path_type": "must be a string: a path",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
}


def load(path: Path, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read a config file, with the environment laid over it.

    Raises:
        ConfigError: With every problem at once, each with its dotted key and, where the value came from
            there, the environment variable. Values are never repeated.
    """
    written, twice = _by_declared_names(_read(path))
    given, problems = variables(environ)
    problems += twice
    raw, more = overlay(written, given)
    problems += more
    try:
        settings = _both(raw)()
        if not problems:
            return settings
    except ValidationError as error:
        problems += _problems(error, given)
    raise ConfigError(list(dict.fromkeys(problems)))


def require_provable(settings: Settings, names: Collection[str]) -> None:
    """Refuse to prove pipelines that cannot be yet: routed ones, and those of unconfirmed Bloom filters.

    Raises:
        ConfigError: With every such pipeline.
    """
    # Verdicts of unconfirmed filters do not follow from the rules.
    unconfirmed = [
        Problem(f"pipelines.{index}.dedup.bloom.confirm", f"verify of a pipeline without it {_LATER}")
        for index, dedup in _with_ids(settings, names)
        if dedup.backend == "bloom" and not dedup.bloom_options.confirm
    ]
    _refuse(_routed(settings, "verify", names) + unconfirmed)


def require_unrouted(settings: Settings, what: str, names: Collection[str]) -> None:
    """Refuse pipelines with ``route``, where a command does not know them yet.

    Raises:
        ConfigError: With every such pipeline.
    """
    _refuse(_routed(settings, what, names))


def _routed(settings: Settings, what: str, names: Collection[str]) -> list[Problem]:
    return [
        Problem(f"pipelines.{index}.dedup.route", f"{what} of a pipeline with route {_LATER}")
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


def require_sinks(settings: Settings) -> None:
    """Refuse sinks that do not fit their event models; imports those models.

    Raises:
        ConfigError: With everything that does not fit.
    """
    _refuse([Problem(key, message) for key, message in sink_faults(settings)])


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


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        message = "there is no such file"
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 at byte {error.start}: save it as UTF-8"
    except tomllib.TOMLDecodeError as error:
        # tomllib's text ends in "(at line 3, column 7)" and shows single characters and keys, no values.
        message = f"is not valid TOML: {error}"
    raise ConfigError([Problem(str(path), message)])


def _by_declared_names(written: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Return the tables by the names that are declared, and those that are written by both."""
    twice = [
        Problem(other, f"is another name of {name}, which is there too: write all of them by one")
        for other, name in OTHERWISE.items()
        if other in written and name in written
    ]
    return {OTHERWISE.get(name, name): table for name, table in written.items()}, twice


def _problems(error: ValidationError, given: list[Variable]) -> Iterator[Problem]:
    for details in error.errors(include_url=False, include_input=False):
        context: dict[str, Any] = details.get("ctx", {})
        kind, at = details["type"], place(details["loc"])
        path = at.path
        if kind in {"union_tag_invalid", "union_tag_not_found"}:
            # The error is the table's; what is wrong is the key that chooses its form.
            # pydantic calls it 'mode', or 'from_' | 'from' where the key is a word of Python.
            path = (*path, str(context["discriminator"]).split("|")[-1].strip(" '"))
        message = _message(kind, str(details["msg"]), context, at)
        yield Problem(".".join(map(str, path)), message + _origin(path, given))


def _message(kind: str, text: str, context: Mapping[str, Any], at: ConfigPath) -> str:
    key = str(at.path[-1])
    if kind == "missing":
        return f"is missing: {at.description()}"
    if kind == "extra_forbidden":
        others = sorted(OTHERWISE) if len(at.path) == 1 else []
        return f"is not a known key; {nearest(key, at.known_keys() + others)}"
    if kind == "union_tag_not_found":
        tags = " or ".join(f'"{tag}"' for each in declared(at.path) for tag in variants(each))
        return f"is missing: {tags}, it says which keys belong here"
    if kind == "list_type" and key in Settings.model_fields:
        return f"must be a list of tables: write [[{key}]]"
    return _RIGHT[kind].format(**context).replace("'", '"') if kind in _RIGHT else text


def nearest(key: str, known: list[str]) -> str:
    """Return a suggestion: the known key that looks most like this one, or all that are known."""
    close = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"


def _origin(path: tuple[str | int, ...], given: list[Variable]) -> str:
    names = [
        each.name for each in given if each.path[: len(path)] == path or path[: len(each.path)] == each.path
    ]
    return f" (environment variable {', '.join(names)})" if names else ""
