"""The choice of a mode: the one place that knows them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from processor.judges.insert_id import InsertIdMode
from processor.judges.watermark import WatermarkMode

if TYPE_CHECKING:
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
