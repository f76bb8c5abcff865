"""Finds what options such as `--pipeline` name, and answers names that are not in the config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import ConfigError, Problem
from schemas.near import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.config import Pipeline, Settings


def chosen_pipelines(settings: Settings, name: str | None) -> list[Pipeline]:
    """Return the pipeline of this name; None: all of them.

    Raises:
        ConfigError: There is none of this name; says which was probably meant, and which there are.
    """
    chosen = [pipeline for pipeline in settings.pipelines if name in {None, pipeline.name}]
    if not chosen:
        raise no_such("--pipeline", "pipeline", name, [pipeline.name for pipeline in settings.pipelines])
    return chosen


def no_such(option: str, what: str, name: str | None, known: Sequence[str]) -> ConfigError:
    """Return the error of an option that names none of what the config has.

    Args:
        option: Such as ``--pipeline``.
        what: What it names, such as ``pipeline``.
        name: What was given; None: nothing, and there are several.
        known: The names in the config.
    """
    there = f"in this config: {listed(known)}"
    if name is None:
        return ConfigError([Problem(option, f"name one; {there}")])
    hint = f"{meant} I{there[1:]}" if (meant := did_you_mean(name, known)) else there
    return ConfigError([Problem(option, f"there is no {what} {name}; {hint}")])
