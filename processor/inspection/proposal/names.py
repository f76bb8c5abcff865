"""Names topics, pipeline and application after the source topic."""

from __future__ import annotations

import re
from typing import NamedTuple

_RAW = re.compile(r"(?P<base>.*[A-Za-z0-9])(?P<mark>[._-])(raw|in|input|source|src|dirty|incoming|inbound)")
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 80
"""Twice that and a suffix are the name of an internal topic, which Kafka bounds to 249."""
_LONGEST_BASE = 220


class PipelineNames(NamedTuple):
    """The names that a pipeline needs."""

    pipeline: str
    """Of the pipeline and of the application."""
    sink: str
    duplicates: str
    quarantine: str

    @classmethod
    def after(cls, topic: str) -> PipelineNames:
        """Return the names for a source: ``clicks.raw`` is cleaned into ``clicks.clean``."""
        match = _RAW.fullmatch(topic)
        base = match["base"] if match else topic
        mark = match["mark"] if match else next((each for each in ".-_" if each in topic), ".")
        name = _OTHER.sub("-", base).strip("-_")[:_LONGEST_NAME] or "pipeline"
        outputs = (f"{base[:_LONGEST_BASE]}{mark}{kind}" for kind in ("clean", "duplicates", "quarantine"))
        return cls(name, *outputs)

    @property
    def outputs(self) -> tuple[str, str, str]:
        """The topics that the pipeline writes."""
        return self.sink, self.duplicates, self.quarantine
