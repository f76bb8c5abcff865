"""Tells whose a state is, and whether its topics are still those that it was made with.

Pure: a position record (`schemas.changelog.position`) and what is the case now in, nothing or a refusal out. A
state of another application, or of topics that were deleted and made anew, is never gone on with: records would
be skipped, or judged by what somebody else remembers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from processor.errors import StopError
from schemas.changelog.position import OutputEnds

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.changelog.position import Position
    from schemas.changelog.topic_ids import TopicId, TopicIds

SEE = "see 'A source made anew' in docs/operations.md"


def foreign(position: Position, application: str, pipeline: str) -> str | None:
    """Say whose state a position is of, where not of this pipeline or hop; None: it is, or nobody knows."""
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


def named(position: Position, now: TopicIds, application: str, pipeline: str) -> Position:
    """Return a position that says whose it is, and of which topics; one without names gets them.

    Where an output is another topic by now, nobody knows where that ends.
    """
    topics, then = position.topics.kept(now), position.topics
    outputs = zip(OutputEnds._fields, position.ends, strict=True)
    ends = OutputEnds(
        **{kind: end for kind, end in outputs if _is_still(getattr(then, kind), getattr(now, kind))}
    )
    return replace(position, topics=topics, application=application, pipeline=pipeline, ends=ends)


def _is_still(then: TopicId, now: TopicId) -> bool:
    return then.name_crc == now.name_crc and not then.is_other(now)


def refusal(
    position: Position,
    now: TopicIds,
    names: Callable[[str], str | None],
    where: str,
    reset: Callable[[str], str],
    verdicts: TopicId | None = None,
) -> str | None:
    """Say which of a state's topics is another than it was made with, and how to go on; None where none is.

    An output by another name is one that the config has been changed to. A source by another name is another
    topic all the same: the position means nothing in it.

    Args:
        position: The state's.
        now: The topics as they are.
        names: Name of a topic by its field in `TopicIds`.
        where: Source partition, for messages.
        reset: Says how the state is made anew, by the option that says from where.
        verdicts: The topic of verdicts as it is; None: there is none.
    """
    known = list(zip(now._fields, position.topics, now, strict=True))
    if verdicts is not None:
        known.append(("verdicts", position.verdicts, verdicts))
    for kind, old, new in known:
        if old.made_anew(new) or (kind == "source" and old.is_other(new)):
            return f"{where}: {_explained(kind, str(names(kind)), position, where, reset)}; {SEE}"
    return None


def _explained(kind: str, topic: str, position: Position, where: str, reset: Callable[[str], str]) -> str:
    here = f"--to-offset {where.rpartition(':')[2]}:{position.next_offset}"
    if kind == "source":
        return (
            f"topic {topic} is not the one that the state was made from: it was deleted and made anew, or the "
            f"config names another one, and offset {position.next_offset} says nothing about it. Nothing of it "
            f"was taken in. To begin it at its first record, with an empty state: {reset('--to-earliest')}"
        )
    if kind == "changelog":
        return (
            f"topic {topic}, the changelog, is not the one that the state was written to: it was deleted and "
            "made anew, or restored from a copy. To keep a state that was restored whole, or to have a lost "
            f"one recomputed from the source: {reset(here)}"
        )
    return (
        f"topic {topic}, the {kind}, is not the one that was written to: it was deleted and made anew. To go "
        f"on into the new one with the state as it is: {reset(here)}; to write all that the source retains "
        f"into it once more: {reset('--to-earliest')}"
    )
