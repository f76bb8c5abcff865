"""The choice of a mode: the one place that knows them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from processor.judges.insert_id import InsertIdMode
from processor.judges.watermark import WatermarkMode

if TYPE_CHECKING:
    from processor.judges.judge import Judge
    from processor.judges.mode import Mode
    from schemas.config import Pipeline

MODES: dict[str, type[Mode[Any]]] = {
    "watermark": WatermarkMode,
    "insert-id": InsertIdMode,
}
"""By ``mode`` in the table ``dedup``."""


def mode_of(pipeline: Pipeline) -> Mode[Any]:
    """Return how the records of a pipeline are judged.

    The config has been checked: what this version cannot do was refused before.
    """
    return MODES[pipeline.dedup.mode](pipeline.dedup, pipeline.name)


def make_judge(pipeline: Pipeline) -> Judge:
    """Return a judge for one partition of a pipeline, with no state yet."""
    return mode_of(pipeline).judge()
