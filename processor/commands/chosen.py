"""Finds the pipelines that the option `--pipeline` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import ConfigError, Problem

if TYPE_CHECKING:
    from schemas.config import Pipeline, Settings


def chosen_pipelines(settings: Settings, name: str | None) -> list[Pipeline]:
    """Return the pipeline of this name; None: all of them.

    Raises:
        ConfigError: There is none of this name; says which there are.
    """
    chosen = [pipeline for pipeline in settings.pipelines if name in {None, pipeline.name}]
    if not chosen:
        known = ", ".join(pipeline.name for pipeline in settings.pipelines)
        raise ConfigError([Problem("--pipeline", f"there is no pipeline {name}; in this config: {known}")])
    return chosen
