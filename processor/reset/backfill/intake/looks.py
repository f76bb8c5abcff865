"""Looks at a pipeline before its history is read: what can be refused now is not found out hours later."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from processor.engine.ids.clock import NEVER
from processor.errors import StopError
from processor.reset.backfill.intake.cuts import chosen_cuts
from processor.reset.backfill.load import BackfillLoad
from processor.reset.backfill.staging import StagedPartition, Staging
from processor.reset.context import connected

if TYPE_CHECKING:
    from processor.reset.backfill.intake.cuts import CutChoice
    from processor.reset.context import ResetContext
    from schemas.config import Pipeline, Settings

AGAIN = "run the same backfill again"


class Goal(NamedTuple):
    """What a history is to become.

    Attributes:
        cuts: By partition of the source; None: the history's offsets will say it.
        definition: 16 bytes, what the pipeline judges by.
        loaded: The partitions that have the state of a backfill of this name already.
        whole: Whether nothing is left to be loaded.
        topic_id: The source's id, so that a topic that was made again is not taken for it.
        route: With ``route`` over how many partitions ids are sent; None: they stay in that of their record.
    """

    cuts: dict[int, int | None]
    definition: bytes
    loaded: list[int]
    whole: bool
    topic_id: bytes
    route: int | None

    @property
    def partitions(self) -> int:
        """How many the source has."""
        return len(self.cuts)


async def look_ahead(
    settings: Settings, pipeline: Pipeline, run: str, choice: CutChoice, *, has_offsets: bool
) -> Goal:
    """Refuse what the load would refuse, and find out where the stream goes on.

    Creates the topics that are missing, if the config lets it: the state will need its changelog.

    Args:
        settings: The whole config.
        pipeline: One of it.
        run: Name of the backfill.
        choice: What the user says of the cut.
        has_offsets: Whether the history's rows have offsets of the source.

    Raises:
        StopError: The pipeline is not stopped, has a state, or cannot be backfilled.
        ConfigError: The cut is not known, or of a partition that there is not.
    """
    create = settings.worker.create_topics
    async with connected(settings, pipeline, "backfill", AGAIN, create=create) as context:
        cuts = await chosen_cuts(context.reading, choice, has_offsets=has_offsets)
        work = BackfillLoad(context, _empty(context, run, {number: cut or 0 for number, cut in cuts.items()}))
        try:
            plan = await work.plan()
        finally:
            await work.close()
        loaded = [step.partition for step in plan.steps if step.whole]
        topic_id = context.client.ids.get(pipeline.source, b"")
        route = None if context.first is None else context.partitions
        return Goal(cuts, context.definition, loaded, plan.whole, topic_id, route)


def _empty(context: ResetContext, run: str, cuts: dict[int, int]) -> Staging:
    """Return what is staged of a history that has nothing."""
    pipeline, routed = context.pipeline, context.first is not None
    dedup = pipeline.id_dedup
    fingerprints = dedup is not None and dedup.fingerprint is not None
    parts = dict.fromkeys(range(context.partitions), 0) if routed else cuts
    return Staging(
        context.settings.worker.state_dir,
        run,
        pipeline.name,
        context.definition,
        bytes(16),
        fingerprints,
        {number: StagedPartition(number, cut, NEVER, 0, 0) for number, cut in parts.items()},
        sequences=dedup is None,
        cuts=cuts if routed else {},
    )


def require_one_history(goal: Goal, run: str, difference: str) -> None:
    """Refuse to load another history under the name of one of which a part is loaded.

    Raises:
        StopError: So it is.
    """
    if goal.loaded and (difference or not goal.whole):
        why = difference or "what was staged of it is gone"
        which = ", ".join(map(str, goal.loaded)) + ("" if goal.route is None else " of the sink")
        raise StopError(
            f"backfill {run} is loaded in partition {which} already, from another history ({why}): give what "
            "was given then, or see 'Beginning anew' in docs/operations.md"
        )
