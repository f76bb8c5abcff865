"""The choice of a mode: the one place that knows them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.judges.insert_id import InsertIdMode
from processor.judges.watermark import WatermarkMode
from schemas.config import InsertIdDedup, WatermarkDedup

if TYPE_CHECKING:
    from processor.judges.judge import Judge
    from processor.judges.mode import Mode
    from schemas.config import Pipeline


def mode_of(pipeline: Pipeline) -> Mode:
    """Return how the records of a pipeline are judged.

    The config has been checked: what this version cannot do was refused before.
    """
    match pipeline.dedup:
        case WatermarkDedup() as dedup:
            return WatermarkMode(dedup, pipeline.name)
        case InsertIdDedup() as dedup:
            return InsertIdMode(dedup)


def make_judge(pipeline: Pipeline) -> Judge:
    """Return a judge for one partition of a pipeline, with no state yet."""
    return mode_of(pipeline).judge()


def make_reset_judge(pipeline: Pipeline) -> Judge:
    """Return a judge by which a state is recomputed, with no state yet."""
    mode = mode_of(pipeline)
    return mode.clocked_judge() or mode.judge()


def renewals_said(pipeline: Pipeline) -> bool:
    """Whether the stored state says of each id when it was last renewed."""
    return mode_of(pipeline).dates_renewals
