"""The choice of a judge: the one place that knows all modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.judges.bloom import BloomIds
from processor.judges.exact import ExactIds
from processor.judges.watermark import make_watermark_judge
from schemas.config import InsertIdDedup, WatermarkDedup

if TYPE_CHECKING:
    from processor.judges.judge import Judge
    from schemas.config import Pipeline


def make_judge(pipeline: Pipeline) -> Judge:
    """Return a judge for one partition of ``pipeline``, with no state yet.

    The config has been checked: what this version cannot do was refused before.
    """
    match pipeline.dedup:
        case WatermarkDedup() as dedup:
            return make_watermark_judge(dedup, f"the changelog of pipeline {pipeline.name}")
        case InsertIdDedup(backend="exact") as dedup:
            return ExactIds(dedup)
        case InsertIdDedup() as dedup:
            return BloomIds(dedup)


def make_reset_judge(pipeline: Pipeline) -> Judge:
    """Return a judge by which a state is recomputed, with no state yet.

    Ids are judged by the exact backend whichever the worker has: the changelog of all is one, and a filter does
    not know whose ids it holds, which are to be written anew.
    """
    return ExactIds(pipeline.dedup) if isinstance(pipeline.dedup, InsertIdDedup) else make_judge(pipeline)


def renewals_said(pipeline: Pipeline) -> bool:
    """Whether the stored state says of each id when it was last renewed."""
    dedup = pipeline.dedup
    if not isinstance(dedup, InsertIdDedup) or dedup.backend == "exact" or not dedup.refresh:
        return True
    return dedup.bloom_options.confirm
