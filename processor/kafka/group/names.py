"""Names groups that are not the workers'."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.config import Pipeline, Settings


def materialize_group(settings: Settings, pipeline: Pipeline) -> str:
    """Return the group that holds how far `seqmark materialize` has come in a topic of verdicts."""
    return f"{settings.worker.application_id}-{pipeline.name}-materialize"
