"""Tells whose a state is, and whether its topics are still those that it was made with.

Pure: a position record (`schemas.changelog`) and what is the case now in, nothing or a refusal out. A state of
another application, or of topics that were deleted and made anew, is never gone on with: records would be
skipped, or judged by what somebody else remembers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from processor.errors import StopError

if TYPE_CHECKING:
    from schemas.changelog import Position


def foreign(position: Position, application: str, pipeline: str) -> str | None:
    """Say whose state ``position`` is of, where it is not of this pipeline; None where it is, or nobody knows.

    Args:
        position: From a changelog.
        application: Name of the application that is at work.
        pipeline: Name of its pipeline or hop.
    """
    if not position.application or (position.application, position.pipeline) == (application, pipeline):
        return None
    return (
        f"holds the state of application {position.application}, pipeline {position.pipeline}, and not of "
        f"application {application}, pipeline {pipeline}: their names run together, so that their internal "
        "topics and transactional ids have the same names. Give the application or the pipeline another name"
    )


def require_own(position: Position, application: str, pipeline: str, changelog: str) -> None:
    """Look whether a state is that of this pipeline.

    Raises:
        StopError: It is another's; says whose, and what to do.
    """
    text = foreign(position, application, pipeline)
    if text is not None:
        raise StopError(f"{changelog} {text}; see 'Names that run together' in docs/operations.md.")
