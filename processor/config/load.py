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
    settings: Settings | None = None
    try:
        settings = _both(raw)()
    except ValidationError as error:
        problems += list(_problems(error, given))
    if problems or settings is None:
        raise ConfigError(list(dict.fromkeys(problems)))
    return settings


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


def sink_problems(settings: Settings) -> list[Problem]:
    """Return everything in which the sinks and their event models do not fit. Imports those models."""
    return [Problem(key, message) for key, message in sink_faults(settings)]


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

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return a top-level table, as pydantic-settings asks for it."""
        return self._raw.get(field.alias or field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return everything, unknown keys included: the model refuses them."""
        return self._raw


def _both(raw: dict[str, Any]) -> Callable[[], Settings]:
    class FileAndEnvironment(Settings, BaseSettings):
        model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del init_settings, env_settings, dotenv_settings, file_secret_settings
            return (_Merged(settings_cls, raw),)

    # The fields are given by the source, not by the caller.
    return cast("Callable[[], Settings]", FileAndEnvironment)


def _read(path: Path) -> dict[str, Any]:
    key = str(path)
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise ConfigError([Problem(key, "there is no such file")]) from None
    except UnicodeDecodeError as error:
        problem = Problem(key, f"is not UTF-8 at byte {error.start}: save it as UTF-8")
        raise ConfigError([problem]) from None
    except OSError as error:
        raise ConfigError([Problem(key, f"cannot be read: {error.strerror}")]) from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # tomllib's text ends in "(at line 3, column 7)" and shows single characters and keys, no values.
        raise ConfigError([Problem(key, f"is not valid TOML: {error}")]) from None


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
        kind = details["type"]
        at = place(details["loc"])
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
        right = f"is missing: {at.description()}"
    elif kind == "extra_forbidden":
        others = sorted(OTHERWISE) if len(at.path) == 1 else []
        right = f"is not a known key; {nearest(key, at.known_keys() + others)}"
    elif kind == "union_tag_not_found":
        tags = " or ".join(f'"{tag}"' for each in declared(at.path) for tag in variants(each))
        right = f"is missing: {tags}, it says which keys belong here"
    elif kind == "union_tag_invalid":
        right = f"must be one of {context['expected_tags']}".replace("'", '"')
    elif kind == "list_type" and key in Settings.model_fields:
        right = f"must be a list of tables: write [[{key}]]"
    else:
        right = _RIGHT.get(kind, text)
        if kind in _RIGHT:
            right = right.format(**context).replace("'", '"')
    return right


def nearest(key: str, known: list[str]) -> str:
    """Return a suggestion: the known key that looks most like this one, or all that are known."""
    close = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"


def _origin(path: tuple[str | int, ...], given: list[Variable]) -> str:
    names = [
        each.name for each in given if each.path[: len(path)] == path or path[: len(each.path)] == each.path
    ]
    return f" (environment variable {', '.join(names)})" if names else ""
