"""What of an aggregate's config has no effect on how its events are read is said."""

from __future__ import annotations

import tomllib
from pathlib import Path

from schemas.config import Settings
from spark_sink.query.partial_rows import ReadingWay, why_unbounded
from spark_sink.source.partials import PartialPlan

AGGREGATES = (Path(__file__).parents[3] / "examples" / "aggregates.toml").read_text(encoding="utf-8")
BY_KERNELS, BY_SPARK = ReadingWay(PartialPlan([], 0, 60_000, [], [], None)), ReadingWay(None, "sessions")


def test_a_bound_that_was_set_over_a_checkpoint_that_the_kernels_began_is_said_to_be_unused() -> None:
    sink = Settings.model_validate(tomllib.loads(AGGREGATES)).aggregates[0]

    told = why_unbounded(sink, BY_KERNELS, 1000)
    assert told is not None
    assert told.startswith(f"max_offsets_per_trigger is not used: {sink.checkpoint} was begun by Seqmark's own")
    assert why_unbounded(sink, BY_KERNELS, None) is None
    assert why_unbounded(sink, BY_SPARK, 1000) is None
