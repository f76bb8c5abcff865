"""Says of a topic that an aggregate reads and that does not exist who would write it, or which was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.near import alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from schemas.config.pipeline import Pipeline

_MOST_NAMES = 5


def absent_topic(topic: str, pipelines: Sequence[Pipeline], existing: Iterable[str]) -> str:
    """Return a sentence on a topic that does not exist, with what to do.

    Args:
        topic: The topic that is to be read.
        pipelines: Those of the config.
        existing: Names of topics that there are.
    """
    writers = {output: each.name for each in pipelines for output in each.outputs}
    if topic in writers:
        return (
            f"topic {topic} does not exist: pipeline {writers[topic]} writes it. Start its worker, or create "
            f"it with `seqmark topics`"
        )
    clean = {each.sink: each.name for each in pipelines if each.sink is not None}
    near = alike(topic, list(dict.fromkeys([*clean, *sorted(existing)])))
    if near:
        told = " or ".join(
            f"{each} (the clean topic of pipeline {clean[each]})" if each in clean else each for each in near
        )
        hint = f"did you mean {told}?"
    elif clean:
        more = ", …" if len(clean) > _MOST_NAMES else ""
        hint = f"clean topics of this config: {', '.join(list(clean)[:_MOST_NAMES])}{more}"
    else:
        hint = "there is no pipeline here: create it before, or name another topic"
    return f"topic {topic} does not exist, and no pipeline of this config writes it; {hint}"
