"""Resets a stopped pipeline as the command does, through kills, and says what that did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import StopError
from processor.reset.decide import ResetState, ToOffsets
from processor.reset.run import opened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.config import Settings

REFUSED = "nothing was changed:"


async def reset(
    settings: Settings, to: Mapping[int, int], *, forget: bool
) -> dict[int, tuple[ResetState, int]]:
    """Reset partitions of the only pipeline to offsets; return what became of each, and what it knows from.

    Raises:
        StopError: It was refused, or not done to its end.
    """
    (pipeline,) = settings.pipelines
    async with opened(settings, pipeline, create=True) as running:
        steps = await running.plan(ToOffsets(to), forget=forget, fence=True)
        return {
            step.partition: (step.state, step.known_from) async for step, _ in running.apply(steps, _ignore)
        }


def is_refusal(error: BaseException) -> bool:
    """Say whether a reset has looked at everything and was refused."""
    return isinstance(error, StopError) and str(error).startswith(REFUSED)


def _ignore(_: int) -> None:
    """Nobody looks how far it is."""
