"""Writes the recommended config: the config as it is, with another ``dedup``, and the reasons above it."""

from __future__ import annotations

import os
import re
import textwrap
import tomllib
from typing import TYPE_CHECKING, Any

from processor.config.echo import secret_name, secret_text
from processor.config.visible import visible
from processor.inspection.proposal.toml_text import toml_text
from schemas.config.reference import ENV_DELIMITER, ENV_PREFIX, declared, holds_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from processor.config.lines import KeyPath
    from processor.inspection.simulate.recommend import Recommendation
    from schemas.config import Settings

_COLUMNS = 100
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def why_not(config: Path, settings: Settings) -> str | None:
    """Return why the config cannot be written with another dedup: where pipelines are not in it; None: it can.

    What the environment says of a dedup would be stronger than what is written.
    """
    tables = tomllib.loads(config.read_text(encoding="utf-8")).get("pipelines", [])
    every = f"{ENV_PREFIX}PIPELINES"
    for number, pipeline in enumerate(settings.pipelines):
        one = f"{every}{ENV_DELIMITER}{number}"
        dedup = f"{one}{ENV_DELIMITER}DEDUP"
        for variable in os.environ:
            name = variable.upper()
            if name in (every, one, dedup) or name.startswith(dedup + ENV_DELIMITER):
                return f"{variable} in the environment would be stronger than what is written: unset it"
        if number >= len(tables) or "dedup" not in tables[number]:
            return f"pipeline {pipeline.name} (pipelines[{number}]) has no table dedup in {config}"
    return None


def recommended_text(config: Path, settings: Settings, chosen: Mapping[str, Recommendation]) -> str:
    """Return the config with what is recommended for some of its pipelines, by their names.

    Remarks of the config are not kept, and neither are secrets: those come from the environment then.
    """
    tables = tomllib.loads(config.read_text(encoding="utf-8"))
    lines = [
        "# Written by `seqmark simulate`: the config that it was given, with what it recommends.",
        "# Where a pipeline has run with another dedup already, `seqmark reset` rebuilds its state.",
    ]
    for name, table in tables.items():
        if name == "pipelines":
            for number, element in enumerate(table):
                better = chosen.get(settings.pipelines[number].name)
                lines += ["", "[[pipelines]]", *_pipeline(element, number, better)]
        elif isinstance(table, list):
            for number, element in enumerate(table):
                lines += ["", f"[[{name}]]", *_keys(element, (name, number))]
        else:
            lines += ["", f"[{name}]", *_keys(table, (name,))]
    return "\n".join(lines) + "\n"


def _pipeline(table: Mapping[str, Any], number: int, chosen: Recommendation | None) -> Iterator[str]:
    yield from _keys({key: value for key, value in table.items() if key != "dedup"}, ("pipelines", number))
    yield ""
    yield "[pipelines.dedup]"
    for reason in chosen.reasons if chosen else ():
        yield from textwrap.wrap(visible(reason), _COLUMNS, initial_indent="# ", subsequent_indent="# ")
    dedup = chosen.dedup if chosen else table["dedup"]
    yield from _keys(dedup, ("pipelines", number, "dedup"))


def _keys(table: Mapping[str, Any], path: KeyPath) -> Iterator[str]:
    for key, value in table.items():
        below = (*path, key)
        if _is_secret(below, value):
            variable = ENV_PREFIX + ENV_DELIMITER.join(map(str, below)).upper()
            yield f"# {_key(key)}: a secret, which is not copied; from the environment: {variable}"
        else:
            yield f"{_key(key)} = {toml_text(value)}"


def _is_secret(path: KeyPath, value: Any) -> bool:
    """Whether a value is a secret, or has one in it."""
    if isinstance(value, dict):
        return any(_is_secret((*path, key), each) for key, each in value.items())
    if isinstance(value, list):
        return any(_is_secret((*path, number), each) for number, each in enumerate(value))
    if any(map(holds_secret, declared(path))) or secret_name(str(path[-1])):
        return True
    return isinstance(value, str) and secret_text(value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else toml_text(key)
